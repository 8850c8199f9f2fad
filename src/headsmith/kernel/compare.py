"""A region whose inside is a circuit of one variable, against the function that it stands for.

Every component of the region's argument has a circuit of its own inside. What a row of an inside node depends on is
followed through the weights: a row that depends on two components of the argument is refused. So all components may be
given the same value t, and the inside is one circuit of one variable.

Perspectives.  A region may have two arguments s and V, V > 0, and stand for an expression f that is homogeneous,
f(c s, c V) = c f(s, V) for c > 0, with an inside that has no constants but reads V in their place. As relu(V t) =
V relu(t), the inside is homogeneous too: V times the circuit of one variable t = s / V that has those weights of V
as its constants, and f(s, V) = V f(t, 1). Both are compared over the range of s / V; the difference is V times that.
"""

from __future__ import annotations

from fractions import Fraction
from math import nan
from operator import add
from typing import Any

import numpy as np

from .arithmetic import Interval
from .chord import check_chord
from .errors import Refused
from .functions import Program, run
from .graph import dense
from .proof import Proof, Region

MOST_ENTRIES = 1 << 24
HOMOGENEOUS = {"sqrt": 0.5, "square": 2.0, "reciprocal": -1.0}


def circuit_of(proof: Proof, region: Region) -> list[tuple[Any, ...]]:
    """The inside of a region, in order, as a circuit of one variable, which is node 0."""
    nodes, (argument, *scale) = proof.circuit.nodes, region.arguments
    size, numbers = nodes[argument].size, sorted(region.inside)
    places = {argument: 0, **{number: place for place, number in enumerate(numbers, start=1)}}
    owners = {number: np.eye(size) for number in region.arguments}
    circuit: list[tuple[Any, ...]] = []
    for number in numbers:
        node = nodes[number]
        if node.kind not in ("affine", "relu") or node.size * size > MOST_ENTRIES:
            raise Refused(f"node {number} is no part of a circuit of one variable")
        owned = np.zeros((node.size, size))
        for place, read in enumerate(node.arguments):
            owned += (dense(node.weights[place]) != 0.0) @ owners[read] if node.kind == "affine" else owners[read]
        owners[number] = (owned > 0.0).astype(np.float64)
        if np.any(owners[number].sum(axis=1) > 1.0):
            raise Refused(f"node {number} mixes components of the argument of a region")
        if node.kind == "relu" and node.arguments[0] in places:
            circuit.append(("relu", places[node.arguments[0]]))
            continue
        terms = [pair for pair in zip(node.arguments, node.weights, strict=False) if pair[0] in places]
        constants = [
            dense(weights) for read, weights in zip(node.arguments, node.weights, strict=False) if read in scale
        ]
        bias = node.constants
        if scale:
            if (
                node.kind == "relu"
                or bias.any()
                or len(constants) > 1
                or any(np.any((c != 0.0).sum(axis=1) > 1) for c in constants)
            ):
                raise Refused(f"node {number} has constants of its own in a perspective")
            bias = constants[0].sum(axis=1) if constants else bias
        circuit.append(("affine", [(places[read], weights) for read, weights in terms], bias))
    if np.any(owners[region.output] > np.eye(size)):
        raise Refused(f"a component of node {region.output} stands for that of another component")
    return circuit


def function_of(proof: Proof, region: Region) -> Program:
    """What the circuit of a region is compared with, as a program of one variable."""
    program = proof.circuit.nodes[region.stands_for].program
    if program.variables == 1:
        return program
    if program.variables != 2 or _degree(program) != 1:
        raise Refused(f"node {region.output} is compared with what is no function of one variable, or of a quotient")
    # f(t, 1): variable 1 becomes a first step that is the constant 1.
    return Program(1, (("linear", (), Fraction(1)), *program.steps))


def _degree(program: Program) -> float:
    """d with f(c s, c V) = c^d f(s, V) for c > 0; nan where that is not seen."""

    def linear(terms: list[tuple[Fraction, float]], constant: Fraction) -> float:
        degrees = {degree for _, degree in terms} | ({0.0} if constant else set())
        return degrees.pop() if len(degrees) == 1 else nan

    def call(name: str, _: Any, degree: float) -> float:
        return degree * HOMOGENEOUS[name] if name in HOMOGENEOUS else 0.0 if degree == 0.0 else nan

    return float(run(program, [1.0, 1.0], linear, call, times=add))


def check_region(proof: Proof, region: Region, ranges: list[Interval]) -> tuple[Interval, dict[int, Interval]]:
    """Bounds of the output minus what it stands for, and the ranges of the inside, for arguments in their ranges."""
    if region.ends is None:
        raise Refused("a region without cells is not compared cell by cell")
    function, circuit = function_of(proof, region), circuit_of(proof, region)
    low, high = interval_of(region, ranges)
    size = proof.circuit.nodes[region.arguments[0]].size
    error, inside = check_chord(size, circuit, low, high, function, None, region.ends)
    if len(ranges) > 1:
        # Rows of inside nodes are all multiples of V: of the hull of its components.
        scale = ranges[1].widened(region.margin or 0.0)
        whole = Interval(scale.low.min(), scale.high.max())
        error, inside = error * scale, [each * whole for each in inside]
    return error, dict(zip(sorted(region.inside), inside, strict=True))


def interval_of(region: Region, ranges: list[Interval]) -> tuple[float, float]:
    """Where a region's circuit is compared with its function: the hull over all components, wider by the margin; of s
    and V, the hull of s / V."""
    wide = [each.widened(region.margin or 0.0) for each in ranges]
    if len(wide) > 1 and not np.all(wide[1].low > 0.0):
        raise Refused(f"the scale of the perspective at node {region.output} may be zero or negative")
    place = wide[0] / wide[1] if len(wide) > 1 else wide[0]
    return float(place.low.min()), float(place.high.max())
