"""The sink head: the gate lemma and the leak lemma hold and are attained; rounding inside the head stays within its
bound."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.rounding import EXP_ULPS, PRECISIONS
from headsmith.heads.sink import (
    KEY,
    feature_count,
    gate_error,
    gate_rounding,
    leak_weight,
    score_rounding,
    split_scale,
)
from headsmith.heads.stream import position_bits, position_code

DIGITS = 60


def gate(z: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
    """z sigmoid(b z), straight from the softmax over {itself, sink}."""
    itself, sink = mpmath.exp(b * z), mpmath.mpf(1)
    return z * itself / (itself + sink)


class TestGateLemma:
    """0 <= relu(z) - z sigmoid(b z) <= min(W(1/e)/b, |z|/2)."""

    @given(st.floats(-50, 50), st.floats(1e-6, 1e9))
    def test_it_is_a_bound(self, z, b) -> None:
        with mpmath.workdps(DIGITS):
            gap = mpmath.mpf(max(z, 0.0)) - gate(mpmath.mpf(z), mpmath.mpf(b))
            assert gap >= 0
            assert gap <= mpmath.mpf(float(gate_error(np.array([b]), np.array([abs(z)]))[0]))
            assert abs(gap - abs(mpmath.mpf(z)) / (1 + mpmath.exp(mpmath.mpf(b) * abs(mpmath.mpf(z))))) < 1e-40

    @pytest.mark.parametrize("b", [1e-3, 1.0, 37.5, 1e6, 1e12])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_it_is_attained(self, b, sign) -> None:
        with mpmath.workdps(DIGITS):
            w = mpmath.lambertw(mpmath.exp(-1)).real
            peak = sign * (1 + w) / mpmath.mpf(b)
            gap = max(peak, mpmath.mpf(0)) - gate(peak, mpmath.mpf(b))
            assert abs(gap - w / mpmath.mpf(b)) < mpmath.mpf(10) ** -45 / mpmath.mpf(b)
            bound = mpmath.mpf(float(gate_error(np.array([b]), np.array([1e30]))[0]))
            assert gap <= bound <= gap * (1 + mpmath.mpf("1e-14"))

    def test_a_short_range_halves_it(self) -> None:
        found = gate_error(np.array([1.0, 1e-9]), np.array([1e-3, 2.0]))
        assert np.all(found >= [0.5e-3, 1.0])
        assert np.all(found <= np.array([0.5e-3, 1.0]) * (1 + 1e-14))

    def test_a_larger_scale_is_never_worse(self) -> None:
        scales = np.geomspace(1e-3, 1e12, 200)
        errors = gate_error(scales, np.full(200, 3.0))
        assert np.all(np.diff(errors) <= 0)


class TestPositionCode:
    """Rows i != j differ in h >= 1 bits and have inner product bits - 2h: at most binomial(bits, h) rows at each
    distance."""

    @pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 8, 9, 16, 31, 64])
    def test_distances(self, tokens) -> None:
        code, bits = position_code(tokens), position_bits(tokens)
        assert code.shape == (tokens, bits)
        assert set(np.unique(code)) <= {-1.0, 1.0}
        assert bits == int(np.ceil(np.log2(tokens)))
        for i, j in itertools.combinations(range(tokens), 2):
            h = int((code[i] != code[j]).sum())
            assert h >= 1
            assert code[i] @ code[j] == bits - 2 * h

    @pytest.mark.parametrize("tokens", [2, 3, 5, 16, 21])
    @pytest.mark.parametrize("gain", [0.5, 2.0, 10.0, 60.0])
    def test_the_sum_over_others_is_at_most_the_binomial_sum(self, tokens, gain) -> None:
        code, bits = position_code(tokens), position_bits(tokens)
        with mpmath.workdps(DIGITS):
            closed = (1 + mpmath.exp(-mpmath.mpf(gain))) ** bits - 1
            for i in range(tokens):
                others = mpmath.fsum(
                    mpmath.exp(-mpmath.mpf(gain) * int((code[i] != code[j]).sum())) for j in range(tokens) if j != i
                )
                assert others <= closed * (1 + mpmath.mpf(10) ** -50)
                if tokens == 2**bits:
                    assert abs(others - closed) < mpmath.mpf("1e-50")
            assert closed <= mpmath.mpf(float(leak_weight(gain, tokens, np.zeros(1))[0]))

    def test_one_token_has_no_others(self) -> None:
        assert leak_weight(5.0, 1, np.array([0.3, 1e9])).tolist() == [0.0, 0.0]

    def test_the_widths_of_queries(self) -> None:
        assert [feature_count(tokens) for tokens in (1, 2, 3, 4, 5, 16)] == [2, 4, 5, 5, 6, 7]


class TestLeakLemma:
    """Other tokens move the head by at most 2 Z L, whatever b is, whatever their values are, whatever rounding does
    to scores."""

    @given(
        st.integers(2, 9),
        st.floats(0.5, 20.0),
        st.floats(1e-3, 1e3),
        st.floats(0.0, 2.0),
        st.integers(0, 2**32 - 1),
    )
    def test_it_is_a_bound(self, tokens, gain, b, disturbance, seed) -> None:
        rng = np.random.default_rng(seed)
        Z = 2.0
        z = rng.uniform(-Z, Z, tokens) if seed % 3 else rng.choice([-Z, Z], tokens)
        code = position_code(tokens)
        bound = 2 * Z * float(leak_weight(gain, tokens, np.array([disturbance]))[0])
        with mpmath.workdps(30):
            for i in range(tokens):
                push = rng.uniform(-disturbance, disturbance, tokens + 1)
                scores = [
                    mpmath.mpf(b) * mpmath.mpf(z[i]) - mpmath.mpf(gain) * int((code[i] != code[j]).sum()) + push[j]
                    for j in range(tokens)
                ]
                sink = mpmath.mpf(push[tokens])
                weights = [mpmath.exp(s) for s in scores]
                alone = mpmath.mpf(z[i]) * weights[i] / (weights[i] + mpmath.exp(sink))
                crowd = mpmath.fsum(w * mpmath.mpf(v) for w, v in zip(weights, z, strict=True))
                crowd /= mpmath.fsum(weights) + mpmath.exp(sink)
                assert abs(crowd - alone) <= bound

    @pytest.mark.parametrize("tokens", [2, 4, 16])
    def test_it_is_nearly_attained(self, tokens) -> None:
        """The token itself at +Z, all others at -Z, a large scale: the move is 2 Z L / (1 + L)."""
        gain, Z = 6.0, 3.0
        code = position_code(tokens)
        with mpmath.workdps(DIGITS):
            others = mpmath.fsum(mpmath.exp(-gain * int((code[0] != code[j]).sum())) for j in range(1, tokens))
            moved = Z - (Z - Z * others) / (1 + others)
            bound = 2 * Z * float(leak_weight(gain, tokens, np.zeros(1))[0])
            assert mpmath.mpf("0.97") * bound <= moved <= bound


class TestGateRounding:
    """Rounded scores, exp, normalisation and sum move the head by at most gate_rounding."""

    @pytest.mark.parametrize("name", ["float64", "float32"])
    @pytest.mark.parametrize("tokens", [1, 3])
    def test_perturbed_scores_stay_within_it(self, name, tokens) -> None:
        """The inequality behind it, at 50 digits: |z| |sigmoid(t (1 + d) + a) - sigmoid(t)|, with d and a at their
        ends."""
        precision = PRECISIONS[name]
        for b in (1e-3, 1.0, 1e3, 1e7):
            rounding = score_rounding(precision, tokens, 40.0)
            size = 5.0
            bound = float(gate_rounding(rounding, np.array([b]), np.array([size]), precision, tokens)[0])
            with mpmath.workdps(50):
                for y in (0.0, 0.01, 0.3, 1.0, 4.0 / 3.0, 2.0, 8.0 / 3.0, 4.0, 10.0, 30.0):
                    for sign, d, a in itertools.product((-1, 1), (-1, 1), (-1, 1)):
                        z = sign * mpmath.mpf(min(y / b, size))
                        t = b * z
                        moved = t * (1 + d * mpmath.mpf(rounding.relative)) + a * mpmath.mpf(rounding.absolute)
                        change = abs(z) * abs(1 / (1 + mpmath.exp(-moved)) - 1 / (1 + mpmath.exp(-t)))
                        assert change <= bound

    @pytest.mark.parametrize("name", ["float64", "float32"])
    @pytest.mark.parametrize("tokens", [1, 2, 5])
    def test_heads_in_floating_point_stay_within_it(self, name, tokens, rng) -> None:
        """Brute force: the whole head in the dtype, exp pushed by several units, sums shuffled, against 50 digits."""
        precision, kind = PRECISIONS[name], np.dtype(name).type
        bits, gain = position_bits(tokens), 30.0
        code = position_code(tokens)
        rounding = score_rounding(precision, tokens, gain)
        for _ in range(60):
            b = 10.0 ** rng.uniform(-2, 5)
            size = 10.0 ** rng.uniform(-1, 1)
            query = kind(np.sqrt(b))
            key = kind(b / np.sqrt(b))
            b_stored = mpmath.mpf(float(query)) * mpmath.mpf(float(key))
            near = rng.choice([-1, 1], tokens) * np.minimum(rng.exponential(1.5, tokens) / b, size)
            z = (near if rng.random() < 0.6 else rng.uniform(-size, size, tokens)).astype(name)
            i = int(rng.integers(tokens))
            got = _rounded_head(z, i, query, key, gain, code, precision, rng)
            with mpmath.workdps(50):
                exact = _exact_head(z, i, b_stored, gain, code)
                bound = float(
                    gate_rounding(rounding, np.array([float(b_stored)]), np.array([size]), precision, tokens)[0]
                )
                assert abs(mpmath.mpf(float(got)) - exact) <= bound
        assert bits == code.shape[1]

    def test_it_is_not_slack_by_more_than_ten(self) -> None:
        """Near the worst place the perturbation alone reaches a fair part of the bound."""
        precision = PRECISIONS["float32"]
        rounding = score_rounding(precision, 1, 0.0)
        b, y = 1.0, 2.4
        bound = float(gate_rounding(rounding, np.array([b]), np.array([y]), precision, 1)[0])
        moved = y * (1 + rounding.relative) + rounding.absolute
        change = y * (1 / (1 + np.exp(-moved)) - 1 / (1 + np.exp(-y)))
        assert change > bound / 10

    def test_hopeless_rounding_is_infinite(self) -> None:
        precision = PRECISIONS["float32"]
        rounding = score_rounding(precision, 1024, 1e6)
        found = gate_rounding(rounding, np.ones(2), np.ones(2), precision, 1024)
        assert np.all(np.isinf(found))


def _exact_head(z, i, b, gain, code):
    weights = [mpmath.exp(b * mpmath.mpf(float(z[i])) - mpmath.mpf(gain) * int((code[i] != row).sum())) for row in code]
    total = mpmath.fsum(weights) + 1
    return mpmath.fsum(w * mpmath.mpf(float(v)) for w, v in zip(weights, z, strict=True)) / total


def _rounded_head(z, i, query, key, gain, code, precision, rng):
    """The head of one data token, feature by feature, in the dtype; exp is pushed by up to EXP_ULPS units."""
    kind = z.dtype.type
    bits = code.shape[1]
    scores = [kind(0)]
    for row in code:
        terms = [(z[i] * query) * key]
        if bits:
            terms += [(kind(code[i][k]) * kind(gain / 2 / KEY)) * (kind(row[k]) * kind(KEY)) for k in range(bits)]
            terms += [kind(KEY) * kind(-gain * bits / 2 / KEY)]
        scores.append(_shuffled_sum(terms, rng))
    top = max(scores)
    push = 1.0 + EXP_ULPS * float(precision.unit_roundoff) * rng.choice([-1.9, 0.0, 1.9], len(scores))
    powers = [kind(float(np.exp(score - top)) * p) for score, p in zip(scores, push, strict=True)]
    mass = _shuffled_sum(powers, rng)
    return _shuffled_sum([(power / mass) * v for power, v in zip(powers[1:], z, strict=True)], rng)


def _shuffled_sum(terms, rng):
    total = terms[0] * 0
    for index in rng.permutation(len(terms)):
        total = total + terms[index]
    return total


@pytest.mark.parametrize("name", ["float64", "float32"])
@given(exponents=st.lists(st.floats(-30, 60), min_size=1, max_size=8))
def test_split_scale_never_falls_below_the_scale(name, exponents) -> None:
    """query * key >= scale, both of the dtype, the key a power of two, neither far from the square root."""
    scale = 2.0 ** np.array(exponents)
    query, key = split_scale(scale, PRECISIONS[name])
    assert np.all(query * key >= scale)  # the key is a power of two: the product is exact
    assert np.all(query * key <= scale * (1 + 2e-7))
    assert np.all(np.log2(key) == np.rint(np.log2(key)))
    assert np.all((query / key < 4.0) & (query / key > 0.25))
    assert np.array_equal(query, query.astype(name).astype(np.float64))
    assert np.array_equal(key, key.astype(name).astype(np.float64))
