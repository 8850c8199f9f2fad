"""A circuit of gates without constants that stands for sqrt(x^2 + y^2): compared along the four sides of a square.

Both are homogeneous: with r = max(|x|, |y|), the difference at (x, y) is r times that at a point of the square's sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.effort import CAMPAIGN

from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.graph import HYPOTENUSE, Graph, Node
from headsmith.kernel.core.proof import Proof, Region
from headsmith.kernel.rules.chord import check_region, curves_of
from headsmith.plan.evidence.cells import chord_ends

DIRECTIONS = 12


def node(kind: str, *reads: tuple[int, Any], bias: Any = 0.0) -> Node:
    weights = tuple(np.asarray(weights, dtype=np.float64) for _, weights in reads)
    size = len(weights[0])
    return Node(kind, size, tuple(read for read, _ in reads), weights, np.zeros(size) + bias)


def polygon(directions: int = DIRECTIONS, bias: float = 0.0, tilt: float = 0.0) -> tuple[Proof, Region]:
    """c * sum over directions u of relu(u . (x, y)): its lines of equal value are polygons around those of the norm."""
    angles = 2.0 * np.pi * np.arange(directions) / directions + tilt
    x, y = np.cos(angles)[:, None], np.sin(angles)[:, None]
    nodes = (
        Node("input", 2),
        node("affine", (0, [[1.0, 0.0]])),
        node("affine", (0, [[0.0, 1.0]])),
        Node("expression", 1, (1, 2), program=HYPOTENUSE),
        node("affine", (1, x), (2, y), bias=bias),
        Node("relu", directions, (4,)),
        node("affine", (5, np.full((1, directions), np.pi / directions))),
    )
    circuit = Graph(nodes, 6)
    region = Region(6, 3, (1, 2), frozenset({4, 5, 6}), 0.0, None)
    return Proof(circuit, {6: region}, {}, {}, {}, {}, {}, {}, {}, {}, 0, 0), region


def box(low: float, high: float) -> Interval:
    return Interval(np.array([low]), np.array([high]))


def with_ends(proof: Proof, region: Region, wide: list[Interval]) -> Region:
    curves, _ = curves_of(proof, region, wide)
    return replace(region, ends=np.unique(np.concatenate([chord_ends(curve) for curve in curves])))


def errors(proof: Proof, points: Any) -> Any:
    gate, last = proof.circuit.nodes[4], proof.circuit.nodes[6]
    inner = np.maximum(points @ np.hstack(gate.weights).T + gate.constants, 0.0)
    return (inner @ last.weights[0].T)[:, 0] - np.hypot(points[:, 0], points[:, 1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tilt", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("sides", [((-1.0, 1.0), (-1.0, 1.0)), ((-3.0, 0.5), (-0.2, 2.0)), ((0.0, 1.0), (0.0, 0.0))])
def test_the_bound_holds_and_is_attained(sides: Any, tilt: float) -> None:
    proof, region = polygon(tilt=tilt)
    wide = [box(*side) for side in sides]
    found, inside = check_region(proof, with_ends(proof, region, wide), wide)
    low, high = np.array(sides).T
    points = low + (high - low) * np.random.default_rng(0).random((20000, 2))
    truth = errors(proof, points)
    assert np.all((truth >= found.low[0] - 1e-15) & (truth <= found.high[0] + 1e-15))
    gates = np.maximum(points @ np.hstack(proof.circuit.nodes[4].weights).T, 0.0)
    assert np.all((gates >= inside[5].low - 1e-15) & (gates <= inside[5].high + 1e-15))
    # The square's sides are attained where the box is a square around the origin.
    if sides == ((-1.0, 1.0), (-1.0, 1.0)):
        ring = points / np.max(np.abs(points), axis=1, keepdims=True)
        assert max(-found.low[0], found.high[0]) <= 1.01 * np.max(np.abs(errors(proof, ring)))


def test_what_is_not_homogeneous_is_refused() -> None:
    proof, region = polygon(bias=1e-9)
    with pytest.raises(Refused, match="constants"):
        check_region(proof, replace(region, ends=np.array([-1.0, 1.0])), [box(-1, 1), box(-1, 1)])


def test_another_function_of_two_arguments_has_no_such_rule() -> None:
    proof, region = polygon()
    nodes = list(proof.circuit.nodes)
    nodes[3] = replace(nodes[3], program=replace(HYPOTENUSE, steps=(*HYPOTENUSE.steps[:-1], ("call", "exp", 4, None))))
    other = replace(proof, circuit=Graph(tuple(nodes), 6))
    with pytest.raises(Refused, match="perspective"):
        check_region(other, replace(region, ends=np.array([-1.0, 1.0])), [box(-1, 1), box(-1, 1)])


@pytest.mark.parametrize("ends", [[0.0, 1.0], [-1.0, 0.5], [-1.0, 0.3, 0.2, 1.0]])
def test_every_side_is_covered(ends: list[float]) -> None:
    proof, region = polygon()
    with pytest.raises(Refused):
        check_region(proof, replace(region, ends=np.array(ends)), [box(-1, 1), box(-1, 1)])


@pytest.mark.again
def test_one_direction_that_is_wrong_is_seen_on_its_side() -> None:
    """Each of the four sides has a say: a polygon that bulges into any one direction has a larger bound."""
    for angle in range(0, DIRECTIONS, 1 if CAMPAIGN else 3):
        proof, region = polygon()
        nodes = list(proof.circuit.nodes)
        last = nodes[6].weights[0].copy()
        last[0, angle] += 0.5
        nodes[6] = replace(nodes[6], weights=(last,))
        changed = replace(proof, circuit=Graph(tuple(nodes), 6))
        wide = [box(-1, 1), box(-1, 1)]
        found, _ = check_region(changed, with_ends(changed, region, wide), wide)
        ring = np.stack([np.cos(np.linspace(0, 7, 5000)), np.sin(np.linspace(0, 7, 5000))], axis=1)
        ring /= np.max(np.abs(ring), axis=1, keepdims=True)
        assert found.high[0] >= np.max(errors(changed, ring)) > 0.4
