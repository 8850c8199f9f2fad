"""The gate head: y g(x) in one head, where g is nearly affine: the product of two linear forms.

Theorem: |out - y g(x)| <= leak + rounding, and |g - affine| is proved on the whole interval.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.theorems import banks as models

from headsmith.core.errors import CertificateError, DomainError
from headsmith.lab import heads as head_models
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.gate import GateBank, _fitted, gate_product_fit
from headsmith.transformer.heads.stream import DATA, Link
from headsmith.transformer.ir import Transformer

each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
each_mask = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
each_surrounding = pytest.mark.parametrize("how", models.SURROUNDINGS)
each_count = pytest.mark.parametrize("tokens", [1, 5])

FIGURES = {
    (1, 0.1): 3.4e-3, (2, 0.1): 5.3e-5, (3, 0.1): 2.0e-6, (4, 0.1): 1.54e-7, (5, 0.1): 1.66e-8,
    (1, 0.05): 8.4e-4, (2, 0.05): 3.44e-6, (3, 0.05): 3.01e-8, (4, 0.05): 5.34e-10, (5, 0.05): 1.51e-11,
    (1, 0.025): 2.1e-4, (2, 0.025): 2.07e-7, (3, 0.025): 4.58e-10, (4, 0.025): 2.0e-12,
    (1, 0.0125): 5.22e-5, (2, 0.0125): 1.27e-8, (3, 0.0125): 7.06e-12,
}  # fmt: skip
"""The error of x y for |x|, |y| <= 1, by the number of reference tokens and the rise of the gate."""

REACHED = {count: 1.01 * FIGURES[count, 0.05] for count in (2, 3, 4, 5)}


def bank(dtype: str = "float64", position_gain: float = 45.0) -> GateBank:
    """x0 x1 and (x1 + 1/4) x0 by fitted gates of four and of three tokens."""
    four, three = gate_product_fit(-1.0, 1.0, 4), gate_product_fit(-1.0, 1.5, 3)
    slope = models.stored([four.slope, [*three.slope, 0.0]], dtype)
    offset = models.stored([four.offset, [*three.offset, -50.0]], dtype)
    read = (Link("x", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), Link(DATA, [[0.25]], 2))
    return GateBank([-1, -1], [0, 1], read, (Link("out", np.eye(2)),), slope, offset, position_gain, 60.0)


def model(how: str, tokens: int, dtype: str, **changes: Any) -> Transformer:
    return models.surround(replace(bank(dtype), **changes), how, tokens, dtype, grid=4)


# ---- the product ----------------------------------------------------------------------------------------------------


class TestProduct:
    @pytest.mark.parametrize(("grid", "rise"), FIGURES)
    def test_one_head_multiplies(self, grid, rise, rng) -> None:
        found = head_models.gate_product(grid=grid, rise=rise)
        assert found.reference_tokens == grid + 1
        x = rng.uniform(-1, 1, (4000, 1, 2))
        x[:4, 0] = [[-1, -1], [-1, 1], [1, -1], [1, 1]]
        error = np.abs(run(found, x)[:, 0, 0] - x[:, 0, 0] * x[:, 0, 1]).max()
        assert 0.9 * FIGURES[grid, rise] <= error <= 1.01 * FIGURES[grid, rise] + 1e-13

    @pytest.mark.parametrize("grid", [1, 2, 3])
    def test_the_order_in_the_rise(self, grid) -> None:
        """Half the rise, 4^p times less error."""
        errors = [gate_product_fit(-1.0, 1.0, grid, rise).error / rise for rise in (0.05, 0.025)]
        assert 0.9 * 4**grid <= errors[0] / errors[1] <= 1.1 * 4**grid

    def test_every_token_has_its_own_product(self, rng) -> None:
        x = rng.uniform(-1, 1, (10, 6, 2))
        for causal in (False, True):
            found = run(head_models.gate_product(tokens=6), x, causal=causal)[..., 0]
            assert np.abs(found - x[..., 0] * x[..., 1]).max() <= REACHED[4]

    def test_any_interval(self, rng) -> None:
        x = np.stack([rng.uniform(2, 10, 500), rng.uniform(-3, 3, 500)], axis=1)[:, None]
        found = run(head_models.gate_product(2.0, 10.0), x)[:, 0, 0]
        assert np.abs(found - x[:, 0, 0] * x[:, 0, 1]).max() <= 12.0 * REACHED[4]

    def test_float32(self, rng) -> None:
        x = rng.uniform(-1, 1, (500, 1, 2)).astype(np.float32)
        found = run(head_models.gate_product(dtype="float32"), x)[:, 0, 0]
        assert np.abs(found - x[:, 0, 0].astype(float) * x[:, 0, 1]).max() <= 2e-5

    @pytest.mark.parametrize("grid", [2, 3, 4])
    def test_the_errors_are_equal(self, grid) -> None:
        """2 p parameters, 2 p + 1 equal errors of alternating sign: no gate for this affine function is better."""
        found = _fitted(grid, 0.2, 0.1)
        assert found is not None
        (offset, slope), error = np.split(found[0], 2), found[1]
        x = np.linspace(-1, 1, 4001)
        errors = 1.0 / (1.0 + np.exp(np.outer(x, slope) + offset).sum(axis=1)) - 0.2 - 0.1 * x
        signs = np.sign(errors[np.abs(errors) > 0.95 * error])
        assert np.count_nonzero(np.diff(signs)) == 2 * grid
        assert np.abs(errors).max() <= 1.001 * error

    def test_what_cannot_be_fitted(self) -> None:
        for interval, tokens in (((-1.0, 1.0), 0), ((-1.0, 1.0), 7), ((1.0, 1.0), 4), ((1.0, -1.0), 4)):
            with pytest.raises(DomainError, match="a gate needs"):
                gate_product_fit(*interval, tokens)
        for tokens, rise in ((5, 0.0125), (4, 0.4), (4, 0.0), (4, -0.1)):
            with pytest.raises(DomainError, match="no gate of"):
                gate_product_fit(-1.0, 1.0, tokens, rise)

    def test_the_published_gate(self) -> None:
        """g = .2 + .1 x with four tokens to 4e-8."""
        found = _fitted(4, 0.2, 0.1)
        assert found is not None
        assert found[1] <= 4e-8


# ---- runner, textbook, bill, file -----------------------------------------------------------------------------------


@each_surrounding
@each_count
class TestTheBankInAModel:
    @each_mask
    @each_dtype
    def test_runner_equals_textbook(self, how, tokens, causal, dtype, rng) -> None:
        for length in {1, tokens}:
            models.agrees_with_textbook(model(how, tokens, dtype), length, causal, rng)

    @each_mask
    def test_attention_is_real(self, how, tokens, causal, rng) -> None:
        models.attention_is_real(model(how, tokens, "float64"), tokens, causal, rng)

    def test_chunks(self, how, tokens, rng, monkeypatch) -> None:
        models.batches_and_chunks_change_nothing(model(how, tokens, "float64"), True, rng, monkeypatch)

    @pytest.mark.parametrize("gain", [45.0, 400.0])
    def test_bill(self, how, tokens, gain) -> None:
        models.bill_counts_the_matrices(model(how, tokens, "float64", position_gain=gain))

    @each_dtype
    def test_file(self, how, tokens, dtype, tmp_path, rng) -> None:
        models.file_brings_it_back(model(how, tokens, dtype), tmp_path / "model", rng)


class TestTheCheckerRefuses:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"slope": np.ones((2, 3))}, "do not fit 4 reference tokens"),
            ({"slope": np.ones((2, 5)), "offset": np.ones((2, 5))}, "do not fit 4 reference tokens"),
            ({"offset": np.ones(4)}, "do not fit 4 reference tokens"),
            ({"offset": np.ones((2, 4, 1))}, "do not fit 4 reference tokens"),
            ({"node": [-1]}, "array of shape"),
            ({"read": (Link("x", np.ones((5, 2))),)}, "does not fit"),
            ({"offset": np.full((2, 4), np.inf)}, "not finite"),
            ({"position_gain": np.nan}, "not finite"),
            ({"keep_gain": np.inf}, "not finite"),
        ],
        ids=repr,
    )
    def test_what_does_not_fit(self, changes, message) -> None:
        with pytest.raises(CertificateError, match=message):
            model("alone", 3, "float64", **changes)

    def test_a_gate_without_a_grid(self) -> None:
        with pytest.raises(CertificateError, match="do not fit 0 reference tokens"):
            models.build([[bank()]], 3, "float64")
        empty = replace(bank(), slope=np.ones((2, 0)), offset=np.ones((2, 0)))
        with pytest.raises(CertificateError, match="do not fit 0 reference tokens"):
            models.build([[empty]], 3, "float64")

    def test_numbers_of_another_dtype(self) -> None:
        with pytest.raises(CertificateError, match="not a float32"):
            model("alone", 3, "float32", slope=bank("float64").slope)
