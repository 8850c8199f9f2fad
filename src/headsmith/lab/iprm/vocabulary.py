"""What objects show, and what an operation may ask for.

Objects show features, zeros and ones: words of their groups (a colour, a shape, a subject), and for each place whether
they stand to the left or to the right of it. An operation asks for some words, and for what earlier operations found:

    task "lookup"   objects are facts (subject, relation, object); the part "of" asks for the object found as a subject
    task "count"    objects have attributes; operations count those that have the words asked for
    task "scene"    as "count", and objects have positions: the parts "left of", "right of", "same colour as" ask for
                    what stands to the left of, ... the object found

A result is what the object found holds: its object of the fact, or its position and attributes. Each part takes a run
of the columns of a result, and asks for as many features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from headsmith.core.errors import TargetError

Task = Literal["lookup", "count", "scene"]
TASKS: tuple[Task, ...] = get_args(Task)

SUBJECT, RELATION, POSITION, OF, LEFT, RIGHT = "subject", "relation", "position", "of", "left of", "right of"
RESERVED = {"of", "the", "and", "than", "count", "more", "most", "left", "right", "same", "as"}
COLOURS = ("red", "green", "blue")
SHAPES = ("cube", "ball", "cone")
MOST_DEMANDS = 4
"""How many words and parts one operation asks for, at most."""


@dataclass(frozen=True)
class WordGroup:
    """A kind of words, of which an object has one."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """What an operation takes from an earlier result: the columns of a group ask for the features from `asks` on."""

    name: str
    group: str
    asks: int


@dataclass(frozen=True)
class Vocabulary:
    """The words of one task. `groups` can be asked for, `gives` is what an object holds besides (the object of a fact,
    a position), and `relations` are the parts that operations may take."""

    task: Task
    groups: tuple[WordGroup, ...]
    gives: WordGroup | None = None
    relations: tuple[str, ...] = ()

    @cached_property
    def features(self) -> tuple[tuple[str, str], ...]:
        """What objects can show, as pairs (group, word); sides of places count as groups."""
        words = [(group.name, word) for group in self.groups for word in group.words]
        sides = [name for name in (LEFT, RIGHT) if name in self.relations]
        places = self.gives.words if self.gives is not None else ()
        return (*words, *((side.split()[0], place) for side in sides for place in places))

    @property
    def counts(self) -> bool:
        """Whether operations count what they find."""
        return self.task != "lookup"

    @cached_property
    def held(self) -> tuple[WordGroup, ...]:
        """The groups of words that a result holds."""
        if self.task == "count" or self.gives is None:
            return ()
        return (self.gives,) if self.task == "lookup" else (self.gives, *self.groups)

    @property
    def results(self) -> int:
        """How many columns a result has."""
        return sum(len(group.words) for group in self.held)

    def columns(self, group: str) -> range:
        """Which columns of a result hold a group."""
        first = 0
        for each in self.held:
            if each.name == group:
                return range(first, first + len(each.words))
            first += len(each.words)
        raise KeyError(group)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What an operation may take from an earlier result."""
        groups = [group for group, _ in self.features]
        found = []
        for name in self.relations:
            if name == OF:
                held, asked = "object", SUBJECT
            else:
                held, asked = (POSITION, name.split()[0]) if name in (LEFT, RIGHT) else (name.split()[1],) * 2
            found.append(Part(name, held, groups.index(asked)))
        return tuple(found)

    @property
    def demands(self) -> int:
        """How many words and parts one operation may ask for."""
        return min(MOST_DEMANDS, len(self.groups) + len(self.parts))

    @property
    def most_shown(self) -> int:
        """How many features one object shows, at most."""
        sides = LEFT in self.relations or RIGHT in self.relations
        return len(self.groups) + (len(self.gives.words) - 1 if sides and self.gives is not None else 0)


def lookup_vocabulary(symbols: Any, relations: Any) -> Vocabulary:
    """The words of facts."""
    things, links = _words("symbols", symbols, "s", 6), _words("relations", relations, "r", 2)
    _refuse_twice([*things, *links])
    return Vocabulary(
        "lookup", (WordGroup(SUBJECT, things), WordGroup(RELATION, links)), WordGroup("object", things), (OF,)
    )


def scene_vocabulary(
    task: Task, attributes: Mapping[str, Sequence[str]] | None, positions: int, relations: Any
) -> Vocabulary:
    """The words of scenes; without positions and relations, those of the task "count"."""
    given = {"colour": COLOURS, "shape": SHAPES} if attributes is None and task == "scene" else attributes
    given = {"colour": COLOURS} if given is None else given
    if not isinstance(given, Mapping) or not given:
        raise TargetError(f"attributes are {given!r}; give a dictionary such as {{'colour': ['red', 'blue']}}")
    groups = tuple(WordGroup(str(name), _words(str(name), words, "", 0)) for name, words in given.items())
    _refuse_twice([name for group in groups for name in (group.name, *group.words)] + [POSITION])
    if task == "count":
        return Vocabulary(task, groups)
    known = [LEFT, RIGHT, *(f"same {group.name} as" for group in groups)]
    wanted = known if relations is None else relations
    if isinstance(wanted, str) or not isinstance(wanted, Sequence) or not set(wanted) <= set(known):
        raise TargetError(f"relations are {relations!r}; choose some of {', '.join(map(repr, known))}")
    places = WordGroup(POSITION, tuple(str(place) for place in range(positions)))
    return Vocabulary(task, groups, places, tuple(name for name in known if name in wanted))


def _words(name: str, given: Any, prefix: str, default: int) -> tuple[str, ...]:
    given = default if given is None and prefix else given
    if isinstance(given, int | np.integer) and not isinstance(given, bool) and prefix and given >= 1:
        return tuple(f"{prefix}{number}" for number in range(int(given)))
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise TargetError(f"{name} is {given!r}; give its words{', or how many there are' if prefix else ''}")
    return tuple(str(word) for word in given)


def _refuse_twice(words: Sequence[str]) -> None:
    for word in words:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", word) or word in RESERVED:
            raise TargetError(
                f"{word!r} cannot be a word: letters and digits, starting with a letter, none of "
                f"{', '.join(sorted(RESERVED))}"
            )
    twice = next((word for place, word in enumerate(words) if word in words[:place]), None)
    if twice is not None:
        raise TargetError(f"{twice!r} is used twice: every word and group needs a name of its own")
