"""The ramp head: clamp(s; a, b) by a table whose tokens interpolate.

Theorem: within 0.0622 grid steps of the ramp, for all s and any number of tokens; H heads share the interval, so that n
tokens and H heads reach O(1/(nH)), with the data tokens themselves as grid.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.attacks import saved
from helpers.theorems import banks as models

from headsmith.core.errors import CertificateError, DomainError, HeadsmithError
from headsmith.core.rounding import PRECISIONS
from headsmith.export.file import read_file, write_file
from headsmith.lab import heads as head_models
from headsmith.run.numpy_runner import patterns, run
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.ramp import HARDMAX_ERROR, WIDTH, ramp_error, ramp_table
from headsmith.transformer.heads.stream import GRID, Link, Register
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Transformer

FIGURES = {0.5: 0.520, 1.0: 0.292, 2.0: 0.120, 4.0: 0.135, 10.0: 0.303, 50.0: 0.444, WIDTH: 0.0622}
"""The largest error in grid steps, by the width of the kernel."""

each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def softmax_ramp(table: tuple[Any, Any, Any], s: Any) -> Any:
    """The heads' sum at points s, in float64."""
    slope, offset, values = table
    scores = s[:, None, None] * slope[..., 0] + offset
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return (weights / weights.sum(axis=2, keepdims=True) * values[..., 0]).sum(axis=(1, 2))


def exact_ramp(table: tuple[Any, Any, Any], s: float) -> Any:
    total = mpmath.mpf(0)
    for slope, offset, values in zip(*table, strict=True):
        powers = [
            mpmath.exp(mpmath.mpf(float(a)) * mpmath.mpf(s) + mpmath.mpf(float(c)))
            for a, c in zip(slope[:, 0], offset, strict=True)
        ]
        total += mpmath.fsum(p * mpmath.mpf(float(v)) for p, v in zip(powers, values[:, 0], strict=True)) / mpmath.fsum(
            powers
        )
    return total


def worst_error(low: float, high: float, tokens: int, heads: int = 1, width: float = WIDTH, samples: int = 40) -> float:
    """In grid steps, on so many samples a step, past both ends."""
    step = (high - low) / (tokens - 1) / heads
    s = np.linspace(low - 2 * step, high + 2 * step, samples * (tokens + 3) * heads + 1)
    found = softmax_ramp(ramp_table(low, high, tokens, heads, width), s)
    return float(np.abs(found - np.clip(s, low, high)).max() / step)


# ---- the theorem ----------------------------------------------------------------------------------------------------


class TestRampLemma:
    @pytest.mark.parametrize("tokens", [2, 3, 4, 7, 20, 101])
    @pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 5.0), (3.0, 3.5)])
    def test_it_is_a_bound_that_is_attained(self, tokens, low, high) -> None:
        found, bound = worst_error(low, high, tokens), ramp_error(tokens)
        assert found <= bound <= 1.02 * found
        assert bound <= 0.0623

    def test_the_oracle_agrees(self, rng) -> None:
        """40 digits on the stored numbers, where the error is largest and anywhere else."""
        low, high, tokens = -1.0, 2.0, 9
        table, step = ramp_table(low, high, tokens), 3.0 / 8.0
        places = np.concatenate([[low, high, low + 0.25 * step, low + 1.25 * step], rng.uniform(-3, 4, 60)])
        with mpmath.workdps(40):
            for s in places.tolist():
                off = abs(exact_ramp(table, s) - mpmath.mpf(min(max(s, low), high)))
                assert off <= ramp_error(tokens) * step + 1e-13

    @pytest.mark.parametrize(("width", "figure"), FIGURES.items())
    def test_figures(self, width, figure) -> None:
        assert abs(worst_error(-1.0, 1.0, 24, width=width, samples=200) - figure) <= 6e-4
        assert abs(ramp_error(24, width) - figure) <= 7e-4

    def test_the_width_is_the_best(self) -> None:
        best = ramp_error(24)
        for factor in (0.9, 0.98, 0.99, 1.01, 1.02, 1.1):
            assert ramp_error(24, WIDTH * factor) > best

    def test_hardmax_is_eight_times_worse(self) -> None:
        assert 0.48 <= worst_error(-1.0, 1.0, 24, width=300.0, samples=200) <= HARDMAX_ERROR
        assert HARDMAX_ERROR / ramp_error(24) >= 8.0

    def test_the_parts(self) -> None:
        """The kink and the staircase, as the closed forms say."""
        for width in (2.0, WIDTH, 4.0):
            table = ramp_table(0.0, 23.0, 24, width=width)
            kink = softmax_ramp(table, np.zeros(1))[0]
            assert abs(kink - np.exp(-width) / (1 + np.exp(-width))) <= 3 * np.exp(-4 * width)
            s = np.linspace(10, 11, 2001)
            inside = np.abs(softmax_ramp(table, s) - s).max()
            assert abs(inside / (2 * np.pi / width * np.exp(-(np.pi**2) / width)) - 1) <= 0.1

    def test_wide_kernels_have_no_bound(self) -> None:
        assert ramp_error(9, 0.1) == np.inf

    def test_what_is_no_ramp(self) -> None:
        for low, high, tokens, heads, width in (
            (1, 1, 4, 1, 1.0),
            (0, 1, 1, 1, 1.0),
            (0, 1, 4, 0, 1.0),
            (0, 1, 4, 1, 0),
        ):
            with pytest.raises(DomainError, match="no ramp"):
                ramp_table(low, high, tokens, heads, width)


class TestRate:
    """H heads of n tokens: (b - a) / ((n - 1) H) times a constant near 0.0622."""

    @pytest.mark.parametrize("tokens", [2, 3, 5, 16])
    @pytest.mark.parametrize("heads", [1, 2, 3, 8])
    def test_heads_share_the_interval(self, tokens, heads) -> None:
        found, bound = worst_error(-1.0, 2.0, tokens, heads), ramp_error(tokens, heads=heads)
        assert found <= bound <= 1.02 * found
        assert found <= (0.0624 if tokens > 2 else 0.0630)

    def test_the_model_has_the_rate(self, rng) -> None:
        """Data tokens as grid: no reference token at all, error 0.0624 (b - a) / ((n - 1) H) (0.063 for n = 2)."""
        for tokens, heads in ((2, 1), (4, 2), (8, 4), (16, 8)):
            model = head_models.ramp(-1.0, 1.0, tokens, heads)
            assert model.reference_tokens == 0
            assert model.tokens == tokens
            assert bill(model, 1.0).heads == heads
            x = rng.uniform(-1.5, 1.5, (400, tokens, 1))
            error = np.abs(run(model, x) - np.clip(x, -1, 1)).max()
            rate = 2.0 / ((tokens - 1) * heads)
            assert 0.055 * rate <= error <= ramp_error(tokens, heads=heads) * rate + 1e-14

    @each_dtype
    def test_reference_tokens_as_grid(self, dtype, rng) -> None:
        model = head_models.ramp(0.0, 3.0, 13, 2, tokens=4, dtype=dtype)
        assert model.reference_tokens == 13
        x = models.stored(rng.uniform(-4, 4, (200, 4, 1)), dtype)
        for causal in (False, True):
            error = np.abs(run(model, x, causal=causal) - np.clip(x, 0, 3)).max()
            assert error <= ramp_error(13, heads=2) * 3.0 / 24.0 + (1e-13 if dtype == "float64" else 1e-3)

    def test_relu_is_a_ramp(self, rng) -> None:
        x = rng.uniform(-2, 2, (500, 1, 1))
        error = np.abs(run(head_models.ramp(0.0, 2.0, 65, tokens=1), x) - np.maximum(x, 0)).max()
        assert error <= 0.0623 * 2.0 / 64.0


# ---- the data tokens as a grid --------------------------------------------------------------------------------------


TOKENS = 4


def bank(dtype: str) -> TableBank:
    slope, offset, values = (models.stored(array, dtype) for array in ramp_table(-1.0, 1.0, TOKENS, 2))
    write = (Link("out", [[1.0, 1.0], [0.0, 1.0]]),)
    read = (Link("x", [[1.0, 0.0], [0.5, 1.0]]),)
    return TableBank([-1, -1], [0, 1], read, write, slope, offset, values, 48.0, 60.0, grid="place")


def model(how: str, dtype: str) -> Transformer:
    return models.surround(bank(dtype), how, TOKENS, dtype, positional={"place": np.eye(TOKENS)})


@pytest.mark.parametrize("how", models.SURROUNDINGS)
class TestTheBankInAModel:
    @each_dtype
    def test_runner_equals_textbook(self, how, dtype, rng) -> None:
        models.agrees_with_textbook(model(how, dtype), TOKENS, False, rng)

    def test_attention_is_real(self, how, rng) -> None:
        models.attention_is_real(model(how, "float64"), TOKENS, False, rng)

    def test_chunks(self, how, rng, monkeypatch) -> None:
        models.batches_and_chunks_change_nothing(model(how, "float64"), False, rng, monkeypatch)

    def test_bill(self, how) -> None:
        models.bill_counts_the_matrices(model(how, "float64"))

    @each_dtype
    def test_file(self, how, dtype, tmp_path, rng) -> None:
        models.file_brings_it_back(model(how, dtype), tmp_path / "model", rng)

    def test_short_sequences_and_masks_are_refused(self, how) -> None:
        for length, causal in ((TOKENS - 1, False), (1, False), (TOKENS, True)):
            with pytest.raises(DomainError, match=r"table bank: all 4 data tokens are its grid"):
                run(model(how, "float64"), np.zeros((1, length, 2)), causal=causal)
        with pytest.raises(DomainError, match="table bank: all 4 data tokens are its grid"):
            patterns(model(how, "float64"), np.zeros((2, 2)))

    @each_dtype
    def test_reference_tokens_are_the_silent_ones(self, how, dtype, rng) -> None:
        """They score 48 less than the grid does: what is left is rounding."""
        if how == "deep":
            how = "table"
        made, mine, u = model(how, dtype), bank(dtype), PRECISIONS[dtype].unit_roundoff
        x = models.stored(rng.uniform(-1, 1, (TOKENS, 2)), dtype)
        found = run(made, x[None])[0]
        with mpmath.workdps(40):
            for row, (a, b) in zip(found.tolist(), x.tolist(), strict=True):
                table = tuple(array[1:] for array in (mine.slope, mine.offset, mine.values))
                second = exact_ramp(table, 0.5 * a + b)
                assert abs(row[1] - second) <= 200.0 * u + 10.0 * made.reference_tokens * np.exp(WIDTH - 48.0)


def test_old_files_have_no_grid_name(tmp_path) -> None:
    """Tables on reference tokens are stored as they always were."""
    path = tmp_path / "model"
    kept = models.contents(head_models.ramp(0.0, 1.0, 5, tokens=2))
    write_file(path, kept)
    header, _ = saved.read(path)
    assert "grid" not in header["transformer"]["layers"][0][0]
    assert "positional" not in header["transformer"]
    assert read_file(path).transformer.layers[0].banks[0].grid == GRID
    write_file(path, models.contents(head_models.ramp(0.0, 1.0, 5)))
    header, tensors = saved.read(path)
    place = ("transformer", "layers", 0, 0, "grid")
    for new in (None, "nobody", "x", "grid", 3):
        saved.write(path, saved.put(header, place, new), tensors)
        with pytest.raises(HeadsmithError):
            read_file(path)


class TestTheCheckerRefuses:
    @pytest.mark.parametrize("name", ["x", "nobody", "position"])
    def test_grids_that_are_none(self, name) -> None:
        with pytest.raises(CertificateError, match="no positional register that tells tokens apart"):
            models.with_bank(model("alone", "float64"), TableBank, grid=name)

    def test_grids_that_are_not_one_hot(self) -> None:
        for rows in (2.0 * np.eye(TOKENS), np.eye(TOKENS)[::-1], np.ones((TOKENS, TOKENS)), np.zeros((TOKENS, TOKENS))):
            with pytest.raises(CertificateError, match="tells tokens apart"):
                replace(model("alone", "float64"), positional={"place": rows})

    def test_tables_of_another_length(self) -> None:
        made, mine = model("alone", "float64"), bank("float64")
        cut = {name: getattr(mine, name)[:, :-1] for name in ("slope", "offset", "values")}
        with pytest.raises(CertificateError, match="does not fit 4 data tokens"):
            models.with_bank(made, TableBank, **cut)

    def test_the_register_is_constant(self) -> None:
        made = model("alone", "float64")
        with pytest.raises(CertificateError, match="constant register place is written"):
            replace(made, embedding=(*made.embedding, Link("place", np.ones((TOKENS, 2)))))
        registers = tuple(Register("place", 5) if each.name == "place" else each for each in made.registers)
        with pytest.raises(CertificateError, match="positional values of place"):
            replace(made, registers=registers)
