"""What a newcomer writes that formulas and traced functions do not know: each has its sentence, or is supported."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest

from headsmith.core.errors import TargetError
from headsmith.language.evaluation import evaluate
from headsmith.language.formula import formula_graph
from headsmith.language.trace import graph_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("floor(x)", "jumps, and no continuous model"),
        ("mod(x, 2)", "jumps"),
        ("where(x, 1, 2)", "step\\(x, gap\\) for a choice"),
        ("ln(x)", "write log\\(x\\)"),
        ("log10(x)", "log\\(10\\)"),
        ("arctan2(x, x)", "arctan\\(y/x\\)"),
        ("swish(x)", "x\\*sigmoid\\(x\\)"),
        ("gamma(x)", 'hs.function\\("gamma"'),
        ("SIN(x)", "did you mean sin"),
        ("sigmod(x)", "did you mean sigmoid"),
        ("np.sin(x)", "without np\\."),
        ("1j*x", "complex number, and values are real"),
        ("2i*x", "complex"),
        ("0x10*x", "plain decimal digits"),
        ("1_000*x", "plain decimal digits"),
        ("inf*x", "finite doubles"),
        ("X + 1", "did you mean x"),
        ("x²", "write x\\*\\*2"),
        ("√x", "sqrt"),
        ("x·2", "write \\* for products"),
        ("−x", "minus sign of the keyboard"),
        ("|x|", "abs"),
        ("x!", "factorial"),
        ("x # note", "no comments"),
        ("exp + x", "exp is a function.*another name"),
        ("lambda*x", "a word of Python"),
        ("not(x)", "a word of Python"),
        ("x//2", "integer division, which jumps"),
        ("(-2)**x", "-2 to a power that varies"),
        ("(x)(x)", "an operator is missing"),
        ("max(x,)", "a value is missing after the comma"),
        ("sign(x, 1, 2)", "sign takes 1 or 2 arguments, not 3"),
    ],
)
def test_formulas_say_what_to_write_instead(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        formula_graph(text, ["x"])


@pytest.mark.parametrize("text", ["floor(x)", "f(x)", "foo(x)", "cotangent(x)"])
def test_far_names_are_not_suggested(text: str) -> None:
    with pytest.raises(TargetError) as refusal:
        formula_graph(text, ["x"])
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize("name", ["x y", "x-1", "lambda", "1x", "", 1])
def test_names_that_no_formula_can_write(name: Any) -> None:
    with pytest.raises(TargetError, match="no formula can write"):
        formula_graph("x", ["x", name])


def test_names_of_any_alphabet_are_names() -> None:
    assert float(evaluate(formula_graph("α*größe", ["α", "größe"]), [2.0, 3.0])[0]) == 6.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.floor(x), "numpy's floor .*jumps"),
        (lambda x: np.floor(np.array([x])), "jumps"),
        (lambda x: x % 2, "jumps"),
        (lambda x: x // 2, "jumps"),
        (lambda x: round(x), "jumps"),
        (lambda x: np.sign(x), "hs.sign\\(x, gap\\)"),
        (lambda x: np.where(True, x, 0.0), "one formula for all inputs"),
        (lambda x: np.fft.fft(x), "these can: absolute, arccos"),
        (lambda x: math.sin(x), "instead of the math module"),
        (lambda x: x if x > 1 else 0, "branches on a traced value at line"),
        (lambda x: x * 1j, "complex"),
        (lambda x: x.mean(), "asks a traced value for .mean"),
        (lambda x: x[0], "a stand-in for a number is not subscriptable"),
    ],
)
def test_traced_functions_say_what_is_wrong(function: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        graph_of(function, ["x"])


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda x, y: np.arctan([x, y]), lambda x, y: np.arctan([x, y])),
        (lambda x, y: np.log1p(np.array([x, y])), lambda x, y: np.log1p([x, y])),
        (lambda x, y: [np.interp(x - y, [0.0, 1.0, 2.0], [0.0, 1.0, 4.0])], None),
        (lambda x, y: [np.polyval([1.0, 2.0, 3.0], x)], None),
        (lambda x, y: np.stack([y, x]), None),
        (lambda x, y, k=3: [k * x * y], None),
        (lambda *values: [values[0] - values[1]], None),
        (partial(lambda a, x, y: [a * x - y], 2), None),
        (lambda x, y: [Decimal("0.25") * x], lambda x, y: [0.25 * x]),
    ],
)
def test_what_numpy_and_python_offer_is_traced(function: Any, numbers: Any) -> None:
    graph = graph_of(function, ["x", "y"])
    for x, y in ((0.3, 0.7), (2.5, 1.0), (1.75, 0.5)):
        np.testing.assert_allclose(evaluate(graph, [x, y]), (numbers or function)(x, y), rtol=1e-14)


def test_inputs_meet_the_domain_by_name() -> None:
    def keyword(x: Any, *, y: Any) -> Any:
        return x - y

    assert float(evaluate(graph_of(keyword, ["y", "x"]), [1.0, 3.0])[0]) == 2.0
    assert float(evaluate(graph_of(lambda x, k=2: k * x, ["x", "k"]), [3.0, 5.0])[0]) == 15.0
    with pytest.raises(TargetError, match="inputs a, b, and the domain has b, c"):
        graph_of(lambda a, b: a - b, ["b", "c"])
