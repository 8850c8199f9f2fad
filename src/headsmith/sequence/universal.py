"""Any function of a short sequence with a stated Lipschitz bound, by attention alone: gather, then look up.

    grid       as few cells as the stated bound allows for the error           sequence/gaussian_grid.py
    answers    the callable's values at the cells' centres
    graph      moves, steps of the grid, a `Sampled` node                      sequence/universal_model.py
    model      a layer of moves and one table head, or one and a softmax       sequence/universal_model.py
    error      what the kernel proves of every function that is as stated      kernel/rules/sampled.py

A callable cannot be proven anything about from samples. What is proven and what is assumed is kept apart, as in
approximate.py. The cost is p^D answers for D = tokens * features: this is for small D.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, TargetError, ThinMarginError, UnreachableError
from headsmith.core.figures import bound, count
from headsmith.core.intervals import Box
from headsmith.core.markup import card, table
from headsmith.export.plain import called
from headsmith.inside.edits import Runner
from headsmith.inside.explain import HEADS, explain
from headsmith.inside.intermediates import run_with_cache
from headsmith.inside.meanings import Meanings
from headsmith.inside.notebook import bill_text, box_text
from headsmith.language.graph import Affine, Graph, Sampled
from headsmith.language.kuhn import Grid
from headsmith.model import Compiled
from headsmith.plan.analysis.refute import refute
from headsmith.plan.analysis.smoothness import Lipschitz, as_smoothness
from headsmith.prove.prove import Wanted, certified, drafted
from headsmith.run.numpy_runner import run
from headsmith.sequence.gaussian_grid import NARROWEST, WIDEST, fewest_cells
from headsmith.sequence.universal_grid import Axes, axes_of
from headsmith.sequence.universal_inputs import box_of, run_inside, sample, table_inside
from headsmith.sequence.universal_model import FORMS, Architecture, points_of, sampled_graph, transformer_of
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.ramp import WIDTH
from headsmith.transformer.stored import numbered

SHARE = 0.999
"""How much of the error the kernel may take: leak and rounding are small."""

MAX_NODES = 100_000
"""How many nodes a grid may have, unless told."""


ROOM = 1.0 + 1e-9
"""The last bits of what is proven depend on the machine's matrix product."""


@dataclass(frozen=True, eq=False, repr=False)
class Universal(Compiled):
    """An attention-only model of a callable. For every X (tokens, features) in the domain |model(X) - f(X)| <= error,
    in every output, where

        error = approximation + evaluation + leak + rounding

    `leak` and `rounding` bound the run against the exact kernel mean of the answers at a point near X;
    `approximation` bounds that mean against f, if `lipschitz`, which the user stated, is true of f; `evaluation` is how
    far the answers are assumed to be from f at the nodes of the grid. The sum is proven of every f that is as stated
    and has the stored answers at the nodes (`certificate`); that the callable is one of them is assumed.

    `box` is the domain of the flattened input: tokens, then features.
    """

    def __repr__(self) -> str:
        return (
            f"<Universal {self._size} on {box_text(self.box)}, from {count(math.prod(self.counts), 'sample')}\n"
            f" error <= {bound(self.error)} if {self.lipschitz}, {bill_text(self.bill)}>"
        )

    def _repr_html_(self) -> str:
        title = f"Universal: {self._size} on {box_text(self.box)}, from {count(math.prod(self.counts), 'sample')}"
        assumed = table("Assumed", [[self.assumed]], figures=())
        return card(title, self.certificate._repr_html_(), self.bill._repr_html_(), assumed)

    @property
    def _size(self) -> str:
        return f"({self.tokens}, {self.features}) to ({self.tokens}, {self.transformer.outputs})"

    def explain(self, heads: int = HEADS) -> str:
        """The model in words, layer by layer and head by head."""
        return f"{explain(self, heads)}\n\nAssumed of the callable: {self.assumed}."

    @property
    def node(self) -> Sampled:
        """What was sampled, and what is stated of it."""
        return sampled_node(self.graph)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many cells each coordinate has."""
        return self.node.counts

    @property
    def lipschitz(self) -> Lipschitz:
        return Lipschitz(self.node.lipschitz, self.node.norm)

    @property
    def width(self) -> float:
        """c: the larger, the nearer the model is to the nearest answer alone."""
        table_ = self.transformer.table
        return float(np.abs(table_.slope[0, -1, : len(self.counts)]).max() / max(max(self.counts) - 1, 1))

    @property
    def architecture(self) -> Architecture:
        return next(name for name, form in FORMS.items() if form == self.transformer.grid_form)

    @cached_property
    def axes(self) -> Axes:
        """The grid, coordinate by coordinate."""
        return axes_of(self.box, self.counts)

    @property
    def answers(self) -> Array:
        """The callable's values at the nodes of the grid, the last coordinate fastest: (nodes, tokens, outputs)."""
        rows = self.node.answers.reshape(self.tokens, -1, self.transformer.outputs)
        return rows.transpose(1, 0, 2)

    @property
    def error(self) -> float:
        return self.certificate.error

    @property
    def parts(self) -> Mapping[str, float]:
        """What the error is made of."""
        proven, evaluation = self.certificate.parts, self.node.evaluation
        approximation = max(math.nextafter(proven["approximation"] - evaluation, 0.0), 0.0)
        return {
            "approximation": approximation,
            "evaluation": evaluation,
            "leak": proven["leak"],
            "rounding": proven["rounding"],
        }

    @property
    def tokens(self) -> int:
        """How many tokens a sequence has: exactly so many."""
        return self.transformer.tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of tokens that the model takes."""
        return (self.tokens,)

    @property
    def features(self) -> int:
        return self.transformer.inputs

    @property
    def proven(self) -> str:
        """What holds whatever the callable is."""
        return (
            f"the model is within {_up(self.parts['leak'], self.parts['rounding'])} of the exact Gaussian mean (c = "
            f"{self.width:g}) of the {math.prod(self.counts)} sampled answers that it holds, at a point next to the "
            f"input; and so within {_up(self.error)} of every f that is within {_up(self.parts['evaluation'])} of "
            f"these answers at the nodes and has {self.lipschitz}"
        )

    @property
    def assumed(self) -> str:
        """What the user vouches for, and what follows from it."""
        evaluation = self.parts["evaluation"]
        return (
            f"{self.lipschitz} for every output, and the callable's results are within {_up(evaluation)} of f; then "
            f"that mean is within {_up(self.parts['approximation'], evaluation)} of f. That the stored answers are "
            f"the callable's is what check(function) samples again"
        )

    def __call__(  # type: ignore[override]
        self, array: Any, *, outside: Literal["refuse", "allow"] = "refuse", hardmax: bool = False, fused: bool = False
    ) -> Array:
        """(..., tokens, features) -> (..., tokens, outputs); DomainError outside the domain (outside="allow" runs it
        without any promise), or for another number of tokens. For one feature, (tokens,) will do as well. `hardmax`
        takes the nearest answer alone, `fused` closed forms."""
        return run_inside(self.transformer, self.box, array, outside, partial(run, hardmax=hardmax, fused=fused))

    def run(self, array: Any, *, cache: bool = False, causal: bool = False) -> Any:
        """Run the model. With `cache`, on one sequence (tokens, features), and return also every intermediate by its
        name: "layer 1 / move head 0 / pattern", "layer 2 / register out" (see intermediates.py)."""
        _refuse_mask(causal)
        if not cache:
            return self(array)
        inputs = table_inside(self.transformer, self.box, array)
        return run_with_cache(self.transformer, inputs, meanings=Meanings(self))

    def verify(self) -> Certificate:
        """Prove the error again, from the matrices and what is stated. CertificateError if less can be proven than is
        claimed."""
        wanted = _graph(self.axes, self.node.answers, self.lipschitz, self.node.evaluation, self.tokens)
        if not _same_sums(wanted, self.graph):
            raise CertificateError("the target's steps are not those of a grid of so many cells on the domain")
        return super().verify()

    def called(self, *, causal: bool = False) -> dict[str, Any]:
        """How the model is called, for other tools (export/plain.py)."""
        _refuse_mask(causal)
        model = self.transformer
        return called(model.inputs, model.outputs, model.tokens, "sequences", False, model.dtype, [model.tokens])

    def through(self, runner: Runner, array: Any, outside: str = "refuse", causal: bool = False) -> Array:
        """What another runner, run(transformer, sequences, causal=...), makes of an array of inputs."""
        _refuse_mask(causal)
        return run_inside(self.transformer, self.box, array, outside, runner)

    def check(self, function: Callable[[Array], Any]) -> float:
        """Sample the callable again: how far its results are from the stored answers, at most.

        TargetError, with the point, where that is more than twice `evaluation` (both may be so far from f), or where
        samples contradict the stated bound.
        """
        evaluation, points, answers = self.node.evaluation, points_of(self.axes.knots), self.answers
        apart = np.abs(sample(function, points, self.tokens, self.transformer.outputs) - answers)
        worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
        if not apart[worst] <= 2.0 * evaluation:
            raise TargetError(
                f"the model holds {float(answers[worst])!r} at {points[worst[0]].reshape(self.tokens, -1).tolist()}, "
                f"token {int(worst[1])}, output {int(worst[2])}; the callable differs from that by "
                f"{float(apart[worst]):.6g}, and may by {2.0 * evaluation:.3g}"
            )
        _refute(function, self.box, self.lipschitz, evaluation, self.axes.knots, answers)
        return float(apart[worst])


def sampled_node(graph: Graph) -> Sampled:
    """The only sampled function of a graph."""
    (node,) = (node for node in graph.nodes if isinstance(node, Sampled))
    return node


def _graph(axes: Axes, answers: Array, stated: Lipschitz, evaluation: float, tokens: int) -> Graph:
    return sampled_graph(axes.middle, axes.scale, answers, stated, evaluation, tokens)


def _same_sums(left: Graph, right: Graph) -> bool:
    """Whether the affine nodes of two graphs have the same numbers, and their sampled functions the same steps."""
    if len(left.nodes) != len(right.nodes) or not np.array_equal(sampled_node(left).scale, sampled_node(right).scale):
        return False
    pairs = [pair for pair in zip(left.nodes, right.nodes, strict=True) if isinstance(pair[0], Affine)]
    for one, other in pairs:
        if not isinstance(one, Affine) or not isinstance(other, Affine) or len(one.terms) != len(other.terms):
            return False
        terms = zip(one.terms, other.terms, strict=True)
        if not np.array_equal(one.bias, other.bias) or any(not np.array_equal(a.weights, b.weights) for a, b in terms):
            return False
    return True


def universal(
    function: Callable[[Array], Any],
    tokens: int,
    features: int = 1,
    outputs: int = 1,
    domain: Any = None,
    error: float | None = None,
    *,
    grid: int | Sequence[int] | None = None,
    lipschitz: Any = None,
    norm: Any = 2,
    evaluation: float | None = None,
    width: float = WIDTH,
    architecture: Architecture = "two layers",
    max_nodes: int = MAX_NODES,
) -> Universal:
    """An attention-only model within `error` of a callable f: (tokens, features) -> (tokens, outputs), or one with
    `grid` cells along every coordinate, if the callable is as smooth as is stated.

    `domain`: a pair for all numbers, one for each feature, or an array (tokens, features, 2). `lipschitz`: L with
    |f(X) - f(Y)| <= L |X - Y| for every output number, in the `norm` 1, 2 or infinity of the flattened difference; or
    an array (tokens, features) for sum L_ij |X_ij - Y_ij|. `evaluation`: how far results may be from f; 8 units in the
    last place of the largest one, unless given. `width` is c: the guarantee wants it large, smooth targets about 2.7.
    Raises TargetError, with the points, where samples contradict what is stated, and UnreachableError where the grid
    would have more than `max_nodes` nodes, or rounding takes more than the error.
    """
    if architecture not in get_args(Architecture):
        raise TargetError(f"architecture is {architecture!r}; choose one of {', '.join(get_args(Architecture))}")
    if not WIDEST <= width <= NARROWEST:
        raise TargetError(f"width is {width!r}; it must lie between {WIDEST} and {NARROWEST}")
    if evaluation is not None and not (isinstance(evaluation, numbers.Real) and 0.0 <= evaluation < math.inf):
        raise TargetError(f"evaluation is {evaluation!r}; it must be a finite number, not negative")
    box = box_of(domain, tokens, features)
    if not isinstance(max_nodes, numbers.Integral):
        raise TargetError(f"max_nodes is {max_nodes!r}; it must be an integer")
    if 3**box.size > max_nodes:
        raise TargetError(
            f"{tokens} tokens of {features} features are {box.size} numbers; a grid in so many dimensions has more "
            f"than {max_nodes} nodes (max_nodes)"
        )
    bound = _bound(lipschitz, norm, tokens, features)
    counts = _counts(box, bound, error, grid, width, max_nodes, evaluation or 0.0)
    axes = axes_of(box, counts)
    answers = sample(function, points_of(axes.knots), tokens, outputs)
    slack = float(evaluation) if evaluation is not None else 2.0**-50 * float(np.abs(answers).max())
    _refute(function, box, bound, slack, axes.knots, answers)
    # Knots are doubles next to the nodes.
    slack += float(bound.distance(axes.drift)) * ROOM
    table_ = answers.transpose(1, 0, 2).reshape(tokens, *counts, outputs)
    graph = _graph(axes, table_, bound, slack, tokens)
    transformer = transformer_of(graph, float(width), architecture)
    try:
        draft = drafted(Wanted(graph, {}, None, transformer), box)
        certificate = certified(draft)
    except ThinMarginError as problem:
        raise DomainError(
            f"rounding moves the input too far on the grid: its domain is too thin, too wide, or too far from 0, for "
            f"{' x '.join(map(str, counts))} cells ({problem})"
        ) from None
    except CertificateError as problem:
        raise UnreachableError(str(problem), part="rounding", smallest=math.inf) from None
    cost = bill(transformer, certificate.max_score)
    parts = (graph, box, numbered(transformer, draft.places), certificate, cost, draft.proof)
    made = Universal(*parts, labels=draft.labels)
    if error is not None and made.error > error:
        parts, mean = made.parts, made.parts["approximation"]
        blocks = max(("evaluation", "leak", "rounding"), key=lambda name: parts[name])
        smallest = (evaluation or 0.0) + 1100.0 * (made.error - mean - (evaluation or 0.0))
        raise UnreachableError(
            f"{blocks} takes {parts[blocks]:.3g} of the error {error:.3g}, and a grid of {counts} cells {mean:.3g}: "
            f"ask for {smallest:.3g} or more, or for a wider kernel (width)",
            part=blocks,
            smallest=smallest,
        )
    return made


def _bound(lipschitz: Any, norm: Any, tokens: int, features: int) -> Lipschitz:
    """What the user states of the callable, or TargetError."""
    try:
        each = np.asarray(lipschitz, dtype=np.float64) if np.ndim(lipschitz) == 2 else None
    except (TypeError, ValueError):
        raise TargetError(f"lipschitz is {lipschitz!r}; it needs one number, or ({tokens}, {features})") from None
    if each is not None and each.shape != (tokens, features):
        raise TargetError(f"lipschitz has shape {each.shape}; it needs one number, or ({tokens}, {features}) of them")
    stated = as_smoothness(each.reshape(-1) if each is not None else lipschitz, None, norm, tokens * features)
    assert isinstance(stated, Lipschitz)
    return stated


def _counts(
    box: Box,
    stated: Lipschitz,
    error: float | None,
    grid: int | Sequence[int] | None,
    width: float,
    most: int,
    evaluation: float,
) -> tuple[int, ...]:
    """How many cells each coordinate has."""
    if (error is None) == (grid is None):
        raise TargetError("give either the error or the number of cells along every coordinate (grid)")
    with np.errstate(over="ignore"):
        wide = np.where(box.high > box.low, np.nextafter(box.high - box.low, np.inf) * (1.0 + 1e-12), 0.0)
    if not np.isfinite(wide).all():
        worst = int(np.argmax(wide))
        raise DomainError(f"the domain of {box.names[worst]}, [{box.low[worst]}, {box.high[worst]}], is too wide")
    if error is not None:
        if not (isinstance(error, int | float) and math.isfinite(error) and error > 0.0):
            raise TargetError(f"error is {error!r}; it must be a positive finite number")
        if error <= evaluation:
            raise UnreachableError(
                f"the callable's results are assumed to be within {evaluation:.3g} of the target, which is all of the "
                f"error {error:.3g}: ask for more than that",
                part="evaluation",
                smallest=2.0 * evaluation,
            )
        return fewest_cells(stated, wide, SHARE * (error - evaluation), width, most)
    given = np.asarray(grid)
    if given.dtype.kind not in "iu" or given.ndim > 2 or (given.ndim and given.size != box.size) or given.min() < 1:
        raise TargetError(f"grid is {grid!r}; it must be a positive integer, or {box.size} of them")
    counts = np.where(wide > 0.0, np.broadcast_to(given.reshape(-1), box.size), 1)
    if math.prod(counts.tolist()) > most:
        raise TargetError(
            f"grid is {grid!r}: {math.prod(counts.tolist())} nodes, and at most {most} (max_nodes) are allowed"
        )
    return tuple(counts.tolist())


def _refute(
    function: Callable[[Array], Any],
    box: Box,
    stated: Lipschitz,
    evaluation: float,
    knots: Sequence[Array],
    answers: Array,
) -> None:
    """TargetError where the answers, points between them, or the domain's ends contradict what is stated."""
    _, tokens, outputs = answers.shape

    def flat(points: Array) -> Array:
        return sample(function, points, tokens, outputs).reshape(len(points), -1)

    ends = [frozen([a, a / 2.0 + b / 2.0, b] if a < b else [a]) for a, b in zip(box.low, box.high, strict=True)]
    zeros = frozen(np.zeros(box.size))
    for axes, values in ((knots, answers.reshape(len(answers), -1)), (ends, flat(points_of(ends)))):
        grid = Grid(box, tuple(len(axis) - 1 for axis in axes), tuple(axes), zeros, zeros, zeros)
        refute(stated, grid, values, evaluation, flat)


def _up(*parts: float) -> str:
    """A bound for reading, or a sum of bounds: rounded up."""
    value = parts[0] if len(parts) == 1 else math.nextafter(math.fsum(parts), math.inf)
    return f"{float(Decimal(value).normalize(Context(prec=6, rounding=ROUND_CEILING))):.6g}"


def _refuse_mask(causal: bool) -> None:
    if causal:
        raise DomainError("the model of a sampled callable runs without a mask: every token looks at all of them")
