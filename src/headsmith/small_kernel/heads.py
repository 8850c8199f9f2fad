"""What heads commit: one lemma a kind.

A head returns sum_j w_j v_j, w = softmax of its scores. *Active* tokens are those that its function is about, A of
the T tokens that there are; all others are *silent*, and score less by a margin. A lemma says of its kind how far
computed scores of active tokens are off (d), the margin, how large scores are, and how far the result is from the
function; `committed` turns that into four numbers for each output: below (the soft choice in place of a sharp one),
leak (silent tokens), rounding, and reach, which bounds the output itself. X is what exp rounds, as a change of its
argument: 4 units in the last place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.small_kernel.bounds import FLOOR, SLACK, Array, Loose, gamma, point, require
from headsmith.small_kernel.file import FORMATS, Bank, File
from headsmith.small_kernel.stream import Reads


@dataclass(frozen=True)
class Setting:
    """The format that a model runs in, and its tokens: `data` tokens, `tokens` in all, with the sink and the grid."""

    u: float
    tiny: float
    largest: float
    data: int
    tokens: int
    sink: bool
    grid: int
    bits: int
    exp: float

    def gamma(self, k: Any) -> Any:
        return gamma(k, self.u)


def setting_of(file: File) -> Setting:
    """There is a sink if a head may look at nothing: sinks, gates, moves from nowhere; with a grid all but tables,
    and moves of the first layer from one token."""
    grid, (u, tiny, largest) = file.registers.get("grid", 0), FORMATS[file.dtype]
    sink = False
    for layer, bank in ((i, bank) for i, banks in enumerate(file.layers) for bank in banks):
        early = layer == 0 and bank.kind == "move" and type(bank.address) is int
        nowhere = type(bank.address) is str and bool((file.start[bank.address][:, -1] == 1).any())
        sink |= bank.kind in ("sink", "gate") or nowhere or (grid > 0 and bank.kind != "table" and not early)
    return Setting(
        u,
        tiny,
        largest,
        file.tokens,
        file.tokens + grid + sink,
        sink,
        grid,
        (file.tokens - 1).bit_length(),
        8.08 * u + 4 * tiny,
    )


@dataclass(frozen=True, eq=False)
class Lemma:
    """What a kind says of its heads, output by output."""

    active: int
    disturbed: Any  # how far computed scores of active tokens are off
    margin: Any  # by how much silent tokens score less: a lower bound
    scores: Any
    keep: float  # what a reference token's query scores on the sink
    pulled: Any  # and at most on all other tokens
    size: Array
    drift: Array
    moved: Array  # the rounding of what is read, and of the weights of active tokens
    below: Any = 0.0
    held: Any = None  # all active tokens but one hold zero, and that one at most so much, with its weight


@dataclass(frozen=True, eq=False)
class Committed:
    below: Array
    leak: Array
    rounding: Array
    reach: Array
    spilled: Array


def silent(count: Any, exponent: Any) -> Any:
    """The weight of `count` tokens that score at least -exponent less than some other one. Exponents are sums of a
    few doubles: raised by 2^-45 of themselves, they are bounds."""
    return count * np.exp(np.clip(exponent + np.abs(exponent) * 2.0**-45, -708.0, None)) if count else 0.0 * exponent


def shift(spread: Any, disturbed: Any) -> Any:
    """How far a mean of numbers of an interval moves when scores are off by d: at most spread tanh(d/2)."""
    return spread * np.minimum(disturbed / 2, 1.0)


def below_maximum(others: int, d: Any) -> Array:
    """M, where M / b is how far the softmax mean of n + 1 numbers z_j with scores b z_j, off by d, is below their
    largest.

    With u_j = b (max z - z_j), b (max z - mean) = sum u_j e^-u_j / (1 + sum e^-u_j) <= M if sum (u_j - M) e^-u_j <=
    M; each term is at most e^(-M-1), so M with n e^(2d - M - 1) <= M is enough. It is found by Newton's method, and
    shown."""
    d = np.asarray(d, dtype=float)
    if not others:
        return np.zeros(d.shape)
    wanted = np.log(float(others)) + 2 * np.minimum(d, 1e6) - 1  # M + log M
    m = np.maximum(np.exp(np.minimum(wanted, 0.0)) / 4, wanted - np.log(np.maximum(wanted, 1.0)))
    for _ in range(60):
        m = np.maximum(m - (m + np.log(m) - wanted) / (1 + 1 / m), m / 8)
    m = m * (1 + 1e-10)
    return np.asarray(np.where(silent(others, 2 * d - m - 1) * (1 + 2.0**-45) <= m, m, np.inf))


def committed(lemma: Lemma, s: Setting, outputs: int) -> tuple[Committed, float]:
    """From what a kind says to what its heads commit, and a bound of their scores.

    Silent tokens weigh w together, so the mean is (1 - w) that of the active ones plus w that of the others, both
    within V; active reference tokens hold what drifted. Rounding: T - 1 additions of powers, T products and their
    sum, one quotient: gamma_(2T + 2) V. Or only active tokens count: an order of summation is a binary tree; where
    a subtree of silent terms of sum t meets the others, the sum is rounded by at most 9/8 t, because the other side
    is itself a number of the format. If one token alone holds anything, at most `held` with its weight, products
    round that."""
    tokens, a, drift, reference = s.tokens, lemma.active, lemma.drift, s.tokens > s.data
    keep = lemma.keep if reference else 0.0
    largest = float(max(np.max(lemma.scores), np.max(lemma.pulled) + keep) * SLACK)
    v, r = np.maximum(lemma.size, drift), s.gamma(16 + s.bits) * largest
    w = silent(tokens - a, 2 * (lemma.disturbed + r) - lemma.margin)
    leak, under = 2 * w * v + drift, (v + 1) * (4 * (tokens + 2) * s.tiny)
    full, h = s.gamma(2 * tokens + 2) * v, v if lemma.held is None else np.minimum(lemma.held, v)
    few = 8 * w * v + (s.gamma(2 * a + 2) * v if lemma.held is None else s.gamma(a + 3) * h + 2 * drift)
    z = np.where((w <= 1 / 17) & (s.gamma(tokens) <= 1 / 9), np.minimum(full, few), full)
    reach = np.minimum(v + full, h + leak + z) + under
    on_sink = np.minimum(silent(tokens, 2 * (r + s.exp + lemma.pulled / 2) - keep), 1.0) if s.sink else 1.0
    k = (lemma.size * on_sink + drift) * reference
    spilled = np.where(k == 0, 0.0, k + s.gamma(2 * tokens + 2) * k + under)
    require(largest < s.largest / 16, "scores may leave the format", Loose)
    rounding, score = lemma.moved + z + under, largest * (1 + float(s.gamma(16 + s.bits)))
    parts = (np.broadcast_to(x, (outputs,)) for x in (lemma.below, leak, rounding + FLOOR, reach + FLOOR, spilled))
    return Committed(*parts), score


def scale_of(bank: Bank, columns: int, s: Setting, scaled: str) -> tuple[Array, Array, Array]:
    """Bounds of b = query_scale key_scale, and what products of scores lose that underflow."""
    q, k = bank.arrays["query_scale"], bank.arrays["key_scale"]
    require((q > 0).all() and (k > 0).all(), "a scale of scores is not positive")
    for link in bank.read:
        of_form = bank.arrays[scaled][link.at]
        weights = np.abs(link.weights) * (of_form if link.weights.ndim == 1 else of_form[:, None])
        require(
            ((link.weights == 0) | ((weights >= s.tiny) & (weights < s.largest / 16))).all(),
            "a weight times a scale leaves the format",
        )
    b = point(q) * point(k)
    return b.low, b.high, ((k if scaled == "query_scale" else q).max() + 1) * (columns + 4) * s.tiny


def sink(bank: Bank, reads: Reads, s: Setting) -> Lemma:
    """z sigmoid(b z) for relu(z): the softmax mean of z, and of 0 on the sink, with themselves as scores.

    It is never above relu(z), and below by |z| / (1 + e^(b |z|)) <= W(1/e) / b. Active: itself and the sink. A
    computed score is t (1 + m) + m', |m| <= r, |m'| <= a. The query reads z + q, the value z + v, both off by
    `read` at most: v s - q s + (z + q) s costs at most 2 read, one of which is in `wrong`. A token with another
    code scores less by position_gain for each bit."""
    low, high, lost = scale_of(bank, reads.columns, s, "query_scale")
    position = bank.gains["position_gain"] if s.data > 1 else 0.0
    r, code = s.gamma(s.bits + 7), s.bits * position
    a = r * code + 2 * s.exp + lost
    margin = min([bank.gains["reference_gain"]] + [position] * (s.data > 1))
    below = np.minimum(below_maximum(1, a / 2) / (low * (1 - 2 * r)), reads.size * np.exp(a) / 2)
    held = np.maximum(np.maximum(reads.exact.high, 0.0) + reads.off, below + 2 * reads.read)
    disturbed, gain = r * reads.size * high + a, bank.gains["reference_gain"]
    scores, pulled, moved = reads.size * high + code, reads.drift * high, reads.wrong + reads.read
    return Lemma(2, disturbed, margin, scores, gain, pulled, reads.size, reads.drift, moved, below, held)


def mean(bank: Bank, reads: Reads, s: Setting) -> Lemma:
    """The mean of all data tokens. Their scores are computed from the same numbers, so only exp tells them apart."""
    gain, spread = bank.gains["gain"], reads.exact.high - reads.exact.low + 2 * reads.off
    return Lemma(
        s.data,
        s.exp,
        gain,
        gain,
        bank.gains["keep_gain"],
        0.0,
        reads.size,
        reads.drift,
        shift(spread, s.exp) + reads.wrong,
    )


def boltzmann(bank: Bank, reads: Reads, s: Setting) -> Lemma:
    """The largest of all data tokens: they score b z + gain, so the softmax mean is below it by at most W(n/e) / b.

    The largest of numbers moves by no more than they do. A reference token scores at most b drift, some data token at
    least gain + b (least value).
    """
    low, high, lost = scale_of(bank, reads.columns, s, "key_scale")
    gain, scores = bank.gains["gain"], np.maximum(reads.size, reads.drift) * high + bank.gains["gain"]
    disturbed = reads.read * high + s.gamma(8) * scores + lost + s.exp
    least = reads.exact.low - reads.off * SLACK
    margin = np.where(least < 0, high, low) * least + gain - reads.drift * high - scores * 2.0**-48
    return Lemma(
        s.data,
        disturbed,
        margin,
        scores,
        bank.gains["keep_gain"],
        0.0,
        reads.size,
        reads.drift,
        reads.wrong,
        below_maximum(s.data - 1, disturbed) / low,
    )


def move(bank: Bank, reads: Reads, s: Setting) -> Lemma:
    """Token i takes what the token holds that its address names: all others differ in a bit, and score 2 gain
    less."""
    gain, code = bank.gains["gain"], bank.gains["gain"] * s.bits
    return Lemma(
        1,
        s.gamma(s.bits + 7) * code + s.exp,
        gain * min(s.bits, 2),
        code,
        bank.gains["keep_gain"],
        0.0,
        reads.size,
        reads.drift,
        reads.wrong,
    )
