"""Maxout networks as targets, and the maximum of affine pieces as a function.

A maxout layer of rank k takes, unit by unit, the largest of k affine maps of its input: x -> max_j (W[j] x + b[j]).
Rank 2 with one piece zero is a ReLU layer; rank 1 is an affine layer. In the graph a layer is k affine nodes and one
Maximum node, whatever its width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.figures import count
from headsmith.language.builder import Builder
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.language.library import is_traced, maximum
from headsmith.language.network import Network, checked_chain, layers_html, pairs_of, real_pair


class MaxoutNetwork:
    """A maxout network: `MaxoutNetwork([(W, b), ...])`. The shape of W says what a layer is, anywhere in the list:

        W (rank, out, in), b (rank, out)    maxout: unit i is the largest of W[j, i] x + b[j, i] over j
        W (out, in),       b (out,)         affine: W x + b

    Ranks, widths and depth are free, and may differ from layer to layer; inputs are named x0, x1, ... unless `names`
    says otherwise.
    """

    def __init__(self, layers: Iterable[tuple[Any, Any]], names: Iterable[str] | None = None) -> None:
        self.layers = tuple(_pair(index, pair) for index, pair in enumerate(pairs_of(layers)))
        self.names = checked_chain(self.layers, names)

    @classmethod
    def from_network(cls, network: Network) -> MaxoutNetwork:
        """A ReLU network as a maxout network of rank 2: relu(z) = max(z, 0)."""
        *hidden, last = network.layers
        layers = [(np.stack([weights, 0.0 * weights]), np.stack([bias, 0.0 * bias])) for weights, bias in hidden]
        return cls([*layers, last], names=network.names)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Each layer's number of pieces; 1 for an affine layer."""
        return tuple(len(weights) if weights.ndim == 3 else 1 for weights, _ in self.layers)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of inputs, and of each layer's outputs."""
        return (len(self.names), *(weights.shape[-2] for weights, _ in self.layers))

    @property
    def graph(self) -> Graph:
        """The network as a source graph: for each layer as many Affine nodes as its rank, and one Maximum node.

        Pieces with the same W are one: max(W x + b, W x + c) = W x + max(b, c).
        """
        builder = Builder(self.names)
        node = builder.input
        for weights, bias in self.layers:
            if weights.ndim == 2:
                node = builder.affine([(node, weights)], bias)
                continue
            pieces = [builder.affine([(node, piece)], shift) for piece, shift in _distinct(weights, bias)]
            node = builder.maximum(pieces) if len(pieces) > 1 else pieces[0]
        return builder.graph(node)

    @property
    def parameters(self) -> int:
        return sum(weights.size + bias.size for weights, bias in self.layers)

    def __call__(self, inputs: Any) -> Array:
        """The network's output in float64, for inputs (..., in)."""
        return np.asarray(evaluate(self.graph, inputs))

    def __repr__(self) -> str:
        steps = [
            f"{width}[{len(weights)}]" if weights.ndim == 3 else str(width)
            for width, (weights, _) in zip(self.widths[1:], self.layers, strict=True)
        ]
        return f"MaxoutNetwork({'-'.join([str(self.widths[0]), *steps])})"

    def _repr_html_(self) -> str:
        return layers_html(f"maxout network, {count(self.parameters, 'parameter')}", self.layers)


def _distinct(weights: Array, bias: Array) -> list[tuple[Array, Array]]:
    """The pieces of a layer (W[j], b[j]) with different W; of those with the same, the largest b of each unit."""
    pieces: list[tuple[Array, Array]] = []
    for matrix, shift in zip(weights, bias, strict=True):
        place = next((index for index, (known, _) in enumerate(pieces) if np.array_equal(known, matrix)), None)
        if place is None:
            pieces.append((matrix, shift))
        else:
            pieces[place] = (matrix, np.maximum(pieces[place][1], shift))
    return pieces


def _pair(index: int, pair: tuple[Any, Any]) -> tuple[Array, Array]:
    weights, bias = real_pair(index, pair)
    if weights.ndim not in (2, 3):
        raise TargetError(
            f"pair {index}: W has shape {weights.shape}; it must be (rank, out, in) for a maxout layer, or (out, in) "
            f"for an affine one"
        )
    if bias.shape != weights.shape[:-1]:
        raise TargetError(
            f"pair {index}: b has shape {bias.shape}; W has shape {weights.shape}, so b needs {weights.shape[:-1]}"
        )
    return weights, bias


def maxout(pieces: Sequence[tuple[Any, Any]], x: Any) -> Any:
    """The largest of a . x + c over the pieces (a, c): for a vector x of traced values, or numbers (..., inputs).

    A single traced value or number stands for a vector of length one; then a may be a number too.
    """
    slopes, shifts = as_pieces(pieces)
    if isinstance(x, list | tuple | np.ndarray):
        vector = np.asarray(x, dtype=object if is_traced(x) else np.float64)
    else:
        vector = np.asarray([x], dtype=object)
    if vector.shape[-1] != slopes.shape[1] or (is_traced(x) and vector.ndim != 1):
        raise TargetError(f"maxout: the pieces take {slopes.shape[1]} inputs, and x has shape {vector.shape}")
    if not is_traced(x):
        result = (vector.astype(np.float64) @ slopes.T + shifts).max(axis=-1)
        return float(result) if result.ndim == 0 else result
    rows = [
        sum((float(w) * item for w, item in zip(row, vector, strict=True) if w), float(shift))
        for row, shift in zip(slopes, shifts, strict=True)
    ]
    return maximum(*rows)


def as_pieces(pieces: Sequence[tuple[Any, Any]], what: str = "maxout") -> tuple[Array, Array]:
    """Affine pieces (a, c) as a matrix with a row for each a, and a vector; TargetError names a malformed one."""
    slopes: list[Array] = []
    shifts: list[float] = []
    for index, piece in enumerate(pieces):
        try:
            a, c = piece
            row, shift = np.atleast_1d(np.asarray(a, dtype=np.float64)), float(c)
        except (TypeError, ValueError):
            raise TargetError(f"{what}: piece {index} is {piece!r}; it must be a pair (a, c) of real numbers") from None
        if row.ndim != 1 or not len(row) or (slopes and row.shape != slopes[0].shape):
            wanted = f"({len(slopes[0])},)" if slopes else "(inputs,)"
            raise TargetError(f"{what}: piece {index} has slopes of shape {row.shape}; they need {wanted}")
        if not (np.isfinite(row).all() and np.isfinite(shift)):
            raise TargetError(f"{what}: piece {index} is {piece!r}; its numbers must be finite")
        slopes.append(row)
        shifts.append(shift)
    if not slopes:
        raise TargetError(f"{what}: there are no pieces; give at least one (a, c)")
    return np.array(slopes), np.array(shifts)
