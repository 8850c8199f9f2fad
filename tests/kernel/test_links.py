"""Weights of the dense matrices: where two links meet in one of them, and what products of stored numbers round to."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.attacks.forged import Forged

from headsmith.core.rounding import held
from headsmith.kernel.core.errors import Refused


def constant(dtype: str, *readout: tuple[str, float]) -> Forged:
    """A constant, read from two registers that hold 1."""
    file = Forged(1, -1.0, 1.0, dtype=dtype)
    wanted = sum(weight for _, weight in readout)
    nodes = [file.affine(graph, [], [wanted]) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.register("a", "b")
    file.model["initial"] = {"a": file.keep([1.0]), "b": file.keep([1.0])}
    file.model["readout"] = [file.link(register, [[weight]]) for register, weight in readout]
    return file


@pytest.mark.parametrize(
    ("dtype", "digit"), [("bfloat16", 2.0**-8), ("float16", 2.0**-11), ("float32", 2.0**-24), ("float64", 2.0**-60)]
)
def test_no_two_links_meet_in_one_weight(dtype: str, digit: float) -> None:
    """1 + 2^-8 is no bfloat16: the matrix holds 1, and 1 - 1 is read in place of 2^-8."""
    with pytest.raises(Refused, match="meet in one weight"):
        constant(dtype, ("a", 1.0), ("a", digit), ("b", -1.0)).check()
    file = constant(dtype, ("a", 1.0), ("b", -1.0))
    assert file.furthest(file.check(), [[[0.0]]]) <= 1.0


def test_links_of_one_register_that_do_not_meet_are_read() -> None:
    """Two links may share a register, where each has weights of its own."""
    file = Forged(1, -1.0, 1.0)
    nodes = [file.affine(graph, [(0, [[1.0], [2.0]])], [0.0, 0.0]) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.model["outputs"], file.model["readout_bias"] = 2, file.keep([0.0, 0.0])
    file.embed()
    file.model["readout"] = [file.link("x", [[1.0]]), file.link("x", [[2.0]], first=1)]
    assert file.check().error < 1e-12


@pytest.mark.parametrize(("dtype", "normal", "large"), [("float32", -126, 123), ("float64", -1022, 1019)])
def test_weights_that_meet_do_not_become_smaller_than_the_format(dtype: str, normal: int, large: int) -> None:
    """Each weight times the scale of the head is a normal number, and the sum of both is not: where that is lost, the
    head returns x/4 for x/2."""
    file = Forged(1, -(2.0**20), 2.0**20, dtype=dtype)
    for graph in (file.source, file.circuit):
        gate = file.relu(graph, file.scaled(graph, (0, 0.5)))
    file.outputs(gate, gate)
    file.embed()
    file.register("g")
    scales = {"query_scale": file.keep([2.0**normal]), "key_scale": file.keep([2.0**large])}
    reads, gains = [file.link("x", [[1.5]]), file.link("x", [[-1.0]])], {"reference_gain": 200.0, "position_gain": 0.0}
    file.bank("sink", reads, [file.link("g", [[1.0]])], [gate], [0], **scales, **gains)
    file.model["readout"] = [file.link("g", [[1.0]])]
    with pytest.raises(Refused, match="meet in one weight"):
        file.check()
    reads[:] = [file.link("x", [[0.5]])]
    with pytest.raises(Refused, match="beyond"):
        file.check()


@pytest.mark.parametrize("kind", ["embedding", "write"])
def test_weights_that_are_written_meet_too(kind: str) -> None:
    file = Forged(1, -1.0, 1.0, dtype="bfloat16")
    for graph in (file.source, file.circuit):
        gate = file.relu(graph, 0)
    file.outputs(gate, gate)
    file.embed()
    file.register("g")
    write = [file.link("g", [[1.0]])]
    file.gates([file.link("x", [[1.0]])], write, [gate], [0], 64.0)
    file.model["readout"] = [file.link("g", [[1.0]])]
    assert file.check().error > 0.0
    links, register = (file.model["embedding"], "x") if kind == "embedding" else (write, "g")
    links.append(file.link(register, [[2.0**-9]]))
    with pytest.raises(Refused, match="meet in one weight"):
        file.check()


@pytest.mark.parametrize(
    ("dtype", "scale", "value"),
    [("bfloat16", 1.0 + 3.0 * 2.0**-6, 1.25), ("float16", 1.0 + 3.0 * 2.0**-9, 1.25)],
)
def test_the_largest_score_and_weight_are_those_that_a_run_has(dtype: str, scale: float, value: float) -> None:
    """A weight that is a product of stored numbers is rounded to the format, and so is a query."""
    for weight, holds in ((1.0, value), (value, 1.0)):
        file = Forged(1, -1.0, 1.0, dtype=dtype)
        for graph in (file.source, file.circuit):
            gate = file.relu(graph, file.affine(graph, [], [value]))
        file.outputs(gate, gate)
        file.register("c", "g")
        file.model["initial"] = {"c": file.keep([holds])}
        scales = {"query_scale": file.keep([64.0 * scale]), "key_scale": file.keep([1.0])}
        reads, gains = [file.link("c", [[weight]])], {"reference_gain": 16.0, "position_gain": 0.0}
        file.bank("sink", reads, [file.link("g", [[1.0]])], [gate], [0], **scales, **gains)
        file.model["readout"] = [file.link("g", [[1.0]])]
        certificate, product = file.check(), float(held(np.array(64.0 * scale * value), dtype))
        assert product > 64.0 * scale * value
        assert product <= certificate.max_score
        assert weight == 1.0 or product <= certificate.max_weight
