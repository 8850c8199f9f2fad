"""Sparse matrices of a file: nothing in them is believed, their arithmetic holds exact numbers, and a file that has
them proves what it proves with the same matrices written out."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks import saved
from helpers.attacks.forged import Forged, plain, refused
from helpers.models.carried import carried

import headsmith as hs
from headsmith.core.errors import CertificateError
from headsmith.kernel.core.arithmetic import Interval, Upper, interval, joined
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused, limited
from headsmith.kernel.core.graph import dense
from headsmith.kernel.core.reading import weights
from headsmith.kernel.core.sparse import Sparse, added, multiplied, sparse_of
from headsmith.kernel.core.stream import image


def exactly(matrix: Any, values: Any) -> list[Fraction]:
    """matrix @ values in fractions."""
    return [
        sum((Fraction(w) * Fraction(x) for w, x in zip(row, values, strict=True)), Fraction(0))
        for row in matrix.tolist()
    ]


def some(random: Any, rows: int, columns: int, share: float) -> Any:
    """Numbers of all sizes, mostly zeros."""
    numbers = random.standard_normal((rows, columns)) * 2.0 ** random.integers(-60, 60, (rows, columns))
    return np.where(random.random((rows, columns)) < share, numbers, 0.0)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_products_hold_the_exact_ones(share: float) -> None:
    """Few terms are added one by one, many at once: both hold every exact sum of points inside."""
    random = np.random.default_rng(0)
    for _ in range(10):
        matrix, low = some(random, 6, 50, share), some(random, 50, 1, 1.0)[:, 0]
        box = Interval(low, low + np.abs(some(random, 50, 1, 0.5)[:, 0]))
        found, size = sparse_of(matrix) @ box, sparse_of(matrix) @ Upper(box.magnitude.value)
        for end in (box.low, box.high):
            assert all(
                Fraction(a) <= x <= Fraction(b)
                for a, x, b in zip(found.low, exactly(matrix, end.tolist()), found.high, strict=True)
            )
        most = exactly(np.abs(matrix), box.magnitude.value.tolist())
        assert all(Fraction(bound) >= x for bound, x in zip(size.value, most, strict=True))


def test_what_is_no_number_never_hides_what_is_not_known() -> None:
    """0 times infinity is 0 in a sum of bounds; a weight that is no number is not 0."""
    for matrix in (np.array([[np.nan, 1.0]]), np.array([[np.nan, np.nan]])):
        for held in (matrix, sparse_of(matrix)):
            assert (held @ Upper([0.0, np.inf])).value.tolist() == [np.inf]
    assert (np.array([np.nan]) @ Upper([np.inf])).value.tolist() == [np.inf]
    part = image(sparse_of(np.array([[2.0]])), {1: Interval([np.nan], [np.nan])})[1]
    assert np.isnan(part.values.low).tolist() == [True]


def test_products_and_sums_of_sparse_interval_matrices_hold_the_exact_ones() -> None:
    random = np.random.default_rng(1)
    for _ in range(5):
        left, right = some(random, 5, 40, 0.8), some(random, 40, 4, 0.5)
        product = multiplied(sparse_of(left), sparse_of(right).changed(interval), joined)
        total = added([product, product.changed(lambda each: -each)], joined)
        for column in range(4):
            exact = exactly(left, right[:, column].tolist())
            for found, wanted in ((product, exact), (total, [0] * 5)):
                ends = [
                    found.changed(lambda each, end=end: getattr(each, end)).written()[:, column]
                    for end in ("low", "high")
                ]
                assert all(Fraction(a) <= x <= Fraction(b) for a, x, b in zip(ends[0], wanted, ends[1], strict=True))


# Files --------------------------------------------------------------------------------------------------------------


def kept(file: Forged, matrix: Any) -> dict[str, Any]:
    """A matrix by its entries, as a file has it."""
    found = sparse_of(np.asarray(matrix, dtype=np.float64))
    gaps = np.diff(found.rows * found.shape[1] + found.columns, prepend=-1)
    return {"shape": list(found.shape), "gaps": file.keep(gaps, np.float32), "values": file.keep(found.values)}


def gates(sparse: bool) -> Forged:
    """Two gates of three inputs and their difference, with matrices by their entries or written out."""
    file, matrix = Forged(3, -1.0, 1.0), np.array([[0.5, 0.0, -0.25], [0.0, 0.3, 0.0]])
    for graph in (file.source, file.circuit):
        node = file.relu(graph, file.affine(graph, [(0, matrix)], [0.1, -0.2]), 2)
        file.affine(graph, [(node, [[1.0, -1.0]])], [0.0])
    file.outputs(3, 3)
    file.register("z", size=2)
    file.register("out")
    file.model["embedding"], file.model["readout"] = [file.link("z", matrix)], [file.link("out", [[1.0]])]
    file.model["initial"] = {"z": file.keep([0.1, -0.2])}
    file.gates([file.link("z", np.eye(2))], [file.link("out", [[1.0, -1.0]])], [2, 2], [0, 1], 1000.0)
    if sparse:
        for graph in (file.source, file.circuit):
            graph[1]["terms"][0]["weights"], graph[3]["terms"][0]["weights"] = (
                kept(file, matrix),
                kept(file, [[1.0, -1.0]]),
            )
        file.model["embedding"][0]["weights"] = kept(file, matrix)
        (bank,) = file.model["layers"][0]
        bank["read"][0]["weights"], bank["write"][0]["weights"] = kept(file, np.eye(2)), kept(file, [[1.0, -1.0]])
    return file


def test_a_file_with_sparse_matrices_proves_the_same() -> None:
    whole, thin = gates(False).check(), gates(True).check()
    assert thin.error == pytest.approx(whole.error, rel=1e-12)
    assert (thin.max_score, thin.max_weight) == (whole.max_score, whole.max_weight)
    corners = np.array(np.meshgrid(*[[-1.0, -0.2, 0.4, 1.0]] * 3)).reshape(3, -1).T
    assert gates(True).furthest(thin, corners[:, None]) <= 1.0


def test_places_that_are_not_in_order_or_in_the_matrix_are_refused() -> None:
    """Twice the same place, backwards, between two, beyond the end, absurd, none, too few; shapes that lie."""
    values = np.ones(2)
    for gaps in (
        [1, 0],
        [2, -1],
        [1, 0.5],
        [1, 6],
        [7, 1],
        [1, 2.0**60],
        [1, 1e300],
        [0, 1],
        [-(2.0**63), 1],
        [1],
        [1, 1, 1],
    ):
        with pytest.raises(Refused, match="not in order, or outside"):
            weights({"g": np.array(gaps, dtype=np.float64), "v": values}, {"shape": [2, 3], "gaps": "g", "values": "v"})
    huge = {"g": np.array([2.0**53, 1.0]), "v": values}
    with pytest.raises(Refused, match="not in order, or outside"):  # 2^53 + 1 is no double: the same place, twice
        weights(huge, {"shape": [2**31, 2**31], "gaps": "g", "values": "v"})
    good = {"g": np.array([1.0, 5.0]), "v": values}
    assert weights(good, {"shape": [2, 3], "gaps": "g", "values": "v"}).written().tolist() == [[1, 0, 0], [0, 0, 1]]
    for shape in ([2], [2, 3, 1], [0, 6], [-2, -3], [2**40, 3], [2.0, 3], "23", None, [True, 6]):
        with pytest.raises((Refused, ValueError)):
            weights(good, {"shape": shape, "gaps": "g", "values": "v"})
    for wrong in (np.array([1, 5]), np.array([1.0, np.nan]), np.array([[1.0, 5.0]])):
        with pytest.raises(Refused):
            weights(good | {"g": wrong}, {"shape": [2, 3], "gaps": "g", "values": "v"})


@pytest.mark.parametrize("shape", [[3, 2], [1, 6], [2, 4], [2**31, 3], [2, 2**31]])
def test_shapes_that_are_not_those_of_the_nodes_are_refused(shape: list[int]) -> None:
    """No size of the header is believed: nodes and registers have those of tensors."""
    for change in (lambda file: file.source[1]["terms"][0], lambda file: file.model["embedding"][0]):
        file = gates(True)
        change(file)["weights"]["shape"] = shape
        with pytest.raises(Refused):
            file.check()


def test_tensors_that_are_named_many_times_do_not_fill_the_memory() -> None:
    """Half a megabyte of gaps and values, which three thousand terms of a sum name: places of three gigabytes."""
    file = plain()
    wide = file.affine(file.source, [(0, np.ones((300, 1)))], np.zeros(300))
    ones = file.keep(np.ones(60000), np.float32)
    terms = [{"node": wide, "weights": {"shape": [300, 300], "gaps": ones, "values": ones}}] * 3000
    file.add(file.source, "affine", terms=terms, bias=file.keep(np.zeros(300)))
    assert "more work" in refused(file)


def test_columns_of_a_product_are_counted() -> None:
    """A sum for each column costs some microseconds, however few entries there are."""
    thin, wide = Sparse((6, 6), np.array([0]), np.array([0]), np.ones(1)), np.ones((6, 10000))
    with limited(4.1e7):
        assert (thin @ wide).sum() == 10000.0
    with limited(3.9e7), pytest.raises(Refused, match="more work"):
        thin @ wide


def test_a_product_that_would_fill_the_memory_is_refused() -> None:
    """One column times one row: few entries, and a product of a thousand million."""
    many = 1 << 15
    column = Sparse((many, 1), np.arange(many), np.zeros(many, dtype=np.int64), np.ones(many))
    with pytest.raises(Refused, match="too large"):
        multiplied(column, column.T)
    with pytest.raises(Refused, match="too large"):
        Sparse((many, many), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)).written()


def read_as_others(whole: Any, wide: int) -> Forged:
    """A target and a circuit whose nodes differ, though the arrays of their weights, one after the other, are the same:
    a sparse matrix (its shape, rows, columns, values) and three vectors, against three vectors and a sparse matrix.
    `whole` makes numbers of shapes and places; `wide` sums are added to both. The model computes the circuit."""
    file, shape, rows, twice = Forged(2, -1.0, 1.0), whole([2, 2]), whole([0, 1]), whole([1, 1])

    def entries(columns: list[int], values: Any) -> dict[str, Any]:
        gaps = np.diff(np.array([0, 2]) + columns, prepend=-1)
        return {"shape": [2, 2], "gaps": file.keep(gaps), "values": file.keep(values)}

    own = entries([1, 1], shape), rows, twice, np.full(2, 1000.0)
    theirs = shape, rows, twice, entries([1, 1], np.full(2, 1000.0))
    for graph, parts in ((file.source, own), (file.circuit, theirs)):
        file.affine(graph, [(0, np.eye(wide, 2))], np.ones(wide))
        terms = [{"node": 0, "weights": each if isinstance(each, dict) else file.keep(each)} for each in parts]
        terms.append({"node": 1, "weights": file.keep(np.ones((2, wide)))})
        file.add(graph, "affine", terms=terms, bias=file.keep([0.0, 0.0]))
    file.outputs(2, 2)
    file.register("z", size=2)
    computed = np.diag(shape + rows + twice) + np.array([[1.0, 1001.0], [1.0, 1001.0]])
    file.model |= {"outputs": 2, "readout_bias": file.keep([wide, wide])}
    file.model["embedding"], file.model["readout"] = [file.link("z", computed)], [file.link("z", np.eye(2))]
    return file


@pytest.mark.parametrize(
    ("whole", "wide"),
    [
        (lambda places: np.array(places, dtype=np.float64), 2),  # equal as numbers
        (
            lambda places: np.array(places).view(np.float64),
            1 << 14,
        ),  # equal bytes, of a node that is too large for a sum
    ],
)
def test_a_sparse_matrix_is_not_taken_for_several_vectors(whole: Any, wide: int) -> None:
    """The models differ from their targets by 2000, and nothing else than that comparison would notice."""
    assert "does not compute the target" in refused(read_as_others(whole, wide))


@pytest.mark.parametrize("rule", ["steps", "powers"])
def test_rules_of_steps_and_powers_hold_for_sparse_matrices(rule: str) -> None:
    """Every matrix and every diagonal of a file by its entries, of which some are zero: as if they were written out."""
    learner = hs.in_context.newton if rule == "powers" else hs.in_context.ridge
    header, tensors = carried(learner(0.1, 3 if rule == "steps" else 1, 1, 3, error=1e-3))
    assert header["proof"][rule]
    thin, others = json.loads(json.dumps(header)), {**tensors}

    def change(value: Any) -> None:
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            change(each)
        if isinstance(value, dict) and isinstance(value.get("weights"), str):
            key = value["weights"]
            matrix = tensors[key] = dense(tensors[key])
            places = np.flatnonzero((matrix.ravel() != 0.0) | (np.arange(matrix.size) % 2 == 0))
            others[f"{key} gaps"], others[f"{key} values"] = np.diff(places, prepend=-1.0), matrix.ravel()[places]
            value["weights"] = {"shape": list(matrix.shape), "gaps": f"{key} gaps", "values": f"{key} values"}

    change([thin[part] for part in ("source", "proof", "transformer")])
    assert proved(thin, others).error == pytest.approx(proved(header, tensors).error, rel=1e-12)


# Convolutions -------------------------------------------------------------------------------------------------------


def convolution(side: int, channels: int, seed: int = 0) -> hs.Network:
    """A convolution of 3 x 3 pixels, unrolled, gates, and a linear layer."""
    random, places = np.random.default_rng(seed), np.arange(side * side).reshape(side, side)
    weights = np.zeros((channels * side * side, side * side))
    for channel, kernel in enumerate(random.standard_normal((channels, 3, 3)) / 3.0):
        for row, column in np.ndindex(side, side):
            near = places[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
            window = kernel[max(1 - row, 0) : side + 1 - row, max(1 - column, 0) : side + 1 - column]
            weights[channel * side * side + places[row, column], near.ravel()] = window.ravel()
    last = random.standard_normal((2, len(weights))) / len(weights) ** 0.5
    return hs.Network([(weights, 0.1 * random.standard_normal(len(weights))), (last, np.zeros(2))])


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-3), ("float32", 1e-2)])
def test_a_convolution_stays_sparse_from_the_network_to_the_file(dtype: Any, error: float, tmp_path: Path) -> None:
    network = convolution(12, 2)
    model = hs.compile(network, (0, 1), error, dtype=dtype)
    path = tmp_path / "model.safetensors"
    model.save(path)
    assert hs.verify(path).error <= error
    header, tensors = saved.read(path)
    stored = header["transformer"]["embedding"][0]["weights"]
    assert stored["shape"][1] == 144
    nonzeros = sum(int(np.count_nonzero(weights)) for weights, _ in network.layers)
    assert sum(each.nbytes for each in tensors.values()) < 4 * 8 * nonzeros  # of 41,472 entries, 2,312 are not zero
    inputs, loaded = np.random.default_rng(0).uniform(0, 1, (64, 144)), hs.load(path)
    for run in (model(inputs), loaded(inputs), loaded(inputs, fused=True)):
        assert np.abs(run - network(inputs)).max() <= model.certificate.error
    loaded.save(tmp_path / "again.safetensors")
    (first, arrays), (second, others) = saved.read(path), saved.read(tmp_path / "again.safetensors")
    assert first == second
    assert all(np.array_equal(arrays[name], others[name]) for name in {*arrays, *others})


def test_a_changed_entry_or_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    hs.compile(convolution(12, 2), (0, 1), 1e-3).save(path)
    header, tensors = saved.read(path)
    stored = header["transformer"]["embedding"][0]["weights"]
    for name, change in (("values", 0.125), ("gaps", 1.0)):
        changed = tensors[stored[name]].copy()
        changed[len(changed) // 2] += change
        forged = {**header["transformer"]["embedding"][0], "weights": {**stored, name: "forged"}}
        model = {**header["transformer"], "embedding": [forged, *header["transformer"]["embedding"][1:]]}
        saved.write(path, {**header, "transformer": model}, {**tensors, "forged": changed})
        with pytest.raises(CertificateError):
            hs.verify(path)
