"""The sink head: the gate lemma and the leak lemma hold and are attained; rounding inside the head stays within its
bound."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from helpers.theorems.banks import build, gates
from hypothesis import given
from hypothesis import strategies as st

from headsmith.core.rounding import PRECISIONS
from headsmith.transformer.heads.scaling import split_scale
from headsmith.transformer.heads.sink import leak_weight
from headsmith.transformer.heads.stream import position_bits, position_code

DIGITS = 60


def gate(z: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
    """z sigmoid(b z), straight from the softmax over {itself, sink}."""
    itself, sink = mpmath.exp(b * z), mpmath.mpf(1)
    return z * itself / (itself + sink)


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
        models = [build([[gates("x", 2)]], tokens, "float64") for tokens in (1, 2, 3, 4, 5, 16)]
        banks = [(model, bank) for model in models for bank in model.layers[0].banks]
        assert [len(bank.features(model)) for model, bank in banks] == [2, 4, 5, 5, 6, 7]
        assert [bank.law(model) for model, bank in banks[:2]] == ["2", "3 + ceil(log2 n)"]


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
