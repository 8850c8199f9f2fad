"""Functions of the user's own: formulas need nothing else, programs on series are checked at once, names guarded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb_series

import headsmith as hs
from headsmith.core.functions import FUNCTIONS
from headsmith.language import formula, own


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test defines is gone after it."""
    known, calls, defined = dict(FUNCTIONS), dict(formula.CALLS), dict(own._DEFINED)
    yield
    for registry, before in ((FUNCTIONS, known), (formula.CALLS, calls), (own._DEFINED, defined)):
        for name in set(registry) - set(before):
            del registry[name]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("definition", ["exp(-t**2)/(1 + t**2)", lambda t: np.exp(-t * t) / (1 + t**2)])
def test_a_formula_is_put_in_where_it_is_called_and_saved_with_the_model(definition: Any, tmp_path: Path) -> None:
    bell = hs.function("bell", definition)
    exact = lambda t: np.exp(-t * t) / (1 + t**2)  # noqa: E731
    assert bell(0.5) == pytest.approx(exact(0.5), rel=1e-15)
    np.testing.assert_allclose(bell(np.array([[0.1, 2.0]])), exact(np.array([[0.1, 2.0]])), rtol=1e-14)
    for target in ("y + bell(2*x)", lambda x, y: y + bell(2 * x)):
        model = hs.compile(target, {"x": (-1, 1), "y": (0, 1)}, 1e-3)
        assert abs(model([0.3, 0.5])[0] - 0.5 - exact(0.6)) <= model.certificate.error <= 1e-3
    model.save(tmp_path / "model.safetensors")
    del formula.CALLS["bell"]
    assert hs.verify(tmp_path / "model.safetensors").error == model.certificate.error
    assert "bell" not in FUNCTIONS


def test_a_function_may_use_relu_maxima_quotients_and_other_functions() -> None:
    mine = hs.function("mine", lambda x: hs.maximum(x, 2 * x - 1) * hs.relu(x) / (2 + np.hypot(x, 1.0)))
    twice = hs.function("twice", "mine(mine(x)) + abs(x)")
    value = lambda x: np.maximum(x, 2 * x - 1) * np.maximum(x, 0) / (2 + np.hypot(x, 1.0))  # noqa: E731
    assert twice(1.5) == pytest.approx(value(value(1.5)) + 1.5, rel=1e-14)
    traced = hs.compile(lambda x: [twice(x), mine(x)], {"x": (-1, 2)}, 0.05)
    assert np.abs(traced([1.5]) - [twice(1.5), mine(1.5)]).max() <= traced.certificate.error


def test_the_same_definition_may_be_given_again_and_another_may_not() -> None:
    for _ in range(2):
        hs.function("again", "x**2 + 1")
        hs.function("airy_again", lambda x: x.airy_ai())
    with pytest.raises(hs.TargetError, match="defined otherwise"):
        hs.function("again", "x**2 + 2")
    with pytest.raises(hs.TargetError, match="defined otherwise"):
        hs.function("airy_again", lambda x: x.airy_bi())


@pytest.mark.parametrize("name", ["my bump", "2x", "", "lambda", "a-b", 7])
def test_names_that_formulas_cannot_write_are_refused(name: Any) -> None:
    with pytest.raises(hs.TargetError, match="cannot be the name of a function"):
        hs.function(name, "x**2")


@pytest.mark.parametrize("name", ["sin", "max", "pi", "square"])
def test_names_that_clash_are_refused(name: str) -> None:
    with pytest.raises(hs.TargetError, match="there is already a"):
        hs.function(name, "x**2")


def test_a_value_that_is_another_function_is_found_out_at_once() -> None:
    with pytest.raises(
        hs.TargetError, match=r"at -7.3 `value` gives 159.87, and the definition gives -389.017.*not the deri"
    ):
        hs.function("cube", lambda x: x**3, lambda x: 3 * x**2)
    with pytest.raises(hs.TargetError, match="not the derivative"):
        hs.function("airy", lambda x: x.airy_ai(), np.cos)
    with pytest.raises(hs.TargetError, match="must take and return a numpy array; it raised TypeError"):
        hs.function("airy", lambda x: x.airy_ai(), lambda x: float("x") if np.ndim(x) == 0 else [].index)
    hs.function("cube", lambda x: x**3, lambda x: x * x * x)


def test_series_whose_coefficients_belong_to_different_functions_are_found_out_at_once() -> None:
    def wrong(x: Any) -> Any:
        return arb_series([x[0].airy_ai(), x[0].cos()], x.prec)

    with pytest.raises(hs.TargetError, match=r"derivative of order 1 .* at -7.3 .* do not belong to one function"):
        hs.function("wrong", wrong)


def test_what_is_neither_traced_nor_a_program_is_told_both_reasons() -> None:
    with pytest.raises(hs.TargetError, match=r"neither be traced .*plain number.* nor run on Arb"):
        hs.function("plain", lambda x: float(x) ** 2)
    with pytest.raises(hs.TargetError, match="needs a formula of one variable"):
        hs.function("number", 3)  # type: ignore[arg-type]
    with pytest.raises(hs.TargetError, match="has the variables x, y"):
        hs.function("two", "x*y")


def test_where_a_program_is_defined() -> None:
    root = hs.function("root", lambda x: (x - 20).lgamma(), domain=(20.5, 25))
    assert root(22.0) == pytest.approx(0.0, abs=1e-15)
    with pytest.raises(hs.TargetError, match="a function of your own that is given as a program on power series"):
        hs.compile("root(x)", {"x": (21, 22)})
    with pytest.raises(hs.TargetError, match=r"no finite value at any of .* domain=\(low, high\)"):
        hs.function("far", lambda x: (x - 20).lgamma().sqrt() * (x - 20).log())


def test_a_program_is_in_no_file() -> None:
    """Whoever verifies a file could not know what it computes: it is refused, with what to do instead."""
    hs.function("ai", lambda x: x.airy_ai())
    with pytest.raises(hs.TargetError, match="Give it as a formula of known functions"):
        hs.compile("ai(x)", {"x": (0, 1)}, 1e-2)
