"""Heads that look functions up on a grid: tables, and gates that multiply.

A table head returns g(s) = sum_k p_k v_k, p = softmax over the grid of slope_k . s + offset_k. A gate head returns
y g(x), with g(x) = 1 / (1 + sum_k e^(slope_k x + offset_k)): a table whose first token has slope 0, offset 0 and
value 1. How far g is from the function f that it stands for is bounded on cells, by Taylor polynomials about their
middles (`taylor.py`); how far the head is from g, by the two lemmas here."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.small_kernel.bounds import ROUNDOFF, SLACK, Array, Loose, Span, point, require
from headsmith.small_kernel.circuit import Circuit
from headsmith.small_kernel.file import Bank, File, Node
from headsmith.small_kernel.heads import Lemma, Setting, shift
from headsmith.small_kernel.stream import Reads


def tabulate(file: File, circuit: Circuit, found: list[Span]) -> dict[int, list[Span]]:
    """For each node that such heads compute: the error of g, and its slopes by each argument."""
    result, known, hulls = dict[int, list[Span]](), dict[Any, Any](), dict[Any, Span]()
    banks = [b for layer in file.layers for b in layer if b.kind in ("table", "gate") and (b.node != -1).all()]
    outputs = [
        (bank, *each)
        for bank in banks
        for each in zip(range(len(bank.node)), bank.node.tolist(), bank.component.tolist(), strict=True)
    ]
    for last in (False, True):  # first the hulls of the boxes that share a table, then the bounds
        for bank, k, n, c in outputs:
            node, (margin, cells) = circuit.nodes[n], file.tables[n]
            slope, offset, values, program = table_of(bank, k, node)
            seen = [found[a][c].wider(margin) for a in node.reads]
            box = Span(*([getattr(x, end) for x in seen[: slope.shape[1]]] for end in ("low", "high")))
            shared = (slope.tobytes(), offset.tobytes(), cells, node.reads[: slope.shape[1]])
            key = (*shared, values.tobytes(), program)
            hulls[shared] = hulls.get(shared, box).hull(box)
            if last and key not in known:
                from headsmith.small_kernel.taylor import compared

                bounds = compared(slope, offset, values, program, hulls[shared].low, hulls[shared].high, cells)
                known[key] = [Span(*each) for each in bounds]
            if last:
                store(result.setdefault(n, []), known[key], node.size, c, seen, program, bank.kind == "gate")
    return result


def store(entry: list[Span], parts: list[Span], size: int, c: int, seen: list[Span], program: Any, gate: bool) -> None:
    """Component c of a node. Of a gate y g(x): its error is y (g - a - b x), its slopes are y g' and a + b x + (g -
    a - b x)."""
    if gate:
        from headsmith.small_kernel.functions import image_of

        parts = [seen[1] * parts[0], seen[1] * parts[1], image_of(program, seen[:1]) + parts[0]]
    entry.extend(Span(np.zeros(size), np.zeros(size)) for _ in parts[len(entry) :])
    for whole, part in zip(entry, parts, strict=True):
        whole.low[c], whole.high[c] = part.low, part.high


def table_of(bank: Bank, k: int, node: Node) -> tuple[Array, Array, Array, Any]:
    """Slopes, offsets and values of the table behind output k, and the program that it stands for."""
    offset = bank.arrays["offset"]
    h, column = divmod(k, len(bank.node) // len(offset))
    if bank.kind == "table":
        slope = bank.arrays["slope"][h]
        require(node.program[0] == slope.shape[1], "a table has another number of arguments than what it computes")
        return slope, offset[h], bank.arrays["values"][h, :, column], node.program
    variables, steps = node.program
    linear = len(steps) == 2 and variables == 2 and steps[0][0] == "linear" and all(i == 0 for _, i in steps[0][1])
    require(linear and steps[1] in (("times", 1, 2), ("times", 2, 1)), "a gate computes y (a + b x) alone")
    itself = np.zeros(1)
    slope = np.concatenate([itself, bank.arrays["slope"][h]])[:, None]
    return slope, np.concatenate([itself, offset[h]]), (np.arange(len(slope)) == 0) * 1.0, (1, steps[:1])


def weighed(
    slope: Array, offset: Array, values: Array, box: Span, relative: Any, absolute: Any, u: float
) -> tuple[float, float, float]:
    """How far the mean of `values` moves when scores are off, by the weights of tokens; sum of p |v|; a bound of
    the largest score from below.

    If the computed powers are e^(s_k + m_k), |m_k| <= d_k, the mean moves by exactly sum_k p_k (e^(m_k) - 1) (v_k -
    mean) / sum_k p_k e^(m_k), and |e^m - 1| <= d + d^2 for d <= 1. d_k is `relative` of the sizes of score k, u of
    the largest score that may be subtracted, and `absolute`."""
    count = {1: 64, 2: 12}.get(len(box.low), 1) if len(offset) < 2**13 else 1
    low, z = point(offset[:, None]), np.abs(offset)[:, None]
    for i, (a, b) in enumerate(zip(box.low.tolist(), box.high.tolist(), strict=True)):
        knots = a + (b - a) * (np.arange(count + 1) / count)
        knots[-1] = b
        cell = Span(
            *(np.repeat(np.tile(x, count**i), count ** (len(box.low) - 1 - i)) for x in (knots[:-1], knots[1:]))
        )
        low, z = low + point(slope[:, i : i + 1]) * cell, z + np.abs(slope[:, i : i + 1]) * cell.size
    best = low.low.max(axis=0)
    if len(offset) ** 2 * len(best) > 2**22:
        return np.inf, np.inf, float(best.min())
    near = 2.0**-44 * (1 + z.max(axis=0))  # of an exponent, and of exp
    p = np.minimum(np.exp(low.high - best + near) / np.exp(low.low - best - near).sum(axis=0), 1.0)
    d = relative * z + u * np.maximum(low.high.max(axis=0), 0.0) + absolute
    grown = p * np.where(d > 1, np.inf, d + d * d)
    apart = np.abs(values[:, None] - values) @ p
    moves = (grown * apart).sum(axis=0) / np.maximum(1 - grown.sum(axis=0) * SLACK, 0.0)
    return (
        float(np.nan_to_num(moves, nan=np.inf).max() * SLACK),
        float((p * np.abs(values)[:, None]).sum(axis=0).max() * SLACK),
        float(best.min()),
    )


def lemma(
    bank: Bank,
    reads: Reads,
    s: Setting,
    nodes: list[Node],
    margins: dict[int, tuple[float, str]],
    tabulated: dict[int, list[Span]],
) -> Lemma:
    """The lemmas of all heads of a bank, head by head."""
    heads, rows = len(bank.arrays["slope"]), []
    width = bank.forms // heads
    for k, (n, c) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
        own = slice(k // (len(bank.node) // heads) * width, (k // (len(bank.node) // heads) + 1) * width)
        require(
            (reads.off[own] * SLACK <= margins[n][0]).all(),
            f"what arrives at the head of node {n} is off by more than its margin",
            Loose,
        )
        slopes = np.array([x.size[c] for x in tabulated[n][1:]])
        read_off = float((slopes * (reads.wrong[own] + s.tiny)).sum())
        rows.append(
            (of_gate if bank.kind == "gate" else of_table)(
                bank, table_of(bank, k, nodes[n])[:3], reads, own, read_off, s
            )
        )
    disturbed, margin, scores, pulled, size, drift, moved, *held = (np.array(x) for x in zip(*rows, strict=True))
    return Lemma(
        s.grid + (bank.kind == "gate"),
        disturbed,
        margin,
        scores,
        bank.gains["keep_gain"],
        pulled,
        size,
        drift,
        moved,
        held=held[0] if held else None,
    )


def of_table(bank: Bank, table: Any, reads: Reads, own: slice, read_off: float, s: Setting) -> tuple[float, ...]:
    """A table: the grid is active, data tokens and the sink score -gain. A score is a sum of n + 1 products; the
    subtraction of the largest rounds a difference of two: n + 6 roundings are enough. A reference token's query has
    no offset."""
    (slope, offset, values), gain = table, bank.gains["gain"]
    n, largest = slope.shape[1], float((np.abs(slope) @ reads.size[own] + np.abs(offset)).max())
    require(np.abs(values).max() < s.largest / 16, "a value of a table may leave the format")
    under = (n + 4) * s.tiny + s.exp
    d = s.gamma(n + 6) * largest + under
    absolute = under + s.u * s.gamma(16 + s.bits) * (largest + gain)
    moves, _, top = weighed(
        slope, offset, values, reads.exact[own].wider(reads.off[own]), s.gamma(n + 6), absolute, s.u
    )
    moved = min(shift(values.max() - values.min(), d), moves) + read_off
    margin = top + gain - (abs(top) + gain) * 2.0**-50
    return (
        d,
        margin,
        max(largest, gain),
        float((np.abs(slope) @ reads.drift[own]).max()),
        float(np.abs(values).max()),
        0.0,
        moved,
    )


def of_gate(bank: Bank, table: Any, reads: Reads, own: slice, read_off: float, s: Setting) -> tuple[float, ...]:
    """A gate: itself and the grid are active, and only the token itself holds anything, y. Its score on itself is the
    position code alone, which adds up to 0, exactly where partial sums are small whole numbers."""
    slope, offset, values = table
    position, keep = bank.gains["position_gain"] if s.data > 1 else 0.0, bank.gains["keep_gain"]
    x, y = slice(own.start, own.start + 1), own.start + 1
    largest, code, steepest = (
        float((np.abs(slope[:, 0]) * reads.size[x] + np.abs(offset)).max()),
        s.bits * position,
        float(np.abs(slope).max()),
    )
    inexact = 0.0 if position / 2 == int(position / 2) and position <= 2**12 else code
    under = (steepest + 1) * 16 * s.tiny + s.exp
    d = s.gamma(s.bits + 9) * (largest + inexact) + under
    absolute = under + s.gamma(s.bits + 7) * inexact + s.u * s.gamma(16 + s.bits) * (largest + code + keep)
    moves, sized, _ = weighed(slope, offset, values, reads.exact[x].wider(reads.off[x]), s.gamma(7), absolute, s.u)
    moved = min(shift(reads.size[y], d), moves * reads.size[y]) + read_off
    margin = min([keep] + [position] * (s.data > 1))
    return (
        d,
        margin,
        largest + code + keep,
        steepest * reads.drift[x][0],
        reads.size[y],
        reads.drift[y],
        moved,
        np.exp(2 * d) * sized * reads.size[y] * (1 + 8 * ROUNDOFF),
    )
