"""Ways to write a circuit in another way: what a forger would try.

Every rewrite changes a draft in place and says what it did. Some leave the function as it is (nodes split, doubled,
folded together, gates put in that do nothing), some change it (arguments added or rewired, tokens mixed up): the target
of a draft is whatever its circuit means. Others change what is claimed (false_claims.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headsmith.kernel.core.graph import Node, dense
from headsmith.lab.attack.drafts import DraftHead, FileDraft
from headsmith.lab.attack.false_claims import (
    CLAIMS,
    NOTHING,
    Random,
    Rewrite,
    edges,
    give,
    heads,
    identity,
    pick,
    rewire,
    scale,
    used,
)

WEIGHTS = (1.0, -1.0, 0.5, 2.0, 0.25, -2.0, 3.0, 0.0)


def rewritten(draft: FileDraft, rng: Random, most: int = 4) -> FileDraft:
    """One to `most` rewrites, one after the other."""
    found = draft.copy()
    for _ in range(int(rng.integers(1, most + 1))):
        name = str(rng.choice(sorted(REWRITES)))
        done = REWRITES[name](found, rng)
        found.label += [f"{name}: {done}"] if done != NOTHING else []
    return found


# The same function ----------------------------------------------------------------------------------------------------


def split(draft: FileDraft, rng: Random) -> str:
    """What a node reads passes another one, which scales it, or not."""
    edge = pick(rng, edges(draft, ("affine", "relu", "pool", "move", "attend", "expression")))
    if edge is None:
        return NOTHING
    reader, place = edge
    node, argument = draft.nodes[reader], draft.nodes[reader].arguments[place]
    scale = float(rng.choice([1.0, 2.0, 0.5, -1.0])) if node.kind == "affine" else 1.0
    draft.insert(reader, identity(draft.nodes[argument].size, argument, scale, bool(rng.random() < 0.3)))
    rewire(draft, reader + 1, place, reader)
    if scale != 1.0:
        weights = tuple(w / scale if k == place else w for k, w in enumerate(node.weights))
        draft.nodes[reader + 1] = replace(draft.nodes[reader + 1], weights=weights)
    return f"{reader + 1} reads {argument} through {reader}, times {scale}"


def doubled(draft: FileDraft, rng: Random) -> str:
    """A node twice, each with heads of its own; one reader reads the second."""
    edge = pick(rng, edges(draft, ("affine", "relu", "pool", "move", "attend", "expression", "exchange")))
    if edge is None:
        return NOTHING
    reader, place = edge
    argument = draft.nodes[reader].arguments[place]
    if draft.nodes[argument].kind == "input":
        return NOTHING
    draft.insert(reader, draft.nodes[argument])
    give(draft, reader, draft.heads.get(argument))
    for each in [each for each in draft.lists["tables"] if each["node"] == argument]:
        draft.lists["tables"].append({**each, "node": reader})
    rewire(draft, reader + 1, place, reader)
    return f"{reader + 1} reads {reader}, the same as {argument}"


def two_gates(draft: FileDraft, rng: Random) -> str:
    """z becomes relu(z) - relu(-z); the gates have heads, or not."""
    edge = pick(rng, edges(draft, ("affine", "relu", "pool", "expression")))
    if edge is None:
        return NOTHING
    reader, place = edge
    argument = draft.nodes[reader].arguments[place]
    size, wide = draft.nodes[argument].size, bool(rng.random() < 0.3)
    one = np.eye(size) if wide else np.ones(size)
    gates = Node("relu", size, (argument,)), identity(size, argument, -1.0), Node("relu", size, (reader + 1,))
    draft.insert(reader, *gates, Node("affine", size, (reader, reader + 2), (one, -one), np.zeros(size)))
    for gate in (reader, reader + 2):
        give(draft, gate, heads(rng, size))
    rewire(draft, reader + 4, place, reader + 3)
    return f"{reader + 4} reads relu - relu of {argument}"


def cancelled(draft: FileDraft, rng: Random) -> str:
    """A sum reads a node twice, with opposite weights: the node itself, and a second one that is the same."""
    sums = [n for n in used(draft) if draft.nodes[n].kind == "affine"]
    reader = pick(rng, sums)
    other = pick(rng, range(reader)) if reader else None
    if other is None:
        return NOTHING
    node, size, twice = draft.nodes[reader], draft.nodes[other].size, bool(rng.random() < 0.6)
    weights = rng.choice(WEIGHTS, (node.size, size))
    if draft.nodes[other].kind != "input" and twice:
        draft.insert(reader, draft.nodes[other])
        give(draft, reader, draft.heads.get(other))
        reader, second = reader + 1, reader
    else:
        second = other
    node = draft.nodes[reader]
    draft.nodes[reader] = replace(
        node, arguments=(*node.arguments, other, second), weights=(*node.weights, weights, -weights)
    )
    return f"{reader} reads {other} and takes {second} away"


def folded(draft: FileDraft, rng: Random) -> str:
    """A sum takes the place of a sum that it reads."""
    outputs, sums = {each["output"] for each in draft.lists["regions"]}, edges(draft, ("affine",))
    read = [(n, k, draft.nodes[n].arguments[k]) for n, k in sums]
    edge = pick(rng, [(n, k) for n, k, a in read if draft.nodes[a].kind == "affine" and a not in outputs])
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


def more_read(draft: FileDraft, rng: Random) -> str:
    """A sum reads one node more."""
    reader = pick(rng, [n for n in used(draft) if draft.nodes[n].kind == "affine"])
    other = pick(rng, range(reader)) if reader else None
    if other is None:
        return NOTHING
    node, size = draft.nodes[reader], draft.nodes[other].size
    weights = rng.choice(WEIGHTS, (node.size, size)) if size != node.size or rng.random() < 0.5 else np.ones(size)
    weights = weights * float(rng.choice([1.0, 0.125]))
    draft.nodes[reader] = replace(node, arguments=(*node.arguments, other), weights=(*node.weights, weights))
    return f"{reader} reads {other}, too"


def less_read(draft: FileDraft, rng: Random) -> str:
    """A sum reads one node less."""
    edge = pick(rng, edges(draft, ("affine",)))
    if edge is None:
        return NOTHING
    (reader, place), node = edge, draft.nodes[edge[0]]
    draft.nodes[reader] = replace(
        node,
        arguments=node.arguments[:place] + node.arguments[place + 1 :],
        weights=node.weights[:place] + node.weights[place + 1 :],
    )
    return f"{reader} no longer reads its argument {place}"


def rewired(draft: FileDraft, rng: Random) -> str:
    """A node reads another one of the same size."""
    edge = pick(rng, edges(draft, ("affine", "relu", "pool", "move", "expression", "attend", "exchange")))
    if edge is None:
        return NOTHING
    reader, place = edge
    before = draft.nodes[reader].arguments[place]
    size = draft.nodes[before].size
    argument = pick(rng, [n for n in range(reader) if draft.nodes[n].size == size and n != before])
    if argument is None:
        return NOTHING
    rewire(draft, reader, place, argument)
    return f"{reader} reads {argument} and not {before}"


def weighed(draft: FileDraft, rng: Random) -> str:
    """A sum has other weights, or another bias."""
    reader = pick(rng, [n for n in used(draft) if draft.nodes[n].kind == "affine"])
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


def mixed_tokens(draft: FileDraft, rng: Random) -> str:
    """A mean, a largest value or a value of another token comes between; or pools and moves change."""
    if draft.tokens == 1:
        return NOTHING
    pools = [n for n in used(draft) if draft.nodes[n].kind in ("pool", "move", "exchange", "attend")]
    if pools and rng.random() < 0.4:
        number = pick(rng, pools)
        node = draft.nodes[number]
        if node.targets:
            targets = tuple(rng.integers(-1 if node.kind == "move" else 0, draft.tokens, draft.tokens).tolist())
            draft.nodes[number] = replace(node, targets=targets)
            return f"{number} fetches from {targets}"
        for each in pools:
            draft.nodes[each] = replace(draft.nodes[each], causal=not node.causal)
        return "pools under another mask"
    edge = pick(rng, edges(draft, ("affine", "relu", "pool", "expression")))
    if edge is None:
        return NOTHING
    reader, place = edge
    argument = draft.nodes[reader].arguments[place]
    size = draft.nodes[argument].size
    new, head = token_node(draft, rng, size, argument)
    draft.insert(reader, new)
    draft.heads[reader] = head
    rewire(draft, reader + 1, place, reader)
    return f"{reader + 1} reads {argument} through a {new.kind} {new.name}"


def token_node(draft: FileDraft, rng: Random, size: int, argument: int) -> tuple[Node, DraftHead]:
    """A node that looks at other tokens, and its heads."""
    causal = any(node.causal for node in draft.nodes)
    gains, every = {"gain": 200.0, "keep_gain": 800.0}, np.arange(size)
    match str(rng.choice(["mean", "max", "move", "own"])):
        case "mean":
            return Node("pool", size, (argument,), name="mean", causal=causal), DraftHead("mean", every, {}, gains)
        case "max":
            arrays = {"query_scale": np.full(size, scale(rng)), "key_scale": np.ones(size)}
            gains = {"gain": 4000.0, "keep_gain": 8000.0}
            return Node("pool", size, (argument,), name="max", causal=causal), DraftHead(
                "boltzmann", every, arrays, gains
            )
        case "move":
            targets = tuple(rng.integers(-1, draft.tokens, draft.tokens).tolist())
        case _:
            targets = tuple(place if rng.random() < 0.5 else -1 for place in range(draft.tokens))
    return Node("move", size, (argument,), targets=targets), DraftHead("move", every, {}, gains)


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
    **CLAIMS,
}
