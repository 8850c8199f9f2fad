"""The Boltzmann head: the largest value over the tokens, one layer for any number of them.

Theorem: 0 <= max - out <= W((n - 1)/e) / b, attained; scores that are off by d count as e^{2d} times as many tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.oracles.boltzmann import boltzmann_error
from helpers.theorems import banks as models
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.balls import boltzmann_constant, gate_constant
from headsmith.core.errors import CertificateError
from headsmith.lab import heads as head_models
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.stream import DATA, Link

DIGITS = 40
FIGURES = {2: 0.2785, 3: 0.463, 8: 0.973, 64: 2.307, 1024: 4.44}


def exact_output(values: Any, scale: Any, pushes: Any = 0.0) -> Any:
    """The softmax mean, with scores pushed."""
    values = [mpmath.mpf(float(value)) for value in values]
    pushes = np.broadcast_to(pushes, len(values))
    powers = [
        mpmath.exp(mpmath.mpf(float(scale)) * z + mpmath.mpf(float(p))) for z, p in zip(values, pushes, strict=True)
    ]
    return mpmath.fsum(p * z for p, z in zip(powers, values, strict=True)) / mpmath.fsum(powers)


# ---- the theorem ----------------------------------------------------------------------------------------------------


class TestTheorem:
    @given(
        st.lists(st.floats(-10, 10), min_size=1, max_size=12),
        st.floats(1e-3, 1e3),
        st.sampled_from([1.0, -1.0]),
    )
    def test_it_is_a_bound(self, values, scale, sign) -> None:
        with mpmath.workdps(DIGITS):
            missed = sign * (mpmath.mpf((max if sign > 0 else min)(values)) - exact_output(values, sign * scale))
            oracle = mpmath.mpf("1e-30")  # what the oracle itself rounds, at 40 digits
            assert -oracle <= missed <= float(boltzmann_error(sign * scale, len(values))) + oracle

    @pytest.mark.parametrize("tokens", [2, 3, 8, 64, 1024])
    @pytest.mark.parametrize("scale", [0.5, 30.0, -7.0])
    def test_it_is_attained(self, tokens, scale) -> None:
        """All others (1 + W)/b below the largest."""
        bound = float(boltzmann_error(scale, tokens))
        with mpmath.workdps(DIGITS):
            below = (1 + mpmath.lambertw((tokens - 1) / mpmath.e).real) / abs(scale)
            powers = [mpmath.mpf(1), (tokens - 1) * mpmath.exp(-abs(scale) * below)]
            missed = below * powers[1] / (powers[0] + powers[1])
            assert missed <= bound <= missed * (1 + mpmath.mpf("1e-13"))

    @pytest.mark.parametrize("tokens", [2, 8, 64])
    @pytest.mark.parametrize("causal", [False, True])
    def test_the_model_attains_it(self, tokens, causal) -> None:
        """The whole transformer, on the worst sequence: the bound is met to 1e-6 of itself."""
        scale = 16.0
        sequence = np.zeros((1, tokens, 1))
        sequence[0, 1:] = -(1.0 + boltzmann_constant(tokens)) / scale
        missed = -run(head_models.boltzmann(tokens, scale), sequence, causal=causal)[0, -1, 0]
        bound = float(boltzmann_error(scale, tokens))
        assert bound * (1 - 1e-6) <= missed <= bound + 1e-15

    def test_search_finds_nothing_worse(self, rng) -> None:
        """Random ascent from random starts ends at the bound."""
        best = 0.0
        for _ in range(20):
            below = rng.exponential(2.0, 4)
            for width in np.geomspace(1.0, 1e-4, 400):
                trial = np.abs(below + width * rng.normal(size=4))
                if share(trial) > share(below):
                    below = trial
            best = max(best, share(below))
        assert 1 - 1e-5 <= best / boltzmann_constant(5) <= 1

    def test_figures(self) -> None:
        for tokens, figure in FIGURES.items():
            assert abs(boltzmann_constant(tokens) - figure) <= 6e-4 * max(1.0, figure) + 5e-4
        assert boltzmann_constant(1) == 0.0
        assert boltzmann_constant(2) == gate_constant()

    @pytest.mark.parametrize("tokens", [2, 3, 5, 100, 10**6])
    def test_the_constant_is_rounded_up(self, tokens) -> None:
        with mpmath.workdps(60):
            exact = mpmath.lambertw((tokens - 1) / mpmath.e).real
            assert exact <= boltzmann_constant(tokens) <= exact * (1 + mpmath.mpf("5e-16"))

    def test_one_token_is_exact(self) -> None:
        assert boltzmann_error(3.0, 1, 0.1) == 0.0


def share(below: Any) -> float:
    powers = np.exp(-below)
    return float((below * powers).sum() / (1.0 + powers.sum()))


class TestDisturbedScores:
    """Scores off by at most d: as if there were e^{2d} times as many others."""

    def test_it_is_a_bound(self, rng) -> None:
        for _ in range(300):
            tokens, scale = int(rng.integers(2, 9)), 10.0 ** rng.uniform(-2, 2)
            d = 10.0 ** rng.uniform(-8, 1)
            values = rng.exponential(10.0 ** rng.uniform(-1, 1.5), tokens) / scale
            with mpmath.workdps(DIGITS):
                pushes = np.where(values == values.max(), -d, d) if rng.random() < 0.7 else rng.choice([-d, d], tokens)
                missed = mpmath.mpf(float(values.max())) - exact_output(values, scale, pushes)
                assert -mpmath.mpf("1e-30") <= missed <= boltzmann_error(scale, tokens, d)

    @pytest.mark.parametrize("tokens", [2, 64])
    @pytest.mark.parametrize("d", [1e-3, 0.1, 1.0])
    def test_it_is_nearly_attained(self, tokens, d) -> None:
        with mpmath.workdps(DIGITS):
            exact = mpmath.lambertw((tokens - 1) * mpmath.exp(2 * d - 1)).real
            bound = mpmath.mpf(float(boltzmann_error(1.0, tokens, d)))
            assert exact <= bound <= exact * (1 + mpmath.mpf(d))

    def test_no_hope(self) -> None:
        assert np.isinf(boltzmann_error(1.0, 3, np.inf))


def test_one_layer_beats_the_tree_of_gates_in_layers_not_in_error() -> None:
    """ceil(log2 n) layers of gates are off by 0.2785 ceil(log2 n) / b; one Boltzmann layer stays below twice that."""
    for tokens in (2, 8, 64, 1024):
        tree = gate_constant() * np.ceil(np.log2(tokens))
        assert boltzmann_constant(tokens) <= 2.0 * tree
        assert boltzmann_constant(tokens) <= np.log(tokens)


# ---- the model in floating point ------------------------------------------------------------------------------------


def bank(gain: float = 60.0) -> BoltzmannBank:
    """The maximum of x0 - x1/2 + 1/4 and the minimum of x1."""
    read = (Link("x", [[1.0, -0.5], [0.0, 1.0]]), Link(DATA, [[0.25]]))
    return BoltzmannBank([-1, -1], [0, 1], read, (Link("out", np.eye(2)),), [3.0, -5.0], [2.0, 4.0], gain, 60.0)


# ---- runner, textbook, bill, file -----------------------------------------------------------------------------------


class TestTheBankInAModel(models.BankInAModel):
    bank = staticmethod(bank)

    def test_bill_of_steep_keys(self, how) -> None:
        steep = replace(bank(), key_scale=np.array([512.0, 1024.0]), query_scale=np.array([1e-3, -1e-3]))
        models.bill_counts_the_matrices(models.surround(steep, how, 4, "float64"))


class TestTheCheckerRefuses:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"query_scale": [1.0]}, "scales of shapes"),
            ({"query_scale": [[1.0, 1.0]]}, "scales of shapes"),
            ({"key_scale": [1.0, 2.0, 3.0]}, "scales of shapes"),
            ({"query_scale": [0.0, 1.0]}, "scale zero"),
            ({"key_scale": [1.0, 0.0]}, "scale zero"),
            ({"query_scale": [], "key_scale": [], "node": [], "component": [], "read": (), "write": ()}, "no heads"),
            ({"node": [-1]}, "array of shape"),
            ({"read": (Link("x", np.ones((3, 2))),)}, "does not fit"),
            ({"query_scale": [np.nan, 1.0]}, "not finite"),
            ({"gain": np.inf}, "not finite"),
        ],
        ids=repr,
    )
    def test_what_does_not_fit(self, changes, message) -> None:
        with pytest.raises(CertificateError, match=message):
            models.with_bank(models.surround(bank(), "gates", 4, "float64"), BoltzmannBank, **changes)

    @pytest.mark.parametrize("name", ["query_scale", "key_scale"])
    def test_numbers_of_another_dtype(self, name) -> None:
        with pytest.raises(CertificateError, match="not a float32"):
            models.with_bank(models.surround(bank(), "alone", 4, "float32"), BoltzmannBank, **{name: [0.1, 0.1]})
