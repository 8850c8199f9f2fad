"""What is assumed of a function, and how far its interpolant on a Kuhn triangulation can then be from it.

Let a simplex have steps h_i and let x in it have barycentric coordinates lambda_j at the vertices v_j. With fractions
u_i of the steps, the vertices are a random 0-1 vector V whose coordinates are nested events with E V_i = u_i (for
u_1 >= ... >= u_d: V = 1 in the first j coordinates with probability u_j - u_{j+1}); E is the sum with weights lambda.

Lipschitz. |f(x) - E f(v)| <= E L |x - v|, and f = -L |. - x| attains it: the sharp constant is the largest E |x - v|.
    |.| = sum L_i |x_i|    E |V_i - u_i| = 2 u_i (1 - u_i)                     sum L_i h_i / 2 at u = 1/2
    |.| = 2-norm           E |v - x| <= sqrt(sum h_i^2 u_i (1 - u_i))          L sqrt(sum h_i^2) / 2 at u = 1/2, where
                           V is all 0 or all 1, and both are equally far
    |.| = largest |x_i|    (h = 1) sum (u_j - u_{j+1}) max(1 - u_j, u_{j+1}), u_0 = 1, u_{d+1} = 0: a lower Riemann sum
                           of max(u, 1 - u), whose integral is 3/4, with d + 1 intervals. Let [p, q] be the one around
                           1/2, with p >= 1 - q (the other case is its mirror image), a of them below, b above. With
                           lengths p/a and (1 - q)/b the others lose p^2/(2 a) + (1 - q)^2/(2 b), and [p, q] loses
                           ((1 - p)^2 + q^2 - 1/2)/2 - p (q - p). The least of this, over p, q and a + b = d:
                           odd d    equal intervals, p = 1/2                     3/4 - loss = (3 d + 1)/(4 (d + 1))
                           even d   a = b = m, p = m (m + 2)/D, q = (m^2 + 3 m + 1)/D, D = 2 m^2 + 4 m + 1
                                                                                 3/4 - loss = m (3 m + 5)/(2 D)
                           d = 1, 2, 3, 4: 1/2, 4/7, 5/8, 11/17.

Hessian. f(x) - E f(v) = -1/2 E (v - x)' H (v - x), H an average of Hessians, for E (v - x) = 0 takes the slope away.
    spectral norm <= M     M/2 E |v - x|^2 = M/2 sum h_i^2 u_i (1 - u_i) <= M sum h_i^2 / 8, attained by M |x|^2 / 2
    |H_ik| <= M_ik         for u_i >= u_k: E |V_i - u_i| |V_k - u_k| = u_k (1 - u_i) (1 + 2 u_i - 2 u_k) <= 1/4
                           (with g = u_i - u_k it is at most (1 - g)^2 (1 + 2 g) / 4), so sum M_ik h_i h_k / 8,
                           attained by x' M x / 2 in the middle of the cell
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError, UnreachableError
from headsmith.core.intervals import Box
from headsmith.language.graph import Norm

ROOM = 1.0 + 1e-13
"""Covers the few roundings of the formulas below."""


@dataclass(frozen=True, eq=False)
class Lipschitz:
    """|f(x) - f(y)| <= distance(x - y), with distance sum constants_i |.|, or constants_0 times the 2- or inf-norm."""

    constants: Array
    norm: Norm

    def distance(self, difference: Array) -> Array:
        """The bound of |f(x) - f(y)| for differences x - y (..., inputs)."""
        size = np.abs(difference)
        with np.errstate(over="ignore"):
            if self.norm == "1":
                return np.asarray(size @ self.constants)
            return np.asarray(self.constants[0] * (euclidean(size) if self.norm == "2" else size.max(axis=-1)))

    def bound(self, steps: Array) -> float:
        """Guarantee: |f - interpolant| <= this on a Kuhn triangulation with these steps; sharp (inf: if equal)."""
        if self.norm == "1":
            return float(self.constants @ steps) / 2.0 * ROOM
        if self.norm == "2":
            return float(self.constants[0] * euclidean(steps)) / 2.0 * ROOM
        return float(self.constants[0] * steps.max()) * largest_coordinate_constant(int(np.count_nonzero(steps))) * ROOM

    @property
    def proportions(self) -> Array:
        """Steps for which the product of all counts is smallest at a given bound; 0 where no step is needed."""
        return np.array([1.0 / constant if constant else 0.0 for constant in self.constants])

    def __str__(self) -> str:
        if self.norm == "1":
            return f"|f(x) - f(y)| <= sum of L_i |x_i - y_i| with L = {self.constants.tolist()}"
        name = {"2": "Euclidean norm of x - y", "inf": "largest |x_i - y_i|"}[self.norm]
        return f"|f(x) - f(y)| <= {self.constants[0]:g} times the {name}"


def euclidean(size: Array) -> Array:
    """The 2-norm of vectors (..., inputs) that are not negative; squares neither vanish nor overflow on the way."""
    longest = size.max(axis=-1, keepdims=True)
    unit = np.divide(size, longest, out=np.zeros_like(size), where=(longest > 0.0) & np.isfinite(longest))
    return np.asarray(longest[..., 0] * np.maximum(np.sqrt((unit**2).sum(axis=-1)), 1.0))


def largest_coordinate_constant(dimension: int) -> float:
    """The sharp constant for the inf-norm and equal steps: 1/2, 4/7, 5/8, 11/17, ..., below 3/4."""
    if dimension % 2:
        return (3 * dimension + 1) / (4 * (dimension + 1))
    half = dimension // 2
    return half * (3 * half + 5) / (2 * (2 * half**2 + 4 * half + 1))


@dataclass(frozen=True, eq=False)
class Hessian:
    """f has a Hessian whose entries are bounded by `entries`, or whose spectral norm is at most `spectral`."""

    entries: Array | None
    spectral: float
    dimension: int

    def curvature(self, difference: Array) -> Array:
        """The bound of |v' H v| for vectors v (..., inputs)."""
        size = np.abs(difference)
        if self.entries is None:
            return np.asarray((self.spectral * size * size).sum(axis=-1))
        return np.asarray(((size @ self.entries) * size).sum(axis=-1))

    def bound(self, steps: Array) -> float:
        """Guarantee: |f - interpolant| <= this on a Kuhn triangulation with these steps; sharp."""
        return float(self.curvature(steps)) / 8.0 * ROOM

    @property
    def proportions(self) -> Array:
        """Steps for which the product of all counts is smallest at a given bound: h_i (M h)_i is the same for all i."""
        steps = np.ones(self.dimension)
        if self.entries is not None:
            used = self.entries.any(axis=0)
            for _ in range(100):
                shares = np.where(used, steps * (self.entries @ steps), 1.0)
                steps = steps / np.sqrt(shares)
            # Along a coordinate that enters linearly, one step does.
            steps = np.where(used, steps, math.inf)
        return steps if self.spectral or self.entries is not None else np.full(self.dimension, math.inf)

    def __str__(self) -> str:
        if self.entries is None:
            return f"the Hessian exists and its spectral norm is at most {self.spectral:g}"
        return f"the Hessian exists and its entries are at most {self.entries.tolist()} in absolute value"


Smoothness = Lipschitz | Hessian


def as_smoothness(lipschitz: Any, hessian: Any, norm: Any, dimension: int) -> Smoothness:
    """Read what the user states, or TargetError."""
    if (lipschitz is None) == (hessian is None):
        raise TargetError(
            "give exactly one of lipschitz (a number, or one for each input) and hessian (a number for its spectral "
            "norm, or a matrix of bounds of its entries): without it no number of samples bounds the error"
        )
    what, given = ("lipschitz", lipschitz) if hessian is None else ("hessian", hessian)
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TargetError(f"{what} is {given!r}; it must be made of real numbers") from None
    if not (np.isfinite(numbers).all() and (numbers >= 0.0).all()):
        raise TargetError(f"{what} is {given!r}; bounds are finite and not negative")
    if what == "hessian":
        if numbers.ndim == 0:
            return Hessian(None, float(numbers), dimension)
        if numbers.shape != (dimension, dimension) or not (numbers == numbers.T).all():
            raise TargetError(f"hessian has shape {numbers.shape}; it needs a symmetric ({dimension}, {dimension})")
        return Hessian(frozen(numbers), 0.0, dimension)
    if numbers.ndim == 0:
        if norm not in (1, 2, math.inf):
            raise TargetError(f"norm is {norm!r}; choose 1, 2 or infinity")
        name: Norm = "1" if norm == 1 else "2" if norm == 2 else "inf"
        return Lipschitz(frozen(np.full(dimension, float(numbers))), name)
    if numbers.shape != (dimension,):
        raise TargetError(f"lipschitz has shape {numbers.shape}; it needs one number, or {dimension} of them")
    return Lipschitz(frozen(numbers), "1")


def fewest_steps(box: Box, smoothness: Smoothness, target: float, most: int) -> tuple[int, ...]:
    """How many steps along each coordinate: as few nodes as keep the interpolation bound within the target.

    UnreachableError if that is more than `most` nodes, with the bound that can be met.
    """
    widths = np.where(box.high > box.low, np.nextafter(box.high - box.low, np.inf) * (1.0 + 1e-12), 0.0)
    search = _SmoothnessSearch(smoothness, widths, smoothness.proportions)
    scale = search.coarsest
    while not search.bound(search.counts(scale)) <= target and search.nodes(search.counts(scale)) < 1e300:
        scale /= 2.0
    low, high = scale, 2.0 * scale
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if search.bound(search.counts(middle)) <= target else (low, middle)
    counts = search.trimmed(search.counts(low), target)
    if search.nodes(counts) > most:
        while search.nodes(search.counts(high)) > most and high < search.coarsest:
            high *= 1.01
        smallest = 1.03 * search.bound(search.counts(high))
        what = "Lipschitz" if isinstance(smoothness, Lipschitz) else "Hessian"
        raise UnreachableError(
            f"a grid of {' x '.join(f'{count + 1:.0f}' for count in counts)} = {search.nodes(counts):.4g} nodes is "
            f"needed, and at most {most} are allowed: with those an error of {smallest:.3g} can be met; allow more "
            f"(max_nodes), state a smaller {what} bound if one holds, or take a smaller domain",
            part="approximation",
            smallest=smallest,
        )
    return tuple(int(count) for count in counts)


@dataclass(frozen=True, eq=False)
class _SmoothnessSearch:
    """Counts of steps whose lengths are about `scale * ratios`."""

    smoothness: Smoothness
    widths: Array
    ratios: Array

    @property
    def used(self) -> Any:
        return (self.widths > 0.0) & (self.ratios > 0.0)

    @property
    def coarsest(self) -> float:
        """A scale at which one step along each coordinate is enough."""
        limited = self.used & np.isfinite(self.ratios)
        return float((self.widths[limited] / self.ratios[limited]).max(initial=0.0)) or 1.0

    def counts(self, scale: float) -> Array:
        wanted = np.divide(self.widths, scale * self.ratios, out=np.ones_like(self.widths), where=self.used)
        return np.where(self.used, np.maximum(np.ceil(wanted), 1.0), 0.0)

    def bound(self, counts: Array) -> float:
        return self.smoothness.bound(np.where(self.used, self.widths / np.maximum(counts, 1.0), 0.0))

    def nodes(self, counts: Array) -> float:
        return float(np.prod(counts + 1.0))

    def trimmed(self, counts: Array, target: float) -> Array:
        """Fewer steps along single coordinates, those with the fewest first, while the bound still holds."""
        for axis in np.argsort(counts):
            while counts[axis] > 1.0:
                fewer = counts - np.eye(len(counts))[axis]
                if self.bound(fewer) > target:
                    break
                counts = fewer
        return counts
