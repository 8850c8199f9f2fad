"""Feed-forward networks with a residual stream, as the blocks of a transformer are without its attention.

    X = W_E x + b_E,    X <- X + W_out h,    y = W_U X + b_U
    h = relu(W_in X + b_in),    or    act(W_in X + b_in) * (W_gate X + b_gate)    with act = silu (SwiGLU), gelu (GeGLU)

A ReLU network needs no gate. With one, silu(a) - silu(-a) = a = gelu(a) - gelu(-a) makes products exact: two units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array

Kind = Literal["relu", "swiglu", "geglu"]
FIGURES = ("parameters", "nonzeros", "multiply_adds", "depth", "max_weight")
"""What both sides are compared by."""


@dataclass(frozen=True)
class MultiplyAdds:
    """What a network costs: entries of its matrices and vectors, those that are not zero, multiplications and additions
    for one token with every matrix as it is (activations apart), layers, and the largest weight."""

    parameters: int
    nonzeros: int
    multiply_adds: int
    depth: int
    max_weight: float


@dataclass(frozen=True, eq=False)
class FeedForwardBlock:
    """One layer of units: W_in (units, d), W_out (d, units), and of gated ones W_gate (units, d)."""

    W_in: Array
    b_in: Array
    W_out: Array
    W_gate: Array | None = None
    b_gate: Array | None = None


@dataclass(frozen=True, eq=False)
class FeedForward:
    """A feed-forward network; call it with an array (..., inputs)."""

    kind: Kind
    W_E: Array
    b_E: Array
    blocks: tuple[FeedForwardBlock, ...]
    W_U: Array
    b_U: Array

    def __call__(self, inputs: Any) -> Array:
        stream = np.asarray(inputs, dtype=np.float64) @ self.W_E.T + self.b_E
        for block in self.blocks:
            units = _ACTIVATIONS[self.kind](stream @ block.W_in.T + block.b_in)
            if block.W_gate is not None and block.b_gate is not None:
                units = units * (stream @ block.W_gate.T + block.b_gate)
            stream = stream + units @ block.W_out.T
        return np.asarray(stream @ self.W_U.T + self.b_U)

    def __repr__(self) -> str:
        units = sum(len(block.b_in) for block in self.blocks)
        return f"<FeedForward {self.kind}: {len(self.blocks)} layers, {units} units, d {len(self.b_E)}>"

    def arrays(self) -> Iterator[Array]:
        """All matrices and vectors."""
        yield from (self.W_E, self.b_E, self.W_U, self.b_U)
        for block in self.blocks:
            every = (block.W_in, block.b_in, block.W_out, block.W_gate, block.b_gate)
            yield from (each for each in every if each is not None)

    @property
    def work(self) -> MultiplyAdds:
        """What it costs."""
        every = list(self.arrays())
        gated = sum(len(block.b_in) for block in self.blocks if block.W_gate is not None)
        return MultiplyAdds(
            parameters=sum(each.size for each in every),
            nonzeros=sum(int(np.count_nonzero(each)) for each in every),
            multiply_adds=sum(each.size for each in every if each.ndim == 2) + gated,
            depth=len(self.blocks),
            max_weight=max(float(np.abs(each).max(initial=0.0)) for each in every),
        )


def _silu(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x / (1.0 + np.exp(-x)))


def _gelu(x: Array) -> Array:
    normal = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)), otypes=[np.float64])
    return np.asarray(x * normal(x))


_ACTIVATIONS = {"relu": lambda x: np.maximum(x, 0.0), "swiglu": _silu, "geglu": _gelu}
