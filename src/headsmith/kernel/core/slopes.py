"""Through which arguments errors arrive at a node, and with which slopes (flow.py).

Rule Stable.  A gate that has a head may have any chord slope in [0, 1]. One without must not cross zero on the domain:
it is active, with the slope 1, or dead, with the slope 0; and what a dead gate reads does not matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Interval
from .errors import NoHead, Refused
from .expressions import Computed
from .flow import Edge, Slope, Steps
from .functions import enclose
from .graph import HYPOTENUSE, PRODUCT, QUOTIENT, Node, needed
from .norms import Norms, norms_of
from .proof import Proof


@dataclass(frozen=True, eq=False)
class Edges:
    """For every node its edges; the slopes of gates; steps, norms."""

    of: dict[int, list[Edge]]
    gates: dict[int, Interval]
    steps: Steps
    norms: Norms


def edges_of(proof: Proof, found: Sequence[Interval], places: Mapping[int, Any], tables: dict[int, Computed]) -> Edges:
    """For every node, through which arguments errors arrive, and with which slopes."""
    nodes = proof.circuit.nodes
    edges: dict[int, list[Edge]] = {number: [] for number in range(len(nodes))}
    cut, gates = proof.margins_of_reads, dict[int, Interval]()
    # What a gate reads that is zero everywhere, and has no head, does not matter.
    relus = [number for number, node in enumerate(nodes) if node.kind == "relu" and number not in places]
    dead = {number for number in relus if np.all(found[nodes[number].arguments[0]].high <= 0.0)}
    for number in needed(proof.circuit, [proof.circuit.output, *places], dead):
        node, slopes = nodes[number], tuple[Slope, ...]()
        seen = [found[argument].widened(cut.get(number, {}).get(argument, 0.0)) for argument in node.arguments]
        if node.kind == "affine":
            slopes = node.weights
        elif node.kind == "relu":
            gates[number] = _gate_slopes(number, seen[0], places.get(number, ()))
            slopes = (gates[number],) if gates[number].high.any() else ()
        elif node.kind == "expression" and number in tables:
            slopes = tables[number].slopes
        elif node.kind == "sampled" and number in tables:
            sizes = np.stack([each.high for each in tables[number].slopes], axis=1)
            parts = np.split(sizes, [proof.circuit.nodes[node.arguments[0]].size], axis=1)
            slopes = tuple(Interval(-each, each) for each in parts)
        elif node.kind in ("pool", "move"):
            slopes = (_unit(node.size),)
        elif node.kind == "attend":
            slopes = _attend_slopes(proof.tables[number].margin if number in proof.tables else 0.0, *seen)
        elsewhere, pairs = node.kind in ("pool", "move", "attend"), zip(node.arguments, slopes, strict=False)
        edges[number] = [(each, slope, elsewhere) for each, slope in pairs if each not in cut.get(number, ())]
        region = proof.regions.get(number)
        if region is not None and region.margin is not None:
            reference = nodes[region.stands_for]
            wide = [found[argument].widened(region.margin) for argument in region.arguments]
            pairs = zip(region.arguments, reference_slopes(reference, wide), strict=True)
            edges[number] += [(argument, slope, reference.kind == "exchange") for argument, slope in pairs]
    norms = norms_of(proof.circuit, edges, proof.norms.keys(), lambda number, _: proof.norms[number])
    steps = Steps({}, {}, set(), {}, {})
    if proof.steps or proof.powers:
        from ..rules.steps import steps_of

        steps = steps_of(proof, found, edges, gates)
    return Edges(edges, gates, steps, norms)


def _unit(size: int) -> Interval:
    return Interval(np.zeros(size), np.ones(size))


def _gate_slopes(number: int, argument: Interval, components: Any) -> Interval:
    """Rule Stable: a gate with a head has slopes in [0, 1]; one without must be active or dead on the whole domain."""
    has_head = np.isin(np.arange(len(argument.low)), components)
    dead = ~has_head & (argument.high <= 0.0)
    active = ~has_head & ~dead & (argument.low >= 0.0)
    if not (has_head | active | dead).all():
        gate = int(np.argmin(has_head | active | dead))
        raise NoHead(
            f"gate {gate} of node {number} crosses zero on the domain (its argument ranges over "
            f"[{argument.low[gate]:.6g}, {argument.high[gate]:.6g}]), but no head computes it"
        )
    return Interval(active.astype(np.float64), (active | has_head).astype(np.float64))


def _attend_slopes(off: float, queries: Interval, keys: Interval, values: Interval) -> tuple[Interval, ...]:
    """How attention m = sum_j w_j v_j, w = softmax(q . k_j), moves with queries, keys and values.

    Values off by D move m by at most D. Let queries be off by e, |e_c| <= E_c, and keys by f_j, |f_jc| <= F_c. A score
    moves by e . k_j + (q + e) . f_j, and what moves all scores alike, e . (the middle of the keys' ranges), does not
    count: by at most d = sum_c E_c rad(k_c) + (|q_c| + E_c) F_c. Then m moves by at most R tanh(d/2) <= R d / 2, R the
    spread of the values. So the slopes are R rad(k_c) / 2 by q_c and R (|q_c| + E_c) / 2 by k_c, with E_c <= off.
    """
    spread, radius, size = values.width * 0.5, keys.width * 0.5, queries.magnitude + off
    by_query, by_key = (spread[:, None] * each for each in (radius, size))
    return *[Interval(-each.value, each.value) for each in (by_query, by_key)], _unit(len(values.low))


def reference_slopes(node: Node, wide: Sequence[Interval]) -> tuple[Interval, ...]:
    """The slopes of a reference node by its arguments, over their ranges."""
    one = np.ones(node.size)
    if node.kind in ("maximum", "minimum", "exchange"):
        return tuple(_unit(node.size) for _ in wide)
    if node.program.variables == 1:
        return (enclose(node.program, wide[0], 1),)
    if node.program == PRODUCT:
        return wide[1], wide[0]
    if node.program == QUOTIENT:
        inverse = Interval(one, one) / wide[1]
        return inverse, -(wide[0] * inverse * inverse)
    if node.program == HYPOTENUSE:
        return Interval(-one, one), Interval(-one, one)
    if node.kind == "expression":
        # Only inside of another region, where nothing arrives: any slopes will do.
        return tuple(Interval(-np.inf * one, np.inf * one) for _ in wide)
    raise Refused(f"a region cannot stand for a {node.kind}")
