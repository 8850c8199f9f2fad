"""Native heads: what they cost, how tight their certificates are, and that nothing breaks them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks.true_error import true_error
from test_formulas import AWKWARD, NESTED, Domain, check, points_of, unit, worst

import headsmith as hs
from headsmith.report.falsify import falsify

PI = math.pi
DEGREE_12 = [0.3, -1.0, 0.5, 2.0, -1.5, 0.25, 1.0, -0.75, 0.6, -0.2, 0.9, -1.1, 0.7]
POLYNOMIAL = " + ".join(f"({c})*x**{i}" for i, c in enumerate(DEGREE_12) if i) + f" + {DEGREE_12[0]}"
QUOTIENT: Domain = {"x": (-1, 1), "y": (0.5, 2)}

# Target, domain, error; at most so many layers, heads, reference tokens; certified over true error, where that is not
# all rounding.
COSTS: list[tuple[str | list[str], Domain, float, tuple[int, int, int], float]] = [
    ("x*y", unit("x y"), 1e-6, (1, 1, 16), 1.5),
    ("x*y", unit("x y"), 1e-9, (1, 1, 36), 1.5),
    ("1/x", unit("x", 0.1, 1), 1e-6, (1, 1, 20), 1.1),
    ("1/x", unit("x", 0.001, 1), 1e-3, (1, 1, 32), 1.1),
    ("x/y", QUOTIENT, 1e-6, (1, 1, 64), 1.5),
    ("x**2", unit("x"), 1e-8, (1, 1, 12), 1.1),
    ("sin(x)", unit("x", -PI, PI), 1e-6, (1, 1, 10), 1.1),
    (["sin(x)", "cos(x)"], unit("x", -4 * PI, 4 * PI), 1e-6, (1, 1, 24), 1.1),
    ("exp(x)", unit("x"), 1e-9, (1, 1, 16), 1.1),
    (POLYNOMIAL, unit("x"), 1e-6, (1, 1, 24), 1.1),
    ("sigmoid(x)", unit("x", -50, 50), 1e-12, (1, 1, 2), math.inf),
    ("tanh(x)", unit("x", -50, 50), 1e-12, (1, 1, 2), math.inf),
    ("gelu(x)", unit("x", -5, 5), 1e-6, (1, 1, 20), 1.1),
    (["sigmoid(x)", "tanh(x)", "gelu(x)"], unit("x", -5, 5), 1e-6, (1, 1, 32), 1.1),
    ("log(x)", unit("x", 0.1, 1), 1e-6, (1, 1, 20), 1.1),
    ("sqrt(x)", unit("x", 0.1, 1), 1e-6, (1, 1, 16), 1.1),
    ("max(x, y)", unit("x y"), 1e-6, (1, 1, 1), 1.1),
    ("x*y*z", unit("x y z"), 1e-6, (2, 2, 16), 1.5),
]


def named(target: str | list[str], domain: Domain, error: float) -> str:
    text = target if isinstance(target, str) else ", ".join(target)
    low, high = next(iter(domain.values()))
    return f"{text if len(text) < 40 else 'degree 12'} on {low:.3g} to {high:.3g} within {error:g}"


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("target", "domain", "error", "most", "slack"), COSTS, ids=[named(*case[:3]) for case in COSTS]
)
def test_costs_and_tightness(
    target: str | list[str], domain: Domain, error: float, most: tuple[int, int, int], slack: float, tmp_path: Path
) -> None:
    model = hs.compile(target, domain, error)
    bill, certified = model.bill, model.certificate.error
    assert certified <= error
    assert bill.layers <= most[0]
    assert bill.heads <= most[1]
    assert bill.reference_tokens <= most[2]
    true = true_error(model)
    assert true <= certified <= slack * true
    model.save(tmp_path / "model.safetensors")
    assert hs.verify(tmp_path / "model.safetensors").error <= certified * (1 + 1e-9)


def test_a_product_takes_a_hundredth_of_the_relu_recipe() -> None:
    ours, theirs = (hs.compile("x*y", unit("x y"), 1e-6, recipe=recipe).bill for recipe in ("auto", "relu"))
    assert theirs.heads * theirs.layers > 100 * ours.heads * ours.layers


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("target", "domain", "error"),
    [
        ("x*y", unit("x y"), 1e-3),
        ("sin(x)", unit("x", -PI, PI), 1e-2),
        (["sigmoid(x)", "gelu(x)"], unit("x", -5, 5), 1e-3),
        ("1/x", unit("x", 0.1, 1), 1e-2),
    ],
    ids=str,
)
def test_single_precision(target: str | list[str], domain: Domain, error: float) -> None:
    model = check(target, domain, error, dtype="float32", recipe="native")
    assert model.certificate.dtype == "float32"
    assert model(points_of(domain)).dtype == np.float32
    assert true_error(model, points=500, rounds=2) <= model.certificate.error


@pytest.mark.one_in(8)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("formula", ["x*y", "x*y + exp(x)", "sin(3*x) + max(x, y)", "x*y/(3 + x)"])
def test_every_token_of_a_sequence(formula: str, causal: bool) -> None:
    domain = unit("x y")
    model = hs.compile(formula, domain, 1e-2, tokens=4, recipe="native")
    assert model.certificate.tokens == 4
    points = points_of(domain, 48)[:48].reshape(12, 4, 2)
    for length in (1, 3, 4):
        part = points[:, :length]
        outputs = model(part, causal=causal)
        assert worst([formula], domain, model, part.reshape(-1, 2), outputs.reshape(-1, 1)) <= 1.0


# What no list of known targets has: kinks, singular ends, singularities near the domain, functions of many arguments.
OTHERS: list[tuple[Any, Domain, float]] = [
    ("abs(x)", unit("x"), 1e-6),
    ("max(x, y, z)", unit("x y z"), 1e-6),
    ("clip(x, -0.5, 0.5)", unit("x"), 1e-6),
    ("sqrt(x)", unit("x", 0, 1), 1e-4),
    ("exp(-x**2)*cos(3*y)", unit("x y"), 1e-3),
    ("1/(1 + 25*x**2)", unit("x"), 1e-5),
    ("1/(1 + 400*x**2)", unit("x"), 1e-3),
    ("log(1 + x*y)", unit("x y", -0.9, 0.9), 1e-2),
    ("sin(x*y) + z", unit("x y z"), 1e-3),
    ("log(x)", unit("x", 1e-5, 1), 1e-3),
    ("x*log(x)", unit("x", 0.01, 1), 1e-5),
    ("x**0.5 + x**1.7", unit("x", 0.02, 2), 1e-5),
    ("sqrt(x**2 + 1e-4)", unit("x"), 1e-3),
    ("tanh(20*x)", unit("x"), 1e-5),
    ("(x - y)/(x + y)", unit("x y", 0.5, 2), 1e-4),
    ("relu(x*y) - 0.3*relu(y)", unit("x y"), 1e-4),
    ("norm(x, y)", unit("x y"), 1e-2),
    ("gelu(x)*sigmoid(y) + x*z", unit("x y z", -2, 2), 1e-3),
]


def certified_and_cheap(target: Any, domain: Domain, error: float) -> None:
    """Certified under both recipes, never refuted, and not costlier than the relu recipe."""
    gates = hs.compile(target, domain, error, recipe="relu").bill
    for recipe in ("native", "auto"):
        model = hs.compile(target, domain, error, recipe=recipe)
        assert model.certificate.error <= error
        assert falsify(model, effort=400).ratio <= 1.0
        if isinstance(target, str):
            points = points_of(domain)
            assert worst([target], domain, model, points, model(points)) <= 1.0
    assert (model.bill.layers, model.bill.heads) <= (gates.layers, gates.heads)


@pytest.mark.one_in(10)
@pytest.mark.parametrize(("target", "domain", "error"), OTHERS, ids=[str(case[0]) for case in OTHERS])
def test_other_formulas(target: Any, domain: Domain, error: float) -> None:
    certified_and_cheap(target, domain, error)


def two_by_two(a: Any, b: Any, c: Any, d: Any) -> Any:
    return list(hs.matmul([[a, b], [c, d]], [[a, c], [b, d]]).flat)


def near_identity(a: Any, b: Any) -> Any:
    return list(hs.inverse([[0.75 + a, b], [b, 0.75 - a]], 2).flat)


LIBRARY: list[tuple[str, Any, Domain, float]] = [
    ("softmax", lambda a, b, c: hs.softmax([a, b, c]), unit("a b c"), 1e-2),
    ("sort", lambda a, b, c: hs.sort([a, b, c]), unit("a b c"), 1e-5),
    ("inverse", near_identity, unit("a b", -0.1, 0.1), 1e-3),
    ("b_spline", lambda x: hs.b_spline(3, x), unit("x", -1, 5), 1e-3),
    ("rational", lambda x: hs.rational([1.0, 1.0], [1.0, 0.0, 1.0], x), unit("x"), 1e-5),
    ("matmul", two_by_two, unit("a b c d"), 1e-3),
    ("piecewise_linear", lambda x: hs.piecewise_linear([-1, 0, 0.5, 1], [0, 1, -1, 2], x), unit("x"), 1e-5),
    ("norm", lambda a, b, c: hs.norm([a, b, c], 1), unit("a b c"), 1e-5),
]


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    ("target", "domain", "error"), [case[1:] for case in LIBRARY], ids=[case[0] for case in LIBRARY]
)
def test_library_functions(target: Any, domain: Domain, error: float) -> None:
    certified_and_cheap(target, domain, error)


EARLIER = [(formula, domain, 30.0 * error) for formula, domain, error in NESTED + AWKWARD]
NESTED_QUOTIENTS = [case for case in EARLIER if case[0] in ("x/y/z", "tanh(x/(1 + exp(-y)))")]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("formula", "domain", "error"), NESTED_QUOTIENTS, ids=[case[0] for case in NESTED_QUOTIENTS])
def test_quotients_inside_of_others(formula: str, domain: Domain, error: float) -> None:
    certified_and_cheap(formula, domain, error)


@pytest.mark.campaign
@pytest.mark.parametrize(("formula", "domain", "error"), EARLIER, ids=[f"{c[0]} {c[2]:g}" for c in EARLIER])
def test_earlier_formulas(formula: str, domain: Domain, error: float) -> None:
    """The formulas of test_formulas.py once more, under every recipe."""
    certified_and_cheap(formula, domain, error)


def test_functions_of_one_form_share_a_head() -> None:
    model = check(["exp(x + y)", "sin(x + y)", "(x + y)**3"], unit("x y"), 1e-5, recipe="native")
    assert model.bill.layers == 1
    assert model.bill.heads == 1


def test_weights_of_the_cost_change_the_model() -> None:
    domain = unit("x", 0.1, 1)
    few, small = (hs.compile("1/x", domain, 1e-3, cost={name: 1.0}).bill for name in ("reference_tokens", "max_weight"))
    assert few.reference_tokens <= small.reference_tokens
    assert small.max_weight <= few.max_weight


damped = hs.function("test_native_damped", "sin(3*x)*exp(-x**2)")


def test_a_function_of_the_users_own_is_in_the_file_as_its_formula(tmp_path: Path) -> None:
    model = hs.compile("test_native_damped(x)*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-2)
    assert falsify(model, effort=400).ratio <= 1.0
    model.save(tmp_path / "model.safetensors")
    found = hs.verify(tmp_path / "model.safetensors")
    assert found.error <= 1e-2
    assert found.assumes == ()


def test_a_function_that_is_a_program_is_refused() -> None:
    """Nothing can be proved of it from a file."""
    hs.function("test_native_airy", lambda x: x.airy_ai())
    for recipe in ("auto", "native", "relu"):
        with pytest.raises(hs.TargetError, match="a function of your own that is given as a program"):
            hs.compile("test_native_airy(x)*y", {"x": (-2, 2), "y": (-1, 1)}, 1e-4, recipe=recipe)
