"""What every circuit family is held to: its inequality, that the inequality is not slack, its cost, its form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mpmath
import numpy as np

from headsmith.core.functions import FUNCTIONS
from headsmith.language.graph import Affine, Graph, Relu
from headsmith.plan.circuits import Fragment
from headsmith.plan.circuits.proposal import Proposal
from helpers.oracles.exact import exact, extended
from helpers.oracles.mathematics import EXACT

DIGITS = 40
HIGH_PRECISION: dict[str, Any] = {
    **{name: (lambda x, a, function=function: function(x)) for name, function in EXACT.items()},
    "power": lambda x, a: x ** (int(a) if float(a).is_integer() else mpmath.mpf(a)),
}


def places(fragment: Fragment, count: int = 6001) -> np.ndarray:
    """Evenly spaced, close to both ends, round 0, and at the kinks of first-layer gates and between them."""
    low, high = fragment.low, fragment.high
    steps = (high - low) * np.geomspace(1e-12, 1.0, 800)
    near = (
        np.linspace(max(low, -6.0), min(high, 6.0), count // 2) if max(low, -6.0) < min(high, 6.0) else np.array([low])
    )
    kinks = first_kinks(fragment.graph)
    parts = [np.linspace(low, high, count), low + steps, high - steps, near, kinks, 0.5 * (kinks[:-1] + kinks[1:])]
    x = np.unique(np.concatenate(parts))
    return x[(x >= low) & (x <= high)]


def first_kinks(graph: Graph) -> np.ndarray:
    """Where gates that read the input directly switch."""
    found = [np.zeros(0)]
    for node in graph.nodes:
        argument = graph.nodes[node.argument] if isinstance(node, Relu) else None
        if isinstance(argument, Affine) and [term.node for term in argument.terms] == [0]:
            weights = argument.terms[0].weights.reshape(-1)
            found.append(-argument.bias / weights)
    return np.sort(np.concatenate(found))


def deviations(fragment: Fragment, name: str, parameter: float | None, x: np.ndarray) -> np.ndarray:
    """circuit - f at each x, in 80-bit floats."""
    wanted = FUNCTIONS[name].value(x.astype(np.longdouble), parameter)
    return np.asarray(extended(fragment.graph, x[:, None])[:, 0] - wanted, dtype=np.float64)


def check_theorem(
    fragment: Fragment, name: str, parameter: float | None = None, slack: float = 1.05, over: float = 1.002
) -> None:
    """The estimate holds everywhere that was looked, up to rounding; it is not slack; and high precision agrees."""
    x = places(fragment)
    error = np.abs(deviations(fragment, name, parameter, x))
    size = float(np.abs(np.asarray(FUNCTIONS[name].value(x, parameter))).max())
    rounding = 1e-13 * size
    assert error.max() <= fragment.error * over + rounding
    assert error.max() >= fragment.error / slack - rounding
    with mpmath.workdps(DIGITS):
        for point in (*x[np.argsort(error)[-2:]], x[len(x) // 3]):
            value = exact(fragment.graph, [point])[0]
            wanted = HIGH_PRECISION[name](mpmath.mpf(float(point)), parameter)
            assert abs(mpmath.mpf(value.numerator) / value.denominator - wanted) <= fragment.error * over + rounding


def loose_nodes(graph: Graph) -> int:
    """How many affine nodes read gates and affine nodes without being a running sum D z + gates, D diagonal."""
    count = 0
    for node in graph.nodes:
        if not isinstance(node, Affine):
            continue
        affine = [term for term in node.terms if isinstance(graph.nodes[term.node], Affine)]
        gates = [term for term in node.terms if isinstance(graph.nodes[term.node], Relu)]
        running = len(affine) == 1 and affine[0].diagonal and len(gates) == len(node.terms) - 1
        count += bool(affine and gates and not running)
    return count


def check_form(fragment: Fragment, loose: int = 0) -> None:
    """One input named x, an affine output of width 1, running sums in place, every gate used."""
    graph = fragment.graph
    assert graph.input.names == ("x",)
    assert isinstance(graph.nodes[graph.output], Affine)
    assert graph.nodes[graph.output].size == 1
    assert loose_nodes(graph) <= loose
    read = {term.node for node in graph.nodes if isinstance(node, Affine) for term in node.terms}
    read |= {node.argument for node in graph.nodes if isinstance(node, Relu)} | {graph.output}
    assert {number for number, node in enumerate(graph.nodes) if isinstance(node, Relu)} <= read


def cheapest(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Those that no other beats in both gates and depth, fewest gates first."""
    front: list[Proposal] = []
    for proposal in sorted(proposals, key=lambda each: (each.gates, each.depth)):
        if not front or proposal.depth < front[-1].depth:
            front.append(proposal)
    return front
