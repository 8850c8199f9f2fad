"""A network of another library as a target: its source graph, and what is to be said about how it was read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.figures import count
from headsmith.core.markup import table
from headsmith.language.evaluation import evaluate, node_values
from headsmith.language.graph import Affine, Graph, Maximum, Minimum
from headsmith.language.limits import refuse_absurd

SAMPLES = 32
"""How many inputs are tried to see how far a network's own run is from exact arithmetic."""
MOST_LONG = 1 << 22
"""Graphs with at most so many weights are evaluated in extended precision."""
ROUNDINGS = 4096.0
"""A run in floating point may be off by so many units in the last place of the largest number in it."""
LARGEST = {2.0**-10: 2.0**14, 2.0**-52: 2.0**1000}
"""By the distance between numbers near 1: runs are compared where no number is larger than this; in others, 2^100."""
UNCOMPARED = (
    "nothing is compared: for each input tried, some number in the network is not defined, or beyond its format"
)


@dataclass(frozen=True)
class Difference:
    """How far the network's own run is from exact arithmetic on the same weights: the largest that was found on
    `samples` inputs. An estimate, and no part of any certificate, which is about exact arithmetic."""

    largest: float
    samples: int
    runner: str

    def __str__(self) -> str:
        return (
            f"{self.runner} and exact arithmetic differ by at most {self.largest:.2g} on {self.samples} inputs tried "
            f"(an estimate)"
        )


@dataclass(frozen=True, eq=False)
class Imported:
    """A network that was read: give it to `hs.compile`. Call it with inputs (..., inputs), or in its own shape.

    `notes` say what was left out or taken as something else; `difference` how far the network's own floating-point run
    is from the exact arithmetic that certificates speak about.
    """

    graph: Graph
    origin: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    notes: tuple[str, ...] = ()
    difference: Difference | None = None

    def __post_init__(self) -> None:
        if not self.graph.input.size or not self.graph.nodes[self.graph.output].size:
            raise TargetError(f"{self.origin}: it takes no numbers, or returns none")
        refuse_absurd(self.graph, self.origin)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self.graph.input.names

    def __call__(self, inputs: Any) -> Array:
        """The outputs in float64, for inputs (..., inputs) or (..., *input_shape)."""
        return np.asarray(evaluate(self.graph, self.rows(inputs)))

    def rows(self, inputs: Any) -> Array:
        """Inputs of any number of leading axes as (..., inputs): what a compiled model takes."""
        array = np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs, dtype=np.float64)
        wanted = len(self.input_shape)
        if array.ndim >= wanted and wanted > 1 and array.shape[-wanted:] == self.input_shape:
            return array.reshape(*array.shape[:-wanted], -1)
        if array.ndim and array.shape[-1] == self.graph.input.size:
            return array
        shapes = " or ".join(f"(..., {', '.join(map(str, each))})" for each in self._shapes())
        raise TargetError(f"inputs of shape {array.shape}; this network takes {shapes}")

    def _shapes(self) -> list[tuple[int, ...]]:
        flat = (self.graph.input.size,)
        return [flat] if self.input_shape == flat else [self.input_shape, flat]

    def __repr__(self) -> str:
        said = "".join(f"\n {note}" for note in self._said())
        return f"<{self.origin}: {self._sizes()}{said}>"

    def _repr_html_(self) -> str:
        return table(f"{self.origin}: {self._sizes()}", [[note] for note in self._said()], figures=())

    def _sizes(self) -> str:
        ends = " -> ".join(" x ".join(map(str, shape or (1,))) for shape in (self.input_shape, self.output_shape))
        extremes = sum(node.size for node in self.graph.nodes if isinstance(node, Maximum | Minimum))
        tail = f", {extremes} maxima" if extremes else ""
        return f"{ends}, {count(self.graph.gates, 'gate')}{tail}"

    def _said(self) -> list[str]:
        return [*self.notes, *([] if self.difference is None else [str(self.difference)])]


def measured(
    graph: Graph, run: Callable[[Array], Array], runner: str, examples: Array, epsilon: float = 2.0**-23
) -> Difference | None:
    """How far the network's own `run` is from the graph, on `examples` (n, inputs) and on inputs at random among them;
    of these, where all numbers are defined and within the network's format. None where that is nowhere the case.

    Raises TargetError where the two differ by more than rounding can explain: then the network does something that was
    not understood, such as mixing the rows of a batch.
    """
    inputs = sampled(examples)
    # A run in double precision is compared with one of more digits, unless that takes long.
    entries = sum(term.weights.size for node in graph.nodes if isinstance(node, Affine) for term in node.terms)
    longer = epsilon < 2.0**-23 and entries <= MOST_LONG
    values = node_values(graph, inputs, np.longdouble if longer else np.float64)
    ours = values[graph.output].reshape(len(inputs), -1)
    theirs = np.asarray(run(inputs), dtype=np.float64)
    if theirs.size != ours.size:
        raise TargetError(f"{runner} returns {theirs.size} numbers for {len(inputs)} rows, but {ours.size} were read")
    # A logarithm of a negative number, or a number beyond the format, says nothing about the other inputs.
    most = LARGEST.get(epsilon, 2.0**100)
    rows = np.all([np.all(np.abs(value).reshape(len(inputs), -1) <= most, axis=1) for value in values], axis=0)
    if not rows.any():
        return None
    ours, theirs = ours[rows], theirs.reshape(ours.shape)[rows]
    gap = np.abs(theirs - ours)
    size = max(1.0, *(float(np.abs(value[rows]).max(initial=0.0)) for value in values))
    if not np.all(gap <= ROUNDINGS * epsilon * size):
        row, output = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), math.inf, gap))), gap.shape)
        raise TargetError(
            f"the network was not understood: its output {output} is {theirs[row, output]:.6g} in {runner}, and "
            f"{ours[row, output]:.6g} in what was read. Does it mix the rows of a batch, or keep a state?"
        )
    return Difference(float(gap.max(initial=0.0)), len(ours), runner)


def sampled(examples: Array) -> Array:
    """Up to half of SAMPLES examples, and as many points at random between their smallest and largest numbers."""
    first = examples[: SAMPLES // 2]
    low, high = float(examples.min(initial=0.0)), float(examples.max(initial=0.0))
    if low == high:
        low, high = min(low, 0.0) - 1.0, max(high, 0.0) + 1.0
    random = np.random.default_rng(0).uniform(low, high, (SAMPLES - len(first), examples.shape[1]))
    # What a network takes is rounded to its own format: use numbers that all formats have.
    return np.concatenate([first, random]).astype(np.float32).astype(np.float64)


def input_names(size: int, names: Sequence[str] | None = None) -> list[str]:
    """x0, x1, ..., unless there are names."""
    if names is not None and len(set(names)) == size:
        return [str(name) for name in names]
    return [f"x{place}" for place in range(size)]
