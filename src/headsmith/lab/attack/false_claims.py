"""Other claims about a circuit than those that were proved: who has heads, regions, margins, views, steps, norms.

Every function changes a draft in place and says what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headsmith.kernel.core.graph import PRODUCT, Graph, Node, needed
from headsmith.lab.attack.drafts import DraftHead, FileDraft, sink

Random = np.random.Generator
Rewrite = Callable[[FileDraft, Random], str]
NOTHING = "nothing"


def pick(rng: Random, values: Any) -> Any:
    values = list(values)
    return values[int(rng.integers(len(values)))] if values else None


def used(draft: FileDraft) -> list[int]:
    """The nodes that the output needs."""
    return needed(Graph(tuple(draft.nodes), draft.output), [draft.output])


def edges(draft: FileDraft, kinds: tuple[str, ...]) -> list[tuple[int, int]]:
    """Readers of these kinds, each with the place of one of its arguments."""
    return [(n, k) for n in used(draft) if draft.nodes[n].kind in kinds for k in range(len(draft.nodes[n].arguments))]


def rewire(draft: FileDraft, reader: int, place: int, argument: int) -> None:
    node = draft.nodes[reader]
    arguments = (*node.arguments[:place], argument, *node.arguments[place + 1 :])
    draft.nodes[reader] = replace(node, arguments=arguments)


def identity(size: int, argument: int, scale: float = 1.0, wide: bool = False) -> Node:
    weights = scale * (np.eye(size) if wide else np.ones(size))
    return Node("affine", size, (argument,), (weights,), np.zeros(size))


def scale(rng: Random) -> float:
    return float(2.0 ** rng.integers(3, 12))


def heads(rng: Random, size: int) -> DraftHead | None:
    """Heads for all gates, for some, or for none."""
    chosen = np.flatnonzero(rng.random(size) < rng.choice([0.0, 0.5, 1.0, 1.0]))
    return sink(chosen, scale(rng)) if len(chosen) else None


def give(draft: FileDraft, number: int, head: DraftHead | None) -> None:
    if head is not None:
        draft.heads[number] = head


def other_heads(draft: FileDraft, rng: Random) -> str:
    """A gate's heads are others, more, fewer, or none."""
    gate = pick(rng, [n for n in used(draft) if draft.nodes[n].kind == "relu"])
    if gate is None:
        return NOTHING
    draft.heads.pop(gate, None)
    give(draft, gate, heads(rng, draft.nodes[gate].size))
    return f"gate {gate} has {len(draft.heads[gate].components) if gate in draft.heads else 0} heads"


def margins(draft: FileDraft, rng: Random) -> str:
    """Margins are other ones: all of them, or one."""
    entries = [each for name in ("regions", "tables") for each in draft.lists[name] if each.get("margin") is not None]
    entries = entries if rng.random() < 0.5 else [each for each in [pick(rng, entries)] if each]
    factor = float(rng.choice([0.0, 0.5, 2.0, 10.0, 1e3]))
    for each in entries:
        if each.get("ends") is None:
            each["margin"] *= factor
    return f"{len(entries)} times {factor}" if entries else NOTHING


def no_margin(draft: FileDraft, rng: Random) -> str:
    """A region has no margin, or one."""
    region = pick(rng, [each for each in draft.lists["regions"] if each.get("ends") is None])
    if region is None:
        return NOTHING
    region["margin"] = float(rng.choice([1e-3, 1e-1])) if region.get("margin") is None else None
    return f"region {region['output']} has the margin {region['margin']}"


def region(draft: FileDraft, rng: Random) -> str:
    """max(a, b), or a product, as a region between two nodes."""
    edge = pick(rng, edges(draft, ("affine", "relu", "pool")))
    if edge is None:
        return NOTHING
    reader, place = edge
    first = draft.nodes[reader].arguments[place]
    size = draft.nodes[first].size
    second = pick(rng, [n for n in range(reader) if draft.nodes[n].size == size and n != first])
    if second is None:
        return NOTHING
    one, zero, margin = np.ones(size), np.zeros(size), float(rng.choice([1e-3, 1e-2, 1e-1, 1.0]))
    if rng.random() < 0.6:
        gap = Node("affine", size, (first, second), (one, -one), zero)
        new = [Node("maximum", size, (first, second)), gap, Node("relu", size, (reader + 1,))]
        new.append(Node("affine", size, (second, reader + 2), (one, one), zero))
    else:
        new = [Node("expression", size, (first, second), program=PRODUCT) for _ in range(2)]
        new += [identity(size, reader + 1)]
    draft.insert(reader, *new)
    last = reader + len(new) - 1
    if len(new) == 4:
        give(draft, reader + 2, sink(range(size), scale(rng)))
    else:
        draft.heads[reader + 1] = DraftHead("swiglu", np.arange(size), {}, {})
        draft.lists["tables"].append({"node": reader + 1, "margin": margin, "cells": ""})
    draft.lists["regions"].append({"output": last, "stands_for": reader, "margin": margin})
    rewire(draft, last + 1, place, last)
    return f"{last} stands for {reader}, of {first} and {second}"


def exchanged_regions(draft: FileDraft, rng: Random) -> str:
    """Two regions exchange what they stand for; or one stands for another node."""
    chosen = pick(rng, draft.lists["regions"])
    if chosen is None:
        return NOTHING
    size = draft.nodes[chosen["output"]].size
    others = [each for each in draft.lists["regions"] if draft.nodes[each["output"]].size == size]
    other = pick(rng, others)
    chosen["stands_for"], other["stands_for"] = other["stands_for"], chosen["stands_for"]
    return f"{chosen['output']} and {other['output']}"


def view(draft: FileDraft, rng: Random) -> str:
    """A node is seen as another one of its size."""
    node = pick(rng, used(draft)[1:])
    if node is None:
        return NOTHING
    seen = pick(rng, [n for n in range(node) if draft.nodes[n].size == draft.nodes[node].size])
    if seen is None:
        return NOTHING
    draft.lists["views"].append({"node": node, "as": seen})
    return f"{node} as {seen}"


def steps(draft: FileDraft, rng: Random) -> str:
    """Another node is said to be a step, or a power; all that may be; or none is."""
    sums = [n for n in used(draft) if draft.nodes[n].kind == "affine" and len(draft.nodes[n].arguments) == 2]
    name, number = str(rng.choice(["steps", "steps", "powers"])), pick(rng, sums)
    if number is None:
        return NOTHING
    held = getattr(draft, name)
    setattr(draft, name, [each for each in held if each != number] if number in held else sorted([*held, number]))
    return f"{number} among the {name}"


def norms(draft: FileDraft, rng: Random) -> str:
    """Diagonals of norms, or slopes of linear bounds, are others, or new."""
    gates = [n for n in used(draft) if draft.nodes[n].kind in ("relu", "input")]
    gate = pick(rng, gates)
    if gate is None:
        return NOTHING
    kept = [each for each in draft.lists["norms"] if each["node"] != gate]
    diagonal = np.full(draft.nodes[gate].size, 2.0 ** float(rng.integers(-6, 7))) * rng.choice([0.5, 1.0, 2.0])
    kept.append({"node": gate, "diagonal": diagonal, "flat": bool(rng.random() < 0.3)})
    draft.lists["norms"] = sorted(kept, key=lambda each: each["node"])
    return f"of gate {gate}"


def linear(draft: FileDraft, rng: Random) -> str:
    """Linear bounds of a sum, with random slopes."""
    node = pick(rng, [n for n in used(draft) if draft.nodes[n].kind == "affine"])
    if node is None:
        return NOTHING
    gates = sum(
        draft.nodes[n].size for n in needed(Graph(tuple(draft.nodes), 0), [node]) if draft.nodes[n].kind == "relu"
    )
    draft.lists["linear"] = [each for each in draft.lists["linear"] if each["node"] != node]
    draft.lists["linear"].append({"node": node, "slopes": rng.choice([0.0, 1.0, rng.random()], (2, gates))})
    return f"of node {node}"


CLAIMS: dict[str, Rewrite] = {
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
