"""What all heads have in common: a mean over a few tokens that count and many that should not.

A head returns  sum_j w_j v_j,  w = softmax(scores), over all T tokens in sight. (Or hardmax, or sparsemax: see below.)
They fall into two sets:

    active      those that the head's function is about: their softmax mean is what the head should return
    silent      all others; every one scores less than some active token, by a margin at least

Let every score be off by at most d, in the following sense: the computed power of e of token j is e^(s_j + m_j),
|m_j| <= d, where s_j is the exact score less something that all tokens share. The rounding of products and sums, of the
subtraction of the largest score, and of exp itself are all part of d. What is computed differs from the mean over the
active tokens for three reasons, and one lemma bounds each:

    moved mean      the weights of the active tokens are off:      at most  spread . min(d/2, 1)          (rounding)
    silent weight   silent tokens weigh something:                 at most  weight . distance of values   (leak)
    sums            quotients, products and sums are rounded:      see `committed`                        (rounding)

The computed mean over all tokens is (1 - w) times that over the active ones plus w times that over the silent ones, w
being the computed weight of the silent ones: it differs from the active mean by w times the distance of the two means.
So leaks are bounded with scores that are off, and moved means over active tokens alone.

Reference tokens hold zero, up to `drift`, wherever heads read values from them. Where such a value counts as zero in a
rule, `drift` is added to the leak: weights are at most one in all.

Hardmax and sparsemax.  Their weights add up to one as well: equal shares to the largest scores; and max(s_j - c, 0)
with c such that the sum is one. All of the above holds, with other lemmas:

    silent weight   none at all, where the margin is more than 2d under hardmax, and than 2 + 2d under sparsemax: no
                    weight is above one, so c >= (largest s) - 1, and what scores less than that has none
    maximum         see `maximum`
    sums            under hardmax as under softmax. Sparsemax subtracts the largest score, sorts (0 = s_1 >= s_2 ...),
                    raises what is below -2 to that, counts how many k have g(k) = 1 + k s_k - (s_1 + ... + s_k) > 0,
                    and takes c = (s_1 + ... + s_k - 1) / k for that count k. For A active tokens all weights together
                    are off by at most (2 A^2 + 7 A + 1) gamma_(A+3).

    Proof of the last.  g falls, by k (s_k - s_(k+1)). It is computed up to e = gamma_(A+2) (2 A + 1), for |s| <= 2; of
    silent tokens it is at most -1, and with e <= 1/4 for all T tokens they are not counted. So g(k) >= -e and g(k + 1)
    <= e for the k that is found. With c as it would be without rounding, s_k - c = g(k) / k >= -e / k, and s_(k+1) - c
    = g(k + 1) / k <= e / k. So the weights max(s_j - c, 0) add up to one, to at most e more (what is negative among the
    first k) and A e more (what is positive among the others): c is not above the true one, no weight is below its true
    value, and all together are off by at most (A + 1) e. The first k scores are at least -2, so their sum less one,
    over k, is computed up to 3 gamma_(A+2), a weight up to 4 gamma_(A+3), and all weights up to A times that; what
    scores -2 or less has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from flint import arb

from .arithmetic import EXP_ULPS, Array, Interval, Precision, Upper, bound, interval, largest, smallest
from .errors import Refused, refuse
from .functions import enclosed
from .model import Bank, Model
from .sparse import entries_of, of_rows

APART = {"hardmax": 0.0, "sparsemax": 2.0}  # by how much silent tokens must score less than some active one
SPARE = 16  # so many roundings more than columns of position codes and keys are enough for any score


@dataclass(frozen=True, eq=False)
class Reads:
    """What a bank reads, one entry for each linear form.

    The exact argument is the target's. What arrives is the circuit's form of what earlier heads really returned. The
    stored argument has the stored weights, and register sums as they were rounded. A computed read is within `read` of
    the stored argument; and so is the read of the form times a scale of the head, divided by that scale, up to one
    rounding more.
    """

    exact: Interval  # where the exact argument lies
    deviation: Upper  # stored weights against the circuit's
    arriving: Upper  # how far the argument is off from earlier errors
    stored: Upper  # rounding of the register sums
    read: Upper  # rounding of the read itself
    magnitude: Upper  # bound of the sum of absolute values that is read: no partial sum is larger
    drift: Upper  # bound of the same form as it is computed on reference tokens, where it should be zero

    def __getitem__(self, rows: slice) -> Reads:
        """Some of the forms."""
        return Reads(*(getattr(self, each.name)[rows] for each in fields(self)))

    @property
    def wrong(self) -> Upper:
        """How far what is read can be from what arrives."""
        return self.deviation + self.stored + self.read

    @property
    def off(self) -> Upper:
        """How far what is read can be from the exact argument."""
        return self.arriving + self.wrong

    @property
    def size(self) -> Upper:
        """How large what is read can be on a data token, exact, arriving or computed."""
        return self.exact.magnitude + self.off

    @property
    def spread(self) -> Upper:
        """How far apart what is read on two data tokens can be."""
        return self.exact.width + self.off + self.off


@dataclass(frozen=True, eq=False)
class Local:
    """What the heads of a bank commit, one entry for each output: what is computed, less what the output stands for at
    the arguments that arrive, lies in [-below - leak - rounding, above + leak + rounding]."""

    below: Upper  # the lemma of the head: output - (what it stands for) lies in [-below, above]
    above: Upper
    leak: Upper  # what silent tokens add
    rounding: Upper  # what rounding adds: of what is read, of scores, of sums
    reach: Upper  # bound of what is computed on data tokens
    spilled: Upper  # bound of what is computed on reference tokens
    max_score: float
    alike: Upper | None = None  # the part of `rounding` that is the same whoever reads: of means, what is read

    @property
    def committed(self) -> Upper:
        """All of it, on the worse side."""
        return largest(self.below, self.above) + self.leak + self.rounding


def committed(
    model: Model,
    size: Upper,
    drift: Upper,
    moved: Upper,
    active: int,
    margin: Any,
    disturbance: Upper,
    scores: Sequence[Any],
    keep: float,
    pulled: Upper | float = 0.0,
    width: int = 0,
    held: Upper | None = None,
) -> Local:
    """What a bank commits whose values lie within +-size on data tokens and +-drift on reference tokens. `moved` is all
    rounding but that of sums. The `active` tokens have scores off by `disturbance`; all others score less by `margin`,
    and are off by no more than SPARE + bits + width roundings of the largest of all scores besides.

    Leak.  T - A silent tokens weigh at most w = (T - A) e^(2d - margin), and hold values within V = max(size, drift).
        The active ones do, too, and those of them that are reference tokens should hold zero: at most 2 w V + drift.

    Sums.  T powers of e are summed, divided by their sum, multiplied with values and summed; in any order, with fused
        products or without, rounding to nearest. The sum of powers is off by a factor of T - 1 roundings, the quotient
        by one, products and sum by T. Weights add up to one, so the mean is off by at most gamma_(2T) V. We count 2 T +
        2: a runtime may also multiply by the reciprocal of the sum, or divide the sum of products instead.

    Few sums.  A sum of A terms of sizes that add up to S and of silent terms that add up to t, T terms in all with
        gamma_T <= 1/8, is off by at most gamma_A S + 1.6 t. For an order of summation is a binary tree. A largest
        subtree of silent terms that add up to t' has a value within t'/8 of theirs, so at most 9/8 t'. Where it meets
        the others, the sum is rounded by at most its own value, because the other side is itself a number of the format
        and the nearest one is no further off (a fused product that is not silent adds its own rounding). Only at the
        A - 1 nodes where both sides hold active terms is anything rounded relatively, and each term passes at most
        these. So silent terms cost t (1/8 + 9/8 + gamma_A (9/8 + 9/8)) <= 1.6 t.
        Of powers, t <= w times the sum; of products, t <= w V. With w <= 1/16 both together, the quotients in between,
        are within gamma_(2A) V + 6 w V. We count gamma_(2A + 2) and 8 w.

    Held.  Where all active tokens but one should hold zero, one product alone counts, and it is at most `held` (for the
        weights as they are computed): gamma_(A + 1) of that, and the others add up to at most w V + drift. We count
        gamma_(A + 3), 8 w V and 2 drift. And what is returned is at most that product, leaks and roundings.

    Scores.  What is computed in place of a score is off by no more than that; and, where products are not exact
        (gpt2.py), by as much as exp is there.

    Powers, quotients and products that underflow lose at most a smallest normal number each, which a value within +-V
    multiplies or not; the largest power is one up to exp's error, so that their sum is no small number.

    Reference tokens.  Their queries score `keep` on the sink, which holds at most drift, and all other scores are at
        most `pulled`. So the tokens that hold more weigh at most T e^(2d + pulled - keep), and at most one, which is
        all that is known without a sink: the mean is within that times size, and drift, and the sums round it. Where
        that is zero, so are all products.
    """
    precision, everyone, sparse = model.precision, model.tokens + model.references, model.attention == "sparsemax"
    if sparse and not (precision.gamma(everyone + 2, 0) * (2.0 * everyone + 1.0)).value <= 0.25:
        raise Refused(f"sparsemax over {everyone} tokens is not known well enough in {precision.name}")
    keep = keep if model.references else 0.0
    score = largest(*(Upper(bound(each)).max() for each in (*scores, pulled + Upper(keep))))
    refuse_large(model, score, "a score")
    rounded, values = precision.gamma(SPARE + model.bits + width) * score, largest(size, drift)
    silent = outside_weight(everyone - active, margin, disturbance + rounded, model.attention)
    underflow = (values + 1.0) * (4.0 * (everyone + 2) * precision.smallest_normal)
    more = [2.0 * count**2 + 7.0 * count + 3.0 if sparse else 0.0 for count in (everyone, active)]
    shares = zip((2 * everyone + 2, 2 * active + 2), more, strict=True)
    every, few = (precision.gamma(count, 1) + precision.gamma(count, 0) * weighs for count, weighs in shares)
    means = values if held is None else smallest(values, held)
    few = few * values if held is None or sparse else precision.gamma(active + 3, 1) * means + drift * 2.0
    few = few + silent * 8.0 * values
    allowed = (precision.gamma(everyone).value <= 0.125) & (silent.value <= 0.0625)
    sums = smallest(every * values, np.where(allowed, few.value, np.inf))
    drawn = outside_weight(everyone, keep, rounded + exp_error(precision) + pulled * 0.5, model.attention)
    kept = smallest(drawn if model.sink_tokens else 1.0, 1.0) * size + drift
    nothing, leak = Upper(np.zeros_like(size.value)), silent * 2.0 * values + drift
    spilled = Upper(np.where(kept.value == 0.0, 0.0, (kept + every * kept + underflow).value))
    reach = smallest(values + every * values, means + leak + sums) + underflow
    away, noise = spilled if model.references else nothing, 0.0 if precision.exact else exp_error(precision)
    return Local(nothing, nothing, leak, moved + sums + underflow, reach, away, float((score + rounded + noise).value))


def exp_error(precision: Precision) -> Upper:
    """The error of exp as a change of its argument.

    Correct to k units in the last place, and one of these is at most 2 u of a number, it is off by a factor within
    1 +- 2 k u, and |log(1 +- 2 k u)| <= 2.02 k u for any format here. (The rest covers that a difference of scores may
    underflow; powers that underflow are counted with the sums.) What scores are off by besides counts with it.
    """
    return Upper(2.02 * EXP_ULPS) * precision.unit_roundoff + (4.0 * precision.smallest_normal + precision.loose)


def moved_mean(spread: Upper, disturbance: Upper) -> Upper:
    """How far a softmax mean of values in an interval of length `spread` moves if scores move by at most d.

    At most spread tanh(d/2). The change that moves it most raises the scores of all values above some threshold by d
    and lowers the others by d. If the upper ones weighed p, they then weigh p' = p e^(2d) / (p e^(2d) + 1 - p);
    p' - p is largest at p = 1/(1 + e^d), where it is tanh(d/2); and the means above and below the threshold are at
    most `spread` apart. Two tokens attain it. We use tanh(d/2) <= min(d/2, 1): exact in the limit of small d.
    """
    return spread * smallest(disturbance * 0.5, 1.0)


def outside_weight(count: int, margin: Array | float, disturbance: Upper, attention: str = "softmax") -> Upper:
    """The computed weight of `count` tokens that score at least `margin` less than some token among the others.

    At most count e^(2d - margin): each of their powers is at most e^(2d - margin) times that one's. In the limit of a
    large margin this is attained. Under hardmax and sparsemax nothing, or (infinity) nobody knows.
    """
    if count == 0:
        return Upper(np.zeros_like(disturbance.value))
    if attention in APART:
        return Upper(np.where((disturbance + disturbance + APART[attention]).value < margin, 0.0, np.inf))
    return (disturbance + disturbance - margin).exp() * float(count)


def maximum(model: Model, scale: Array, others: int, disturbance: Upper) -> tuple[Upper, Upper]:
    """How far a mean can be below the largest of `others` + 1 numbers that are their own scores, times b >= scale > 0,
    up to d; and how much further because of d, where that is known apart. It is never above the largest.

    Any weights p that are those of scores s_j + m_j, |m_j| <= d: max s <= max (s + m) + d and p . s >= p . (s + m) - d,
    so p . s is below max s by at most 2d more than the same without m. Hardmax: nothing more. Sparsemax: let p_1 be the
    largest weight. Then s_1 - s_j = p_1 - p_j where p_j > 0, so it is below by sum_j p_j (p_1 - p_j) = p_1 (1 - p_1)
    less the sum of the other p_j^2, which is at least (1 - p_1)^2 / others. That is largest at p_1 = (n + 1) / (2 n), n
    = others + 1: others / (4 n), attained by others that all score 1/2 less. Softmax: `softmax_maximum`."""
    if model.attention == "softmax":
        return softmax_maximum(scale, others, disturbance), Upper(np.zeros_like(disturbance.value))
    lost = 0.25 * others if model.attention == "sparsemax" else 0.0
    return Upper(lost) / (others + 1.0) / scale, disturbance * 2.0 / scale


def softmax_maximum(scale: Array, others: int, disturbance: Upper) -> Upper:
    """How far a softmax mean can be below the largest of `others` + 1 numbers z_j that are their own scores, times
    b >= scale > 0, up to d.

    Without d: at most W(others / e) / b, and not above the largest. Let u_j = b (max z - z_j) >= 0 for all but the
    largest. Then b (max z - mean) = sum u_j e^(-u_j) / (1 + sum e^(-u_j)), which is at most M if
    sum (u_j - M) e^(-u_j) <= M. Each term is at most e^(-M - 1), at u_j = M + 1. So others . e^(-M - 1) = M is enough,
    that is M = W(others / e), and all u_j = M + 1 attain it. Scores that are off by d: the largest may be d too low and
    the others d too high, as if there were others . e^(2d) of them.
    """
    powers = (disturbance + disturbance - 1.0).exp() * float(others)
    balls = np.frompyfunc(lambda power: arb(power).lambertw(), 1, 1)(powers.value)
    return Upper(enclosed(balls).high) / scale


def scales_of(model: Model, bank: Bank, reads: Reads, first: str, second: str) -> tuple[Interval, Upper]:
    """b = query_scale . key_scale, the first of which is stored as one number with the weights that are read; and how
    much of a score is lost where the products of that read underflow."""
    scales, others, precision = bank.arrays[first], bank.arrays[second], model.precision
    refuse(not (np.all(scales > 0.0) and np.all(others > 0.0)), f"a score scale of a {bank.kind} bank is not positive")
    refuse_large(model, largest(reads.magnitude, reads.drift) * scales, "a query or key")
    for link in bank.read:
        weights = entries_of(link.weights)
        sizes = np.abs(weights) * of_rows(link.weights, scales[link.rows])
        fine = (sizes >= precision.normal) & (sizes <= precision.largest / 16.0)
        refuse(not (fine | (weights == 0.0)).all(), f"a weight times its head's scale is beyond {precision.name}")
    products = sum(link.weights.shape[-1] for link in bank.read) + 4.0
    return interval(scales) * others, ((Upper(others) + 1.0) * (products * precision.smallest_normal)).max()


def refuse_large(model: Model, values: Upper, what: str) -> None:
    """Raise Refused where a value comes near the end of the format."""
    reached, name = float(values.max().value), model.precision.name
    if not reached < model.precision.largest / 16.0:
        raise Refused(f"{what} may reach {reached:.3g}, beyond {name}: shrink the domain or the weights")
