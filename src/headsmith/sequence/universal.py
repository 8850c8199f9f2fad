"""Any function of a short sequence with a stated Lipschitz bound, by attention alone: gather, then look up.

    grid       as few cells as the stated bound allows for the error           sequence/gaussian_grid.py
    answers    the callable's values at the cells' centres
    model      two attention layers, or one and a softmax, as matrices         sequence/universal_model.py
    error      what the matrices prove                                         sequence/universal_proof.py

A callable cannot be proven anything about from samples. What is proven and what is assumed is kept apart, as in
approximate.py. The cost is p^D answers for D = tokens * features: this is for small D.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, DomainError, TargetError, UnreachableError
from headsmith.core.figures import bound, count
from headsmith.core.html import card, table
from headsmith.core.intervals import Box
from headsmith.core.rounding import EXP_ULPS, Dtype
from headsmith.export.formats import To
from headsmith.export.onnx_model import textbook_onnx
from headsmith.export.plain import Plain, called, plain
from headsmith.heads.ramp import WIDTH
from headsmith.inside.notebook import bill_text, box_text
from headsmith.sequence.gaussian_grid import BEYOND, NARROWEST, WIDEST, fewest_cells
from headsmith.sequence.universal_cache import dense, run_with_cache
from headsmith.sequence.universal_circuit import universal_circuit
from headsmith.sequence.universal_explain import explain_universal
from headsmith.sequence.universal_file import read_universal, write_universal
from headsmith.sequence.universal_inputs import box_of, points_of, run_inside, sample, table_inside
from headsmith.sequence.universal_model import Architecture, Attention, Lookup, bill, build, score_size
from headsmith.sequence.universal_proof import (
    Stated,
    answers_of,
    axes_of,
    error_of,
    lookup_of,
    prove,
    verified,
)
from headsmith.source.kuhn import Grid
from headsmith.source.refute import refute
from headsmith.source.smoothness import Lipschitz, as_smoothness
from headsmith.transformer.bill import Bill
from headsmith.transformer.dense import DenseTransformer

SHARE = 0.999
"""How much of the error the kernel may take: leak and rounding are small."""

MAX_NODES = 100_000
"""How many nodes a grid may have, unless told."""

UNLABELLED = (
    "the heads of a sampled callable's model are not labelled: look at them with model.explain(), model.circuit() or "
    "model.run(x, cache=True), and edit them with forward hooks of model.to_torch()"
)
UNFUSED = "a model of a sampled callable has no closed forms: its heads are looked up on a grid; run it without fused"


@dataclass(frozen=True, eq=False)
class Universal:
    """An attention-only model of a callable. For every X (tokens, features) in the domain |model(X) - f(X)| <= error,
    in every output, where

        error = approximation + evaluation + leak + rounding

    `leak` and `rounding` bound the run against the exact kernel mean of the answers at a point near X;
    `approximation` bounds that mean against f, if `lipschitz`, which the user stated, is true of f; `evaluation` is how
    far the callable's floating-point results are assumed to be from f. The sum is proven of every f that is as stated
    and has the stored answers at the knots (`certificate`); that the callable is one of them is assumed.
    """

    model: Attention
    stated: Stated
    parts: Mapping[str, float]

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
        return f"({self.tokens}, {self.features}) to ({self.tokens}, {self.model.outputs})"

    def explain(self, heads: int = 12) -> str:
        """The model in words, layer by layer and head by head."""
        return explain_universal(self.model, self.stated, self.lookup, self.certificate, heads)

    @property
    def box(self) -> Box:
        """The domain of the flattened input: tokens, then features."""
        return self.stated.box

    @property
    def counts(self) -> tuple[int, ...]:
        """How many cells each coordinate has."""
        return self.stated.counts

    @property
    def lipschitz(self) -> Lipschitz:
        return self.stated.lipschitz

    @property
    def architecture(self) -> Architecture:
        return self.stated.architecture

    @cached_property
    def lookup(self) -> Lookup:
        """What the matrices look up."""
        return lookup_of(axes_of(self.box, self.counts), answers_of(self.stated, self.model), self.stated.width)

    @property
    def error(self) -> float:
        return error_of(tuple(self.parts.values()))

    @property
    def tokens(self) -> int:
        """How many tokens a sequence has: exactly so many."""
        return self.model.tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of tokens that the model takes."""
        return (self.tokens,)

    @property
    def features(self) -> int:
        return self.model.features

    @property
    def bill(self) -> Bill:
        return bill(self.model, score_size(self.lookup))

    @property
    def certificate(self) -> Certificate:
        """|run - f| <= error for every f that is as stated and whose values at the knots are within `evaluation` of
        the stored answers. `evaluation` is a part of the approximation here."""
        sampled = error_of((self.parts["approximation"], self.parts["evaluation"]))
        return Certificate(
            error=self.error,
            parts={
                "approximation": sampled,
                "softmax": 0.0,
                "leak": self.parts["leak"],
                "rounding": self.parts["rounding"],
            },
            outputs=(self.error,) * self.model.outputs,
            dtype="float64",
            tokens=self.tokens,
            max_score=self.bill.max_score,
            masks=("full",),
            exp_ulps=EXP_ULPS,
            blocks=0,
            domain=(),
            max_weight=self.bill.max_weight,
        )

    @property
    def proven(self) -> str:
        """What holds whatever the callable is."""
        return (
            f"the model is within {_up(self.parts['leak'], self.parts['rounding'])} of the exact Gaussian mean (c = "
            f"{self.stated.width:g}) of the {math.prod(self.counts)} sampled answers that its matrices hold, at a "
            f"point within {BEYOND:g} grid steps of the input; and so within {_up(self.error)} of every f that is "
            f"within {_up(self.parts['evaluation'])} of these answers at the nodes and has {self.lipschitz}"
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

    def __call__(self, array: Any, *, outside: Literal["refuse", "allow"] = "refuse", fused: bool = False) -> Array:
        """(..., tokens, features) -> (..., tokens, outputs); DomainError outside the domain (outside="allow" runs it
        without any promise), or for another number of tokens. For one feature, (tokens,) will do as well."""
        if fused:
            raise TargetError(UNFUSED)
        return run_inside(self.model, self.box, array, outside)

    def run(self, array: Any, *, cache: bool = False) -> Any:
        """Run the model. With `cache`, on one sequence (tokens, features), and return also every intermediate by its
        name: "layer 1 / gather head 0 / pattern", "layer 2 / register out" (see universal_cache.py)."""
        if not cache:
            return self(array)
        return run_with_cache(self.model, self.architecture, table_inside(self.model, self.box, array))

    def dense(self) -> DenseTransformer:
        """The model's matrices by name: W_Q, W_K, W_V and W_O of every head, and the others (see
        transformer/dense.py)."""
        return dense(self.model, self.architecture)

    def called(self) -> dict[str, Any]:
        """How the model is called, for other tools (export/plain.py)."""
        model = self.model
        return called(model.features, model.outputs, model.tokens, "sequences", False, "float64", [model.tokens])

    def plain(self) -> Plain:
        """The model's weights as tensors by name, with a configuration, for other tools (export/plain.py)."""
        return plain(self.dense(), self.called())

    def to_torch(self, *, fused: bool = False, dtype: Dtype | None = None) -> Any:
        """The model as a torch.nn.Module (see Compiled.to_torch)."""
        from headsmith.run.torch_runtime import textbook_module

        if fused:
            raise TargetError(UNFUSED)
        return textbook_module(self.plain(), dtype)

    def to_onnx(self, *, fused: bool = False) -> Any:
        """The model as an onnx.ModelProto (see Compiled.to_onnx)."""
        if fused:
            raise TargetError(UNFUSED)
        return textbook_onnx(self.plain())

    def circuit(self) -> dict[str, Any]:
        """What every head does, as data that JSON can hold."""
        return universal_circuit(self.model, self.architecture, self.box, self.certificate)

    def export(
        self, folder: str | os.PathLike[str], to: To, *, fused: bool = False, causal: bool | None = None
    ) -> Path:
        """Write the model into a new folder for another tool, with its proof (see report/exporting.py)."""
        written: Path = import_module("headsmith.report.exporting").export(self, folder, to, fused=fused, causal=causal)
        return written

    @property
    def layers(self) -> Any:
        """Refused: the heads of such a model are told by `explain`, `circuit` and `run(cache=True)`."""
        raise TargetError(UNLABELLED)

    @property
    def directions(self) -> Any:
        """Refused, as `layers`."""
        raise TargetError(UNLABELLED)

    def ablate(self, *heads: str, **options: Any) -> Any:
        """Refused, as `layers`."""
        raise TargetError(UNLABELLED)

    def patch(self, array: Any, source: Any, *places: str, **options: Any) -> Any:
        """Refused, as `layers`."""
        raise TargetError(UNLABELLED)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the callable to one safetensors file, completely or not at all."""
        write_universal(path, self.stated, self.model, self.parts)

    def verify(self) -> Certificate:
        """Prove the error again, from the matrices and what is stated. CertificateError if less can be proven than is
        claimed."""
        return Universal(self.model, self.stated, verified(self.stated, self.model, self.parts)).certificate

    def check(self, function: Callable[[Array], Any]) -> float:
        """Sample the callable again: how far its results are from the stored answers, at most.

        TargetError, with the point, where that is more than twice `evaluation` (both may be so far from f), or where
        samples contradict the stated bound.
        """
        axes, answers = axes_of(self.box, self.counts), self.lookup.answers
        points = points_of(axes.knots)
        apart = np.abs(sample(function, points, self.tokens, self.model.outputs) - answers)
        worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
        if not apart[worst] <= 2.0 * self.stated.evaluation:
            raise TargetError(
                f"the model holds {float(answers[worst])!r} at {points[worst[0]].reshape(self.tokens, -1).tolist()}, "
                f"token {int(worst[1])}, output {int(worst[2])}; the callable differs from that by "
                f"{float(apart[worst]):.6g}, and may by {2.0 * self.stated.evaluation:.3g}"
            )
        _refute(function, self.stated, axes.knots, answers)
        return float(apart[worst])


def load_universal(path: str | os.PathLike[str]) -> Universal:
    """Read a saved model back, bit for bit. Its parts are the stored ones: `verify` derives them again."""
    return Universal(*read_universal(path))


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
    stated = Stated(box, counts, float(width), bound, slack, architecture)
    _refute(function, stated, axes.knots, answers)
    model = build(lookup_of(axes, answers, width), architecture)
    try:
        made = Universal(model, stated, prove(stated, model))
    except CertificateError as problem:
        raise UnreachableError(str(problem), part="rounding", smallest=math.inf) from None
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


def _refute(function: Callable[[Array], Any], stated: Stated, knots: Sequence[Array], answers: Array) -> None:
    """TargetError where the answers, points between them, or the domain's ends contradict what is stated."""
    box, (_, tokens, outputs) = stated.box, answers.shape

    def flat(points: Array) -> Array:
        return sample(function, points, tokens, outputs).reshape(len(points), -1)

    ends = [frozen([a, a / 2.0 + b / 2.0, b] if a < b else [a]) for a, b in zip(box.low, box.high, strict=True)]
    zeros = frozen(np.zeros(box.size))
    for axes, values in ((knots, answers.reshape(len(answers), -1)), (ends, flat(points_of(ends)))):
        grid = Grid(box, tuple(len(axis) - 1 for axis in axes), tuple(axes), zeros, zeros, zeros)
        refute(stated.lipschitz, grid, values, stated.evaluation, flat)


def _up(*parts: float) -> str:
    """A bound for reading, or a sum of bounds: rounded up."""
    value = parts[0] if len(parts) == 1 else error_of(parts)
    return f"{float(Decimal(value).normalize(Context(prec=6, rounding=ROUND_CEILING))):.6g}"
