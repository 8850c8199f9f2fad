"""A Gaussian kernel on a grid of cell centres: how far away, on average, the nodes are that a softmax looks at.

An interval is cut into p cells of length h. In steps, t = (s - middle)/h, the nodes are g = k - (p-1)/2, k < p, and
node g weighs

    w_g = softmax(-c (t - g)^2) = softmax(2 c t g - c g^2),        |t| <= p/2.

The constants are found by the kernel's rule for sampled functions (kernel/rules/sampled.py).

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

from collections.abc import Sequence

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import UnreachableError
from headsmith.kernel.core.arithmetic import Upper
from headsmith.kernel.rules.sampled import REACH, distance
from headsmith.plan.analysis.smoothness import Lipschitz

NARROWEST, WIDEST = 1e3, 1.0
"""The widths c that one may ask for."""


def kernel_bound(stated: Lipschitz, steps: Array, counts: Sequence[int], width: float) -> float:
    """Bound of E distance(nodes - s) over the box, for cells of lengths `steps`: the kernel's own rule."""
    with np.errstate(all="ignore"):
        weights = Upper(stated.constants) * steps
        return float(distance(stated.norm, weights, list(counts), np.full(len(steps), width)).value)


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
        # From three nodes on the constants hardly differ: one is found for all.
        few = [int(count) if count < 3 else 2 * REACH for count in counts]
        return kernel_bound(stated, widths / counts, few, kernel)

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
