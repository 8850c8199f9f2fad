"""An honest attempt to break a certificate: random points, corners, kinks of the gates, then an ascent from the best
of them.

A gate's own error, |z| / (1 + e^{b|z|}), is largest 1.278/b away from its kink: the search goes there, for gates of
every layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.language.graph import Affine, Graph, Relu
from headsmith.model import Compiled
from helpers.oracles.exact import extended, extended_nodes

PEAK = 1.2784645427610738


def worst_error(
    compiled: Compiled, rng: np.random.Generator, *, points: int = 200, steps: int = 3, extra: Any = None
) -> float:
    """The largest |model - target| that was found. An estimate from below of the true error; nan if any output is
    nan."""
    candidates = candidate_points(compiled, rng, points)
    if extra is not None:
        candidates = np.concatenate([candidates, np.clip(extra, compiled.box.low, compiled.box.high)])
    errors = errors_at(compiled, candidates, rng)
    width = compiled.box.high - compiled.box.low
    for step in range(steps):
        best = candidates[np.argsort(errors)[-max(4, points // 20) :]]
        spread = width * 10.0 ** rng.uniform(-1 - 2 * step, -2 * step, size=(5, len(best), 1))
        moves = rng.normal(size=(5, *best.shape)) * spread
        moves[::2] *= rng.random(moves[::2].shape) < 1.5 / best.shape[1]
        moved = np.clip(best + moves, compiled.box.low, compiled.box.high).reshape(-1, best.shape[1])
        candidates = np.concatenate([best, moved])
        errors = np.concatenate([np.sort(errors)[-len(best) :], errors_at(compiled, moved, rng)])
    return float(np.max(errors))


def errors_at(compiled: Compiled, points: Any, rng: np.random.Generator) -> Any:
    """|model - target|, the worst output of each point; with several tokens each point is one token of some
    sequence."""
    wanted = extended(compiled.graph, points)
    tokens = compiled.transformer.tokens
    if tokens == 1:
        got = compiled(points)
    else:
        length = int(rng.integers(max(1, tokens - 1), tokens + 1))
        order = rng.permutation(len(points))
        order = np.concatenate([order, order[: -len(order) % length]])
        sequences = points[order].reshape(-1, length, points.shape[1])
        output = compiled(sequences, causal=bool(rng.integers(2))).reshape(len(order), -1)
        got = np.empty((len(points), output.shape[1]), dtype=output.dtype)
        got[order] = output
    return np.max(np.abs(got.astype(np.longdouble) - wanted), axis=-1).astype(np.float64)


def candidate_points(compiled: Compiled, rng: np.random.Generator, count: int) -> Any:
    """Random points, corners, and points near kinks, all inside the box."""
    low, high = compiled.box.low, compiled.box.high
    size = compiled.box.size
    inside = low + (high - low) * rng.random((count, size))
    corners = np.where(rng.random((count // 4 + 2, size)) < 0.5, low, high)
    start = np.concatenate([inside, corners, [low, high, 0.5 * low + 0.5 * high]])
    return np.clip(np.concatenate([start, *_kinks(compiled, inside, rng)]), low, high)


def _kinks(compiled: Compiled, start: Any, rng: np.random.Generator) -> list[Any]:
    """From each start, walk to where one gate of some head has its argument at zero, or 1.278/b to either side."""
    found, graph, places = [], compiled.computed.graph, compiled.computed.places
    for layer in compiled.transformer.layers:
        for bank in (each for each in layer.banks if not each.cleared):
            head = rng.integers(bank.heads, size=len(start))
            scale = (bank.query_scale * bank.key_scale)[head]
            goal = rng.choice([-1.0, 0.0, 1.0], size=len(start)) * PEAK / np.maximum(scale, 1e-300)
            points = start
            for _ in range(4):
                nodes = np.array([places.get(each, 0) for each in bank.node[head].tolist()])
                value, slope = _arguments(graph, nodes, bank.component[head], points)
                length = np.maximum((slope**2).sum(axis=1), 1e-30)
                with np.errstate(all="ignore"):
                    moved = points - ((value - goal) / length)[:, None] * slope
                moved = np.where(np.isfinite(moved), moved, points)
                points = np.clip(moved, compiled.box.low, compiled.box.high).astype(np.float64)
            found.append(points)
    return found


def _arguments(graph: Graph, nodes: Any, components: Any, points: Any) -> tuple[Any, Any]:
    """The argument of one gate for each point, and its gradient."""
    values = extended_nodes(graph, points)
    value, slope = np.zeros(len(points)), np.zeros(points.shape)
    for number in np.unique(nodes):
        mine = np.flatnonzero(nodes == number)
        node = graph.nodes[int(number)]
        if not isinstance(node, Relu):
            continue
        value[mine] = values[node.argument][mine, components[mine]]
        slope[mine] = _gradient(graph, node.argument, components[mine], [v[mine] for v in values])
    return value, slope


def _gradient(graph: Graph, number: int, components: Any, values: list[Any]) -> Any:
    """Backwards through the graph with the slopes that the gates have at these points."""
    count = len(components)
    gradients: dict[int, Any] = {number: np.zeros((count, graph.nodes[number].size))}
    gradients[number][np.arange(count), components] = 1.0
    for current in range(number, 0, -1):
        upper = gradients.pop(current, None)
        if upper is None:
            continue
        match graph.nodes[current]:
            case Affine() as node:
                for term in node.terms:
                    part = upper * term.weights if term.diagonal else upper @ term.weights
                    gradients[term.node] = gradients.get(term.node, 0.0) + part
            case Relu() as node:
                part = upper * (values[node.argument] > 0)
                gradients[node.argument] = gradients.get(node.argument, 0.0) + part
    return gradients.get(0, np.zeros((count, graph.input.size)))
