"""Formulas parse to what Python computes from the same text, and every mistake is one clear message with its place."""

import math

import numpy as np
import pytest
from helpers.effort import tried
from hypothesis import given, settings
from hypothesis import strategies as st

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS, user_function
from headsmith.language.evaluation import evaluate
from headsmith.language.formula import describe, formula_graph, parse
from headsmith.language.graph import Affine, Function, Maximum, Product, Quotient, Relu

PLAIN = {
    "abs": abs,
    "min": min,
    "max": max,
    "relu": lambda x: max(x, 0.0),
    "clip": lambda x, low, high: min(max(x, low), high),
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "erf": math.erf,
    "gaussian": lambda x: math.exp(-x * x / 2),
    "hypot": math.hypot,
    "median": lambda *values: sorted(values)[1],
    "pi": math.pi,
    "e": math.e,
}


def kinds(text, names=None):
    return [type(node) for node in formula_graph(text, names).nodes]


@pytest.mark.parametrize(
    "text",
    [
        "x*y + sin(z)",
        "-x**2 + 3",
        "2**-1 * x - -y",
        "1/(1+exp(-x*y))",
        "(x - y)/(x*x + y*y + 1)",
        "max(x, y, z, 0.25) - min(x, 1, y)",
        "clip(3*x, -1, 2) + abs(y - z) + relu(-x)",
        "gelu(x) + erf(y) + softplus(z) + gaussian(x) + sigmoid(y) + tanh(z)",
        "hypot(x, y, z) + sqrt(x**2 + 1) + log(2 + cos(x))",
        "x**3 - x**-2 + (x*x)**0.5 + (x*x + 1)**1.7",
        "2**x + (1.5 + sin(x))**y",
        "median(x, y, z) * pi / e + log(1 + exp(x))",
        "1.5e-3*x + .5*y - 2.*z",
        "(2*x + 3*y)*(4*x + 6*y) - 6*x*y/(3 + 0*z)",
    ],
)
def test_formulas_compute_what_python_computes(text):
    names, _ = parse(text)
    graph = formula_graph(text)
    random = np.random.default_rng(0)
    for _ in range(20):
        point = random.uniform(-2, 2, len(names))
        wanted = eval(text, {"__builtins__": {}}, PLAIN | dict(zip(names, point.tolist(), strict=True)))
        assert evaluate(graph, point)[0] == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def leaf():
    numbers = st.sampled_from(["0", "1", "2", "0.5", "3.25", "1e-2"])
    return st.one_of(st.sampled_from(["x", "y", "z"]), numbers)


def branch(children):
    pair = st.tuples(children, st.sampled_from(["+", "-", "*"]), children)
    call = st.tuples(st.sampled_from(["sin", "cos", "tanh", "relu", "abs", "sigmoid", "gaussian", "erf"]), children)
    return st.one_of(
        pair.map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        call.map(lambda c: f"{c[0]}({c[1]})"),
        st.tuples(children, children).map(lambda c: f"max({c[0]}, {c[1]})"),
        st.tuples(children, children, children).map(lambda c: f"min({c[0]}, {c[1]}, {c[2]})"),
        children.map(lambda c: f"(-{c})"),
        children.map(lambda c: f"({c})**2"),
        st.tuples(children, children).map(lambda c: f"({c[0]})/(3 + cos({c[1]}))"),
    )


TREES = st.recursive(leaf(), branch, max_leaves=12)


@settings(max_examples=tried(150, 3), deadline=None)
@given(TREES, st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_random_trees_evaluate_as_python_does(text, point):
    wanted = eval(text, {"__builtins__": {}}, PLAIN | dict(zip("xyz", point, strict=True)))
    found = evaluate(formula_graph(text, ["x", "y", "z"]), np.array(point))[0]
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9 * (1 + abs(wanted)))


def test_variables_are_named_in_order_of_appearance_or_as_given():
    assert parse("z*y + x")[0] == ("z", "y", "x")
    assert parse("z*y + x", ["x", "y", "z"])[0] == ("x", "y", "z")
    assert evaluate(formula_graph("z - y", ["y", "z"]), [1.0, 3.0])[0] == 2.0


def test_several_outputs_share_what_they_have_in_common():
    for text in (["x*y + 1", "y*x - sin(x)"], "x*y + 1, y*x - sin(x)"):
        graph = formula_graph(text)
        assert graph.nodes[graph.output].size == 2
        assert sum(isinstance(node, Product) for node in graph.nodes) == 1
        assert evaluate(graph, [2.0, 3.0]) == pytest.approx([7.0, 6.0 - math.sin(2.0)])


def test_what_is_linear_is_one_affine_node():
    assert [k.__name__ for k in kinds("2*x + 3*y - 1")] == ["Input", "Affine"]
    assert [k.__name__ for k in kinds("x - x + 0*sin(y) + 1*(x + 0)")] == ["Input", "Affine"]
    graph = formula_graph("x*1 - (y - 2*x)/4")
    output = graph.nodes[graph.output]
    assert isinstance(output, Affine)
    assert output.terms[0].weights.tolist() == [[1.5, -0.25]]


def test_simplifications():
    assert Function in kinds("x*x")
    assert Product not in kinds("(2*x + 2*y)*(x + y)")
    assert Quotient not in kinds("3/(2*x)")
    names = [node.name for node in formula_graph("1/(1+exp(-x)) + log(1+exp(y))").nodes if isinstance(node, Function)]
    assert names == ["sigmoid", "softplus"]
    assert kinds("abs(x) + relu(x) + relu(-3*x) + max(x, 0) - min(x, 0)").count(Relu) == 1
    assert kinds("max(x, y) + max(y, x)").count(Maximum) == 1
    assert kinds("max(x - y, 0) + relu(y - x)").count(Relu) == 1


BAD = [
    ("x*y + sinn(z)", "did you mean sin", "sinn"),
    ("foo + 1", "unknown name 'foo'", "foo"),
    ("x + yy", "did you mean y", "yy"),
    ("x^2", r"\*\* for powers", "^"),
    ("(x + 1", "never closed", "("),
    ("x + 1)", "no parenthesis to close", ")"),
    ("sin(x, y", "never closed", "("),
    ("x +", "ends where a value is expected", ""),
    ("", "empty", ""),
    ("x 2", "not expected", "2"),
    ("x y", "operator is missing", "y"),
    ("2x", r"2\*x", "x"),
    ("x(2)", r"x\*", "("),
    ("1e999*x", "not a finite", "1e999"),
    ("exp(1000)*x", "not a finite", "exp"),
    ("9**9**9", "not a finite", "**"),
    ("x**200", "integer power of 200", "**"),
    ("x**-65", "integer power of -65", "**"),
    ("x**64.5", "power of 64.5", "**"),
    ("clip(x, 1)", "takes 3 arguments, not 2", "clip"),
    ("sin()", "takes 1 argument, not 0", "sin"),
    ("max()", "1 or more", "max"),
    ("clip(x, 2, 1)", "reversed", "clip"),
    ("sin", r"write sin\(", "sin"),
    ("x.real", "attributes", "."),
    ("x[0]", "indexing", "["),
    ("lambda x: x", "Python", "lambda"),
    ("x if y else z", "no conditions", "if"),
    ("x < 1", "compare", "<"),
    ("x == 1", "compare", "=="),
    ("x = 1", "without =", "="),
    ("x // 2", "integer division", "//"),
    ("x % 2", "remainder", "%"),
    ("__import__('os')", "unknown function", "__import__"),
    ("'a'", "not expected", "'"),
    ("x + log(-1)", "log needs positive numbers", "log"),
    ("1/0", "division by the constant 0", "/"),
    ("(-8)**0.5*x", "not a real number", "**"),
    ("(" * 100 + "x" + ")" * 100, "nested more than", "("),
]


@pytest.mark.parametrize(("text", "message", "place"), BAD)
def test_mistakes_are_one_message_with_the_place(text, message, place):
    with pytest.raises(TargetError, match=message) as caught:
        parse(text, ["x", "y", "z"])
    lines = str(caught.value).split("\n")
    assert len(lines) == 3
    start = lines[2].index("^") - 4
    assert lines[1][4 + start :].startswith(place)


def test_mistakes_of_kind():
    with pytest.raises(TargetError, match="string"):
        parse(3)
    with pytest.raises(TargetError, match="string"):
        parse([])
    with pytest.raises(TargetError, match="constant"):
        parse("x", ["x", "e"])
    with pytest.raises(TargetError, match="characters"):
        parse("x+" * 60000 + "x")


def test_long_sums_parse():
    assert evaluate(formula_graph("+".join(["x"] * 5000)), [1.0])[0] == 5000.0


def test_registered_functions_are_known():
    user_function("test_cube", lambda x: x * x * x)
    try:
        assert evaluate(formula_graph("test_cube(x) + 1"), [2.0])[0] == 9.0
    finally:
        del FUNCTIONS["test_cube"]


@pytest.mark.parametrize(
    "text",
    [
        "log(x - 2)",
        "x*(y + 1)",
        "1/(x*y - 3)",
        "(x - y)**0.3",
        "-2*sin(x)",
        "max(x, y, 0.1)",
        "x/(y + 4)",
        "(x + 1)**2",
    ],
)
def test_descriptions_read_like_the_formula(text):
    graph = formula_graph(text)
    assert describe(graph, graph.output) == text


def test_descriptions_parse_back():
    for text in ("exp(-(x*y - 1))/(2 - cos(x)**2)*-3", "relu(x - 2*y)*(x/(3 + y**2)) - -x", "sqrt(1 - abs(x))**3"):
        graph = formula_graph(text, ["x", "y"])
        again = formula_graph(describe(graph, graph.output), ["x", "y"])
        for point in ([0.3, 0.4], [-0.5, 0.9]):
            assert evaluate(again, point)[0] == pytest.approx(evaluate(graph, point)[0])
