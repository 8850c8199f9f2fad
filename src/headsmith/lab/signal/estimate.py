"""The average partial Jacobian norm, measured: Hutchinson's estimate on random transformers.

For R with independent standard normal entries, E |R^T (dh^L / dh^l)|^2 = |dh^L / dh^l|_F^2. One reverse pass from R
shaped like the output gives that for every l, and one tangent pass from R shaped like the input gives
|dh^k / dh^0|_F^2 for every k. Networks are independent, so the spread between them gives the standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.lab.signal.networks import draw_block, equiangular_tokens, forward, reverse, tangent
from headsmith.lab.signal.theory import Propagation, Settings, counted, propagate


@dataclass(frozen=True, eq=False)
class Measured:
    """Estimates from random transformers, beside what the theory says; the indices are those of `Propagation`.

    Every estimate is the mean over `networks` independent networks, and has a standard error: the deviation between
    networks over the square root of their number. J comes from tangent passes and J_to_output from reverse passes:
    J[-1] and J_to_output[0] are two estimates of the same number.
    """

    settings: Settings
    theory: Propagation
    width: int
    hidden: int
    heads: int
    networks: int
    probes: int
    seed: int
    q: Array
    p: Array
    J: Array
    J_to_output: Array
    q_standard_error: Array
    p_standard_error: Array
    J_standard_error: Array
    J_to_output_standard_error: Array

    @property
    def ratio(self) -> Array:
        """Measured J over the theory's, block by block."""
        return np.asarray(self.J / self.theory.J)

    @property
    def ratio_standard_error(self) -> Array:
        return np.asarray(self.J_standard_error / self.theory.J)

    def __iter__(self) -> Iterator[Array]:
        """q, p, J = ..."""
        return iter((self.q, self.p, self.J))

    def draw(self, path: Any) -> None:
        """Draw the estimates, with bars of two standard errors, over the theory's curves."""
        from headsmith.lab.signal.draw import draw_measured

        draw_measured([self], path)


def estimate(
    settings: Settings,
    *,
    width: int = 192,
    hidden: int | None = None,
    heads: int = 1,
    networks: int = 8,
    probes: int = 4,
    seed: int = 0,
) -> Measured:
    """Draw networks, run them on tokens of the stated q0 and p0, and measure."""
    width, heads = counted("width", width), counted("heads", heads)
    hidden = 4 * width if hidden is None else counted("hidden", hidden)
    networks, probes = counted("networks", networks), counted("probes", probes)
    if networks < 2:
        raise TargetError("networks is 1; a standard error needs at least 2")
    if width % heads:
        raise TargetError(f"width is {width} and heads is {heads}; the width must be a multiple of the heads")
    samples = np.stack(
        [
            _one_network(settings, width, hidden, heads, probes, np.random.default_rng([seed, number]))
            for number in range(networks)
        ]
    )
    mean, error = samples.mean(axis=0), samples.std(axis=0, ddof=1) / math.sqrt(networks)
    drawn = (width, hidden, heads, networks, probes, seed)
    arrays = [frozen(row) for row in (*mean, *error)]
    return Measured(settings, propagate(settings), *drawn, *arrays)


def _one_network(
    settings: Settings, width: int, hidden: int, heads: int, probes: int, rng: np.random.Generator
) -> Array:
    """q, p, J and J_to_output of one network, (4, depth + 1)."""
    X = equiangular_tokens(settings, width, rng)
    size, shape = X.size, (probes, *X.shape)
    T = rng.standard_normal(shape)
    found = np.empty((4, settings.depth + 1))
    found[:3, 0] = *overlaps(X), 1.0
    blocks, traces = [], []
    for place in range(settings.depth):
        block = draw_block(settings, width, hidden, heads, rng)
        X, trace = forward(settings, block, X)
        T = tangent(settings, block, trace, T)
        found[:3, place + 1] = *overlaps(X), (T**2).sum() / (probes * size)
        blocks.append(block)
        traces.append(trace)
    G = rng.standard_normal(shape)
    found[3, -1] = 1.0
    for place in reversed(range(settings.depth)):
        G = reverse(settings, blocks[place], traces[place], G)
        found[3, place] = (G**2).sum() / (probes * size)
    return found


def overlaps(X: Array) -> tuple[float, float]:
    """q and p of tokens (n, width): the mean square of a coordinate, and the same between different tokens."""
    n, width = X.shape
    q = float((X**2).sum() / (n * width))
    total = float((X.sum(axis=0) ** 2).sum() / width)
    return q, (total - n * q) / (n * (n - 1)) if n > 1 else q
