"""Rule Linear: a range by linear bounds, which know that the gates of a layer read the same inputs.

What is wanted is the least value of every component of a node, and of its negative: of linear forms  a . v + c  of the
values v of nodes. A form is rewritten towards the inputs, from the last node that it reads to the first:

    affine    v = W w + b:                      a . v = (a W) . w + a . b
    gate      v = relu(w), w in [l, h]:         s w <= v <= t w + m      for any s in [0, 1], any t, and m the larger of
              relu(w) - t w at both ends (it is convex). So  a v >= (a s) w  where a > 0, and  a v >= (a t) w + a m
              where a < 0. With t = (relu(h) - relu(l)) / (h - l), m is as small as it can be
    other     a . v is at least what intervals say, for v in its range; so it is for the input

The proof carries the slopes s, for the two sides apart: any are right, some are good. Coefficients are rounded; a form
whose coefficients are off by d is off by at most d . |w|, which is subtracted from c.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from .arithmetic import FLOAT64, TINY, Array, Interval, Upper, interval
from .errors import Refused, refuse, spend
from .graph import Graph


def linear_range(
    circuit: Graph, number: int, slopes: Array, found: Sequence[Interval], whole: Collection[int]
) -> Interval:
    """The range of a node, from those of all before it (size,); those in `whole` are not rewritten. `slopes` (2, gates)
    are those of all gates that are met, in the order of their nodes."""
    size, left = circuit.nodes[number].size, slopes.shape[-1]
    if slopes.ndim != 2 or len(slopes) != 2 or not np.all((slopes >= 0.0) & (slopes <= 1.0)):
        raise Refused(f"the slopes of linear bounds of node {number} are not two rows of numbers from 0 to 1")
    forms, least = {number: np.stack([np.eye(size), -np.eye(size)])}, interval(np.zeros(2 * size))
    for place in range(number, -1, -1):
        if place not in forms:
            continue
        node, form = circuit.nodes[place], forms.pop(place)
        rows, parts = form.reshape(2 * size, -1), list[tuple[int, Array, Upper]]()
        if node.kind == "affine" and place not in whole:
            least = least + rows @ interval(node.constants)
            for argument, weights in zip(node.arguments, node.weights, strict=True):
                spend(0.2 * len(rows) * weights.size)
                rounded = FLOAT64.gamma(node.size + 2) * (rows @ (weights @ found[argument].magnitude))
                parts.append((argument, form @ weights if weights.ndim == 2 else form * weights, rounded))
        elif node.kind == "relu" and place not in whole:
            around, left = found[node.arguments[0]], left - node.size
            refuse(left < 0, f"linear bounds of node {number} meet more gates than have slopes")
            ends = np.stack([around.low, around.high])
            above = np.diff(np.maximum(ends, 0.0), axis=0)[0] / np.maximum(np.diff(ends, axis=0)[0], TINY)
            most = (interval(np.maximum(ends, 0.0)) - interval(ends) * interval(above)).high.max(axis=0)
            least = least + np.minimum(rows, 0.0) @ interval(most)
            bent = form * np.where(form > 0.0, slopes[:, None, left : left + node.size], above)
            parts.append((node.arguments[0], bent, _size(bent, around) * FLOAT64.unit_roundoff))
        else:
            least = least + rows @ found[place]
        for argument, part, rounded in parts:
            forms[argument] = forms[argument] + part if argument in forms else part
            added = _size(forms[argument], found[argument]) * FLOAT64.unit_roundoff
            underflow = found[argument].magnitude.sum() * (node.size * TINY)
            least = least + Interval(-(rounded + added + underflow).value, np.zeros(2 * size))
    return Interval(least.low[:size], -least.low[size:])


def _size(form: Array, values: Interval) -> Upper:
    """How large the sum of the sizes of a form's terms can be."""
    size: Upper = form.reshape(-1, form.shape[-1]) @ values.magnitude
    return size
