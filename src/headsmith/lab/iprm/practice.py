"""Random questions about random scenes, with their answers: what a module is trained and tested on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.lab.iprm.layout import Module, checked_scene, sequence
from headsmith.lab.iprm.questions import answer_of, parse
from headsmith.lab.iprm.schedule import schedule
from headsmith.lab.iprm.vocabulary import POSITION

TRIES = 10_000
"""How many scenes and questions are drawn, at most, until one answers the other."""


@dataclass(frozen=True, eq=False)
class Practice:
    """Examples as arrays: operations (examples, operations, columns), objects (examples, objects, columns), and the
    answer of each, a number below `classes`. Rows of zeros stand for no operation."""

    questions: tuple[str, ...]
    scenes: tuple[Any, ...]
    operations: Array
    objects: Array
    answers: Array
    classes: int


def practice(module: Module, examples: int, seed: int) -> Practice:
    """Random examples, which rerun equal from the seed.

    lookup: as many hops as there are steps, or fewer; count: the most frequent of the words of a group; scene: counts
    of sets with parts, as many operations as there are steps, or fewer. A scene has as many objects as it may have.
    """
    rng = random.Random(seed)
    drawn = [_example(module, rng) for _ in range(examples)]
    tables = [_tables(module, question, scene) for question, scene, _ in drawn]
    most = module.slots * module.steps
    operations = np.zeros((examples, most, tables[0][0].shape[1]))
    for row, (asked, _) in zip(operations, tables, strict=True):
        row[: len(asked)] = asked
    return Practice(
        tuple(question for question, _, _ in drawn),
        tuple(scene for _, scene, _ in drawn),
        operations,
        np.stack([objects for _, objects in tables]),
        np.array([answer for _, _, answer in drawn]),
        classes(module),
    )


def one_example(module: Module, question: str, scene: Any) -> Practice:
    """A question about a scene as an example; its answer is not looked at."""
    asked, objects = _tables(module, question, scene)
    operations = np.zeros((1, module.slots * module.steps, asked.shape[1]))
    operations[0, : len(asked)] = asked
    return Practice((question,), (scene,), operations, objects[None], np.zeros(1, dtype=int), classes(module))


def classes(module: Module) -> int:
    """How many different answers the questions have."""
    words = module.vocabulary
    if words.task == "lookup":
        return len(words.held[0].words)
    return module.objects + 1 if words.task == "scene" else min(module.compared, len(words.groups[0].words))


def operation_columns(module: Module) -> list[str]:
    """The columns of operations: whom they are for, and what they ask."""
    return [*module.coded("for_seat", "for_step"), *module.fields]


def _tables(module: Module, question: str, scene: Any) -> tuple[Array, Array]:
    parsed = parse(question, module.vocabulary)
    seats = schedule([parsed], module.slots, module.steps, module.window)
    table = sequence(module, [parsed], seats, checked_scene(module, scene))
    place = {name: column for column, name in enumerate(module.names)}
    first = 1 + module.slots * module.ages
    asked = table[first : first + len(seats), [place[name] for name in operation_columns(module)]]
    return asked, table[first + len(seats) :, [place[name] for name in module.shown]]


def _example(module: Module, rng: random.Random) -> tuple[str, Any, int]:
    words = module.vocabulary
    for _ in range(TRIES):
        scene, question = _scene(module, rng), _question(module, rng)
        parsed = parse(question, words)
        try:
            answer = answer_of(parsed, checked_scene(module, scene), words)
        except DomainError:
            continue
        if parsed.kind == "word":
            assert parsed.group is not None
            return question, scene, parsed.group.words.index(answer)
        if parsed.kind == "most":
            return question, scene, [root.text for root in parsed.roots].index(answer)
        return question, scene, int(answer)
    raise DomainError(f"none of {TRIES} random scenes answers a random question: give the module more objects")


def _scene(module: Module, rng: random.Random) -> Sequence[Any]:
    words = module.vocabulary
    if words.task == "lookup":
        symbols, links = (group.words for group in words.groups)
        keys = [(symbol, link) for symbol in symbols for link in links]
        return [(*key, rng.choice(symbols)) for key in rng.sample(keys, min(len(keys), module.objects))]
    groups = {group.name: group.words for group in words.groups}
    if words.gives is not None:
        groups[POSITION] = words.gives.words
    return [{name: rng.choice(choices) for name, choices in groups.items()} for _ in range(module.objects)]


def _question(module: Module, rng: random.Random) -> str:
    words = module.vocabulary
    if words.task == "lookup":
        symbols, links = (group.words for group in words.groups)
        hops = [rng.choice(links) for _ in range(rng.randint(1, module.steps))]
        return " of ".join([*hops, rng.choice(symbols)])
    if words.task == "count":
        asked = list(words.groups[0].words)[: classes(module)]
        return f"most of {', '.join(rng.sample(asked, len(asked)))}"
    text = ""
    for depth in range(rng.randint(1, module.steps)):
        named = " ".join(rng.choice(group.words) for group in words.groups if rng.random() < 0.5)
        named = named or rng.choice(rng.choice(words.groups).words)
        text = f"{named} {rng.choice(words.relations)} the {text}" if depth else named
    return f"count {text}"
