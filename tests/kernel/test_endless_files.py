"""Files that ask for work without end: answered soon, and with not much memory, whatever sizes the header claims."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from helpers.attacks.forged import Forged, answered, plain, refused
from helpers.effort import CAMPAIGN, tried

from headsmith.kernel.core import check
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused, limited
from headsmith.kernel.core.functions import Program, enclose, named
from headsmith.kernel.core.graph import Graph, Node, needed
from headsmith.kernel.core.norms import Carried, norms_of
from headsmith.kernel.core.same import polynomial
from headsmith.kernel.rules.chord import MOST_ENDS

# Sizes that only the header knows, and work without end --------------------------------------------------------------


def large_register() -> Forged:
    file = plain()
    file.register("r", size=2**31)
    return file


def large_grid() -> Forged:
    file = plain()
    file.register("grid", size=2**31)
    return file


def many_tokens() -> Forged:
    file = plain()
    file.model["tokens"] = 2**40
    file.register("position", size=40)
    return file


def wide_attention() -> Forged:
    file = plain()
    attend = file.add(file.circuit, "attend", queries=0, keys=0, values=0, size=1, causal=False)
    gains = {"gain": 800.0, "keep_gain": 800.0, "width": 2**31}
    file.bank("attend", [file.link("x", [[1.0]])], [], [attend], [0], **gains)
    return file


def cells_times_components() -> Forged:
    file = plain()
    file.affine(file.circuit, [(0, np.zeros((20_000, 1)))], np.zeros(20_000))
    file.proof["halvings"] = 16
    return file


def wide_diagonal() -> Forged:
    file = plain()
    wide = file.affine(file.circuit, [(0, np.zeros((60_000, 1)))], np.zeros(60_000))
    file.affine(file.circuit, [(wide, np.ones(60_000))], np.zeros(60_000))
    return file


def one_tensor_many_times() -> Forged:
    file = plain()
    bias = file.keep(np.ones(10**6), np.float32)
    for _ in range(tried(3000, 3)):
        file.add(file.circuit, "affine", terms=[], bias=bias)
    return file


def many_views() -> Forged:
    file = plain()
    file.proof["views"] = [{"node": 1, "as": 0}] * 300_000
    return file


def nested_regions() -> Forged:
    file, last = plain(), 0
    one = file.affine(file.circuit, [], [1.0])
    reference = file.product(file.circuit, 0, one)
    for _ in range(tried(3000, 3)):
        last = file.scaled(file.circuit, (last, 1.0))
        file.proof["regions"].append({"output": last, "stands_for": reference})
    return file


def many_maxima() -> Forged:
    file, rng = plain(500), np.random.default_rng(0)
    for _ in range(400):
        forms = file.affine(file.circuit, [(0, rng.normal(size=(4, 500)))], np.zeros(4))
        for _ in range(100):
            file.add(file.circuit, "maximum", arguments=[forms] * 31, size=4)
    return file


def many_ends() -> Forged:
    file = Forged(1, 0.0, 1.0)
    nodes = [file.scaled(graph, (0, 1.0)) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    ends = file.keep(np.linspace(0.0, 1.0, MOST_ENDS))
    for _ in range(20):
        reference = file.function(file.circuit, "j0", 0)
        line = file.scaled(file.circuit, (0, 1.0))
        file.proof["regions"].append({"output": line, "stands_for": reference, "margin": None, "ends": ends})
    return file


def many_columns() -> Forged:
    file, count = Forged(1, 0.0, 1.0), tried(40_000, 4)
    nodes = [file.scaled(graph, (0, 1.0)) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.embed()
    file.register("grid", size=1)
    file.register("o", size=count)
    program = {"variables": 1, "steps": [["call", "sin", 0]]}
    tables = [file.add(file.circuit, "expression", arguments=[0], size=1, program=program) for _ in range(count)]
    file.proof["tables"] = [{"node": node, "margin": 0.1, "cells": "0"} for node in tables]
    arrays = {"slope": [[[1.0]]], "offset": [[0.0]], "values": [[np.arange(float(count))]]}
    stored = {name: file.keep(values) for name, values in arrays.items()}
    reads, writes = [file.link("x", [[1.0]])], [file.link("o", np.ones(count))]
    file.bank("table", reads, writes, tables, np.zeros(count), **stored, gain=800.0, keep_gain=800.0)
    file.model["readout"] = [file.link("x", [[1.0]])]
    return file


def approximates(inputs: int, size: int) -> Forged:
    """The first input, as an approximation of a sum of so many gates of all inputs."""
    file = plain(inputs)
    wanted = [file.source[0]]
    forms = file.affine(wanted, [(0, np.ones((size, inputs)))], np.zeros(size))
    gates = file.relu(wanted, forms, size)
    file.header["approximates"] = {"nodes": wanted, "output": file.affine(wanted, [(gates, np.ones((1, size)))], [0.0])}
    file.proof["approximation"] = "0"
    return file


def cells_of_a_wide_target() -> Forged:
    file, bias = plain(), np.zeros(500)
    for _ in range(40):
        file.affine(file.source, [(0, np.ones((500, 1)))], bias)
    file.function(file.source, "sin", 0)
    file.header["source"]["output"], file.proof["halvings"] = 1, 16
    return file


def many_sums_of_many_gates() -> Forged:
    """One number, 60,000 gates of it, and 30 sparse sums of 1,000 components: 13 GiB, if their weights are written out
    side by side."""
    file, gates, rows = Forged(1, -1.0, 1.0), 60_000, 1000
    weights = {"shape": [rows, gates], "gaps": file.keep([1.0]), "values": file.keep([1.0])}
    bias, ones, zero = file.keep(np.zeros(rows)), file.keep(np.ones((1, rows))), file.keep([0.0])
    outputs = []
    for graph in (file.source, file.circuit):
        relu = file.relu(graph, file.affine(graph, [(0, np.ones((gates, 1)))], np.zeros(gates)), gates)
        terms = [{"node": relu, "weights": weights}]
        sums = [file.add(graph, "affine", terms=terms, bias=bias) for _ in range(30)]
        outputs.append(file.add(graph, "affine", terms=[{"node": n, "weights": ones} for n in sums], bias=zero))
    file.outputs(*outputs)
    file.embed()
    file.register("o", size=gates)
    links = [file.link("x", np.ones((gates, 1)))], [file.link("o", np.ones(gates))]
    file.gates(*links, np.full(gates, relu), np.arange(gates), 64.0)
    file.model["readout"] = [file.link("o", 30.0 * np.eye(1, gates))]
    return file


def copies(file: Forged, count: int, node: int) -> list[int]:
    """So many sums of a node alone."""
    terms, zero = [{"node": node, "weights": file.keep([[1.0]])}], file.keep([0.0])
    return [file.add(file.circuit, "affine", terms=terms, bias=zero) for _ in range(count)]


def positions_times_components() -> Forged:
    """As many tokens as components: 400 million ranges of a function that is sampled at each token."""
    file, many = Forged(1, -1.0, 1.0, tokens=20_000), 20_000
    numbers = {name: file.keep([1.0]) for name in ("lipschitz", "scale")} | {"norm": "1", "evaluation": 0.0}
    file.header["domain"] = {"low": [-1.0] * many, "high": [1.0] * many}
    places, answers = file.keep(np.ones((many, 1))), file.keep(np.zeros((many, 2, 1)))
    for graph in (file.source, file.circuit):
        place = file.add(graph, "positional", values=places)
        file.add(graph, "sampled", arguments=[0, place], answers=answers, **numbers)
        file.affine(graph, [(0, np.ones((many, 1)))], np.zeros(many))
    file.outputs(2, 2)
    file.embed()
    return file


def joined_moves_of_many_components() -> Forged:
    """Sums of diagonal matrices of moves from every token to itself: 6 GB, if these are written out side by side."""
    file, many = Forged(3000, -1.0, 1.0, tokens=2), 3000
    ones, zero = file.keep(np.ones(many)), file.keep(np.zeros(many))
    for graph in (file.source, file.circuit):
        moves = [file.add(graph, "move", argument=0, targets=[0, 1], size=many) for _ in range(80)]
        terms = [{"node": move, "weights": ones} for move in moves]
        output = file.affine(graph, [(file.add(graph, "affine", terms=terms, bias=zero), np.ones((1, many)))], [0.0])
    file.outputs(output, output)
    file.register("x", size=many)
    return file


ENDLESS: list[Callable[[], Forged]] = [
    joined_moves_of_many_components,
    large_register,
    large_grid,
    many_tokens,
    wide_attention,
    cells_times_components,
    wide_diagonal,
    one_tensor_many_times,
    many_views,
    nested_regions,
    many_maxima,
    many_ends,
    many_columns,
]


@pytest.mark.again
@pytest.mark.parametrize("make", ENDLESS, ids=lambda make: make.__name__)
def test_what_would_take_forever_is_answered(make: Callable[[], Forged]) -> None:
    answered(make())


@pytest.mark.parametrize(("inputs", "size"), [(20_000, 1), (600, 1), (30, 20_000)])
def test_comparisons_of_many_inputs_or_gates_are_refused(inputs: int, size: int) -> None:
    """Which inputs belong together is asked of all pairs of them, and second derivatives are taken by all pairs."""
    assert any(reason in refused(approximates(inputs, size)) for reason in ("too many", "more work"))


def test_a_comparison_of_many_gates_takes_no_matrix_of_them() -> None:
    assert answered(approximates(2, 30_000)).startswith("certified")


def test_a_region_knows_who_reads_its_arguments_and_no_other_pairs() -> None:
    """Of thousands of arguments, and as many nodes inside, all pairs would take gigabytes."""
    file, many = plain(), 200
    arguments = copies(file, many, 0)
    reference, last = (file.add(file.circuit, "maximum", arguments=arguments, size=1) for _ in range(2))
    for _ in range(many):
        (last,) = copies(file, 1, last)
    file.proof["regions"] = [{"output": last, "stands_for": reference, "margin": 1.0}]
    _, _, proof, _, _ = check.contents(*file.contents())
    read = proof.margins_of_reads
    assert len(read) == 1 + many
    assert sum(map(len, read.values())) == many


def test_sums_of_many_gates_are_not_written_out() -> None:
    assert answered(many_sums_of_many_gates()).startswith("certified")


def test_ranges_at_many_tokens_are_refused() -> None:
    assert "at all tokens" in refused(positions_times_components())


def test_a_target_on_many_cells_is_refused_where_the_circuit_is_small() -> None:
    assert "all nodes on all cells" in refused(cells_of_a_wide_target())


# Work that no size limits: counted, and refused beyond what a file may ask for ---------------------------------------

SHARE = 1e-2 if CAMPAIGN else 1e-3
"""Of the work that a file may ask for: with less of it, smaller files ask for too much."""


def long_polynomials() -> Forged:
    file = plain()
    steps: list[Any] = [["linear", [["1", 0]], "1"]]
    for k in range(1, 256):
        steps.append(["times", k, 0] if k % 2 else ["linear", [["1/3", k], ["2/7", 0]], "1/5"])
    for _ in range(tried(100, 10)):
        fields = {"arguments": [0], "size": 1, "program": {"variables": 1, "steps": steps}}
        nodes = [file.add(file.circuit, "expression", **fields) for _ in range(2)]
        file.proof["views"].append({"node": nodes[1], "as": nodes[0]})
    return file


def functions_on_many_cells() -> Forged:
    file = plain()
    file.proof["halvings"] = 16
    for _ in range(tried(200, 10)):
        file.function(file.circuit, "j0", 0)
    return file


def with_tables(count: int, tokens: int, cells: str, kind: str, **fields: Any) -> Forged:
    """A layer of so many banks of one table head, all different, that nobody reads."""
    file = plain()
    file.register("grid", size=tokens)
    for place in range(count):
        node = file.add(file.circuit, kind, size=1, **fields)
        if kind == "expression":
            file.proof["tables"].append({"node": node, "margin": 0.1, "cells": cells})
        file.register(f"o{place}")
        rising = np.linspace(0.0, 1.0, tokens)
        arrays = {"slope": rising[None, :, None] * (1 + place), "offset": rising[None], "values": rising[None, :, None]}
        stored = {name: file.keep(values) for name, values in arrays.items()}
        links = [file.link("x", [[1.0]])], [file.link(f"o{place}", [[1.0]])]
        file.bank("table", *links, [node], [0], **stored, gain=800.0, keep_gain=800.0)
    return file


def many_layers_of_many_registers() -> Forged:
    file, registers, layers = plain(), 30_000, tried(200, 10)
    file.register(*(f"r{place}" for place in range(registers)), size=0)
    file.register("w")
    for _ in range(layers):
        links = [file.link("x", [1.0])], [file.link("w", [1.0])]
        file.bank("mean", *links, [-1], [0], gain=64.0, keep_gain=64.0)
    return file


def a_tensor_named_many_times() -> Forged:
    file = plain()
    bias = file.keep(np.ones(10**6))
    for _ in range(tried(100, 10)):
        file.add(file.source, "affine", terms=[], bias=bias)
    return file


def copies_of_a_long_move() -> Forged:
    """Copies have all targets of the node that they copy, and take a line of the header."""
    file = Forged(1, -1.0, 1.0, tokens=10_000)
    move = file.add(file.source, "move", argument=0, targets=list(range(10_000)), size=1)
    for _ in range(tried(400, 4)):
        file.add(file.circuit, "copy", node=move, arguments=[0])
    return file


def tables_of_long_programs() -> Forged:
    program = {"variables": 1, "steps": [["call", "sin", place] for place in range(200)]}
    return with_tables(tried(900, 10), 8, "1" * 7 + "0" * 8, "expression", arguments=[0], program=program)


def many_ramps() -> Forged:
    return with_tables(tried(300, 10), 1000, "", "relu", argument=0)


def attention_of_many_components() -> Forged:
    """Every one of its values is named by all queries and all keys: 20,000 times 40,000 of them."""
    file = Forged(20_000, -1.0, 1.0)
    fields = {"queries": 0, "keys": 0, "values": 0, "size": 20_000, "causal": False}
    nodes = [file.add(graph, "attend", **fields) for graph in (file.source, file.circuit)]
    file.outputs(nodes[0], file.affine(file.circuit, [(nodes[1], np.ones(20_000))], np.zeros(20_000)))
    file.model["outputs"], file.model["readout_bias"] = 20_000, file.keep(np.zeros(20_000))
    return file


@pytest.mark.again
@pytest.mark.parametrize(
    "make",
    [
        long_polynomials,
        copies_of_a_long_move,
        attention_of_many_components,
        functions_on_many_cells,
        tables_of_long_programs,
        many_ramps,
        many_layers_of_many_registers,
        a_tensor_named_many_times,
    ],
    ids=lambda make: make.__name__,
)
def test_work_is_counted(make: Callable[[], Forged], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small share of the work that a file may ask for, each of these is refused after about that share of the
    time: none runs on uncounted."""
    file = make()
    monkeypatch.setattr(check, "WORK", SHARE * check.WORK)
    monkeypatch.setattr(check, "WORK_A_NUMBER", 0.0)
    assert "more work" in refused(file)


def test_terms_of_programs_and_small_products_count() -> None:
    """A step of 255 terms takes 255 times as long as one of one term. A product of intervals is eight products, each of
    which takes 30 microseconds, however few numbers there are."""
    steps = [("linear", tuple((Fraction(1, 3), place) for place in range(k + 1)), Fraction(0)) for k in range(255)]
    short, long = (Program(1, tuple(each)) for each in ([("linear", ((Fraction(1, 3), 0),), Fraction(0))] * 255, steps))
    x = Interval(np.array([0.0]), np.array([1.0]))
    with limited(3e7):
        enclose(short, x)
    with limited(3e7), pytest.raises(Refused, match="more work"):
        enclose(long, x)
    with limited(2e5), pytest.raises(Refused, match="more work"):
        x * Interval(np.array([2.0]), np.array([3.0]))


def test_functions_coefficients_nodes_and_matrices_count_for_what_they_take() -> None:
    """A Bessel function takes as long as a hundred sines, a coefficient of ten thousand bits as ten of ten, a node as
    what it reads, and a gate as the matrix of all errors that are still to be read: a thousand gates at once, and then
    one, multiply matrices of a thousand rows. An array needs so much work left that a few of its size are nothing."""
    x, one = Interval(np.array([80.0]), np.array([81.0])), np.ones(1)
    with limited(1e7):
        enclose(named("sin"), x)
        polynomial([((place,), fmpq(1, 3)) for place in range(100)])
        needed(Graph((Node("input", 1), Node("maximum", 1, (0,) * 100)), 1), [1])
        Interval(np.zeros(1000), np.ones(1000))
    circuit = Graph((Node("input", 1), Node("relu", 1000), Node("affine", 1), Node("relu", 1), Node("affine", 1)), 4)
    edges = {
        2: [(1, np.ones((1, 1000)), False)],
        3: [(2, Interval(0.0 * one, one), False)],
        4: [(1, np.ones((1, 1000)), False)],
    }
    carried = {1: Carried(np.full(1000, 1e6), False), 3: Carried(one, False)}
    norms_of(circuit, edges, carried.keys(), lambda number, _: carried[number])
    asked: list[Callable[[], Any]] = [
        lambda: enclose(named("j0"), x),
        lambda: polynomial([((place,), fmpq(1, 3**6000)) for place in range(300)]),
        lambda: needed(Graph((Node("input", 1), Node("maximum", 1, (0,) * 100_000)), 1), [1]),
        lambda: Interval(np.zeros(10_000), np.ones(10_000)),
    ]
    for ask in asked:
        with limited(9e6), pytest.raises(Refused, match="more work"):
            ask()
    with limited(3e8), pytest.raises(Refused, match="more work"):
        norms_of(circuit, edges, carried.keys(), lambda number, _: carried[number])
