"""Ranges of networks by linear bounds of their gates (search/linear.py), where these are better than intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headsmith.analysis.flow import kernel_graph
from headsmith.core.intervals import Box, Interval
from headsmith.kernel.arithmetic import Interval as Known
from headsmith.search.linear import find_linear
from headsmith.source.graph import Affine, Graph, Input, Relu

ROOM = 1e-9
"""Ranges are wider by that share of their sizes: the kernel bounds another graph of the same function."""


def linear_ranges(graph: Graph, box: Box, found: Sequence[Interval]) -> tuple[Interval, ...]:
    """The ranges of all nodes, smaller where linear bounds are."""
    if not all(isinstance(node, Input | Affine | Relu) for node in graph.nodes):
        return tuple(found)
    better = find_linear(kernel_graph(graph), Known(box.low, box.high))
    if not better.slopes or better.ranges is None:
        return tuple(found)
    return tuple(_met(before, after) for before, after in zip(found, better.ranges, strict=True))


def _met(before: Interval, after: Known) -> Interval:
    room = ROOM * after.magnitude.value
    return Interval(np.maximum(before.low, after.low - room), np.minimum(before.high, after.high + room))
