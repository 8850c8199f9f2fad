"""Pictures are drawn for every shape of model, completely or not at all."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.core.errors import HeadsmithError
from headsmith.core.figures import found as found_text
from headsmith.inside.meanings import Meanings
from headsmith.report import plots
from headsmith.report.attention import head_paths, head_patterns
from headsmith.report.plots import plot


def random_network(*widths: int) -> hs.Network:
    random = np.random.default_rng(0)
    return hs.Network(
        [
            (random.normal(size=(after, before)) / np.sqrt(before), random.normal(size=after) / 4)
            for before, after in pairwise(widths)
        ]
    )


@pytest.mark.parametrize(
    ("widths", "tokens"),
    [((1, 6, 1), 1), ((2, 5, 5, 2), 4), ((5, 40, 2), 1), ((1, 1), 1)],
    ids=["curve", "maps and sequence", "segments", "no heads"],
)
def test_a_picture_for_every_shape(widths: tuple[int, ...], tokens: int, tmp_path: Path) -> None:
    model = hs.compile(random_network(*widths), (-1.0, 1.0), 1e-3, tokens=tokens)
    found = plot(model, tmp_path / "model.png", effort=200)
    assert found.ratio <= 1.0
    assert (tmp_path / "model.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["model.png"]


@pytest.mark.parametrize(
    ("formula", "names", "error"),
    [("exp(-x)*sin(3*x)", "x", 1e-3), ("x*y, max(x, y)", "xy", 1e-3), ("x*y + z", "xyz", 1e-2)],
    ids=["curve", "maps", "segments"],
)
def test_a_picture_for_every_formula(formula: str, names: str, error: float, tmp_path: Path) -> None:
    model = hs.compile(formula, dict.fromkeys(names, (0.0, 2.0)), error)
    assert plot(model, tmp_path / "model.png", effort=200).ratio <= 1.0


def test_an_input_without_width(tmp_path: Path) -> None:
    model = hs.compile(random_network(2, 5, 1), [(0.0, 1.0), (0.5, 0.5)], 1e-3)
    plot(model, tmp_path / "model.svg", effort=100)
    assert "<svg" in (tmp_path / "model.svg").read_text()


def test_a_picture_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def savefig(self, path: str) -> None:
            Path(path).write_text("half a picture")
            raise RuntimeError("no more paper")

    monkeypatch.setattr(plots, "draw", lambda *_: Broken())
    model = hs.compile(random_network(1, 3, 1), (-1.0, 1.0), 1e-2)
    with pytest.raises(RuntimeError):
        plot(model, tmp_path / "model.png", effort=50)
    with pytest.raises(HeadsmithError, match=r"\.png"):
        plot(model, tmp_path / "model.gif", effort=50)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    model = hs.compile(random_network(1, 3, 1), (-1.0, 1.0), 1e-2)
    with pytest.raises(HeadsmithError, match="pip install"):
        plot(model, tmp_path / "model.png", effort=50)


def test_patterns_are_attention() -> None:
    model = hs.compile(random_network(2, 30, 1), (-1.0, 1.0), 1e-3, tokens=4)
    shown = head_patterns(model, np.zeros((4, 2)), 6)
    assert len(shown) == 6
    assert len({pattern.head for pattern in shown}) == 6
    for pattern in shown:
        assert pattern.weights.shape == (5, 5)
        np.testing.assert_allclose(pattern.weights.sum(axis=1), 1.0)


def test_paths_say_where_gates_open() -> None:
    model = hs.compile(hs.Network([([[1.0]], [-0.25]), ([[1.0]], [0.0])]), (-1.0, 1.0), 1e-3)
    (path,) = head_paths(model, np.array([[-1.0], [0.0], [0.5], [1.0]]), 10)
    np.testing.assert_allclose(path.places, [0.0, 0.0, 1.0, 1.0], atol=1e-9)
    assert (path.layer, path.head) == (0, 0)
    deep = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-6, recipe="relu")
    assert len(head_paths(deep, np.zeros((3, 2)), 7)) == 7


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("formula", "names", "options"),
    [
        ("x*y", "xy", {}),
        ("sin(x), cos(x)", "x", {}),
        ("sin(x)*exp(-y) + relu(x - y)", "xy", {"error": 3e-2}),
        ("x*y*z", "xyz", {}),
        ("x*y + x", "xy", {"tokens": 4}),
        ("max(x, y, 0.2)", "xy", {"recipe": "maxout"}),
        ("relu(x)", "x", {"recipe": "ramp"}),
    ],
    ids=["gate product", "shared table", "fused and a gate", "two layers", "sequence", "maxout", "ramp"],
)
def test_a_picture_for_every_head_kind(formula: str, names: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = hs.compile(formula, dict.fromkeys(names, (-1.0, 1.0)), **{"error": 1e-2, **options})
    assert plot(model, tmp_path / "model.png", effort=100).ratio <= 1.0


def test_heads_are_named_after_what_they_compute() -> None:
    box = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
    assert Meanings(hs.compile("x*y", box, 1e-6)).heads == [["product: x*y"]]
    fused = hs.compile("sin(x)*exp(-y) + relu(x - y)", box, 3e-2)
    (names,) = Meanings(fused).heads
    assert "table: sin(x)*exp(-y)" in names
    assert "relu(x - y)" in names
    shared = hs.compile(["sin(x)", "cos(x)"], {"x": (-1.0, 1.0)}, 1e-2)
    assert Meanings(shared).heads == [["table: sin(x), cos(x)"]]
    (bank,) = shared.transformer.layers[0].banks
    (held,) = bank.held_texts(shared.transformer.sink_tokens)
    assert len(held) == shared.transformer.grid_tokens
    assert all(text.count(",") == 1 for text in held.values())


def axes_of(model: hs.Compiled) -> list[Any]:
    """All axes of a model's picture."""
    return plots.draw(model, hs.falsify(model, effort=200), np.random.default_rng(0)).get_axes()


def titled(axes: list[Any], text: str) -> Any:
    return next(each for each in axes if text in each.get_title())


def test_errors_beside_kinks_are_magnified_until_they_can_be_seen() -> None:
    network = hs.Network([([[1, -1], [-1, 1]], [0, 0]), ([[1, 1]], [0])], names=["x", "y"])
    error = titled(axes_of(hs.compile(network, (-1, 1), 1e-6)), "times magnified")
    shown = np.asarray(error.get_images()[0].get_array())
    assert np.mean(shown > 1e-3) > 0.01
    assert shown.max() > 0.3
    assert error.get_xlabel() != "x"


def test_the_ring_around_the_worst_point_is_whole() -> None:
    error = titled(axes_of(hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-3)), "worst point found")
    assert error.get_lines()
    assert not any(line.get_clip_on() for line in error.get_lines())


def test_products_show_the_weight_on_the_token_and_maxima_name_their_pieces() -> None:
    box = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
    product = titled(axes_of(hs.compile("x*y", box, 1e-3)), "product: x*y")
    (line,) = product.get_lines()
    assert np.ptp(np.diff(line.get_ydata(), 2)) < 1e-4  # affine
    pieces = titled(axes_of(hs.compile("max(x, 2*y, 0.5)", box, 1e-2, recipe="maxout")), "max: ")
    assert {text.get_text() for text in pieces.get_legend().get_texts()} <= {"t0: x", "t1: 2*y", "t2: 0.5"}


def test_a_model_without_heads_is_not_called_affine() -> None:
    texts = [text.get_text() for axes in axes_of(hs.compile("sin(x)", {"x": (0, 1e-5)}, 1e-3)) for text in axes.texts]
    assert texts == ["no heads:\nan affine map is within the error"]


def test_what_was_found_is_never_printed_above_the_bound() -> None:
    for value in (0.00044175, 9.9996e-7, 0.0, 1e-310):
        assert float(found_text(value).removeprefix("< ")) <= max(value, 1e-300)
