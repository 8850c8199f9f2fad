"""Question, scene and memory as the tokens of one sequence, and the columns that a token has.

    token          columns that are not zero
    null           null: where an attention that finds nothing looks
    memory i, a    slot i's code, age a's code; age 0 is where operations are executed and has a seat (the slot's code
                   again), older ones remember, and hold the code of the age before theirs
    operation      the seat and the step that it is for; what it asks for; where its parts come from
    object         the features that it shows

Numbers are Johnson codes, +1 and -1 in capacity / 2 columns: 0 is all +1, and for the next number all columns move on
by one, and the one that comes around changes its sign. Neighbours differ in one column, and counting is a matrix. The
columns are as many, however many slots, steps and ages there are, up to the capacity. Tokens have no positions: their
order does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.lab.iprm.questions import Question, QuestionStep
from headsmith.lab.iprm.schedule import Seat
from headsmith.lab.iprm.vocabulary import POSITION, Vocabulary, WordGroup

CODES = ("seat", "for_seat", "for_step", "slot", "age", "before")
"""Columns that hold codes of tokens."""
CODE = " code "
LEAST_CAPACITY = 8
"""Codes are made for this many slots, steps and ages, unless more are asked for: fewer share the same weights."""


@dataclass(frozen=True)
class Module:
    """The sizes and the words of one module. `objects` is how many a scene may have; without `composition` nothing
    passes from one step to the next."""

    slots: int
    steps: int
    window: int
    objects: int
    vocabulary: Vocabulary
    composition: bool = True

    @property
    def capacity(self) -> int:
        """How many different codes there are, an even number."""
        most = max(LEAST_CAPACITY, self.slots, self.steps, self.window + 1)
        return most + most % 2

    @property
    def digits(self) -> int:
        """How many columns a code has."""
        return self.capacity // 2

    @property
    def ages(self) -> int:
        """How many results of each slot are at hand: the last one, and `window` older ones."""
        return self.window + 1

    @property
    def tokens(self) -> int:
        """How many tokens a sequence may have."""
        return 1 + self.slots * self.ages + self.slots * self.steps + self.objects

    @property
    def demands(self) -> int:
        """One more than an operation may ask for: what a token without an operation asks for, and nothing has."""
        return self.vocabulary.demands + 1

    @property
    def compared(self) -> int:
        """How many results may be compared."""
        return min(self.capacity, self.slots * self.ages)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The columns of an operation."""
        asked = _named("ask", self.vocabulary.features)
        sources = self.coded(*(f"{part.name} / {code}" for part in self.vocabulary.parts for code in ("slot", "age")))
        return (*asked, "spare", *sources, *(("compare", *self.coded("tag")) if self.vocabulary.counts else ()))

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The columns of an object."""
        features, gives = self.vocabulary.features, self.vocabulary.gives
        return (
            *_named("is", features),
            *(_named("gives", [(gives.name, word) for word in gives.words]) if gives else ()),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All columns of a token. The first one's name tells the sizes, so that a saved model knows what it is."""
        sizes = {name: getattr(self, name) for name in ("slots", "steps", "window", "objects", "composition")}
        head = f"null {json.dumps({'task': self.vocabulary.task, **sizes}, separators=(',', ':'))}"
        return (head, *self.coded(*CODES), *self.fields, *self.shown)

    @cached_property
    def domain(self) -> list[tuple[float, float]]:
        """Where each column lies: codes in [-1, 1], everything else in [0, 1]."""
        return [(-1.0 if CODE in name else 0.0, 1.0) for name in self.names]

    def coded(self, *names: str) -> list[str]:
        """The columns of codes of these names."""
        return [f"{name}{CODE}{digit}" for name in names for digit in range(self.digits)]

    def code(self, number: int) -> Array:
        """The code of a slot, a step or an age."""
        digits = np.ones(self.digits)
        for _ in range(number):
            digits = self.next_code @ digits
        return digits

    @cached_property
    def next_code(self) -> Array:
        """The matrix that takes the code of a number to that of the next one."""
        matrix = np.eye(self.digits, k=-1)
        matrix[0, -1] = -1.0
        return matrix

    def memory_token(self, slot: int, age: int) -> int:
        """Where in the sequence a slot's result of this age stands."""
        return 1 + age * self.slots + slot


def module_of(names: Sequence[str]) -> Module | None:
    """The module whose columns have these names; None if they are those of another model."""
    kind, _, sizes = names[0].partition(" ")
    if kind != "null" or not sizes.startswith("{"):
        return None
    try:
        found = json.loads(sizes)
        shown, gives, first = _groups("is", names), _groups("gives", names), f" / slot{CODE}0"
        parts = tuple(name.removesuffix(first) for name in names if name.endswith(first))
        groups = tuple(group for group in shown if group.name not in ("left", "right"))
        vocabulary = Vocabulary(found.pop("task"), groups, gives[0] if gives else None, parts)
        module = Module(vocabulary=vocabulary, **found)
        return module if list(module.names) == list(names) else None
    except (ValueError, TypeError, KeyError, StopIteration, AttributeError):
        return None


def _named(verb: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{verb} {group} {word}" for group, word in pairs]


def _groups(verb: str, names: Sequence[str]) -> list[WordGroup]:
    """The groups of words of the columns that start with a verb."""
    pairs = [name.split()[1:] for name in names if name.split()[0] == verb]
    return [
        WordGroup(group, tuple(word for each, word in pairs if each == group))
        for group in dict.fromkeys(each for each, _ in pairs)
    ]


def sequence(
    module: Module,
    questions: Sequence[Question],
    seats: Mapping[QuestionStep, Seat],
    scene: Sequence[Mapping[str, str]],
) -> Array:
    """The tokens (tokens, columns) for these questions, seated so, about a scene."""
    rows: list[Mapping[str, float]] = [{module.names[0]: 1.0}]
    for age in range(module.ages):
        for slot in range(module.slots):
            codes = {"slot": slot, "age": age, **({"before": age - 1} if age else {"seat": slot})}
            rows.append(_coded(module, codes))
    rows += [
        _operation_row(module, question, operation, seats)
        for question in questions
        for operation in seats
        if operation in _all(question)
    ]
    rows += [_object_row(module, thing) for thing in scene]
    place = {name: column for column, name in enumerate(module.names)}
    table = np.zeros((len(rows), len(place)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            table[number, place[name]] = value
    return table


def _all(question: Question) -> set[QuestionStep]:
    found, stack = set(), list(question.roots)
    while stack:
        found.add(operation := stack.pop())
        stack.extend(operation.parts.values())
    return found


def _coded(module: Module, codes: Mapping[str, int], prefix: str = "") -> dict[str, float]:
    return {
        column: float(value)
        for name, number in codes.items()
        for column, value in zip(module.coded(f"{prefix}{name}"), module.code(number), strict=True)
    }


def _operation_row(
    module: Module, question: Question, operation: QuestionStep, seats: Mapping[QuestionStep, Seat]
) -> dict[str, float]:
    seat = seats[operation]
    row = _coded(module, {"for_seat": seat.slot, "for_step": seat.step})
    row |= {f"ask {group} {word}": 1.0 for group, word in operation.words.items()}
    # What is spared of the most that can be asked for.
    row["spare"] = (module.demands - operation.demands) / module.demands
    for name, part in operation.parts.items():
        source = seats[part]
        row |= _coded(module, {"slot": source.slot, "age": seat.step - source.step - 1}, f"{name} / ")
    if question.kind in ("more", "most") and operation in question.roots:
        row |= {"compare": 1.0, **_coded(module, {"tag": question.roots.index(operation)})}
    return row


def _object_row(module: Module, thing: Mapping[str, str]) -> dict[str, float]:
    vocabulary, gives = module.vocabulary, module.vocabulary.gives
    row = {f"is {group.name} {thing[group.name]}": 1.0 for group in vocabulary.groups}
    if gives is not None:
        row[f"gives {gives.name} {thing[gives.name]}"] = 1.0
    for side, word in vocabulary.features:
        if side in ("left", "right"):
            here, place = int(thing[POSITION]), int(word)
            row[f"is {side} {word}"] = float(here < place if side == "left" else here > place)
    return row


def checked_scene(module: Module, scene: Any) -> list[dict[str, str]]:
    """The scene as one dictionary of words for each object, or DomainError saying which object is wrong, and how."""
    vocabulary = module.vocabulary
    groups = (*vocabulary.groups, *((vocabulary.gives,) if vocabulary.gives else ()))
    if isinstance(scene, str | Mapping) or not isinstance(scene, Sequence):
        raise DomainError(f"a scene is a list of objects; got {type(scene).__name__}")
    if len(scene) > module.objects:
        raise DomainError(
            f"a scene of {len(scene)} objects; this module was built for at most {module.objects}: build it with "
            f"objects={len(scene)}"
        )
    return [_checked_object(number, thing, groups, vocabulary.task) for number, thing in enumerate(scene)]


def _checked_object(number: int, thing: Any, groups: Sequence[WordGroup], task: str) -> dict[str, str]:
    names = [group.name for group in groups]
    if task == "lookup":
        if isinstance(thing, str | Mapping) or not isinstance(thing, Sequence) or len(thing) != 3:
            raise DomainError(f"object {number} is {thing!r}; a fact is (subject, relation, object)")
        thing = dict(zip(names, thing, strict=True))
    elif not isinstance(thing, Mapping) or set(thing) != set(names):
        raise DomainError(f"object {number} is {thing!r}; it needs exactly the keys {', '.join(names)}")
    for group in groups:
        if str(thing[group.name]) not in group.words:
            raise DomainError(
                f"object {number} has the {group.name} {str(thing[group.name])!r}; there are {', '.join(group.words)}"
            )
    return {name: str(thing[name]) for name in names}
