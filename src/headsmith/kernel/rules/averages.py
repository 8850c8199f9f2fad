"""The rule for softmax: a mean of values, weighted by powers of e, as a Taylor model.

Tokens k score s_k = S_k + (at most r_k) and hold V_k + (at most v_k); p = softmax(s), and sum p_k (V_k + ...) is
wanted. Doubles w_k and a_k, with w_k = e^(a_k) up to rounding or 0, and a common polynomial h, are data, and so is G:

    s_k  =  shift + a_k + h + b_k + (at most rho_k),       b_k = S_k - S_k(0) - h,
    p_k  =  w_k E_k / D,    E_k = e^(b_k + rho_k),    D = sum w_k E_k >= W e^(-eta / W) = 1 / J,

by Jensen, with W = sum w_k and eta = ||sum w_k b_k|| + sum w_k rho_k. With P_k the part of e^(b_k) of degree at most
m, B_k = ||b_k|| and P_k <= p_k the bounds below,

    |sum p_k V_k - G|  <=  J || (sum w_k P_k (V_k - G)) up to degree m ||
        + sum J w_k (sum over i + j > m of ||P_k,i|| ||(V_k - G)_j||  +  tau_k ||V_k - G||)
        + sum (max(J w_k, e^rho_k p_k) B_k^(m+1) / (m+1)!  +  p_k (e^rho_k - 1)) ||V_k - G||.

For E_k = P_k + (T_k - P_k) + (e^(b_k) - T_k) + (E_k - e^(b_k)) with T_k = sum over j <= m of b_k^j / j!: what P_k
leaves of T_k are products of degree above m, at most tau_k, the same expression in ||b_k,i|| (0 if b_k is linear);
Lagrange's rest of T_k is B_k^(m+1) / (m+1)! max(1, e^(b_k)); and p_k |1 - e^(-rho_k)|. No term has e^(B_k) as a factor,
however wide the cell is. A token of w_k = 0 adds p_k ||V_k - G||. What values are off adds at most the largest v_k, or
sum p_k v_k.

Upper bounds of p_k are 1, J e^(a_k + B_k + rho_k), and 1 / sum_j e^(lowest s_j - s_k); a lower one is 1 / sum_j
e^(highest s_j - s_k).

Frozen, for any u_k: sum p_k V_k - G = sum u_k (V_k - G) + sum (p_k - u_k) (V_k - G), and |p_k - u_k| is bounded.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from ..core.arithmetic import EXP_ULPS, FLOAT64, TINY, Array, Upper, interval, largest, smallest
from ..core.errors import spend
from .taylor import Basis, Form, beyond, settled, times

FAINTEST = -660.0  # tokens whose weights are below e to that have no part in the polynomial
FEW = 8  # of so many tokens all pairs are compared


@dataclass(frozen=True, eq=False)
class Weighed:
    """Tokens on cells, (owners, queries, keys, cells): w and the coefficients of b; how large b and rho are at most; J;
    and where the true weights lie."""

    w: Array
    b: Array
    bend: Upper
    rho: Upper
    inverse: Upper
    most: Upper
    least: Array


def average(scores: Form, values: Form, keys: int, width: int) -> Form:
    """Means of values (owners, keys, width) under the weights of scores (groups, keys): (groups, width). Each owner has
    the same number of groups, one after the other."""
    groups, owners = len(scores.coefficients) // keys, len(values.coefficients) // (keys * width)
    known = weighed(scores.reshaped(owners, -1, keys))
    held = values.reshaped(owners, 1, keys, width)
    off = smallest(held.rest.max(axis=2), (held.rest * known.most.value[:, :, :, None]).sum(axis=2))
    best, other = (rule(known, held) for rule in (_expanded, _frozen))
    best = best.kept(other, best.rest.value <= other.rest.value)
    best = Form(best.basis, best.coefficients, best.rest + off)
    hull = held.reach.over(2)
    return settled(best, hull + np.zeros(best.rest.value.shape)).reshaped(groups * width)


def weighed(scores: Form) -> Weighed:
    """The weights of scores (owners, queries, keys)."""
    at, keys = scores.coefficients[..., 0, :], scores.coefficients.shape[2]
    top = at.max(axis=2, keepdims=True)
    a = at - (top + np.log(np.exp(at - top).sum(axis=2, keepdims=True)))
    w = np.where(a < FAINTEST, 0.0, np.exp(a))
    b = scores.coefficients.copy()
    b[..., 0, :] = 0.0
    b[..., 1:, :] -= (w[..., None, :] * b[..., 1:, :]).sum(axis=2, keepdims=True)
    bend = Upper(np.abs(b)).sum(axis=-2)
    rho = scores.rest + FLOAT64.gamma(2) * (bend + np.abs(a)) + 4.0 * EXP_ULPS * FLOAT64.unit_roundoff
    tilt = Upper(np.abs((w[..., None, :] * b).sum(axis=2))).sum(axis=-2)
    tilt = tilt + FLOAT64.gamma(keys + 1) * (bend * w).sum(axis=2) + keys * b.shape[-2] * TINY
    once = (FLOAT64.gamma(keys) + 1.0) / w.sum(axis=2)
    inverse = ((tilt + (rho * w).sum(axis=2)) * once).exp() * once
    most = smallest(1.0, (bend + rho + a).exp() * inverse[:, :, None])
    least = np.zeros(a.shape)
    if keys <= FEW:
        found = [_compared(a, b, rho, key) for key in range(keys)]
        most = smallest(most, Upper(np.stack([each for each, _ in found], axis=2)))
        least = np.stack([each for _, each in found], axis=2)
    return Weighed(w, b, bend, rho, inverse, most, least)


def _compared(a: Array, b: Array, rho: Upper, key: int) -> tuple[Array, Array]:
    """Bounds of the weight of one token from above and below, by its differences from all others."""
    mine, others = slice(key, key + 1), [each for each in range(a.shape[2]) if each != key]
    gap = Upper(np.abs(b[:, :, others] - b[:, :, mine])).sum(axis=-2) * (FLOAT64.gamma(2) + 1.0)
    gap = gap + rho[:, :, others] + rho[:, :, mine]
    return against(gap + a[:, :, others] - a[:, :, mine], gap - a[:, :, others] + a[:, :, mine], 2)


def against(above: Upper, below: Upper, axis: int) -> tuple[Array, Array]:
    """Bounds of 1 / (1 + the sum of e^d along an axis) from above and below: d is at most `above`, and -d `below`."""
    total, powers = (above.exp().sum(axis=axis) + 1.0).value, np.moveaxis(below.exp().value, axis, 0)
    rest = np.ones(total.shape)
    for power in powers:
        rest = np.nextafter(rest + np.nextafter(1.0 / power, 0.0), 0.0)
    return (Upper(1.0) / rest).value, np.nextafter(1.0 / total, 0.0)


def _expanded(known: Weighed, held: Form) -> Form:
    """The polynomial G of the rule."""
    basis, w, keys = held.basis, known.w, known.w.shape[2]
    powers, made, steep = _powers(basis, known.b)
    weights = w[..., None, :] * powers
    total = _summed(basis, weights, held.coefficients)
    below = weights.sum(axis=2)[:, :, None]
    found = np.zeros_like(total)
    for part in basis.degrees:
        found[..., part, :] = (total - times(basis, below, found))[..., part, :] / below[..., :1, :]
    left = Form(basis, total - times(basis, below, found), Upper(np.zeros(total[..., 0, :].shape)))
    sizes = _apart(held, found)
    size = sum(sizes, start=Upper(0.0))
    every = Form(basis, powers, known.rho).sizes
    wide = [each[:, :, :, None] for each in every]
    sums = (
        sum(wide, start=Upper(0.0)) * w[:, :, :, None] * (held.size + Form(basis, found, left.rest).size[:, :, None])
    ).sum(axis=2)
    count = len(basis.exponents)
    residual = left.size + FLOAT64.gamma(keys + 2 * count + 8) * sums + 8 * keys * count**2 * TINY
    share = known.inverse[:, :, None] * w
    grown = known.rho.exp()
    later = largest(share, grown * known.most) * steep + known.most * (grown - 1.0)
    spread = (share[:, :, :, None] * (beyond(basis, wide, sizes) + made[:, :, :, None] * size)) + later[
        :, :, :, None
    ] * size
    faint = np.where((w == 0.0)[:, :, :, None], (known.most[:, :, :, None] * size).value, spread.value)
    return Form(basis, found, known.inverse[:, :, None] * residual + Upper(faint).sum(axis=2))


def _powers(basis: Basis, b: Array) -> tuple[Array, Upper, Upper]:
    """P, how far it is at most from T, and B^(m+1) / (m+1)!. With n e_n = sum of j ||b_j|| e_(n-j), the degrees up to m
    of T have at most the sizes e_n, and all of them sum_j B^j / j!; what P rounds is a share of its sizes."""
    found = np.zeros((*b.shape[:-2], len(basis.exponents), b.shape[-1]))
    found[..., 0, :] = 1.0
    parts, held = basis.degrees, basis.degree(b.shape[-2])
    sizes = [interval(Upper(np.abs(b[..., part, :])).sum(axis=-2).value) for part in parts[: held + 1]]
    majorant = [interval(np.ones(sizes[0].low.shape))]
    for degree in range(1, basis.order + 1):
        for step in range(1, min(degree, held) + 1):
            before = parts[degree - step]
            for place in range(parts[step].start, parts[step].stop):
                scaled = (step / degree) * b[..., place, None, :]
                found[..., basis.times[place][before], :] += scaled * found[..., before, :]
        terms = [majorant[degree - step] * sizes[step] * float(step) for step in range(1, min(degree, held) + 1)]
        majorant.append(reduce(add, terms, majorant[0] * 0.0) / float(degree))
    whole, size = reduce(add, majorant), reduce(add, sizes)
    term = every = interval(np.ones(whole.low.shape))
    for degree in range(1, basis.order + 1):
        term = term * size / float(degree)
        every = every + term
    slack = FLOAT64.gamma(basis.order * (len(basis.exponents) + 6)) + len(basis.exponents) ** 2 * basis.order * TINY
    missing = Upper(np.zeros(size.low.shape)) if held <= 1 else Upper(np.maximum((every - whole).high, 0.0))
    return found, missing + slack * whole.magnitude, (term * size / float(basis.order + 1)).magnitude


def _summed(basis: Basis, weights: Array, values: Array) -> Array:
    """The sum over the tokens of products of polynomials."""
    held, shape = values.shape[-2], (*weights.shape[:2], values.shape[3], len(basis.exponents), values.shape[-1])
    found = np.zeros(shape)
    for place, reached in enumerate(basis.times):
        reached = reached[:held]
        terms = np.einsum("vqkn,vkdmn->vqdmn", weights[..., place, :], values[:, 0, ..., : len(reached), :])
        found[..., reached, :] += terms
    spend(8.0 * found.size * len(basis.times) * weights.shape[2])
    return found


def _apart(held: Form, found: Array) -> list[Upper]:
    """||(V_k - G)_i|| for each degree: each difference is rounded once."""
    middle = Form(held.basis, held.grown(found.shape[-2]) - found[:, :, None], held.rest)
    return [each * (FLOAT64.gamma(2) + 1.0) for each in middle.sizes]


def _frozen(known: Weighed, held: Form) -> Form:
    """G = sum of w_k V_k."""
    basis, keys = held.basis, known.w.shape[2]
    weights = known.w[:, :, :, None, None]
    found = (weights * held.coefficients).sum(axis=2)
    left = Form(basis, found - known.w.sum(axis=2)[:, :, None, None] * found, Upper(np.zeros(found[..., 0, :].shape)))
    size = sum(_apart(held, found), start=Upper(0.0))
    sums = ((held.size + Form(basis, found, left.rest).size[:, :, None]) * known.w[:, :, :, None]).sum(axis=2)
    away = largest(known.most - known.w, Upper(known.w) - known.least)
    rest = (away[:, :, :, None] * size).sum(axis=2) + left.size + FLOAT64.gamma(keys + 8) * sums
    return Form(basis, found, rest + keys * found.shape[-2] * TINY)
