"""Looking inside: short texts at the prompt, tables in a notebook, names with a meaning, models in words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.inside.meanings import Meanings

SQUARE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
DISTANCE = hs.Network([([[1, -1], [-1, 1]], [0, 0]), ([[1, 1]], [0])], names=["x", "y"])

THINGS: dict[str, Callable[[], Any]] = {
    "Compiled": lambda: hs.compile("x*y", SQUARE, 1e-6),
    "Certificate": lambda: hs.compile("x*y", SQUARE, 1e-3).certificate,
    "Bill": lambda: hs.compile("x*y", SQUARE, 1e-3).bill,
    "CompiledSequence": lambda: hs.compile_sequence(lambda x: x - hs.tokens.mean(x), tokens=4, domain=(-1, 1)),
    "Learner": lambda: hs.in_context.ridge(0.5, steps=1, features=2, examples=4, error=1e-2),
    "Plan": lambda: hs.plan("1/x", {"x": (0.5, 1.0)}, errors=[1e-1]),
    "Row": lambda: hs.plan("1/x", {"x": (0.5, 1.0)}, errors=[1e-1])[0],
    "Approximation": lambda: hs.approximate(lambda x: x * x, {"x": (0, 1)}, error=0.1, lipschitz=2),
    "Universal": lambda: hs.universal(lambda X: X[::-1], 2, 1, 1, (0, 1), 0.5, lipschitz=1),
    "Network": lambda: DISTANCE,
    "MaxoutNetwork": lambda: hs.MaxoutNetwork.from_network(DISTANCE),
    "Graph": lambda: DISTANCE.graph,
    "Regions": lambda: hs.regions(DISTANCE, (-1, 1)),
    "Found": lambda: hs.falsify(hs.compile(DISTANCE, (-1, 1), 1e-3), effort=50),
}


@pytest.mark.parametrize("name", THINGS)
def test_everything_is_short_at_the_prompt_and_a_table_in_a_notebook(name: str) -> None:
    thing = THINGS[name]()
    text, html = repr(thing), thing._repr_html_()
    assert name in text
    assert "array(" not in text
    assert len(text) < 400
    assert html.count("<table>") == html.count("</table>") >= 1
    assert len(html) < 8000


def test_a_notebook_shows_certificate_bill_and_heads_and_escapes_what_it_shows() -> None:
    html = hs.compile("relu(x - y)", SQUARE, 1e-3)._repr_html_()
    for word in ("Certificate", "Bill", "Heads", "relu(x - y)", "&lt;= 0.001"):
        assert word in html


def test_numbers_stay_numbers() -> None:
    """What is printed is short; what is stored is not touched."""
    model = hs.compile("x*y", SQUARE, 1e-3)
    assert model.certificate.error > 0.0
    assert isinstance(model.bill.heads, int)


def test_gates_are_named_after_what_they_compute() -> None:
    model = hs.compile(DISTANCE, (-1, 1), 1e-3)
    assert Meanings(model).heads == [["relu(x - y)", "relu(-x + y)"]]
    _, cache = model.run([0.5, -0.25], cache=True)
    name = "layer 1 / register out: relu(x - y) + relu(-x + y)"
    assert name in list(cache)
    assert cache["layer 1 / register out"] is cache[name]
    assert "layer 1 / sink head 1 / pattern" in cache
    with pytest.raises(KeyError, match="there are 'embedding"):
        cache["layer 9 / sink head 0 / pattern"]


def test_what_a_register_is_said_to_hold_is_what_it_holds() -> None:
    """Every text of a register, evaluated as a formula, is what the run finds there."""
    model = hs.compile("relu(x - 2*y) + max(x, y) - 0.5", SQUARE, 1e-9)
    point = np.array([0.75, -0.125])
    _, cache = model.run(point, cache=True)
    checked = 0
    for name, values in cache.items():
        _, colon, text = name.partition(": ")
        if not colon or " head " in name or text.startswith("("):
            continue
        wanted = eval(text, {"x": point[0], "y": point[1], "relu": lambda z: max(z, 0.0), "max": max})
        assert values[-1, 0] == pytest.approx(wanted, abs=1e-6), name
        checked += 1
    assert checked >= 3


@pytest.mark.parametrize(
    ("formula", "recipe", "told"),
    [
        ("x*y", "native", ["gate head 0: x*y", "looks at itself with a weight that is affine"]),
        ("x*y", "relu", ["relu(x + y) (part of x*y)", "the sink"]),
        ("max(x, y, 0.5)", "maxout", ["t0 holds x, t1 holds y, t2 holds 0.5"]),
        ("sin(x)/(2 + y)", "native", ["table head 0: sin(x)/(y + 2)", "softmax mean of what they hold"]),
    ],
)
def test_a_model_is_told_in_words(formula: str, recipe: str, told: list[str]) -> None:
    model = hs.compile(formula, SQUARE, 0.1, recipe=recipe)
    text = model.explain()
    for words in [*told, "Layer 1", "Read-out", "Proven: |model - target| <= "]:
        assert words in text
    assert max(map(len, text.splitlines())) < 180


@pytest.mark.parametrize("name", ["CompiledSequence", "Learner", "Approximation", "Universal"])
def test_every_kind_of_model_is_told_in_words_and_so_is_its_file(name: str, tmp_path: Path) -> None:
    model = THINGS[name]()
    assert "Layer 1" in model.explain()
    model.save(tmp_path / "model.safetensors")
    assert "Layer 1" in hs.load(tmp_path / "model.safetensors").explain()


def test_many_heads_are_told_in_few_lines() -> None:
    random = np.random.default_rng(0)
    network = hs.Network([(random.normal(size=(200, 3)), np.zeros(200)), (np.ones((1, 200)), [0.0])])
    text = hs.compile(network, (-1, 1), 1e-2).explain(heads=2)
    assert "and 198 more sink heads" in text
    assert len(text.splitlines()) < 40


def test_an_affine_target_says_so_without_heads() -> None:
    assert "none: an affine map is enough" in hs.compile("2*x + 1", {"x": (0, 1)})._repr_html_()


def test_a_deep_model_is_told_by_its_ends() -> None:
    model = hs.compile("x*y", SQUARE, 1e-6, recipe="relu")
    text = model.explain(heads=3)
    assert "Layers 7 to " in text
    assert f"Layer {model.bill.layers}: " in text
    assert "Layer 7: " in model.explain(heads=model.bill.heads)


def test_arrays_by_name_and_boxes_are_short_too() -> None:
    model = hs.compile("x*y", SQUARE, 1e-3)
    _, cache = model.run([0.5, 0.5], cache=True)
    assert repr(model.box) == "Box(x: [-1, 1], y: [-1, 1])"
    assert repr(cache).startswith(f"<Intermediates: {len(cache)} arrays")
    assert "array(" not in repr(cache)
