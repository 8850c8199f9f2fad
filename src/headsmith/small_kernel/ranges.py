"""Ranges: the exact value of a node lies in `found[node]`, for all inputs in the box.

The box is cut into cells; on each, every node is an interval image of what it reads. The exact value of a region's
output is that of what it stands for; inside of a region with a margin, the value that a node has if the region's
arguments are as they arrive, anywhere within the margin, so that readers there see them wider. Other tokens may lie
in any cell: what comes from them is the hull over all cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.small_kernel.bounds import (
    FLOOR,
    SLACK,
    Array,
    Loose,
    Outside,
    Span,
    carried,
    gamma,
    image,
    point,
    require,
)
from headsmith.small_kernel.circuit import Circuit
from headsmith.small_kernel.file import Node, written


def box(low: Array, high: Array, halvings: int) -> Span:
    """The cells, as columns: wide inputs are halved in turn, `halvings` times in all."""
    wide, turns = np.flatnonzero(low < high), np.zeros(len(low), dtype=int)
    for k in range(halvings if len(wide) else 0):
        turns[wide[k % len(wide)]] += 1
    lows, highs, after = [], [], 2 ** int(turns.sum())
    cell = np.arange(after)
    for a, b, k in zip(low, high, turns.tolist(), strict=True):
        after //= 2**k
        knots, place = np.linspace(a, b, 2**k + 1), cell // after % 2**k
        lows.append(knots[place])
        highs.append(knots[place + 1])
    return Span(lows, highs)


def relu(x: Span) -> Span:
    return Span(np.maximum(x.low, 0.0), np.maximum(x.high, 0.0))


def value(node: Node, arguments: list[Span], cells: int) -> Span:
    """The range of a node, cell by cell, from those of what it reads."""
    match node.kind:
        case "affine":
            total = point(np.repeat(node.bias[:, None], cells, axis=1))
            for weights, x in zip(node.weights, arguments, strict=True):
                total = total + image(weights, x)
            return total
        case "relu":
            return relu(arguments[0])
        case "maximum" | "minimum":
            best = np.max if node.kind == "maximum" else np.min
            return Span(best([x.low for x in arguments], axis=0), best([x.high for x in arguments], axis=0))
        case "expression":
            from headsmith.small_kernel.functions import image_of

            return image_of(node.program, arguments)
        case "positional":
            return point(node.table.T).over_cells(cells)
        case "pool" | "move":
            other = arguments[0].over_cells(cells)
            return other.hull(point(0.0)) if node.kind == "move" and -1 in node.plain else other
    raise Outside(f"nodes of kind {node.kind}")


Found = tuple[list[Span], dict[int, Span]]


def ranges(nodes: list[Node], cells: Span, circuit: Circuit | None = None, linear: Any = None) -> Found:
    """`found` of every node, and by how much the circuit of a region with ends differs from what that stands for."""
    count = cells.low.shape[1]
    require(sum(node.size for node in nodes) * count <= 2**24, "too many components times cells of the domain", Outside)
    known: list[Span] = []
    errors: dict[int, Span] = {}
    for n, node in enumerate(nodes):
        region = circuit.regions.get(n) if circuit else None
        if n == 0:
            known.append(cells)
        elif circuit and region:
            known.append(known[region.stands_for])
            if region.ends is not None:
                from headsmith.small_kernel.chord import compared

                errors[n], inner = compared(circuit, n, [x.over_cells() for x in known])
                for k, span in inner.items():
                    known[k] = Span(span.low[:, None], span.high[:, None]).over_cells(count)
        else:
            seen = [known[a].wider(circuit.margin([n], a)) if circuit else known[a] for a in node.reads]
            known.append(value(node, seen, count))
            if circuit and linear and n in linear and not circuit.inside:
                by = lines(nodes, n, linear[n], [x.over_cells() for x in known])
                known[n] = known[n].meet(Span(by.low[:, None], by.high[:, None]))
    found = [x.over_cells() for x in known]
    fits = all(np.isfinite(x.size).all() and (x.low <= x.high).all() and x.size.max() * FLOOR < 1 for x in found)
    require(fits, "a node has no finite range", Loose)
    return found, errors


def lines(nodes: list[Node], n: int, slopes: Array, found: list[Span]) -> Span:
    """Linear bounds know that the gates of a layer read the same inputs; intervals forget it.

    The forms v and -v of a node are rewritten, from it downwards: an affine node by its weights; a gate by lines,
    because relu(w) >= s w for any s in [0, 1], and relu(w) - t w is convex, so at most m, its larger value at the
    ends. Each step makes a form no smaller where it counts, so constants and ranges at the end bound v.
    Coefficients a that are off by d change a form by at most d |w|: all that rounds is at most gamma of sizes, and
    is added to the constants."""
    require((slopes >= 0).all() and (slopes <= 1).all(), "a slope of linear bounds is not in [0, 1]")
    size_n, left = nodes[n].size, slopes
    forms: dict[int, Any] = {n: np.vstack([np.eye(size_n), -np.eye(size_n)])}
    least = slack = np.zeros(2 * size_n)
    for k in range(n, -1, -1):
        a, node, size = forms.pop(k, None), nodes[k], found[k].size
        if a is None:
            continue
        rounds = gamma(nodes[k].size + 8)
        if node.kind == "affine":
            least = least + a @ node.bias
            slack = slack + rounds * (np.abs(a) @ np.abs(node.bias)) + FLOOR
            for m, weights in zip(node.reads, node.weights, strict=True):
                forms[m] = forms.get(m, 0.0) + a @ written(weights)
                sizes = np.abs(a) @ carried(weights, found[m].size) + np.abs(forms[m]) @ found[m].size
                slack = slack + (rounds + 2.0**-51) * sizes
        elif node.kind == "relu":
            w = found[node.reads[0]]
            t = np.where(w.high > w.low, (relu(w).high - relu(w).low) / np.maximum(w.high - w.low, 1e-300), 0.0)
            m = np.maximum(relu(w).low - t * w.low, relu(w).high - t * w.high)
            require(left.shape[1] >= node.size, "linear bounds have no slopes left")
            s, left = left[:, left.shape[1] - node.size :], left[:, : left.shape[1] - node.size]
            below = np.repeat(s, len(a) // 2, axis=0)
            forms[node.reads[0]] = forms.get(node.reads[0], 0.0) + np.where(a > 0, a * below, a * t)
            least = least + np.minimum(a, 0.0) @ m
            slack = slack + (rounds + 2.0**-49) * (np.abs(a) @ (w.size + size)) + FLOOR
        else:
            least = least + np.maximum(a, 0.0) @ found[k].low + np.minimum(a, 0.0) @ found[k].high
            slack = slack + rounds * (np.abs(a) @ size) + FLOOR
    low = np.nextafter(least - slack * SLACK - 2.0**-50 * np.abs(least), -np.inf)
    return Span(low[:size_n], -low[size_n:])
