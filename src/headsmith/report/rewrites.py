"""Ways to write a circuit, and a proof about it, in another way: what a forger would try.

Every rewrite changes a draft in place and says what it did. Some leave the function as it is (nodes split, doubled,
folded together, gates put in that do nothing), some change it (arguments added or rewired, tokens mixed up): the target
of a draft is whatever its circuit means. Others change what is claimed: who has heads, regions, margins, views, steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.kernel.graph import PRODUCT, Graph, Node, dense, needed
from headsmith.report.forging import Draft, Head, sink

Random = np.random.Generator
Rewrite = Callable[[Draft, Random], str]
NOTHING = "nothing"
WEIGHTS = (1.0, -1.0, 0.5, 2.0, 0.25, -2.0, 3.0, 0.0)


def rewritten(draft: Draft, rng: Random, most: int = 4) -> Draft:
    """One to `most` rewrites, one after the other."""
    found = draft.copy()
    for _ in range(int(rng.integers(1, most + 1))):
        name = str(rng.choice(sorted(REWRITES)))
        done = REWRITES[name](found, rng)
        found.label += [f"{name}: {done}"] if done != NOTHING else []
    return found


# Helpers --------------------------------------------------------------------------------------------------------------


def _pick(rng: Random, values: Any) -> Any:
    values = list(values)
    return values[int(rng.integers(len(values)))] if values else None


def _used(draft: Draft) -> list[int]:
    """The nodes that the output needs."""
    return needed(Graph(tuple(draft.nodes), draft.output), [draft.output])


def _edges(draft: Draft, kinds: tuple[str, ...]) -> list[tuple[int, int]]:
    """Readers of these kinds, each with the place of one of its arguments."""
    return [(n, k) for n in _used(draft) if draft.nodes[n].kind in kinds for k in range(len(draft.nodes[n].arguments))]


def _rewire(draft: Draft, reader: int, place: int, argument: int) -> None:
    node = draft.nodes[reader]
    arguments = (*node.arguments[:place], argument, *node.arguments[place + 1 :])
    draft.nodes[reader] = replace(node, arguments=arguments)


def _identity(size: int, argument: int, scale: float = 1.0, wide: bool = False) -> Node:
    weights = scale * (np.eye(size) if wide else np.ones(size))
    return Node("affine", size, (argument,), (weights,), np.zeros(size))


def _scale(rng: Random) -> float:
    return float(2.0 ** rng.integers(3, 12))


def _heads(rng: Random, size: int) -> Head | None:
    """Heads for all gates, for some, or for none."""
    chosen = np.flatnonzero(rng.random(size) < rng.choice([0.0, 0.5, 1.0, 1.0]))
    return sink(chosen, _scale(rng)) if len(chosen) else None


def _give(draft: Draft, number: int, head: Head | None) -> None:
    if head is not None:
        draft.heads[number] = head


# The same function ----------------------------------------------------------------------------------------------------


def split(draft: Draft, rng: Random) -> str:
    """What a node reads passes another one, which scales it, or not."""
    edge = _pick(rng, _edges(draft, ("affine", "relu", "pool", "move", "attend", "expression")))
    if edge is None:
        return NOTHING
    reader, place = edge
    node, argument = draft.nodes[reader], draft.nodes[reader].arguments[place]
    scale = float(rng.choice([1.0, 2.0, 0.5, -1.0])) if node.kind == "affine" else 1.0
    draft.insert(reader, _identity(draft.nodes[argument].size, argument, scale, bool(rng.random() < 0.3)))
    _rewire(draft, reader + 1, place, reader)
    if scale != 1.0:
        weights = tuple(w / scale if k == place else w for k, w in enumerate(node.weights))
        draft.nodes[reader + 1] = replace(draft.nodes[reader + 1], weights=weights)
    return f"{reader + 1} reads {argument} through {reader}, times {scale}"


def doubled(draft: Draft, rng: Random) -> str:
    """A node twice, each with heads of its own; one reader reads the second."""
    edge = _pick(rng, _edges(draft, ("affine", "relu", "pool", "move", "attend", "expression", "exchange")))
    if edge is None:
        return NOTHING
    reader, place = edge
    argument = draft.nodes[reader].arguments[place]
    if draft.nodes[argument].kind == "input":
        return NOTHING
    draft.insert(reader, draft.nodes[argument])
    _give(draft, reader, draft.heads.get(argument))
    for each in [each for each in draft.lists["tables"] if each["node"] == argument]:
        draft.lists["tables"].append({**each, "node": reader})
    _rewire(draft, reader + 1, place, reader)
    return f"{reader + 1} reads {reader}, the same as {argument}"


def two_gates(draft: Draft, rng: Random) -> str:
    """z becomes relu(z) - relu(-z); the gates have heads, or not."""
    edge = _pick(rng, _edges(draft, ("affine", "relu", "pool", "expression")))
    if edge is None:
        return NOTHING
    reader, place = edge
    argument = draft.nodes[reader].arguments[place]
    size, wide = draft.nodes[argument].size, bool(rng.random() < 0.3)
    one = np.eye(size) if wide else np.ones(size)
    gates = Node("relu", size, (argument,)), _identity(size, argument, -1.0), Node("relu", size, (reader + 1,))
    draft.insert(reader, *gates, Node("affine", size, (reader, reader + 2), (one, -one), np.zeros(size)))
    for gate in (reader, reader + 2):
        _give(draft, gate, _heads(rng, size))
    _rewire(draft, reader + 4, place, reader + 3)
    return f"{reader + 4} reads relu - relu of {argument}"


def cancelled(draft: Draft, rng: Random) -> str:
    """A sum reads a node twice, with opposite weights: the node itself, and a second one that is the same."""
    sums = [n for n in _used(draft) if draft.nodes[n].kind == "affine"]
    reader = _pick(rng, sums)
    other = _pick(rng, range(reader)) if reader else None
    if other is None:
        return NOTHING
    node, size, twice = draft.nodes[reader], draft.nodes[other].size, bool(rng.random() < 0.6)
    weights = rng.choice(WEIGHTS, (node.size, size))
    if draft.nodes[other].kind != "input" and twice:
        draft.insert(reader, draft.nodes[other])
        _give(draft, reader, draft.heads.get(other))
        reader, second = reader + 1, reader
    else:
        second = other
    node = draft.nodes[reader]
    draft.nodes[reader] = replace(
        node, arguments=(*node.arguments, other, second), weights=(*node.weights, weights, -weights)
    )
    return f"{reader} reads {other} and takes {second} away"


def folded(draft: Draft, rng: Random) -> str:
    """A sum takes the place of a sum that it reads."""
    edges = [(n, k) for n, k in _edges(draft, ("affine",)) if draft.nodes[draft.nodes[n].arguments[k]].kind == "affine"]
    outputs = {each["output"] for each in draft.lists["regions"]}
    edge = _pick(rng, [(n, k) for n, k in edges if draft.nodes[n].arguments[k] not in outputs])
    if edge is None:
        return NOTHING
    reader, place = edge
    node = draft.nodes[reader]
    inner, weights = draft.nodes[node.arguments[place]], dense(node.weights[place])
    kept = [k for k in range(len(node.arguments)) if k != place]
    draft.nodes[reader] = replace(
        node,
        arguments=(*(node.arguments[k] for k in kept), *inner.arguments),
        weights=(*(node.weights[k] for k in kept), *(weights @ dense(each) for each in inner.weights)),
        constants=node.constants + weights @ inner.constants,
    )
    return f"{reader} reads what its argument {place} reads"


# Another function -----------------------------------------------------------------------------------------------------


def more_read(draft: Draft, rng: Random) -> str:
    """A sum reads one node more."""
    reader = _pick(rng, [n for n in _used(draft) if draft.nodes[n].kind == "affine"])
    other = _pick(rng, range(reader)) if reader else None
    if other is None:
        return NOTHING
    node, size = draft.nodes[reader], draft.nodes[other].size
    weights = rng.choice(WEIGHTS, (node.size, size)) if size != node.size or rng.random() < 0.5 else np.ones(size)
    weights = weights * float(rng.choice([1.0, 0.125]))
    draft.nodes[reader] = replace(node, arguments=(*node.arguments, other), weights=(*node.weights, weights))
    return f"{reader} reads {other}, too"


def less_read(draft: Draft, rng: Random) -> str:
    """A sum reads one node less."""
    edge = _pick(rng, _edges(draft, ("affine",)))
    if edge is None:
        return NOTHING
    (reader, place), node = edge, draft.nodes[edge[0]]
    draft.nodes[reader] = replace(
        node,
        arguments=node.arguments[:place] + node.arguments[place + 1 :],
        weights=node.weights[:place] + node.weights[place + 1 :],
    )
    return f"{reader} no longer reads its argument {place}"


def rewired(draft: Draft, rng: Random) -> str:
    """A node reads another one of the same size."""
    edge = _pick(rng, _edges(draft, ("affine", "relu", "pool", "move", "expression", "attend", "exchange")))
    if edge is None:
        return NOTHING
    reader, place = edge
    before = draft.nodes[reader].arguments[place]
    size = draft.nodes[before].size
    argument = _pick(rng, [n for n in range(reader) if draft.nodes[n].size == size and n != before])
    if argument is None:
        return NOTHING
    _rewire(draft, reader, place, argument)
    return f"{reader} reads {argument} and not {before}"


def weighed(draft: Draft, rng: Random) -> str:
    """A sum has other weights, or another bias."""
    reader = _pick(rng, [n for n in _used(draft) if draft.nodes[n].kind == "affine"])
    if reader is None:
        return NOTHING
    node = draft.nodes[reader]
    if rng.random() < 0.4 or not node.weights:
        constants = np.where(rng.random(node.size) < 0.5, node.constants, rng.choice(WEIGHTS, node.size))
        draft.nodes[reader] = replace(node, constants=constants)
        return f"{reader} has another bias"
    place = int(rng.integers(len(node.weights)))
    old, sort = node.weights[place], rng.random()
    if sort < 0.4:
        new = old[rng.permutation(len(old))]
    elif sort < 0.7:
        new = old * float(rng.choice(WEIGHTS))
    else:
        new = np.where(rng.random(old.shape) < 0.5, old, rng.choice(WEIGHTS, old.shape))
    weights = tuple(new if k == place else w for k, w in enumerate(node.weights))
    draft.nodes[reader] = replace(node, weights=weights)
    return f"{reader} has other weights for its argument {place}"


def mixed_tokens(draft: Draft, rng: Random) -> str:
    """A mean, a largest value or a value of another token comes between; or pools and moves change."""
    if draft.tokens == 1:
        return NOTHING
    pools = [n for n in _used(draft) if draft.nodes[n].kind in ("pool", "move", "exchange", "attend")]
    if pools and rng.random() < 0.4:
        number = _pick(rng, pools)
        node = draft.nodes[number]
        if node.targets:
            targets = tuple(rng.integers(-1 if node.kind == "move" else 0, draft.tokens, draft.tokens).tolist())
            draft.nodes[number] = replace(node, targets=targets)
            return f"{number} fetches from {targets}"
        for each in pools:
            draft.nodes[each] = replace(draft.nodes[each], causal=not node.causal)
        return "pools under another mask"
    edge = _pick(rng, _edges(draft, ("affine", "relu", "pool", "expression")))
    if edge is None:
        return NOTHING
    reader, place = edge
    argument = draft.nodes[reader].arguments[place]
    size = draft.nodes[argument].size
    new, head = token_node(draft, rng, size, argument)
    draft.insert(reader, new)
    draft.heads[reader] = head
    _rewire(draft, reader + 1, place, reader)
    return f"{reader + 1} reads {argument} through a {new.kind} {new.name}"


def token_node(draft: Draft, rng: Random, size: int, argument: int) -> tuple[Node, Head]:
    """A node that looks at other tokens, and its heads."""
    causal = any(node.causal for node in draft.nodes)
    gains, every = {"gain": 200.0, "keep_gain": 800.0}, np.arange(size)
    match str(rng.choice(["mean", "max", "move", "own"])):
        case "mean":
            return Node("pool", size, (argument,), name="mean", causal=causal), Head("mean", every, {}, gains)
        case "max":
            arrays = {"query_scale": np.full(size, _scale(rng)), "key_scale": np.ones(size)}
            gains = {"gain": 4000.0, "keep_gain": 8000.0}
            return Node("pool", size, (argument,), name="max", causal=causal), Head("boltzmann", every, arrays, gains)
        case "move":
            targets = tuple(rng.integers(-1, draft.tokens, draft.tokens).tolist())
        case _:
            targets = tuple(place if rng.random() < 0.5 else -1 for place in range(draft.tokens))
    return Node("move", size, (argument,), targets=targets), Head("move", every, {}, gains)


# Another claim --------------------------------------------------------------------------------------------------------


def other_heads(draft: Draft, rng: Random) -> str:
    """A gate's heads are others, more, fewer, or none."""
    gate = _pick(rng, [n for n in _used(draft) if draft.nodes[n].kind == "relu"])
    if gate is None:
        return NOTHING
    draft.heads.pop(gate, None)
    _give(draft, gate, _heads(rng, draft.nodes[gate].size))
    return f"gate {gate} has {len(draft.heads[gate].components) if gate in draft.heads else 0} heads"


def margins(draft: Draft, rng: Random) -> str:
    """Margins are other ones: all of them, or one."""
    entries = [each for name in ("regions", "tables") for each in draft.lists[name] if each.get("margin") is not None]
    entries = entries if rng.random() < 0.5 else [each for each in [_pick(rng, entries)] if each]
    factor = float(rng.choice([0.0, 0.5, 2.0, 10.0, 1e3]))
    for each in entries:
        if each.get("ends") is None:
            each["margin"] *= factor
    return f"{len(entries)} times {factor}" if entries else NOTHING


def no_margin(draft: Draft, rng: Random) -> str:
    """A region has no margin, or one."""
    region = _pick(rng, [each for each in draft.lists["regions"] if each.get("ends") is None])
    if region is None:
        return NOTHING
    region["margin"] = float(rng.choice([1e-3, 1e-1])) if region.get("margin") is None else None
    return f"region {region['output']} has the margin {region['margin']}"


def region(draft: Draft, rng: Random) -> str:
    """max(a, b), or a product, as a region between two nodes."""
    edge = _pick(rng, _edges(draft, ("affine", "relu", "pool")))
    if edge is None:
        return NOTHING
    reader, place = edge
    first = draft.nodes[reader].arguments[place]
    size = draft.nodes[first].size
    second = _pick(rng, [n for n in range(reader) if draft.nodes[n].size == size and n != first])
    if second is None:
        return NOTHING
    one, zero, margin = np.ones(size), np.zeros(size), float(rng.choice([1e-3, 1e-2, 1e-1, 1.0]))
    if rng.random() < 0.6:
        gap = Node("affine", size, (first, second), (one, -one), zero)
        new = [Node("maximum", size, (first, second)), gap, Node("relu", size, (reader + 1,))]
        new.append(Node("affine", size, (second, reader + 2), (one, one), zero))
    else:
        new = [Node("expression", size, (first, second), program=PRODUCT) for _ in range(2)]
        new += [_identity(size, reader + 1)]
    draft.insert(reader, *new)
    last = reader + len(new) - 1
    if len(new) == 4:
        _give(draft, reader + 2, sink(range(size), _scale(rng)))
    else:
        draft.heads[reader + 1] = Head("swiglu", np.arange(size), {}, {})
        draft.lists["tables"].append({"node": reader + 1, "margin": margin, "cells": ""})
    draft.lists["regions"].append({"output": last, "stands_for": reader, "margin": margin})
    _rewire(draft, last + 1, place, last)
    return f"{last} stands for {reader}, of {first} and {second}"


def exchanged_regions(draft: Draft, rng: Random) -> str:
    """Two regions exchange what they stand for; or one stands for another node."""
    chosen = _pick(rng, draft.lists["regions"])
    if chosen is None:
        return NOTHING
    size = draft.nodes[chosen["output"]].size
    others = [each for each in draft.lists["regions"] if draft.nodes[each["output"]].size == size]
    other = _pick(rng, others)
    chosen["stands_for"], other["stands_for"] = other["stands_for"], chosen["stands_for"]
    return f"{chosen['output']} and {other['output']}"


def view(draft: Draft, rng: Random) -> str:
    """A node is seen as another one of its size."""
    node = _pick(rng, _used(draft)[1:])
    if node is None:
        return NOTHING
    seen = _pick(rng, [n for n in range(node) if draft.nodes[n].size == draft.nodes[node].size])
    if seen is None:
        return NOTHING
    draft.lists["views"].append({"node": node, "as": seen})
    return f"{node} as {seen}"


def steps(draft: Draft, rng: Random) -> str:
    """Another node is said to be a step, or a power; all that may be; or none is."""
    sums = [n for n in _used(draft) if draft.nodes[n].kind == "affine" and len(draft.nodes[n].arguments) == 2]
    name, number = str(rng.choice(["steps", "steps", "powers"])), _pick(rng, sums)
    if number is None:
        return NOTHING
    held = getattr(draft, name)
    setattr(draft, name, [each for each in held if each != number] if number in held else sorted([*held, number]))
    return f"{number} among the {name}"


def norms(draft: Draft, rng: Random) -> str:
    """Diagonals of norms, or slopes of linear bounds, are others, or new."""
    gates = [n for n in _used(draft) if draft.nodes[n].kind in ("relu", "input")]
    gate = _pick(rng, gates)
    if gate is None:
        return NOTHING
    kept = [each for each in draft.lists["norms"] if each["node"] != gate]
    diagonal = np.full(draft.nodes[gate].size, 2.0 ** float(rng.integers(-6, 7))) * rng.choice([0.5, 1.0, 2.0])
    kept.append({"node": gate, "diagonal": diagonal, "flat": bool(rng.random() < 0.3)})
    draft.lists["norms"] = sorted(kept, key=lambda each: each["node"])
    return f"of gate {gate}"


def linear(draft: Draft, rng: Random) -> str:
    """Linear bounds of a sum, with random slopes."""
    node = _pick(rng, [n for n in _used(draft) if draft.nodes[n].kind == "affine"])
    if node is None:
        return NOTHING
    gates = sum(draft.nodes[n].size for n in needed(Graph(tuple(draft.nodes), 0), [node]) if draft.nodes[n].kind == "relu")
    draft.lists["linear"] = [each for each in draft.lists["linear"] if each["node"] != node]
    draft.lists["linear"].append({"node": node, "slopes": rng.choice([0.0, 1.0, rng.random()], (2, gates))})
    return f"of node {node}"


REWRITES: dict[str, Rewrite] = {
    "split": split,
    "doubled": doubled,
    "two gates": two_gates,
    "cancelled": cancelled,
    "folded": folded,
    "more read": more_read,
    "less read": less_read,
    "rewired": rewired,
    "other weights": weighed,
    "tokens mixed": mixed_tokens,
    "other heads": other_heads,
    "margins": margins,
    "no margin": no_margin,
    "region": region,
    "regions exchanged": exchanged_regions,
    "view": view,
    "steps": steps,
    "norms": norms,
    "linear": linear,
}
