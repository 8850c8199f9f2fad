"""`hs.iprm`: the reasoning module, compiled and certified; it answers questions about scenes.

    module = hs.iprm(slots=2, steps=2, task="scene", objects=6)
    module.answer("more red left of the cube than blue right of the cone", scene)

The construction is ours (graph.py). The certificate compares the transformer with exact softmax attention for all
tokens in the domain, and the decoding theorem (decode.py) makes exact answers of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, DomainError, TargetError, UnreachableError
from headsmith.core.rounding import Dtype
from headsmith.inside.intermediates import head_names
from headsmith.lab.iprm.decode import Gaps, choose_scales, gaps
from headsmith.lab.iprm.graph import Reasoning, reasoning
from headsmith.lab.iprm.layout import Module, checked_scene, module_of, sequence
from headsmith.lab.iprm.questions import Question, QuestionStep, answer_of, parse
from headsmith.lab.iprm.schedule import Seat, schedule
from headsmith.lab.iprm.vocabulary import TASKS, Task, lookup_vocabulary, scene_vocabulary
from headsmith.language.graph import Attend
from headsmith.model import Compiled
from headsmith.plan.reading import check_counts, check_error
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.descent import same_graph

if TYPE_CHECKING:
    from headsmith.lab.iprm.trained import Trained

ANY = 1e100
"""An error that every certificate meets."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reasoner(CompiledSequence):
    """A compiled reasoning module. It is a sequence model, of the tokens that `encode` makes; `answer` runs it."""

    module: Module

    @property
    def soft(self) -> Gaps:
        """How far exact softmax attention can be from the right levels, for words, counts and tags (a bound)."""
        return choose_scales(self.module)[1]

    @property
    def reasoning(self) -> Reasoning:
        """The program, with its attentions by name."""
        return reasoning(self.module, choose_scales(self.module)[0])

    @property
    def proven(self) -> Gaps:
        """How far words, counts and tags can be from the right levels in all: certificate and soft bound."""
        return _in_all(self.module, self.certificate.outputs, self.soft)

    @property
    def gaps(self) -> Gaps:
        """Half the distance of levels: answers are exact where `proven` is below."""
        return gaps(self.module)

    @property
    def unproven(self) -> str | None:
        """Why answers are not proven to be exact; None if they are."""
        for name in ("word", *(("count", "tag") if self.module.vocabulary.counts else ())):
            reach, gap = getattr(self.proven, name), getattr(self.gaps, name)
            if not reach < gap:
                return f"{name}s are proven within {reach:.3g}, and half the distance of their levels is {gap:.3g}"
        return None

    def answer(self, question: str | Sequence[str], scene: Any) -> Any:
        """The answer to a question about a scene, read off the model's output: a word, a count, "more", "equal" or
        "fewer". A list of questions that ask for words or counts is answered side by side, by a list.

        Guarantee: what `exact` says. Questions that the scene does not answer (no such object where one is needed, or
        two; a tie) are refused, and so are all questions to a module whose answers are not proven.
        """
        if (problem := self.unproven) is not None:
            raise CertificateError(f"answers of this module are not proven to be exact: {problem}")
        table, questions, seats, things = self._encoded(question, scene)
        for each in questions:
            answer_of(each, things, self.module.vocabulary)
        outputs = self(table)
        found = [self._decoded(outputs, each, seats) for each in questions]
        return found[0] if isinstance(question, str) else found

    def exact(self, question: str | Sequence[str], scene: Any) -> Any:
        """The answer in plain Python, without the model."""
        _, questions, _, things = self._encoded(question, scene)
        found = [answer_of(each, things, self.module.vocabulary) for each in questions]
        return found[0] if isinstance(question, str) else found

    def encode(self, question: str | Sequence[str], scene: Any) -> Array:
        """The tokens (m, columns) that the model is run on: null, memory, operations, objects."""
        return self._encoded(question, scene)[0]

    def seats(self, question: str | Sequence[str], scene: Any = ()) -> list[tuple[str, int, int]]:
        """Which operation is executed in which slot at which step, counted from 1."""
        seats = self._encoded(question, scene)[2]
        ordered = sorted(seats.items(), key=lambda item: (item[1].step, item[1].slot))
        return [(operation.text, seat.slot + 1, seat.step + 1) for operation, seat in ordered]

    def attention(self, question: str | Sequence[str], scene: Any) -> list[dict[str, Array]]:
        """Where every token looks (tokens, tokens), by the name of the attention: one dictionary for each step, and a
        last one for the output."""
        _, found = self.run(self.encode(question, scene), cache=True)
        places = self.patterns
        named = [*self.reasoning.steps, {} if self.reasoning.pooling is None else {"pooling": self.reasoning.pooling}]
        reference = self.transformer.reference_tokens
        return [
            {name: found[f"{places[node]} / pattern"][reference:, reference:] for name, node in step.items()}
            for step in named
        ]

    def train(self, **options: Any) -> Trained:
        """The same module with learned weights (trained.py; torch is an extra): seed, updates, examples, width, rate.
        Its accuracy is an estimate, and nothing is proven of it."""
        from headsmith.lab.iprm.trained import train

        return train(self.module, **options)

    def draw(self, question: str, scene: Any, output: str | os.PathLike[str], trained: Trained | None = None) -> None:
        """Draw where the slots look at each step into a picture, beside those of a trained module if there is one."""
        from headsmith.lab.iprm.draw import draw

        draw(self, question, scene, output, trained)

    @property
    def patterns(self) -> dict[int, str]:
        """The name of the head of every attention, by its node. Lowering renumbers nodes, and keeps their order."""
        heads: dict[int, str] = {}
        for number, layer in enumerate(self.transformer.layers):
            names = iter(head_names(layer, number + 1))
            for bank in layer.banks:
                found = [next(names) for _ in range(bank.heads)]
                if bank.kind == "attend":
                    heads[int(bank.node[0])] = found[0]
        nodes = [number for number, node in enumerate(self.graph.nodes) if isinstance(node, Attend)]
        return dict(zip(nodes, (heads[node] for node in sorted(heads)), strict=True))

    def _encoded(
        self, question: str | Sequence[str], scene: Any
    ) -> tuple[Array, list[Question], Mapping[QuestionStep, Seat], list[dict[str, str]]]:
        module = self.module
        texts: list[Any] = list(question) if isinstance(question, list | tuple) else [question]
        questions = [parse(text, module.vocabulary) for text in texts]
        if not questions:
            raise DomainError("there is no question")
        for each in questions:
            if each.kind in ("more", "most") and len(questions) > 1:
                raise DomainError(f"{each.text!r} compares results of the whole module: ask it alone")
            if len(each.roots) > module.compared:
                raise DomainError(
                    f"{each.text!r} compares {len(each.roots)} sets; this module compares {module.compared} results, "
                    "as many as it has slots and remembers: build it with more slots, or a larger window"
                )
        seats = schedule(questions, module.slots, module.steps, module.window)
        things = checked_scene(module, scene)
        return sequence(module, questions, seats, things), questions, seats, things

    def _decoded(self, outputs: Array, question: Question, seats: Mapping[QuestionStep, Seat]) -> Any:
        module, proven = self.module, self.proven
        words = module.vocabulary
        results = words.results
        seat = seats[question.roots[0]]
        own = outputs[module.memory_token(seat.slot, module.steps - 1 - seat.step)]
        match question.kind:
            case "count":
                levels = np.arange(module.objects + 1) / (np.arange(module.objects + 1) + module.objects)
                return _nearest(own[results], levels, proven.count)
            case "word":
                assert question.group is not None
                held = own[words.columns(question.group.name)]
                place = int(np.argmax(held))
                _nearest(held[place], np.array([0.0, 1.0]), proven.word)
                return question.group.words[place]
            case "more" | "most":
                digits, many = outputs[0, results + 1 :], len(question.roots)
                if np.abs(digits).min() < 1.0 - 1.0 / many:
                    if question.kind == "more":
                        return "equal"
                    raise DomainError(f"{question.text!r}: several sets are equally many, and no other is larger")
                for digit in digits:
                    _nearest(digit, np.array([-1.0, 1.0]), proven.tag)
                winner = next(tag for tag in range(many) if np.array_equal(module.code(tag), np.sign(digits)))
                return ("more", "fewer")[winner] if question.kind == "more" else question.roots[winner].text


def iprm(
    slots: int = 1,
    steps: int = 1,
    window: int = 0,
    *,
    task: Task = "scene",
    objects: int | None = None,
    attributes: Mapping[str, Sequence[str]] | None = None,
    positions: int | None = None,
    symbols: int | Sequence[str] | None = None,
    relations: int | Sequence[str] | None = None,
    composition: bool = True,
    error: float | None = None,
    dtype: Dtype = "float64",
) -> Reasoner:
    """Compile the iterative and parallel reasoning module (construction ours) for questions about scenes.

    At each of `steps` steps each of `slots` slots executes one operation; a result can be used `window` steps later
    than the next one. Weights of all steps are the same (sharing.py), and their number depends on none of the three, up
    to 8 (layout.LEAST_CAPACITY).

    Tasks, whose questions questions.py describes: "lookup" (facts about `symbols` with `relations`), "count" (objects
    with `attributes`, a dictionary from groups to words), "scene" (the same with `positions` from left to right, and
    `relations` such as "left of" and "same colour as": all, unless some are chosen; fewer allow more steps).
    `objects` is how many facts or objects there may be. Without `composition` no operation hears of another one: the
    ablation. `error` bounds the certificate, as in `compile`, and then nothing is said about answers; by default
    they are proven.

    Guarantee: `answer` is exact on every scene that answers the question. Raises UnreachableError where the dtype
    cannot tell the answers apart.
    """
    check_counts(slots=slots, steps=steps)
    if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 0:
        raise TargetError(f"window is {window!r}; it must be an integer, 0 or more")
    if task not in get_args(Task):
        raise TargetError(f"unknown task {task!r}; choose one of {', '.join(TASKS)}")
    given = {"attributes": attributes, "positions": positions, "symbols": symbols, "relations": relations}
    belongs = {"lookup": ("symbols", "relations"), "count": ("attributes",)}
    belongs["scene"] = ("attributes", "positions", "relations")
    for name, value in given.items():
        if value is not None and name not in belongs[task]:
            raise TargetError(f"{name} does not belong to the task {task!r}; it takes {', '.join(belongs[task])}")
    if task == "lookup":
        vocabulary = lookup_vocabulary(symbols, relations)
    else:
        places = 5 if positions is None else positions
        check_counts(positions=places)
        vocabulary = scene_vocabulary(task, attributes, places, relations)
    most = (12 if task == "lookup" else 6) if objects is None else objects
    check_counts(objects=most)
    module = Module(int(slots), int(steps), int(window), int(most), vocabulary, bool(composition))
    return _compiled(module, error, dtype)


def reasoner_of(compiled: Compiled) -> Reasoner | None:
    """The reasoning module that a compiled model is; None if it is another model."""
    module = module_of(compiled.graph.input.names)
    if module is None or not same_graph(compiled.graph, reasoning(module, choose_scales(module)[0]).graph):
        return None
    return _as_reasoner(compiled, module)


def _compiled(module: Module, error: float | None, dtype: Dtype) -> Reasoner:
    scales, _ = choose_scales(module)
    if error is not None:
        check_error(error)
    # There is nothing to choose: attention is exact up to rounding. So compile, and see what is proven.
    graph = reasoning(module, scales).graph
    compiled = compile(graph, module.domain, ANY, tokens=module.tokens, dtype=dtype, recipe="native")
    model, found = _as_reasoner(compiled, module), compiled.certificate
    part = max(found.parts, key=lambda name: found.parts[name])
    if error is not None and not found.error <= error:
        raise UnreachableError(
            f"error {error:g} cannot be certified in {dtype}: the {part} part blocks it. The smallest error that can "
            f"be met is {found.error:.3g}",
            part=part,
            smallest=found.error,
        )
    if error is None and (problem := model.unproven) is not None:
        raise UnreachableError(
            f"{module.steps} steps cannot be told apart in {dtype}: {problem}. Errors grow from step to step: take "
            f"fewer steps (and more slots), words, relations or objects; or ask for error={found.error:.3g}, for a "
            "module whose answers are not proven",
            part=part,
            smallest=found.error,
        )
    return model


def _in_all(module: Module, outputs: Sequence[float], soft: Gaps) -> Gaps:
    results = module.vocabulary.results
    word = max(outputs[:results], default=0.0) + soft.word
    if not module.vocabulary.counts:
        return Gaps(word, 0.0, 0.0)
    return Gaps(word, outputs[results] + soft.count, max(outputs[results + 1 :]) + soft.tag)


def _nearest(value: float, levels: Array, reach: float) -> int:
    """The number of the nearest level, which must be within reach: everything else contradicts the certificate."""
    place = int(np.argmin(np.abs(levels - value)))
    if not abs(levels[place] - value) <= reach:
        raise CertificateError(f"an output is {value!r}, farther than the proven {reach:.3g} from every answer")
    return place


def _as_reasoner(compiled: Compiled, module: Module) -> Reasoner:
    values = {field.name: getattr(compiled, field.name) for field in fields(Compiled)}
    return Reasoner(**values, masked=False, module=module)
