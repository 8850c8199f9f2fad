"""How errors travel: what every node is off by, and what an error at a node does to the output.

A node moves with its arguments by slopes: an affine node by its weights, a gate with a head by a slope in [0, 1], a
gate without one by exactly 1 (active) or 0 (dead), however far its argument is off. So D = sum of slopes times D of
the arguments + own, at every token, `own` being what a node commits itself. A gain bounds the products of slopes
along all paths to a node; the sum of gains times own is what that node is off by, because D is linear in what is
committed once the slopes are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.small_kernel.bounds import FLOOR, SLACK, Array, Span, carried, image, point


@dataclass(frozen=True, eq=False)
class Edge:
    """A node's argument, and the slope by it: a matrix, or an interval for each component. `elsewhere`: at any
    token."""

    argument: int
    slope: Any
    elsewhere: bool = False

    def sizes(self, off: Array) -> Array:
        return carried(self.slope.size if isinstance(self.slope, Span) else self.slope, off)

    def back(self, gain: Span) -> Span:
        """slope^T gain."""
        return self.slope[:, None] * gain if isinstance(self.slope, Span) else image(self.slope.T, gain)


Edges = dict[int, list[Edge]]


def within(to: int, size: int, edges: Edges) -> dict[int, Span]:
    """Gains along paths that never leave the token, from a node, the identity, to smaller numbers."""
    here = {to: point(np.eye(size))}
    for n in range(to, 0, -1):
        for edge in edges.get(n, []) if n in here else []:
            if not edge.elsewhere:
                part = edge.back(here[n])
                here[edge.argument] = here[edge.argument] + part if edge.argument in here else part
    return here


@dataclass(frozen=True, eq=False)
class Gains:
    """By how much an error at a node moves node `to`: at its own token by `here`, at all others together by `far`."""

    here: dict[int, Span]
    far: dict[int, Array]

    def moved(self, n: int, below: Array, above: Array) -> tuple[Array, Array]:
        """How far errors in [-below, above] push each output up, and down."""
        down, up = self.here[n].sides if n in self.here else (np.zeros_like(self.far[n]),) * 2
        low, high = below[:, None], above[:, None]
        more = self.far.get(n, 0.0) * np.maximum(low, high)
        pushed = (np.maximum(up * high, down * low) + more, np.maximum(up * low, down * high) + more)
        return pushed[0].sum(axis=0) + FLOOR, pushed[1].sum(axis=0) + FLOOR

    def carried(self, n: int, error: Array) -> Array:
        """How far an error of at most that, of either sign, moves each output."""
        return self.moved(n, error, error)[0]


def gains(to: int, sizes: list[int], edges: Edges) -> Gains:
    """An error reaches other tokens by a path whose last edge elsewhere leads from a node, n, to its argument:
    along gains within the token to the argument, by the slope, and on by whatever gains n has."""
    here, far = within(to, sizes[to], edges), dict[int, Array]()
    for n in range(to, 0, -1):
        if n in here or n in far:
            on = (here[n].size if n in here else 0.0) + far.get(n, 0.0) * SLACK
            for edge in (edge for edge in edges.get(n, []) if edge.elsewhere):
                for m, path in within(edge.argument, sizes[edge.argument], edges).items():
                    far[m] = far.get(m, 0.0) + path.size @ edge.sizes(np.asarray(on))
    return Gains(here, far)
