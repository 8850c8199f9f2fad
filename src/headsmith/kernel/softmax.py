"""What all heads have in common: a softmax mean over a few tokens that count and many that should not.

A head returns  sum_j w_j v_j,  w = softmax(scores). The tokens in sight fall into two sets:

    active      those that the head's function is about: their softmax mean is what the head should return
    silent      all others; every one scores less than some active token, by a margin

What is computed differs from the mean over the active tokens for three reasons, and one lemma bounds each. Let every
score be off by at most d, in the following sense: the computed power of e of token j is e^(s_j + m_j), |m_j| <= d,
where s_j is the exact score less something that all tokens share. The rounding of products and sums, of the subtraction
of the largest score, and of exp itself are all part of d.

    moved mean      the weights of the active tokens are off:      at most  spread . min(d/2, 1)          (rounding)
    silent weight   silent tokens weigh something:                 at most  weight . distance of values   (leak)
    sums            quotients, products and sums are rounded:      see `sums`                             (rounding)

The computed mean over all tokens is (1 - w) times that over the active ones plus w times that over the silent ones, w
being the computed weight of the silent ones: it differs from the active mean by w times the distance of the two means.
So leaks are bounded with scores that are off, and moved means over active tokens alone.

Reference tokens hold zero, up to `drift`, wherever heads read values from them. Where such a value counts as zero in a
lemma, `drift` is added to the leak: weights are at most one in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from flint import arb

from .arithmetic import EXP_ULPS, Array, Interval, Precision, Upper, bound, largest, smallest
from .errors import Refused
from .model import Link, Model


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

    below: Upper  # the exact lemma of the head: output - (what it stands for) lies in [-below, above]
    above: Upper
    leak: Upper  # what silent tokens add
    rounding: Upper  # what rounding adds: of what is read, of scores, of sums
    largest: Upper  # bound of what the output stands for
    reach: Upper  # bound of what is computed on data tokens
    spilled: Upper  # bound of what is computed on reference tokens
    max_score: float
    alike: Upper | None = None  # the part of `rounding` that is the same whoever reads: of means, what is read

    @property
    def committed(self) -> Upper:
        """All of it, on the worse side."""
        return largest(self.below, self.above) + self.leak + self.rounding


def local(
    model: Model,
    exact: Upper,
    size: Upper,
    drift: Upper,
    silent: Upper,
    moved: Upper,
    spill: Upper,
    scores: Sequence[Any],
    *,
    active: int | None = None,
    leak: Upper | None = None,
    below: Upper | None = None,
) -> Local:
    """Put together what a bank commits, whose outputs stand for numbers within +-exact. Values lie within +-size on
    data tokens and +-drift on reference tokens; the `active` tokens (all data tokens, unless said otherwise) leave the
    weight `silent` to the others; `moved` is all rounding but that of the sums.

    Unless said otherwise, silent tokens hold what drifted, so they leak their weight times size + drift. An output is a
    mean of values: no larger than the largest of them and what rounding adds.
    """
    score = largest(*(Upper(bound(each)).max() for each in scores))
    refuse_large(model, score, "a score")
    nothing, values = Upper(np.zeros_like(size.value)), largest(size, drift)
    everyone = model.tokens + model.references
    return Local(
        below=(nothing if below is None else below).reshape(-1),
        above=nothing.reshape(-1),
        leak=(silent * (size + drift) if leak is None else leak).reshape(-1),
        rounding=(moved + sums(model, values, model.tokens if active is None else active, silent)).reshape(-1),
        largest=exact.reshape(-1),
        reach=(values + sums(model, values, everyone, nothing)).reshape(-1),
        spilled=spill.reshape(-1),
        max_score=float(score.value),
    )


# Lemmas ---------------------------------------------------------------------------------------------------------------


def exp_error(precision: Precision) -> Upper:
    """The error of exp as a change of its argument.

    Correct to k units in the last place, and one of these is at most 2 u of a number, it is off by a factor within
    1 +- 2 k u, and |log(1 +- 2 k u)| <= 2.02 k u for any format here. (The rest covers that a difference of scores may
    underflow; powers that underflow are counted in `sums`.)
    """
    return Upper(2.02 * EXP_ULPS) * precision.unit_roundoff + 4.0 * precision.smallest_normal


def moved_mean(spread: Upper, disturbance: Upper) -> Upper:
    """How far a softmax mean of values in an interval of length `spread` moves if scores move by at most d.

    At most spread tanh(d/2). The change that moves it most raises the scores of all values above some threshold by d
    and lowers the others by d. If the upper ones weighed p, they then weigh p' = p e^(2d) / (p e^(2d) + 1 - p);
    p' - p is largest at p = 1/(1 + e^d), where it is tanh(d/2); and the means above and below the threshold are at
    most `spread` apart. Two tokens attain it. We use tanh(d/2) <= min(d/2, 1): exact in the limit of small d.
    """
    return spread * smallest(disturbance * 0.5, 1.0)


def outside_weight(count: int, margin: Array | float, disturbance: Upper) -> Upper:
    """The computed weight of `count` tokens that score at least `margin` less than some token among the others.

    At most count e^(2d - margin): each of their powers is at most e^(2d - margin) times that one's. In the limit of a
    large margin this is attained.
    """
    if count == 0:
        return Upper(np.zeros_like(disturbance.value))
    return (disturbance + disturbance - margin).exp() * float(count)


def crowd_weight(bits: int, gap: float, disturbance: Upper) -> Upper:
    """The computed weight of the other data tokens, if those whose position differs in h >= 1 of the bits score gap h
    less than the one that is addressed.

    Every pattern of differing bits belongs to at most one token, so the sum of their powers is at most
    sum over h >= 1 of binomial(bits, h) e^(-gap h) = (1 + e^-gap)^bits - 1, times e^(2d). A full set of 2^bits tokens
    attains that. We use (1 + t)^m - 1 <= m t e^(m t).
    """
    if bits == 0:
        return Upper(np.zeros_like(disturbance.value))
    each = Upper(-gap).exp()
    return (each * float(bits)).exp() * outside_weight(bits, gap, disturbance)


def sums(model: Model, size: Upper, active: int, silent: Upper) -> Upper:
    """What rounding adds when T powers of e are summed, divided by their sum, multiplied with values within +-size and
    summed; in any order, with fused products or without, rounding to nearest. A of the tokens are active, and the T - A
    others weigh at most `silent` = w, as computed.

    All tokens alike.  The sum of powers is off by a factor of T - 1 roundings, the quotient by one, products and sum by
        T. Weights add up to one, so the mean is off by at most gamma_(2T) size. We count 2 T + 4: a runtime may also
        multiply by the reciprocal of the sum, or divide the sum of products instead.

    Few sums.  A sum of A terms of sizes that add up to S and of silent terms that add up to t, T terms in all with
        gamma_T <= 1/8, is off by at most gamma_A S + 1.6 t. For an order of summation is a binary tree. A largest
        subtree of silent terms that add up to t' has a value within t'/8 of theirs, so at most 9/8 t'. Where it meets
        the others, the sum is rounded by at most its own value, because the other side is itself a number of the format
        and the nearest one is no further off (a fused product that is not silent adds its own rounding). Only at the
        A - 1 nodes where both sides hold active terms is anything rounded relatively, and each term passes at most
        these. So silent terms cost t (1/8 + 9/8 + gamma_A (9/8 + 9/8)) <= 1.6 t.
        Of powers, t <= w times the sum; of products, t <= w size. With w <= 1/16 both together, the quotients in
        between, are within gamma_(2A) size + 6 w size. We count gamma_(2A + 4) and 8 w.

    Powers, quotients and products that underflow lose at most a smallest normal number each, which a value within
    +-size multiplies or not; the largest power is one up to exp's error, so that their sum is no small number.
    """
    tokens = model.tokens + model.references
    gamma = model.precision.gamma
    few = gamma(2 * active + 4) + silent * 8.0
    allowed = (gamma(tokens).value <= 0.125) & (silent.value <= 0.0625)
    share = smallest(gamma(2 * tokens + 4), np.where(allowed, few.value, np.inf))
    return share * size + underflow(model.precision, tokens, size)


def underflow(precision: Precision, tokens: int, size: Upper) -> Upper:
    """What a softmax mean of so many values within +-size may lose where something underflows."""
    return (size + 1.0) * (4.0 * (tokens + 2) * precision.smallest_normal)


def spilled(
    model: Model, size: Upper, drift: Upper, keep: float, pulled: Any = 0.0, products: int = 1, count: int | None = None
) -> Upper:
    """What a head computes on a reference token, which should be zero.

    Its query scores `keep` on the sink. The `count` tokens (all data tokens, unless said otherwise) that hold values
    within +-size score no more than `pulled` in comparison; the others, sink included, hold values within +-drift. A
    score is a sum of so many products, of sizes that add up to at most keep + pulled; we allow seven roundings more. So
    the count tokens weigh at most count e^(2d + pulled - keep), and at most one, which is all that is known without a
    sink: the mean is within that times size, and drift, and the sums round it.
    """
    if model.references == 0:
        return Upper(np.zeros_like(size.value))
    precision, tokens = model.precision, model.tokens + model.references
    disturbance = precision.gamma(products + 7) * (Upper(keep) + pulled) + exp_error(precision) + pulled * 0.5
    weight = outside_weight(model.tokens if count is None else count, keep, disturbance)
    kept = smallest(weight if model.sink_tokens else 1.0, 1.0) * size + drift
    return kept + precision.gamma(2 * tokens + 4) * kept + underflow(precision, tokens, largest(size, drift))


def softmax_maximum(scale: Array, others: int, disturbance: Upper) -> Upper:
    """How far a softmax mean can be below the largest of `others` + 1 numbers z_j that are their own scores, times
    b >= scale > 0, up to d.

    Without d: at most W(others / e) / b, and not above the largest. Let u_j = b (max z - z_j) >= 0 for all but the
    largest. Then b (max z - mean) = sum u_j e^(-u_j) / (1 + sum e^(-u_j)), which is at most M if
    sum (u_j - M) e^(-u_j) <= M. Each term is at most e^(-M - 1), at u_j = M + 1. So others . e^(-M - 1) = M is enough,
    that is M = W(others / e), and all u_j = M + 1 attain it.

    Scores that are off by d: the largest may be d too low and the others d too high, as if there were others . e^(2d)
    of them: W(others e^(2d - 1)) / b. As a function of log x, W has the slope W/(1 + W), which grows with W and is
    below one; so the step 2d adds at most 2d times the slope at its end, where W is at most W(others / e) + 2d.
    """
    if others == 0:
        return Upper(np.zeros_like(disturbance.value))
    constant = float(np.nextafter(float((arb(others) / arb(1).exp()).lambertw().upper()), np.inf))
    end = (disturbance + disturbance + constant).value
    slope = Interval(end, end) / (Interval(end, end) + 1.0)
    # The quotient is below one; that of an infinite end is not a number, and one bounds it.
    return ((disturbance + disturbance) * smallest(slope.high, 1.0) + constant) / scale


# Refusals -------------------------------------------------------------------------------------------------------------


def refuse_large(model: Model, values: Upper, what: str) -> None:
    """Raise Refused where a value comes near the end of the format."""
    reached = float(values.max().value)
    if not reached < model.precision.largest / 16.0:
        raise Refused(
            f"{what} may reach {reached:.3g}, beyond {model.precision.name}: shrink the domain or the weights"
        )


def refuse_scaled(model: Model, links: tuple[Link, ...], scales: Array) -> None:
    """Raise Refused where a weight times a head's scale, one number in a matrix, is near the ends of the format."""
    for link in links:
        mine = scales[link.rows]
        sizes = np.abs(link.weights) * (mine if link.weights.ndim == 1 else mine[:, None])
        fine = (sizes >= model.precision.smallest_normal) & (sizes <= model.precision.largest / 16.0)
        if not (fine | (link.weights == 0.0)).all():
            raise Refused(f"a weight times its head's scale is beyond {model.precision.name}")


def refuse_read(model: Model, reads: Reads) -> None:
    """Raise Refused where what is read, on data tokens or reference tokens, comes near the end of the format."""
    refuse_large(model, reads.magnitude, "what a head reads")
    refuse_large(model, reads.drift, "what drifts into a reference token")
