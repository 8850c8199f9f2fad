"""Attention against feed-forward networks: every network runs, is within what is proven, and costs what is said."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands
from headsmith.lab.feedforward.build import distance
from headsmith.lab.feedforward.network import FIGURES
from headsmith.plan.reading import as_graph

SQUARE = {"x": (-1, 1), "y": (-1, 1)}


@pytest.fixture(scope="module")
def products():
    return hs.plan("x*y", SQUARE, errors=[1e-2, 1e-3], against="ffn")


def test_gated_units_multiply_exactly_and_win(products):
    """silu(x) y + silu(-x) (-y) = x y: a loss of attention is shown as one."""
    exact = next(row for row in products if row.way == "SwiGLU, exact")
    assert (exact.certified, exact.work.depth, exact.work.max_weight) == (0.0, 1, 1.0)
    assert set(exact.least) == set(FIGURES)
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    assert np.abs(exact.model(points)[:, 0] - points.prod(axis=1)).max() < 1e-15


def test_every_way_is_within_what_is_proven(products):
    points = np.random.default_rng(1).uniform(-1, 1, (4000, 2))
    for row in products:
        off = np.abs(row.model(points)[:, 0] - points.prod(axis=1)).max()
        assert off <= row.certified + 1e-14
        assert row.certified <= row.error
    ways = ["ReLU network", "SwiGLU, exact", "attention, relu", "attention, auto"]
    assert [row.way for row in products] == 2 * ways


def test_the_table_marks_the_least(products):
    text = repr(products)
    assert "SwiGLU, exact" in text
    assert "9*" in text
    assert products.markdown().count("\n") >= len(products)
    assert (
        products.csv().splitlines()[0] == "error,way,certified,parameters,nonzeros,multiply_adds,depth,max_weight,least"
    )
    assert "toprule" in products.latex()
    assert "Attention against feed-forward" in products._repr_html_()


def test_polynomials_of_gated_units():
    (relu, gated, *_) = hs.plan("sin(x)", {"x": (-3, 3)}, errors=[1e-2], against="ffn")
    assert (relu.way, gated.way) == ("ReLU network", "SwiGLU, polynomial")
    x = np.linspace(-3, 3, 5001)[:, None]
    for row in (relu, gated):
        assert 0.0 < np.abs(row.model(x) - np.sin(x)).max() <= row.certified <= 1e-2


def test_a_gelu_is_one_gated_unit_and_a_maximum_one_gate():
    gelu = hs.plan("gelu(x)", {"x": (-4, 4)}, errors=[5e-2], against="ffn")
    assert [row.way for row in gelu][:2] == ["ReLU network", "GeGLU, exact"]
    largest = hs.plan("max(x, y)", SQUARE, errors=[1e-2], against="ffn")
    assert (largest[0].way, largest[0].work.nonzeros) == ("ReLU network", 6)


def test_distances_are_proven():
    box = hs.compile("x", {"x": (-1, 1)}, 1e-3).box
    graphs = [as_graph(text, {"x": (-1, 1)}) for text in ("(x + 1)*(x - 1)", "x**2 - 1", "x**2 - 1 + 0.5*x")]
    assert distance(graphs[0], graphs[1], box, 1e-3) == 0.0
    assert distance(graphs[0], graphs[2], box, 1e-3) == pytest.approx(0.5, rel=1e-6)


def test_the_command_line():
    arguments = ["plan", "max(x, y)", "--domain", "0:1", "--error", "1e-2", "--against", "ffn"]
    shown = CliRunner().invoke(commands, arguments)
    assert shown.exit_code == 0, shown.output
    assert "ReLU network" in shown.output
    rows = json.loads(CliRunner().invoke(commands, [*arguments, "--json"]).output)["rows"]
    assert rows[0]["way"] == "ReLU network"
    assert set(rows[0]["work"]) == set(FIGURES)


def test_other_comparisons_are_refused():
    with pytest.raises(hs.TargetError, match="ffn"):
        hs.plan("x*y", SQUARE, against="rnn")
    with pytest.raises(hs.TargetError, match="leave out cost"):
        hs.plan("x*y", SQUARE, against="ffn", cost={"heads": 1})
