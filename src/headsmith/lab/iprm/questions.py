"""Questions: text to a tree of operations, and the answer in plain Python.

    task "lookup"            boss of mother of anna
    tasks "count", "scene"   count SET            how many there are
                             more SET than SET    "more", "fewer" or "equal"
                             most of SET, SET     the set that has most; a tie is refused
                             colour of the SET    a word of the one object of the set, or its position ("scene" alone)

    SET     words, then parts:  red cube left of the blue ball right of the cone
            the outermost set may have several parts, joined by "and", of different names

An operation finds the objects that have all its words, and that its parts ask for. Where another operation takes a part
of its result, or a word of it is asked for, exactly one object must be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headsmith.core.errors import DomainError
from headsmith.lab.iprm.vocabulary import LEFT, OF, POSITION, RELATION, RIGHT, SUBJECT, Vocabulary, WordGroup

Kind = Literal["word", "count", "more", "most"]


@dataclass(frozen=True, eq=False)
class QuestionStep:
    """Find what has `words` (group to word) and what the `parts` of other operations' results ask for."""

    text: str
    words: Mapping[str, str]
    parts: Mapping[str, QuestionStep]

    @property
    def demands(self) -> int:
        """How many things are asked for at once."""
        return len(self.words) + len(self.parts)

    @property
    def depth(self) -> int:
        """How many steps the operation takes with all that it needs."""
        return 1 + max((part.depth for part in self.parts.values()), default=0)


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked: one operation ("word", "count"), or several to compare. `group` holds the word asked for."""

    text: str
    kind: Kind
    roots: tuple[QuestionStep, ...]
    group: WordGroup | None = None


def parse(text: str, vocabulary: Vocabulary) -> Question:
    """Read a question, or raise DomainError saying what is wrong with it."""
    if not isinstance(text, str) or not text.split():
        raise DomainError(f"a question is a text such as {_example(vocabulary)!r}; got {text!r}")
    words = text.replace(",", " , ").split()
    question = _lookup(text, words, vocabulary) if vocabulary.task == "lookup" else _scene(text, words, vocabulary)
    for operation in operations(question):
        if not 1 <= operation.demands <= vocabulary.demands:
            raise DomainError(
                f"{operation.text!r} in {text!r} asks for {operation.demands} things at once; ask for 1 to "
                f"{vocabulary.demands} words and parts"
            )
    return question


def operations(question: Question) -> list[QuestionStep]:
    """All operations of a question, each after those that it needs."""
    found: list[QuestionStep] = []

    def visit(operation: QuestionStep) -> None:
        for part in operation.parts.values():
            visit(part)
        found.append(operation)

    for root in question.roots:
        visit(root)
    return found


def answer_of(question: Question, scene: Sequence[Mapping[str, str]], vocabulary: Vocabulary) -> Any:
    """The answer in plain Python: no model involved. Refuses questions that this scene does not answer."""
    counts = [len(_found(root, scene, vocabulary)) for root in question.roots]
    match question.kind:
        case "count":
            return counts[0]
        case "more":
            return "equal" if counts[0] == counts[1] else "more" if counts[0] > counts[1] else "fewer"
        case "most":
            winners = [root.text for root, count in zip(question.roots, counts, strict=True) if count == max(counts)]
            if len(winners) > 1:
                raise DomainError(f"{question.text!r}: {' and '.join(winners)} are equally many, {max(counts)}")
            return winners[0]
        case "word":
            assert question.group is not None
            return _only(question.roots[0], scene, vocabulary)[question.group.name]


def _only(operation: QuestionStep, scene: Sequence[Mapping[str, str]], vocabulary: Vocabulary) -> Mapping[str, str]:
    found = _found(operation, scene, vocabulary)
    if len(found) != 1:
        what = "fact about" if vocabulary.task == "lookup" else "object that is"
        raise DomainError(f"the question needs exactly one {what} {operation.text!r}; the scene has {len(found)}")
    return found[0]


def _found(
    operation: QuestionStep, scene: Sequence[Mapping[str, str]], vocabulary: Vocabulary
) -> list[Mapping[str, str]]:
    anchors = {name: _only(part, scene, vocabulary) for name, part in operation.parts.items()}

    def fits(thing: Mapping[str, str]) -> bool:
        return all(thing[group] == word for group, word in operation.words.items()) and all(
            _asked(name, thing, anchor) for name, anchor in anchors.items()
        )

    return [thing for thing in scene if fits(thing)]


def _asked(name: str, thing: Mapping[str, str], anchor: Mapping[str, str]) -> bool:
    if name == OF:
        return thing[SUBJECT] == anchor["object"]
    if name == LEFT:
        return int(thing[POSITION]) < int(anchor[POSITION])
    if name == RIGHT:
        return int(thing[POSITION]) > int(anchor[POSITION])
    group = name.split()[1]
    return thing[group] == anchor[group]


# ---- reading ---------------------------------------------------------------------------------------------------------


def _lookup(text: str, words: list[str], vocabulary: Vocabulary) -> Question:
    *links, symbol = words[::2]
    if not links or len(words) % 2 == 0 or any(word != OF for word in words[1::2]):
        raise DomainError(f"{text!r} is not a look-up; write, for instance, {_example(vocabulary)!r}")
    symbols = vocabulary.held[0]
    if symbol not in symbols.words:
        raise DomainError(f"{symbol!r} in {text!r} is not a symbol; there are {', '.join(symbols.words)}")
    known = vocabulary.groups[1].words
    operation = None
    for place, link in enumerate(reversed(links)):
        if link not in known:
            raise DomainError(f"{link!r} in {text!r} is not a relation; there are {', '.join(known)}")
        part = " ".join(words[len(words) - 3 - 2 * place :])
        words_asked = {RELATION: link} if operation else {SUBJECT: symbol, RELATION: link}
        operation = QuestionStep(part, words_asked, {OF: operation} if operation else {})
    assert operation is not None
    return Question(text, "word", (operation,), symbols)


def _scene(text: str, words: list[str], vocabulary: Vocabulary) -> Question:
    reader = _Reader(text, words, vocabulary)
    first = reader.take("count", "more", "most", *(group.name for group in vocabulary.held))
    if first == "count":
        return reader.done("count", [reader.set()])
    if first == "more":
        one = reader.set()
        reader.take("than")
        return reader.done("more", [one, reader.set()])
    reader.take("of")
    if first == "most":
        sets = [reader.set()]
        while reader.next == ",":
            reader.take(",")
            sets.append(reader.set())
        if len(sets) < 2:
            raise DomainError(f"{text!r}: most of what? Separate the sets by commas")
        return reader.done("most", sets)
    reader.take("the")
    group = next(group for group in vocabulary.held if group.name == first)
    return reader.done("word", [reader.set()], group)


class _Reader:
    """Reads a scene's question word by word."""

    def __init__(self, text: str, words: list[str], vocabulary: Vocabulary) -> None:
        self.text, self.words, self.vocabulary, self.place = text, words, vocabulary, 0

    @property
    def next(self) -> str | None:
        return self.words[self.place] if self.place < len(self.words) else None

    def take(self, *allowed: str) -> str:
        found = self.next
        if found is None or found not in allowed:
            where = "at its end" if found is None else f"at {found!r}"
            raise DomainError(f"{self.text!r} cannot be read {where}: expected {' or '.join(allowed)}")
        self.place += 1
        return found

    def done(self, kind: Kind, roots: list[QuestionStep], group: WordGroup | None = None) -> Question:
        if self.next is not None:
            raise DomainError(f"{self.text!r} cannot be read at {self.next!r}: expected its end")
        return Question(self.text, kind, tuple(roots), group)

    def set(self, outermost: bool = True) -> QuestionStep:
        """Words, then parts."""
        start, words, parts = self.place, {}, {}
        homes = {word: group.name for group in self.vocabulary.groups for word in group.words}
        while self.next in homes:
            word = self.take(*homes)
            if homes[word] in words:
                raise DomainError(f"{self.text!r} asks for two words of the group {homes[word]!r} at once")
            words[homes[word]] = word
        while (name := self._part()) is not None:
            self.take("the")
            if name in parts:
                raise DomainError(f"{self.text!r} says {name!r} twice of the same set")
            parts[name] = self.set(outermost=False)
            if not (outermost and self.next == "and"):
                break
            self.take("and")
            if self._part(peek=True) is None:
                raise DomainError(f"{self.text!r}: {self._names()} should follow 'and'")
        if not words and not parts:
            found = "its end" if self.next is None else repr(self.next)
            raise DomainError(
                f"{self.text!r} cannot be read at {found}: expected one of {', '.join(homes)}"
                + (f", or {self._names()}" if self.vocabulary.parts else "")
            )
        return QuestionStep(" ".join(self.words[start : self.place]), words, parts)

    def _names(self) -> str:
        return " or ".join(repr(part.name) for part in self.vocabulary.parts)

    def _part(self, peek: bool = False) -> str | None:
        for part in self.vocabulary.parts:
            name = part.name.split()
            if self.words[self.place : self.place + len(name)] == name:
                self.place += 0 if peek else len(name)
                return part.name
        return None


def _example(vocabulary: Vocabulary) -> str:
    if vocabulary.task == "lookup":
        return f"{vocabulary.groups[1].words[0]} of {vocabulary.groups[0].words[0]}"
    return f"count {vocabulary.features[0][1]}"
