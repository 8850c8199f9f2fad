"""Rule Norm: errors of gates reach no further than the 2-norm says, whatever the weights and slopes are."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from helpers.models.carried import carried, contents_of, network

import headsmith as hs
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import Graph, Node
from headsmith.kernel.core.norms import Carried, Norms, congruent, inverse_above, norms_of, refuse_indefinite
from headsmith.language.builder import Builder
from headsmith.plan.evidence.norms import find_norms


def slopes_for(size: int, random: np.random.Generator, stable: float = 0.3) -> Interval:
    """Slopes of gates, some of which are active or dead."""
    kind = random.uniform(size=size)
    low = (kind < stable / 2).astype(float)
    return Interval(low, np.where(kind > 1.0 - stable / 2, 0.0, 1.0))


def circuit_of(weights: list[np.ndarray], slopes: list[Interval], skips: bool = False) -> tuple[Graph, dict[int, Any]]:
    """x, W_1 x, its gates, W_2 of these, ...; with skips, every second layer adds what the one before it read."""
    nodes, edges = [Node("input", weights[0].shape[1], names=("x",) * weights[0].shape[1])], {0: []}
    before, stream = 0, 0
    for place, matrix in enumerate(weights):
        edges[len(nodes)] = [(before, matrix, False)]
        if skips and place % 2 == 0 and place and stream != before and nodes[stream].size == len(matrix):
            edges[len(nodes)].append((stream, np.ones(len(matrix)), False))
        nodes.append(Node("affine", len(matrix), tuple(each[0] for each in edges[len(nodes)])))
        if place % 2 == 0:
            stream = len(nodes) - 1
        if place + 1 < len(weights):
            edges[len(nodes)] = [(len(nodes) - 1, slopes[place], False)]
            nodes.append(Node("relu", len(matrix), (len(nodes) - 1,)))
            before = len(nodes) - 1
    return Graph(tuple(nodes), len(nodes) - 1), edges


def gates_of(graph: Graph) -> list[int]:
    return [number for number, node in enumerate(graph.nodes) if node.kind == "relu"]


def response(graph: Graph, edges: dict[int, Any], source: int, chosen: dict[int, np.ndarray]) -> np.ndarray:
    """d output / d source for the chosen slopes of gates."""
    found = {source: np.eye(graph.nodes[source].size)}
    for number in range(source + 1, len(graph.nodes)):
        total = np.zeros((graph.nodes[number].size, graph.nodes[source].size))
        for argument, slope, _ in edges[number]:
            if argument in found:
                by = np.diag(chosen[number]) if isinstance(slope, Interval) else slope
                total += (np.diag(by) if by.ndim == 1 else by) @ found[argument]
        found[number] = total
    return found[graph.output]


def furthest(graph: Graph, edges: dict[int, Any], norms: Norms, random: np.random.Generator, turns: int) -> float:
    """The largest share of the bound that errors of one node reach, by flipping gates one by one."""
    most, height = 0.0, norms.heights[graph.output].value
    for source, weights in norms.weights.items():
        if source == graph.output:
            continue
        open_ = (
            np.ones(graph.nodes[source].size)
            if not edges[source]
            else edges[source][0][1].low < edges[source][0][1].high
        )

        def share(
            chosen: dict[int, np.ndarray], source: int = source, weights: Any = weights, open_: Any = open_
        ) -> float:
            moved = response(graph, edges, source, chosen) * np.where(open_, 1.0 / np.sqrt(weights), 0.0)
            with np.errstate(all="ignore"):
                return float(np.nanmax(np.linalg.norm(moved, axis=1) / height, initial=0.0))

        chosen = {}
        for number in gates_of(graph):
            slope = edges[number][0][1]
            chosen[number] = random.uniform(slope.low, slope.high).round()
        best = share(chosen)
        for _ in range(turns):
            number = int(random.choice(gates_of(graph)))
            slope, trial = edges[number][0][1], dict(chosen)
            trial[number] = np.where(
                random.uniform(size=len(slope.low)) < 0.3, random.uniform(slope.low, slope.high).round(), chosen[number]
            )
            if (found := share(trial)) >= best:
                best, chosen = found, trial
        most = max(most, best)
    return most


def hostile(kind: str, widths: list[int], random: np.random.Generator) -> list[np.ndarray]:
    weights = [random.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(widths)]
    for matrix in weights:
        match kind:
            case "near-singular":
                left, values, right = np.linalg.svd(matrix, full_matrices=False)
                matrix[:] = (left * np.where(values == values.max(), 1.0, 1e-12 * values)) @ right
            case "huge range":
                matrix *= 10.0 ** random.uniform(-30.0, 30.0, size=(len(matrix), 1))
            case "zero rows":
                matrix[random.uniform(size=len(matrix)) < 0.5] = 0.0
            case "equal neurons":
                matrix[:] = matrix[:1]
            case "orthogonal":
                matrix[:] = np.linalg.qr(random.normal(size=(max(matrix.shape),) * 2))[0][
                    : len(matrix), : matrix.shape[1]
                ]
    return weights


@pytest.mark.one_in(4)
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("kind", ["random", "near-singular", "huge range", "zero rows", "equal neurons", "orthogonal"])
def test_no_choice_of_slopes_and_errors_exceeds_a_norm(kind: str, skips: bool) -> None:
    """Theorem: |D_i| <= sqrt(Y_ii) sqrt(sum T e^2), for closed forms and any diagonals, hostile weights too."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        weights = hostile(kind, [3, 5, 5, 5, 5, 2], random)
        graph, edges = circuit_of(weights, [slopes_for(5, random) for _ in weights], skips)
        found = find_norms(graph, edges, gates_of(graph))
        if kind != "huge range":
            assert found
        if found:
            norms = norms_of(graph, edges, found.keys(), lambda number, _, known=found: known[number])
            assert furthest(graph, edges, norms, random, 60) <= 1.0

        def any_diagonal(_: int, arriving: Any, random: np.random.Generator = random) -> Carried:
            largest = 1.0 if arriving is None else float(np.linalg.eigvalsh(arriving)[-1]) + 1e-300
            return Carried(random.uniform(0.1, 1.9, size=5) / largest, False)

        try:
            norms = norms_of(graph, edges, {*gates_of(graph)}, any_diagonal)
        except Refused:
            continue
        assert furthest(graph, edges, norms, random, 60) <= 1.0


def test_a_norm_is_attained() -> None:
    """One gate after another, open: a factor of exactly one for both kinds of diagonals, up to 1e-5 of room."""
    graph, edges = circuit_of([np.eye(1)] * 4, [Interval(np.zeros(1), np.ones(1))] * 4)
    for flat in (False, True):

        def choose(number: int, arriving: Any, flat: bool = flat) -> Carried:
            value = 1.0 if arriving is None else float(arriving[0, 0]) * (1.0 + 1e-7)
            return Carried(np.full(1, value if flat else 1.0 if arriving is None else 2.0 / value), flat)

        norms = norms_of(graph, edges, {*gates_of(graph)}, choose)
        assert float(norms.heights[graph.output].value[0]) == pytest.approx(1.0, rel=1e-5)


def test_norms_of_deep_networks_do_not_explode() -> None:
    """Sixteen layers of sixteen gates: entry by entry the gain is above 1e9, in the norm below 1e6."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=(16, 16)) * np.sqrt(2.0 / 16) for _ in range(17)]
    graph, edges = circuit_of(weights, [Interval(np.zeros(16), np.ones(16))] * 17)
    found = find_norms(graph, edges, gates_of(graph))
    norms = norms_of(graph, edges, found.keys(), lambda number, _: found[number])
    gain = float(norms.heights[graph.output].value.max()) * np.sqrt(norms.weights[2].sum())
    assert gain < 1e6
    entrywise = np.ones(16)
    for matrix in weights[1:]:
        entrywise = np.abs(matrix) @ entrywise
    assert entrywise.max() > 1e9


def smallest_eigenvalue(matrix: Any) -> Any:
    return min(mpmath.eigsy(matrix, eigvals_only=True))


def exactly(matrix: np.ndarray) -> Any:
    return mpmath.matrix(matrix.tolist())


@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e100])
def test_rounded_matrices_are_larger_than_exact_ones(scale: float) -> None:
    """With 60 digits: congruent >= M Y M^T and inverse_above >= the inverse, as quadratic forms."""
    with mpmath.workdps(60):
        for seed in range(5):
            random = np.random.default_rng(seed)
            rows, root = random.normal(size=(4, 6)), random.normal(size=(6, 6)) * np.sqrt(scale)
            matrix = root @ root.T
            matrix = 0.5 * matrix + 0.5 * matrix.T
            exact = exactly(rows) * exactly(matrix) * exactly(rows).T
            assert smallest_eigenvalue(exactly(congruent(rows, matrix)) - exact) >= 0
            diagonal = random.uniform(size=6) * scale
            exact = exactly(rows) * exactly(np.diag(diagonal)) * exactly(rows).T
            assert smallest_eigenvalue(exactly(congruent(rows, diagonal)) - exact) >= 0
            matrix = matrix + np.eye(6) * scale
            assert smallest_eigenvalue(exactly(inverse_above(matrix, np.diag(matrix))) - exactly(matrix) ** -1) >= 0


def test_an_indefinite_matrix_is_refused() -> None:
    """By however little it is indefinite."""
    random = np.random.default_rng(0)
    for below in (1.0, 1e-9, 1e-15, 0.0):
        basis = np.linalg.qr(random.normal(size=(6, 6)))[0]
        matrix = (basis * np.array([-below, 1.0, 2.0, 3.0, 4.0, 5.0])) @ basis.T
        with pytest.raises(Refused):
            refuse_indefinite(0.5 * matrix + 0.5 * matrix.T, np.full(6, 5.0))
    with pytest.raises(Refused):
        refuse_indefinite(np.full((2, 2), np.nan), np.ones(2))


def model() -> tuple[Any, Any]:
    return carried(hs.compile(network(4, 12, 12, 12, 2), (-1, 1), 1e-3))


def test_forged_diagonals_are_refused_or_harmless() -> None:
    """Diagonals that are too large or too small, negative, of another size, or flat where they may not be."""
    header, tensors = model()
    honest = proved(header, tensors).error
    without = proved({**header, "proof": {**header["proof"], "norms": []}}, tensors).error
    assert honest < without
    names = [each["diagonal"] for each in header["proof"]["norms"]]
    refused = 0
    for name in names:
        for forged in (3.0, 0.3, -1.0, 1e300):
            try:
                found = proved(header, {**tensors, name: tensors[name] * forged}).error
            except Refused:
                refused += 1
                continue
            assert found >= 0.2 * honest
        with pytest.raises(Refused):
            proved(header, {**tensors, name: tensors[name][:-1]})
        with pytest.raises(Refused):
            proved(header, {**tensors, name: np.where(np.arange(12) == 3, np.nan, tensors[name])})
    assert refused >= 2 * len(names)
    for each in header["proof"]["norms"]:
        each["flat"] = not each["flat"]
    with suppress(Refused):
        assert proved(header, tensors).error >= 0.2 * honest


def test_diagonals_of_nodes_that_nobody_reads_change_nothing() -> None:
    """A proof may name any node: one whose errors reach nothing is forgotten at the next, and the bound is the same."""
    header, tensors = contents_of("mean")
    nodes, bound = header["proof"]["circuit"]["nodes"], proved(header, tensors).error
    for number, node in enumerate(nodes):
        size = len(tensors[node["bias"]]) if node["kind"] == "affine" else node.get("size", 1)
        tensors["diagonal"] = np.ones(size)
        header["proof"]["norms"] = [{"node": number, "diagonal": "diagonal", "flat": False}]
        assert proved(header, tensors).error == bound


def test_errors_that_arrive_at_an_active_component_are_counted() -> None:
    """Y knows of errors that gates commit, and of what arrives from other nodes in `norms`. An error of a circuit in
    place of x^2 comes to a layer that has a gate and an active component: the second passes it on whole."""
    builder = Builder(["x"])
    square = builder.function("square", builder.input)
    both = builder.relu(builder.affine([(square, np.ones((2, 1)))], [5.0, -0.5]))
    output = builder.affine([(both, np.array([[1.0, 0.001]]))], np.zeros(1))
    model = hs.compile(builder.graph(output), (-1, 1), 1e-2, recipe="relu")
    header, tensors = carried(model)
    nodes = header["proof"]["circuit"]["nodes"]
    header["proof"]["regions"][0]["margin"] = None
    gates = sorted({int(each) for role in header["proof"]["roles"] for bank in role for each in tensors[bank["node"]]})
    header["proof"]["norms"] = [{"node": each, "diagonal": f"forged.{each}", "flat": False} for each in gates]
    for each, weight in zip(gates, (1.0, 1e-2, 1e-4, 1e-14), strict=True):
        tensors[f"forged.{each}"] = np.full(nodes[each]["size"], weight)
    tensors[f"forged.{gates[-1]}"][0] = 1e-40
    off = abs(model([-1.0]).item() - (6.0 + 0.0005))
    assert off > 0.0078
    assert proved(header, tensors).error >= off
