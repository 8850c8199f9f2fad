"""The dimension table has the shapes of the matrices that a model writes out, and its laws are true."""

import math
from typing import Any

import pytest

import headsmith as hs

MODELS: dict[str, Any] = {
    "product": lambda: hs.compile("x*y", (-1, 1), 1e-2),
    "gates": lambda: hs.compile("relu(x - y) + abs(x)", (-1, 1), 1e-2),
    "gates in a sequence": lambda: hs.compile("relu(x - y) + x*y", (-1, 1), 1e-2, tokens=5),
    "table and gate": lambda: hs.compile(["x*y", "exp(x)"], (-1, 1), 1e-2),
    "gates by relu attention": lambda: hs.compile("relu(x - y)", (-1, 1), 1e-2, tokens=5, attention="relu"),
    "maxout": lambda: hs.compile("max(x, y, z)", (-1, 1), 1e-2, recipe="maxout"),
}


@pytest.fixture(scope="module", params=MODELS, ids=str)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


def value(law: str, tokens: int, arguments: int, grid: int = 0) -> int:
    """What a law says: a sum of numbers, ceil(log2 n), k and p."""
    known = {"ceil(log2 n)": math.ceil(math.log2(tokens)), "k": arguments, "p": grid}
    return sum(known[term] if term in known else int(term) for term in law.split(" + "))


def test_the_shapes_are_those_of_the_matrices(model: Any) -> None:
    found, written = model.dimensions, model.dense()
    assert written.W_E.shape == found.W_E
    assert written.W_U.shape == found.W_U
    for place, layer in enumerate(written.layers):
        rows = [row for row in found.layers if row.layer == place + 1]
        assert sum(row.heads for row in rows) == len(layer.W_Q)
        assert {row.W_Q[0] for row in rows} == {layer.W_Q.shape[1]}
        assert max(row.d_head for row in rows) == layer.W_Q.shape[2] == layer.W_K.shape[2]
        assert max(row.W_V[1] for row in rows) == layer.W_V.shape[2]
        assert {row.W_O[1] for row in rows} == {layer.W_O.shape[2]}


def test_the_bill_counts_the_same_heads(model: Any) -> None:
    found, bill = model.dimensions, model.bill
    assert sum(row.heads for row in found.layers) == bill.heads
    assert max(row.d_head for row in found.layers) == bill.d_head
    ends = (found.W_E[0] + 1) * bill.d_model + (bill.d_model + 1) * found.W_U[1]
    assert 0 <= bill.parameters - ends - sum(row.parameters for row in found.layers) <= bill.reference_tokens + 15


@pytest.mark.parametrize("attention", ["softmax", "hardmax", "relu"])
def test_the_laws_of_moves_are_true(attention: Any) -> None:
    test_the_laws_are_true(
        hs.compile_sequence(hs.tokens.sort, tokens=3, domain=(-1, 1), error=1e-2, attention=attention)
    )


def test_the_laws_are_true(model: Any) -> None:
    for row in model.dimensions.layers:
        arguments = int(row.stands_for.split("=")[1].split()[0]) if "k =" in row.stands_for else 0
        assert value(row.law, model.bill.data_tokens, arguments) == row.d_head
    grid = model.transformer.grid_tokens
    assert value(model.dimensions.law, model.bill.data_tokens, 0, grid) == model.bill.d_model


def test_the_table_is_written_in_every_form(model: Any) -> None:
    found = model.dimensions
    assert f"d_model is {model.bill.d_model}" in repr(found)
    assert found.markdown().count("\n") == len(found.layers) + 1
    assert r"\toprule" in found.latex()
    assert found.csv().startswith("layer,kind,heads,W_Q")
    assert "<table>" in found._repr_html_()
