"""Through which arguments errors arrive at a node, and with which slopes (flow.py).

Rule Stable.  A gate that has a head may have any chord slope in [0, 1]. One without must not cross zero on the domain:
it is active, with the slope 1, or dead, with the slope 0; and what a dead gate reads does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Interval, Upper
from .errors import Refused
from .expressions import Computed
from .flow import Edge, Slope
from .functions import enclose
from .graph import Graph, Node, dense, needed
from .proof import Proof


@dataclass(frozen=True, eq=False)
class Edges:
    """For every node its edges; the slopes of gates; and the moves that are joined, which have no edges."""

    of: dict[int, list[Edge]]
    gates: dict[int, Interval]
    joined: set[int]


def edges_of(
    proof: Proof, found: Sequence[Interval], places: Mapping[int, Any], tables: Mapping[int, Computed]
) -> Edges:
    """For every node, through which arguments errors arrive, and with which slopes."""
    edges: dict[int, list[Edge]] = {number: [] for number in range(len(proof.circuit.nodes))}
    cut, gates = proof.margins_of_reads, dict[int, Interval]()

    def seen(number: int, argument: int) -> Interval:
        return found[argument].widened(cut.get((number, argument), 0.0))

    # What a gate reads that is zero everywhere, and has no head, does not matter.
    relus = [number for number, node in enumerate(proof.circuit.nodes) if node.kind == "relu" and number not in places]
    dead = {number for number in relus if np.all(found[proof.circuit.nodes[number].arguments[0]].high <= 0.0)}
    for number in needed(proof.circuit, [proof.circuit.output, *places], dead):
        node, slopes = proof.circuit.nodes[number], tuple[Slope, ...]()
        if node.kind == "affine":
            slopes = node.weights
        elif node.kind == "relu":
            gates[number] = _gate_slopes(number, node.size, seen(number, node.arguments[0]), places.get(number))
            slopes = (gates[number],) if gates[number].high.any() else ()
        elif node.kind == "expression" and number in tables:
            slopes = tables[number].slopes
        elif node.kind in ("pool", "move"):
            slopes = (Interval(np.zeros(node.size), np.ones(node.size)),)
        elif node.kind == "attend":
            off = proof.margins.get(number, 0.0)
            queries, keys, values = (seen(number, argument) for argument in node.arguments)
            slopes = _attend_slopes(queries, keys, values, off)
        elsewhere = node.kind in ("pool", "move", "attend")
        pairs = zip(node.arguments, slopes, strict=False)
        edges[number] = [(argument, slope, elsewhere) for argument, slope in pairs if (number, argument) not in cut]
        region = proof.regions.get(number)
        if region is not None and region.margin is not None:
            reference = proof.circuit.nodes[region.stands_for]
            wide = [found[argument].widened(region.margin) for argument in region.arguments]
            slopes = _reference_slopes(reference, wide)
            edges[number] += [
                (argument, slope, False) for argument, slope in zip(region.arguments, slopes, strict=True)
            ]
        if number in proof.exchanges:
            unit = Interval(np.zeros(node.size), np.ones(node.size))
            edges[number].append((proof.exchanges[number].value, unit, True))
    return Edges(edges, gates, _join_blocks(proof.circuit, edges))


def _join_blocks(circuit: Graph, edges: dict[int, list[Edge]]) -> set[int]:
    """Moves that fetch from the token itself or nothing, at different tokens: at every token a sum reads one of them.

    If z = sum_j W_j B_j and B_j is y at some tokens, no two of them at the same one, and 0 elsewhere, then an error of
    y at a token arrives at z there with the weights W_j of one j: between the least and the largest of them and 0.
    """
    blocks = {number for number, found in edges.items() if found and _keeps(circuit.nodes[number].targets)}
    blocks.discard(circuit.output)
    for number, found in edges.items():
        plain = circuit.nodes[number].kind == "affine"
        blocks -= {argument for argument, slope, _ in found if not plain or isinstance(slope, Interval)}
    for number, found in list(edges.items()):
        mine = [(move, dense(slope)) for move, slope, _ in found if move in blocks and not isinstance(slope, Interval)]
        for source in {circuit.nodes[move].arguments[0] for move, _ in mine}:
            group = [(move, weights) for move, weights in mine if circuit.nodes[move].arguments[0] == source]
            kept = np.array([np.array(circuit.nodes[move].targets) >= 0 for move, _ in group])
            weights = np.stack([np.zeros_like(group[0][1]), *(weights for _, weights in group)])
            hull = Interval(weights.min(axis=0), weights.max(axis=0))
            if np.any(kept.sum(axis=0) > 1):
                size = Upper(np.abs(weights)).sum(axis=0).value
                hull = Interval(-size, size)
            edges[number].append((source, hull, False))
    for number in blocks:
        edges[number] = []
    return blocks


def _keeps(targets: tuple[int, ...]) -> bool:
    return bool(targets) and all(target in (-1, place) for place, target in enumerate(targets))


def _gate_slopes(number: int, size: int, argument: Interval, components: Any) -> Interval:
    """Rule Stable: a gate with a head has slopes in [0, 1]; one without must be active or dead on the whole domain."""
    has_head = np.isin(np.arange(size), () if components is None else components)
    dead = ~has_head & (argument.high <= 0.0)
    active = ~has_head & ~dead & (argument.low >= 0.0)
    if not (has_head | active | dead).all():
        gate = int(np.argmin(has_head | active | dead))
        raise Refused(
            f"gate {gate} of node {number} crosses zero on the domain (its argument ranges over "
            f"[{argument.low[gate]:.6g}, {argument.high[gate]:.6g}]), but no head computes it"
        )
    return Interval(active.astype(np.float64), (active | has_head).astype(np.float64))


def _attend_slopes(queries: Interval, keys: Interval, values: Interval, off: float) -> tuple[Interval, ...]:
    """How attention m = sum_j w_j v_j, w = softmax(q . k_j), moves with queries, keys and values.

    Values off by D move m by at most D. Let queries be off by e, |e_c| <= E_c, and keys by f_j, |f_jc| <= F_c. A score
    moves by e . k_j + (q + e) . f_j, and what moves all scores alike, e . (the middle of the keys' ranges), does not
    count: by at most d = sum_c E_c rad(k_c) + (|q_c| + E_c) F_c. Then m moves by at most R tanh(d/2) <= R d / 2, R the
    spread of the values. So the slopes are R rad(k_c) / 2 by q_c and R (|q_c| + E_c) / 2 by k_c, with E_c <= off.
    """
    spread, radius, size = values.width * 0.5, keys.width * 0.5, queries.magnitude + off
    by_query, by_key = (Upper(spread.value[:, None]) * each.value for each in (radius, size))
    one = np.ones(len(values.low))
    symmetric = [Interval(-each.value, each.value) for each in (by_query, by_key)]
    return *symmetric, Interval(0.0 * one, one)


def _reference_slopes(node: Node, wide: Sequence[Interval]) -> tuple[Interval, ...]:
    """The slopes of a reference node by its arguments, over their ranges."""
    one = np.ones(node.size)
    match node.kind:
        case "function":
            return (enclose(node.name, node.parameter, wide[0].low, wide[0].high, 1),)
        case "product":
            return wide[1], wide[0]
        case "quotient":
            inverse = Interval(one, one) / wide[1]
            return inverse, -(wide[0] * inverse * inverse)
        case "expression":
            # Only inside of another region, where nothing arrives: any slopes will do.
            return tuple(Interval(-np.inf * one, np.inf * one) for _ in wide)
        case "hypotenuse":
            return Interval(-one, one), Interval(-one, one)
        case "maximum" | "minimum":
            return tuple(Interval(0.0 * one, one) for _ in wide)
    raise Refused(f"a region cannot stand for a {node.kind}")
