"""Every named function that formulas know compiles under each recipe, meets its certificate at fifty digits, and is
proven again from a file."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest
from helpers.oracles.mathematics import EXACT

import headsmith as hs

INTERVALS = {
    "tan": (2.0, 4.0),
    "arctan": (-5.0, 5.0),
    "arcsin": (-0.9, 0.8),
    "arccos": (-0.5, 0.9),
    "sinh": (-3.0, 2.0),
    "cosh": (-2.0, 3.0),
    "j0": (-2.0, 9.0),
    "j1": (0.0, 8.0),
}


def worst(model: hs.Compiled, exact, low: float, high: float) -> float:
    """The largest error at some points, at fifty digits."""
    places = np.linspace(low, high, 101)
    with mpmath.workdps(50):
        return max(
            float(abs(mpmath.mpf(float(got)) - exact(mpmath.mpf(float(x)))))
            for x, got in zip(places, model(x=places), strict=True)
        )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("recipe", ["native", "relu"])
@pytest.mark.parametrize("name", INTERVALS)
def test_each_recipe_meets_its_certificate_and_its_file_proves_it_again(name: str, recipe: str, tmp_path: Path) -> None:
    low, high = INTERVALS[name]
    model = hs.compile(f"{name}(x)", {"x": (low, high)}, 1e-3, recipe=recipe)
    assert worst(model, EXACT[name], low, high) <= model.certificate.error <= 1e-2
    model.save(tmp_path / "model.safetensors")
    assert hs.verify(tmp_path / "model.safetensors").error == model.certificate.error


def test_one_head_holds_several_of_them_in_one_sub_expression() -> None:
    model = hs.compile("j0(x*x) + arctan(x)*tan(x/2)*cosh(x)", {"x": (-1, 1)}, 1e-2)
    assert (model.bill.layers, model.bill.heads) == (1, 1)
    exact = lambda x: mpmath.besselj(0, x * x) + mpmath.atan(x) * mpmath.tan(x / 2) * mpmath.cosh(x)  # noqa: E731
    assert worst(model, exact, -1.0, 1.0) <= model.certificate.error <= 1e-2


def test_the_ends_of_arcsin_and_arccos_where_their_slopes_are_infinite() -> None:
    model = hs.compile("arcsin(x), arccos(x)", {"x": (-1, 1)}, 1e-2)
    found = model([[-1.0], [1.0]])
    expected = np.array([[-np.pi / 2, np.pi], [np.pi / 2, 0.0]])
    assert np.abs(found - expected).max() <= model.certificate.error <= 1e-2


def test_expm1_and_log1p_are_exp_and_log() -> None:
    model = hs.compile("expm1(x) + log1p(x)", {"x": (-0.5, 1)}, 3e-2)
    assert worst(model, lambda x: mpmath.expm1(x) + mpmath.log1p(x), -0.5, 1.0) <= model.certificate.error


def test_jumps_have_a_gap_or_are_refused_with_the_reason() -> None:
    model = hs.compile("sign(x, 0.25), step(x, 0.25)", {"x": (-1, 1)}, 1e-6)
    found = model([[-1.0], [-0.125], [0.0], [0.125], [1.0]])
    expected = [[-1.0, 0.0], [-0.5, 0.25], [0.0, 0.5], [0.5, 0.75], [1.0, 1.0]]
    assert np.abs(found - expected).max() <= 1e-6
    np.testing.assert_array_equal(hs.step(np.array([-1.0, 0.0, 0.125]), 0.25), [0.0, 0.5, 0.75])
    for text in ("sign(x)", "step(x)"):
        with pytest.raises(hs.TargetError, match="no continuous model computes a jump"):
            hs.compile(text, {"x": (-1, 1)})
    for gap in ("0", "-1", "x"):
        with pytest.raises(hs.TargetError, match="gap of sign"):
            hs.compile(f"sign(x, {gap})", {"x": (-1, 1)})


def test_poles_and_ends_of_domains_are_refused_with_the_numbers() -> None:
    with pytest.raises(hs.DomainError, match=r"tan\(x\): its argument ranges over \[0, 2\].*pi/2"):
        hs.compile("tan(x)", {"x": (0, 2)})
    with pytest.raises(hs.DomainError, match=r"arcsin\(2\*x\): its argument ranges over \[-2, 2\].*-1 to 1"):
        hs.compile("arcsin(2*x)", {"x": (-1, 1)})
    with pytest.raises(hs.TargetError, match=r"arccos\(2\) is not defined"):
        hs.compile("x*arccos(2)", {"x": (-1, 1)})


def test_tiny_exponents() -> None:
    for text in ("x**1e-300", "x**-1e-300"):
        model = hs.compile(text, {"x": (0.5, 2)}, 1e-2, recipe="native")
        assert abs(float(model(x=1.7)) - 1.0) <= model.certificate.error <= 1e-2
