"""Gate head: the product of one linear form with a function of another, in one head.

Head h reads x and y. Data token i scores

    itself              0                              value y_i
    grid token k        slope[k] x_i + offset[k]       value 0
    data token j != i   -position_gain h_ij            value y_j       h_ij >= 1: bits in which the positions differ
    the sink            -keep_gain                     value 0

so that, up to the other tokens, the head returns

    y g(x),        g(x) = 1 / (1 + sum_k e^{slope[k] x + offset[k]}),

and with g(x) nearly intercept + incline * x, the product is x y = (out - intercept y) / incline (`gate_product_fit`).

Deviation lemma.  |g''| <= g q, q = sum_k w_k slope[k]^2 over the softmax weights w of the grid: g is the softmax
    weight of slope 0, so with m = sum_k w_k slope[k] we have g' = -g m and g'' = g (2 m^2 - q), and m^2 <= q. Over a
    distance r weights change by factors within e^{+-2 s r}, s = max|slope|. So between two points r apart g differs
    from an affine function by at most the larger of the differences there, plus r^2 / 8 times g q at either point times
    e^{4 s r}.

Leak lemma.  The other data tokens weigh at most L = (1 + e^{-position_gain})^bits - 1, as in heads/sink.py, the sink
    e^{-keep_gain}; for |y| <= Y they move the output by at most 2 Y L and Y e^{-keep_gain}. What reference tokens hold
    instead of zero arrives at most as it is.

Rounding lemma.  Values lie between 0 and y: scores off by d move the output by at most Y d / 2
(kernel/core/softmax.py).

Few sums lemma.  Let a sum have A terms of sizes that add up to S, and any number of silent ones that add up to t. Added
    in any order, rounded to nearest, it is off by at most gamma_A S + 3 t, however many silent terms there are.
    An order is a binary tree. At A - 1 of its nodes both sides hold some of the A terms: these round relatively.
    Anywhere else one side, b, is silent, and the rounding error is at most |b|: the other side is itself a
    floating-point number, so the nearest one is no further (of a fused product, at most |b| and its own rounding).
    Silent subtrees that meet others are disjoint: their values and these errors add up to at most 2 t, up to factors
    1 + gamma.
    Here the A terms are the token itself and the grid, of sizes that add up to at most Y once normalised.

The features of query and key, and the value:

    slope       read_x . x                                          slope . grid
    offset      KEY * data                                          offset / KEY . grid
                                                                        - position_gain * bits / 2 / KEY * data
    bit k       position_gain / 2 / KEY * position[k]               KEY * position[k]
    sink        keep_gain / KEY * (reference + sum grid - data)     KEY * reference
    value       read_y . x

How a gate is made affine (`gate_product_fit`), by constants of p reference tokens, on an interval. g(t) = 1 / (1 +
sum_k e^{c_k + d_k t}) equals a + b t where sum_k e^{c_k + d_k t} = 1 / (a + b t) - 1. p exponentials can match that in
2 p points: first equispaced ones (Prony's method), then Chebyshev's by Newton's method along the way; then the points
move until the 2 p + 1 errors between them are equal, which is the best gate for this a and b.

The best level a is 1 / (p + 1), and a little more: for small b all exponentials are then about 1, and one more order of
t agrees. The rise b is a trade: the error of x y falls like C_p b^(2 p), but all else (rounding, leak) is divided by b.
For |x|, |y| <= 1 the error of x y is

    b         1 token   2         3         4         5
    0.125     5e-3      1e-4      8e-6      9e-7      2e-7
    0.1       3e-3      5e-5      2e-6      2e-7      2e-8
    0.05      8e-4      3e-6      3e-8      5e-10     2e-11
    0.025     2e-4      2e-7      5e-10     2e-12
    0.0125    5e-5      1e-8      7e-12

The law for small b. 1 / (a + b t) is the integral of e^(-(a + b t) s) over s >= 0, and a sum of exponentials with one
node at s = 0 of weight 1 is a quadrature for it: the best is Gauss's with that node fixed (Radau), whose weight there
is 1 exactly for a = 1 / (p + 1). Its remainder gives C_p = p! (p + 1)! / (2 p + 1)! ((p + 1) / 2)^(2 p).

How a gate is chosen for a product (`gate_of`, `best_gate`): what is off is divided by the incline. A larger incline has
smaller weights and rounds less, a smaller one is straighter: more reference tokens allow both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import CertificateError, DomainError
from headsmith.core.rounding import Precision
from headsmith.transformer.heads.bank import (
    KEY,
    HeadBank,
    Words,
    keep,
    position_features,
)
from headsmith.transformer.heads.running import Attention, blocks
from headsmith.transformer.heads.scaling import Scaling
from headsmith.transformer.heads.stream import DATA, GRID, Feature, On, Read, Terms, position_bits
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class GateBank(HeadBank):
    """All gate heads of one layer. Rows 2 h and 2 h + 1 of `read` are x and y of head h; `slope` and `offset` are
    (heads, grid tokens)."""

    kind: ClassVar[str] = "gate"
    called: ClassVar[str] = "product"
    arrays: ClassVar[tuple[str, ...]] = ("slope", "offset")
    folded_arrays: ClassVar[tuple[str, ...]] = ("offset",)
    numbers: ClassVar[tuple[str, ...]] = ("position_gain", "keep_gain")
    approximates: ClassVar[bool] = True
    heavy: ClassVar[bool] = True

    slope: Array
    offset: Array
    position_gain: float
    keep_gain: float

    @property
    def heads(self) -> int:
        return len(self.offset)

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: two for each head."""
        return 2 * self.heads

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns: one for each head."""
        return self.heads

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return True

    def check(self, model: Surroundings, where: str) -> None:
        """One slope and one offset for each head and reference token of the grid."""
        tokens, shape = model.sizes.get(GRID, 0), self.offset.shape
        if self.offset.ndim != 2 or self.slope.shape != shape or shape[1] != tokens or tokens < 1:
            raise CertificateError(
                f"{where}: slopes {self.slope.shape} and offsets {shape} do not fit {tokens} reference tokens"
            )

    def evaluated(self, attention: Attention) -> Any:
        reads, dtype = attention.reads(self), attention.dtype
        slopes, values = reads[..., 0::2], np.ascontiguousarray(reads[..., 1::2])
        mixed, total = attention.crowded(self.position_gain, values)
        slope, offset = self.slope.astype(dtype), self.offset.astype(dtype)
        outputs = np.empty_like(values)
        for rows, heads in blocks(attention, self.heads, self.slope.shape[1]):
            # scores[row, head, grid token]
            scores = slopes.reshape(-1, self.heads)[rows, heads, None] * slope[heads]
            scores += offset[heads]
            top = np.maximum(scores.max(axis=2), 0.0)
            scores -= top[..., None]
            silent = attention.powers(scores).sum(axis=2)
            own = attention.power(0.0, top)
            silent += attention.power(-self.keep_gain, top)
            silent += own * np.broadcast_to(total, (attention.batch, attention.tokens, 1)).reshape(-1, 1)[rows]
            outputs.reshape(-1, self.heads)[rows, heads] = own / silent * mixed.reshape(-1, self.heads)[rows, heads]
        return outputs

    def closed(self, attention: Attention) -> Any:
        """y / (1 + sum_k e^(slope_k x + offset_k))."""
        reads, dtype = attention.reads(self), attention.dtype
        slope, offset = self.slope.astype(dtype), self.offset.astype(dtype)
        slopes, values = reads[..., 0::2], reads[..., 1::2]
        total = np.ones_like(values)
        with np.errstate(over="ignore"):
            for token in range(slope.shape[1]):
                total += np.exp(slopes * slope[:, token] + offset[:, token])
        return values / total

    def constants(self, model: Surroundings) -> dict[str, Any]:
        zero = np.zeros((self.heads, 1))
        return {"slope": np.hstack([zero, self.slope]), "offset": np.hstack([zero, self.offset])}

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        apart = -self.position_gain * position_bits(model.tokens) / 2.0 / KEY
        slope = Feature("slope", (Read(slice(0, None, 2)),), (On(GRID, self.slope),))
        offset = Feature("offset", (On(DATA, KEY),), (On(GRID, self.offset / KEY), On(DATA, apart)))
        sink = keep(model, self.keep_gain, also=(On(DATA, -self.keep_gain / KEY),), name="sink")
        return (slope, offset, *position_features(model, self.position_gain / 2.0), *sink)

    def value(self, model: Surroundings) -> Terms:
        return (Read(slice(1, None, 2)),)

    def scaled(self, scaling: Scaling) -> Self:
        return replace(self, position_gain=scaling.position, keep_gain=scaling.reference)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        pair = f"reads s = {words.read(2 * head)} and v = {words.read(2 * head + 1)}"
        return [
            f"{pair}; looks at itself with a weight that is affine in s, else at {words.grid}",
            f"so it returns v times that weight: {words.output(head)}",
        ]


# How a gate is made affine --------------------------------------------------------------------------------------------

LARGEST_RISE = 0.125
"""Larger ones have no good gates."""

SHARES = (0.0, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2)
"""The best level is 1 / (p + 1) and a share of the rise squared, of about 0.3 (p - 1)."""

RISE = 0.05
"""The usual b."""

SAMPLES = np.linspace(-1.0, 1.0, 2001)


@dataclass(frozen=True, eq=False)
class GateFit:
    """One gate head's constants: g(x) is intercept + incline * x up to `error`, an estimate."""

    offset: Array
    slope: Array
    intercept: float
    incline: float
    error: float


def gate_product_fit(x_low: float, x_high: float, tokens: int, rise: float = RISE) -> GateFit:
    """The best gate of `tokens` reference tokens (1 to 6) that is nearly affine on [x_low, x_high], and rises by 2
    `rise` there.

    With it x y = (out - intercept y) / incline, up to |y| error / incline.
    """
    if not (1 <= tokens <= 6 and x_low < x_high):
        raise DomainError(f"a gate needs 1 to 6 reference tokens and an interval, not {tokens} and [{x_low}, {x_high}]")
    constants, level, error = _best_gate(tokens, rise)
    centre, radius = (x_low + x_high) / 2.0, (x_high - x_low) / 2.0
    offset, slope = constants[:tokens], constants[tokens:] / radius
    return GateFit(
        offset=frozen(offset - slope * centre),
        slope=frozen(slope),
        intercept=level - rise * centre / radius,
        incline=rise / radius,
        error=error,
    )


def rise_for(tokens: int, error: float) -> float:
    """The largest rise whose gate of `tokens` reference tokens multiplies numbers up to 1 within `error`, by the law
    for small rises: an estimate."""
    constant = math.factorial(tokens) * math.factorial(tokens + 1) / math.factorial(2 * tokens + 1)
    constant *= ((tokens + 1) / 2.0) ** (2 * tokens)
    return float(min(LARGEST_RISE, (error / constant) ** (0.5 / tokens)))


@cache
def _best_gate(tokens: int, rise: float) -> tuple[Array, float, float]:
    fits = {}
    for share in SHARES:
        level = 1.0 / (tokens + 1) + share * rise**2
        found = _fitted(tokens, level, rise) if level > 1.2 * rise > 0.0 else None
        if found is not None:
            fits[level] = found
    if not fits:
        raise DomainError(f"no gate of {tokens} reference tokens rises by {rise}; fewer tokens, or a rise near {RISE}")
    level = min(fits, key=lambda level: fits[level][1])
    return fits[level][0], level, fits[level][1]


def _fitted(tokens: int, level: float, rise: float) -> tuple[Array, float] | None:
    """Constants (c, d) on [-1, 1] and their largest error, or None where exponentials with such signs do not exist."""
    even = np.linspace(-1.0, 1.0, 2 * tokens)
    nodes = -np.cos(np.pi * (np.arange(2 * tokens) + 0.5) / (2 * tokens))
    constants = _prony(1.0 / (level + rise * even) - 1.0, even)
    for share in np.linspace(0.0, 1.0, 9):
        if constants is not None:
            constants = _through(constants, (1.0 - share) * even + share * nodes, level, rise)
    best: tuple[Array, float] | None = None
    for _ in range(24):
        if constants is None:
            break
        errors = np.abs(_gate(constants, SAMPLES) - level - rise * SAMPLES)
        if best is None or errors.max() < best[1]:
            best = constants, float(errors.max())
        # Narrower where the error between two points is large: it grows with about the 2 p-th power of the width.
        ends = np.concatenate([[-1.0], nodes, [1.0]])
        peaks = np.array([errors[(a <= SAMPLES) & (b >= SAMPLES)].max(initial=0.0) for a, b in pairwise(ends)])
        widths = np.diff(ends) * np.maximum(peaks / peaks.mean(), 1e-9) ** -0.2
        nodes = -1.0 + 2.0 * np.cumsum(widths)[:-1] / widths.sum()
        constants = _through(constants, nodes, level, rise)
    return best


def _prony(values: Array, points: Array) -> Array | None:
    """The sum of exponentials through 2 p values at equispaced points, by the recurrence that its values satisfy."""
    count, step = len(points) // 2, points[1] - points[0]
    hankel = np.array([values[row : row + count] for row in range(count)])
    recurrence = np.linalg.solve(hankel, -values[count:])
    roots = np.roots(np.concatenate([[1.0], recurrence[::-1]]))
    if np.any(np.abs(roots.imag) > 1e-9) or np.any(roots.real <= 0.0):
        return None
    rates = np.log(roots.real) / step
    factors = np.linalg.lstsq(np.exp(np.outer(points, rates)), values, rcond=None)[0]
    return None if np.any(factors <= 0.0) else np.concatenate([np.log(factors), rates])


def _through(constants: Array, points: Array, level: float, rise: float) -> Array | None:
    """Newton's method for g = level + rise t at 2 p points, on logarithms; None where it does not settle."""
    count = len(constants) // 2
    for _ in range(30):
        powers = np.exp(constants[:count] + np.outer(points, constants[count:]))
        gate = 1.0 / (1.0 + powers.sum(axis=1))
        slopes = -gate[:, None] * np.hstack([powers, powers * points[:, None]])
        step = np.linalg.solve(slopes, np.log(level + rise * points) - np.log(gate))
        largest = float(np.abs(step).max())
        constants = constants + step * min(1.0, 0.3 / max(largest, 1e-300))
        if largest < 1e-10:
            break
    return constants if largest < 1e-5 else None


def _gate(constants: Array, points: Array) -> Array:
    count = len(constants) // 2
    return np.asarray(1.0 / (1.0 + np.exp(constants[:count] + np.outer(points, constants[count:])).sum(axis=1)))


# How a gate is chosen for a product -----------------------------------------------------------------------------------

MOST_GATE_TOKENS = 4
RISES = (0.125, 0.1, 0.05, 0.025, 0.0125)
"""How much of a gate's weight follows its argument: less is more accurate, and rounds more. These are for products of
products, where both are to be small; other gates take what the error asks for."""
OCTAVES = 4
"""How many powers of two are tried for a gate's incline, from a little above what its law says."""
GATE_ROUNDING = 12.0
"""What a gate rounds, in units of the unit roundoff and of its other argument: an estimate."""


@dataclass(frozen=True)
class Factors:
    """A product of two ranges: which of them the weight follows, the middle and the radius of that range, and the size
    of the other one. The ranges of `mirrored` gates lie around zero: they come in pairs, one with the other's sign."""

    follows: int
    centre: float
    radius: float
    size: float
    mirrored: bool


@dataclass(frozen=True, eq=False)
class Gating:
    """A gate head for a product: which of the two arguments its weight follows, and its constants."""

    follows: int
    fit: GateFit
    mirrored: bool = False

    @property
    def tokens(self) -> int:
        """Reference tokens, the sink included."""
        return len(self.fit.offset) + 1


def factors_of(box: list[tuple[float, float]], follows: int, mirrored: bool) -> Factors:
    """The factors of a product, whose ranges are given."""
    (low, high), size = box[follows], max(abs(end) for end in box[1 - follows])
    if mirrored:
        low, high = -max(-low, high), max(-low, high)
    return Factors(follows, (low + high) / 2.0, _half_octave((high - low) / 2.0), size, mirrored)


def gate_of(tokens: int, factors: Factors, allowed: float, precision: Precision, caution: float) -> Gating | None:
    """The gate of so many tokens with the largest incline, and so with the smallest weights, that is good enough.

    `caution` is how many times the rounding of gates of small rises is taken for what it is on its own.
    """
    radius, size = factors.radius, factors.size
    rise = rise_for(tokens, allowed / (size * radius)) if size > 0.0 else LARGEST_RISE
    # Dividing by the incline is exact where it is a power of two; it multiplies all rounding.
    first = math.floor(math.log2(min(2.0 * rise, LARGEST_RISE) / radius))
    for exponent in range(first, first - OCTAVES, -1):
        incline = 2.0**exponent
        careful = caution if incline * radius < RISES[-1] / 2.0 else 1.0
        if size * GATE_ROUNDING * precision.inside * careful > 0.3 * allowed * incline:
            return None
        fit = _gate_within(factors.centre, radius, tokens, incline)
        if fit is not None and size * fit.error / incline <= 0.97 * allowed:
            return Gating(factors.follows, fit)
    return None


def fewest_tokens(factors: Factors, allowed: float, precision: Precision, caution: float) -> Gating | None:
    """The gate with the fewest reference tokens that is good enough."""
    gates = (gate_of(tokens, factors, allowed, precision, caution) for tokens in range(1, MOST_GATE_TOKENS + 1))
    return next((gate for gate in gates if gate is not None), None)


def best_gate(factors: Factors, allowed: float, precision: Precision) -> tuple[float, Gating] | None:
    """The gate with the fewest tokens that is good enough, rounding included; else the best there is; with its error,
    an estimate."""
    best: tuple[float, Gating] | None = None
    for tokens in range(1, MOST_GATE_TOKENS + 1):
        for rise in RISES:
            incline = 2.0 ** math.floor(math.log2(rise / factors.radius))
            found = _gate_within(factors.centre, factors.radius, tokens, incline)
            if found is not None:
                total = factors.size * (found.error + GATE_ROUNDING * precision.inside) / incline
                if best is None or total < best[0]:
                    best = total, Gating(factors.follows, found, factors.mirrored)
        if best is not None and best[0] <= allowed:
            break
    return best


def _half_octave(radius: float) -> float:
    """The next power of the root of two, so that few different gates are fitted; a little less will do: the room for
    what arguments are off by, in float32, is less."""
    return float(2.0 ** (math.ceil(2.0 * math.log2(radius) - 2e-3) / 2.0))


@lru_cache(maxsize=256)
def _gate_within(centre: float, radius: float, tokens: int, incline: float) -> GateFit | None:
    try:
        found = gate_product_fit(centre - radius, centre + radius, tokens, rise=incline * radius)
    except DomainError:
        return None
    return replace(found, incline=incline, intercept=found.intercept + (found.incline - incline) * centre)
