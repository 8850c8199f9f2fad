"""Figures of ours beside oracles that know nothing of our code: Remez's exchange, and brute force.

Remez: linear attention of L layers computes polynomials of degree 3^L, and the row R9 says how far from a ReLU these
are at least. Brute force: the constants of the heads that multiply, of one and of two reference tokens beside the sink.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.lab.claims.other_attentions import ASKED, BERNSTEIN, lower_bound
from headsmith.transformer.heads.gate import gate_product_fit

# Remez --------------------------------------------------------------------------------------------------------------


def best_error(degree: int, turns: int = 60) -> tuple[float, float]:
    """Bounds of the distance of |x| on [-1, 1] to polynomials of a degree, by exchange.

    The best one is even, so a polynomial p of m = degree // 2 in t = x^2, on [0, 1], close to sqrt(t). An error that
    alternates at m + 2 points and is at least e there shows that no polynomial is closer than e (de la Vallee
    Poussin); the largest error of p shows that some polynomial is as close as that.
    """
    m = degree // 2
    x = np.sort(np.concatenate([np.linspace(0.0, 1.0, 40001), np.geomspace(1e-7, 1.0, 20000)]))
    basis = np.polynomial.chebyshev.chebvander(2.0 * x**2 - 1.0, m)
    at = np.searchsorted(x, np.sin(np.pi / 2.0 * np.arange(m + 2) / (m + 1.0)))
    low, high = 0.0, math.inf
    for _ in range(turns):
        signs = (-1.0) ** np.arange(m + 2)
        solution = np.linalg.solve(np.column_stack([basis[at], signs]), x[at])
        error = x - basis @ solution[:-1]
        high = min(high, float(np.abs(error).max()))
        # One extreme point for each stretch on which the error keeps its sign.
        ends = [0, *(np.flatnonzero((error[1:] < 0.0) != (error[:-1] < 0.0)) + 1).tolist(), len(x)]
        peaks = [a + int(np.argmax(np.abs(error[a:b]))) for a, b in pairwise(ends)]
        while len(peaks) > m + 2:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if len(peaks) < m + 2:
            break
        at = np.array(peaks)
        low = max(low, float(np.abs(error[at]).min()))
        if high <= low * (1.0 + 1e-9):
            break
    return low, high


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 4])
def test_linear_attention_misses_a_gate_by_what_Remez_finds(layers: int) -> None:
    """What the row proves is below the best error, and not below half of it; and Bernstein's law holds."""
    degree = 3**layers
    low, high = best_error(degree)
    assert high <= low * (1.0 + 1e-4)
    best = high / 2.0  # relu(x) = (x + |x|) / 2
    assert lower_bound(degree) <= best * (1.0 + 1e-9)
    assert lower_bound(degree) >= 0.5 * best
    if layers >= 2:
        # The degree is odd, and that polynomial is one of degree 3^L - 1.
        assert best * (degree - 1) == pytest.approx(0.5 * BERNSTEIN, rel=0.02)


def test_known_best_errors() -> None:
    """|x| by a constant, by a parabola and by a polynomial of degree 4."""
    for degree, known in ((1, 0.5), (2, 0.125), (4, 0.06762089926)):
        low, high = best_error(degree)
        assert low * (1.0 - 1e-6) <= known <= high * (1.0 + 1e-6)


def test_a_gate_to_a_millionth_takes_eleven_layers() -> None:
    """By the law, and the row proves that ten are too few."""
    needed = next(layers for layers in range(20) if 0.5 * BERNSTEIN / 3**layers <= ASKED)
    excluded = max(layers for layers in range(12) if lower_bound(3**layers) > ASKED)
    assert (needed, excluded) == (11, 10)


# Brute force --------------------------------------------------------------------------------------------------------


def brute_force(tokens: int, rise: float, restarts: int = 40) -> float:
    """The least error of x y found, for |x|, |y| <= 1, by a gate 1 / (1 + sum of e^(c_k + d_k x)) that is nearly
    a + rise x, over all c, d and a: least squares from random starts, with weights that grow where the error is large
    (Lawson), which makes them smallest in the largest error."""
    x, rng, least = np.cos(np.linspace(0.0, np.pi, 301)), np.random.default_rng(0), math.inf
    for _ in range(restarts):
        free = np.append(rng.normal(size=2 * tokens) * np.repeat([1.0, 8.0 * rise], tokens), 0.5)
        weights, damping = np.ones(len(x)) / len(x), 1e-3

        def rest(free: Any) -> tuple[Any, Any]:
            powers = np.exp(np.clip(free[:tokens] + np.outer(x, free[tokens:-1]), -50.0, 50.0))
            gate = 1.0 / (1.0 + powers.sum(axis=1))
            slopes = -(gate**2)[:, None] * np.hstack([powers, powers * x[:, None]])
            return gate - free[-1] - rise * x, np.column_stack([slopes, -np.ones(len(x))])

        for turn in range(400):
            error, slopes = rest(free)
            least = min(least, float(np.ptp(error)) / 2.0 / rise)
            scaled = slopes.T * weights
            step = np.linalg.lstsq(
                scaled @ slopes + damping * np.diag(np.diag(scaled @ slopes)), scaled @ error, rcond=None
            )[0]
            better = weights @ rest(free - step)[0] ** 2 <= weights @ error**2
            free, damping = (free - step, max(damping / 5.0, 1e-14)) if better else (free, min(damping * 8.0, 1e3))
            if turn > 60 and better and turn % 3 == 0:
                weights = weights * (np.abs(error) + 1e-3 * np.abs(error).max())
                weights /= weights.sum()
    return least


@pytest.mark.parametrize(("tokens", "rise"), [(1, 0.125), (1, 2.0**-6), (2, 0.125), (2, 2.0**-4)])
def test_brute_force_finds_no_better_head_that_multiplies(tokens: int, rise: float) -> None:
    fit = gate_product_fit(-1.0, 1.0, tokens, rise)
    ours, found = fit.error / rise, brute_force(tokens, rise, 12)
    assert ours <= 1.03 * found
    assert found <= 1.3 * ours  # the oracle is not lost


@pytest.mark.parametrize("error", [1e-2, 1e-4, 1e-6])
def test_the_compiler_takes_the_fewest_tokens_and_its_error_is_the_best_for_its_rise(error: float) -> None:
    """One reference token beside the sink; no head has fewer. The certified error is what brute force finds for the
    same rise, but for rounding."""
    model = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error)
    assert (model.bill.layers, model.bill.heads, model.bill.reference_tokens) == (1, 1, 2)
    (bank,) = model.transformer.layers[0].banks
    x = np.linspace(-1.0, 1.0, 4001)
    gate = 1.0 / (1.0 + np.exp(bank.offset[0] + bank.slope[0] * x[:, None]).sum(axis=1))
    rise = abs(float(np.polyfit(x, gate, 1)[0]))
    rise = 2.0 ** round(math.log2(rise))
    assert model.certificate.parts["approximation"] <= 1.05 * brute_force(1, rise, 4)
