"""Sparse layers in ONNX: products by gathered groups of rows are those of the matrix, and files hold each weight once.

The oracle are whole numbers: products and sums of small ones are exact in any order, so results must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import headsmith as hs
from headsmith.core.errors import HeadsmithError
from headsmith.core.sparse import sparse_array
from headsmith.export import onnx_builder
from headsmith.export.onnx_builder import OnnxBuilder
from headsmith.export.onnx_sparse import MOST_SHAPES, sparse_times


def product(matrix: Any, values: Any) -> Any:
    """What ONNX Runtime makes of a sparse product, and the stored numbers."""
    graph = OnnxBuilder("float64")
    graph.op("Identity", sparse_times(graph, "weights", sparse_array(matrix), "x"), name="y")
    shape = ["batch", "tokens"]
    written = graph.model([*shape, matrix.shape[1]], [*shape, len(matrix)], "{}").SerializeToString()
    numbers = sum(each.size for each in graph.constants.values() if each.dtype == np.float64)
    return onnxruntime.InferenceSession(written).run(None, {"x": values})[0], numbers


@pytest.mark.parametrize("density", [0.0, 0.01, 0.1, 0.5])
def test_random_matrices(density: float, rng: np.random.Generator) -> None:
    """Rows without entries, rows alike, and more shapes of groups than are told apart."""
    for rows, columns in ((1, 1), (3, 40), (90, 70)):
        matrix = rng.integers(-9, 10, (rows, columns)) * (rng.random((rows, columns)) < density)
        matrix[: rows // 3] = rng.integers(1, 9, (rows // 3, 1)) * (matrix[:1] != 0)
        values = rng.integers(-9, 10, (4, 3, columns)).astype(np.float64)
        found, _ = product(matrix.astype(np.float64), values)
        assert np.array_equal(found, values.astype(np.int64) @ matrix.T)


def test_many_shapes_are_filled_up() -> None:
    """A triangle has a shape for each row: groups are filled up with zeros, at most to four times."""
    size = 3 * MOST_SHAPES
    matrix = np.tril(np.arange(1.0, size**2 + 1.0).reshape(size, size))
    values = np.arange(2.0 * size).reshape(2, 1, size)
    found, numbers = product(matrix, values)
    assert np.array_equal(found, values @ matrix.T)
    assert numbers <= 4 * np.count_nonzero(matrix)


def test_a_convolution_is_as_small_as_its_weights(rng: np.random.Generator) -> None:
    """The file of a convolution holds about as many numbers as there are weights, and runs as the model does."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(3, 4, 3, padding=1)]
    more = [torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 144, 2)]
    network = hs.from_torch(torch.nn.Sequential(*layers, *more).double(), torch.rand(1, 1, 12, 12).double())
    model = hs.compile(network, (0.0, 1.0), 1e-2)
    weights = sum(term.weights.size for node in network.graph.nodes for term in getattr(node, "terms", ()))
    written = model.to_onnx(fused=True).SerializeToString()
    assert len(written) <= 2 * 8 * weights
    inputs = rng.random((5, 144))
    found = onnxruntime.InferenceSession(written).run(None, {"x": inputs})[0]
    assert np.all(np.abs(found - model(inputs, fused=True)) <= 2.0 * model.certificate.parts["rounding"])


def test_what_does_not_fit_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices that are written out may be too large: that is said before they are."""
    model = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-2)
    monkeypatch.setattr(onnx_builder, "LARGEST", 100)
    monkeypatch.setattr(type(model), "plain", None)
    with pytest.raises(HeadsmithError, match="fused=True"):
        model.to_onnx()
