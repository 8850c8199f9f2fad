"""A Gaussian kernel on a grid of cell centres: how far away, on average, the nodes are that a softmax looks at.

An interval is cut into p cells of length h. In steps, t = (s - middle)/h, the nodes are g = k - (p-1)/2, k < p, and
node g weighs

    w_g = softmax(-c (t - g)^2) = softmax(2 c t g - c g^2),        |t| <= p/2.

Moments.  For phi(r) = r, r^2 or max(r - 1/2, 0), the constant is the largest E phi(|t - g|) over t. In the middle
    between two nodes, and at the ends, no node is nearer than 1/2: no width does better than E |t - g| = 1/2, which
    is the limit of large c (hardmax, the nearest node). Softness costs 1/2 + 1/(1 + e^{2c}) for c >= 1, nearly: at
    c = WIDTH it is 0.5043, and then the mean follows a linear target to 0.06 h between the outermost nodes. Half a
    step beyond them it does not follow: there the bound is attained.

Guarantee of a mean.  If |f(x) - f(y)| <= distance(x - y), then |E f(nodes) - f(s)| <= E distance(nodes - s), and on a
tensor grid coordinate i has a kernel of its own, with distances r_i in steps:

    sum L_i |.|         E sum L_i h_i r_i                <= sum L_i h_i first_i
    L times 2-norm      L E sqrt(sum h_i^2 r_i^2)        <= L sqrt(sum h_i^2 second_i)            (Jensen)
    L times largest     L E max h_i r_i                  <= L (max h_i / 2 + sum h_i excess_i)

A function of the distance to one point attains the first as c grows: no use of the values on this grid does better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, UnreachableError
from headsmith.core.rounding import FLOAT64
from headsmith.heads.ramp import REACH
from headsmith.source.smoothness import Lipschitz, euclidean

BEYOND = 1e-6
"""How far, in steps, rounding may put t beyond the ends: the constants hold there too."""

NARROWEST, WIDEST = 1e3, 1.0
"""The widths c for which the constants are bounded."""

SLACK = 1e-5
"""How far the constants may be above what is attained."""

ROOM = 1.0 + 1e-12
"""Covers the few roundings of the formulas below, all of whose terms are positive."""

Moment = Literal["first", "second", "excess"]

_PHI: dict[Moment, Callable[[Array], Array]] = {
    "first": lambda distance: distance,
    "second": lambda distance: distance**2,
    "excess": lambda distance: np.maximum(distance - 0.5, 0.0),
}


@cache
def moment(nodes: int, width: float, which: Moment = "first") -> float:
    """Bound of E phi(|t - g|) over |t| <= nodes/2 + BEYOND for the Gaussian kernel of this width, rounded up.

    Guarantee: on a cell of t every weight, relative to one node, lies between its values at the cell's ends, since
    its exponent is linear in t, and so does every distance; cells are halved until the bound is within SLACK of a
    value that is attained. The whole is symmetric, and nodes more than REACH - 1 away from t add less than 1e-20.
    """
    if nodes < 1 or not WIDEST <= width <= NARROWEST:
        raise DomainError(f"no constant for {nodes} nodes and width {width!r}: widths go from {WIDEST} to {NARROWEST}")
    count = min(nodes, 2 * REACH)
    ends = np.linspace(-0.5 - BEYOND, (count - 1) / 2.0, 64 * count + 1)
    low, high, attained = ends[:-1], ends[1:], 0.0
    for _ in range(40):
        middle = (low + high) / 2.0
        attained = max(attained, float(_cell_moment(middle, middle, count, width, which).max()))
        bounds = _cell_moment(low, high, count, width, which)
        left = bounds > attained + SLACK
        if not left.any():
            break
        low, high = np.concatenate([low[left], middle[left]]), np.concatenate([middle[left], high[left]])
    else:
        attained = float(bounds.max())
    # Exponents of size 2 c REACH^2 that count are rounded; so are the sums.
    return attained + SLACK + 1e-11 * (1.0 + width)


def _cell_moment(low: Array, high: Array, count: int, width: float, which: Moment) -> Array:
    """An upper bound of the moment on each cell [low, high]; the moment itself where the ends are the same."""
    near = np.clip(np.rint((low + high) / 2.0), 0, count - 1)
    mass, total = np.zeros_like(low), np.zeros_like(low)
    for node in range(count):
        # Relative to the nearest node: c ((t - near)^2 - (t - node)^2).
        first, last = (width * (node - near) * (2.0 * t - near - node) for t in (low, high))
        with np.errstate(under="ignore"):
            least, most = np.exp(np.minimum(first, last)), np.exp(np.maximum(first, last))
        mass += least
        total += most * _PHI[which](np.maximum(np.abs(low - node), np.abs(high - node)))
    return np.asarray(total / mass)


def kernel_bound(stated: Lipschitz, steps: Array, counts: Sequence[int], width: float) -> float:
    """Bound of E distance(nodes - s) over the box, for cells of lengths `steps`, rounded up.

    Guarantee: the inequalities above.
    """

    def moments(which: Moment) -> Array:
        return np.array([moment(min(count, 2 * REACH), width, which) for count in counts])

    with np.errstate(over="ignore", under="ignore"):
        match stated.norm:
            case "1":
                found = float((stated.constants * steps) @ moments("first"))
            case "2":
                found = float(stated.constants[0] * euclidean(steps * np.sqrt(moments("second"))))
            case "inf":
                spread = float(steps.max()) / 2.0 + float(steps @ moments("excess"))
                found = float(stated.constants[0]) * spread
    # Products may underflow.
    return found * ROOM + 4.0 * len(steps) * FLOAT64.smallest_normal


def fewest_cells(stated: Lipschitz, widths: Array, target: float, kernel: float, most: int) -> tuple[int, ...]:
    """How many cells along each coordinate keep the bound within the target: steps in proportion to 1/L_i, trimmed.

    UnreachableError if that is more than `most` nodes in all, with the bound that can be met.
    """
    ratios = stated.proportions
    used = (widths > 0.0) & (ratios > 0.0)

    with np.errstate(over="ignore", under="ignore"):
        lengths = np.divide(widths, ratios, out=np.zeros_like(widths), where=used)
    longest = float(lengths.max(initial=0.0))
    lengths = lengths / longest if 0.0 < longest < np.inf else used.astype(np.float64)

    def counts_at(scale: float) -> Array:
        return np.maximum(np.ceil(lengths / scale), 1.0)

    def bound(counts: Array) -> float:
        return kernel_bound(stated, widths / counts, [int(min(count, 2 * REACH)) for count in counts], kernel)

    scale = 1.0
    while bound(counts_at(scale)) > target and np.prod(counts_at(scale)) < 1e300 and scale > 1e-200:
        scale /= 2.0
    low, high = scale, 2.0 * scale
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if bound(counts_at(middle)) <= target else (low, middle)
    counts = counts_at(low)
    for axis in np.argsort(counts):
        while 1.0 < counts[axis] <= most and bound(counts - np.eye(len(counts))[axis]) <= target:
            counts[axis] -= 1.0
    if np.prod(counts) > most:
        while np.prod(counts_at(high)) > most:
            high *= 1.01
        smallest = 1.03 * bound(counts_at(high))
        raise UnreachableError(
            f"a grid of {' x '.join(f'{count:.9g}' for count in counts)} = {float(np.prod(counts)):.4g} nodes is "
            f"needed, and at most {most} are allowed: with those an error of {smallest:.3g} can be met; allow more "
            f"(max_nodes), state a smaller Lipschitz bound if one holds, or take a smaller domain",
            part="approximation",
            smallest=smallest,
        )
    return tuple(int(count) for count in counts)
