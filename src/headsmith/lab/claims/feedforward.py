"""Claim R8: what attention costs beside feed-forward networks, at equal error. Losses are counted as losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.lab.feedforward.against import Side, against_feed_forward
from headsmith.lab.feedforward.network import FeedForward
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Graph
from headsmith.language.library import sort
from headsmith.model import Compiled
from headsmith.plan.reading import Target, as_graph

ERRORS = (1e-2, 1e-4, 1e-6)
ROUNDING = 1e-12
"""How far the run of a feed-forward network may be from exact arithmetic, beside what is proven of that."""
INPUTS = 4000


def _sorted(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    return sort([a, b, c, d, e, f, g, h])


TARGETS: tuple[tuple[str, Target, dict[str, tuple[float, float]]], ...] = (
    ("x*y", "x*y", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}),
    ("1/x", "1/x", {"x": (0.1, 1.0)}),
    ("max(x, y)", "max(x, y)", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}),
    ("sin(x)", "sin(x)", {"x": (-math.pi, math.pi)}),
    ("exp(x)", "exp(x)", {"x": (-1.0, 1.0)}),
    ("gelu(x)", "gelu(x)", {"x": (-4.0, 4.0)}),
    ("sort of 8", _sorted, dict.fromkeys("abcdefgh", (0.0, 1.0))),
)


@claim("R8", "attention against feed-forward networks at equal error", tag="review")
def attention_against_feed_forward() -> Finding:
    """Seven targets at three errors: a ReLU network, gated units where they do, and attention of two recipes."""
    rows: Rows = []
    audits = []
    for name, target, domain in TARGETS:
        graph = as_graph(target, domain)
        low, high = np.array(list(domain.values())).T
        points = np.random.default_rng(0).uniform(low, high, (INPUTS, len(low)))
        for side in against_feed_forward(target, domain, ERRORS):
            found = _found(side, graph, points)
            rows.append(
                {
                    "target": name,
                    "error": side.error,
                    "way": side.way,
                    "certified": side.certified,
                    "found": found,
                    "parameters": side.work.parameters,
                    "nonzeros": side.work.nonzeros,
                    "multiply_adds": side.work.multiply_adds,
                    "depth": side.work.depth,
                    "max_weight": side.work.max_weight,
                }
            )
            audits.append({"error": side.error, "found": found, **_counted(side)})
    return judged(
        "x*y, 1/x, max, sin, exp, gelu and the sort of 8 at 1e-2, 1e-4 and 1e-6, each by a ReLU network, by SwiGLU or "
        "GeGLU units where they are exact or a polynomial is cheaper, and by attention with the recipes relu and auto; "
        "every figure counted again from the matrices, every network run",
        rows,
        _summary,
        _faults,
        lambda figure: (
            f"of {figure['comparisons']} targets and errors, attention (auto) has fewer non-zeros than every "
            f"feed-forward network in {figure.get('nonzeros_won', 0)} and more in {figure.get('nonzeros_lost', 0)}, "
            f"fewer multiply-adds in {figure.get('multiply_adds_won', 0)} and more in "
            f"{figure.get('multiply_adds_lost', 0)}, a smaller depth in {figure.get('depth_won', 0)}; it has up to "
            f"{figure['most_times_nonzeros']:.3g} times the non-zeros (where units are exact) and down to "
            f"{figure['least_times_nonzeros']:.3g} times. The relu recipe takes "
            f"{figure['relu_recipe_times_nonzeros']:.3g} times the non-zeros of its own ReLU network, and never fewer"
        ),
        audits,
    )


def _found(side: Side, graph: Graph, points: Array) -> float:
    """How far a way was found to be off, on inputs that were tried."""
    return float(np.abs(side.model(points) - evaluate(graph, points)).max())


def _counted(side: Side) -> dict[str, Any]:
    """A second count of what a way costs."""
    if isinstance(side.model, FeedForward):
        return {"certified": side.certified, **_feed_forward(side.model)}
    found = audit(side.model)
    names = ("parameters", "nonzeros", "max_weight", "certified")
    return {name: found[name] for name in names} | {"depth": found["layers"], "multiply_adds": _products(side.model)}


def _feed_forward(network: FeedForward) -> dict[str, Any]:
    """Entry by entry, and product by product as a run makes them."""
    entries = np.concatenate([np.ravel(each) for each in network.arrays()])
    products = network.W_E.shape[0] * network.W_E.shape[1] + network.W_U.shape[0] * network.W_U.shape[1]
    for block in network.blocks:
        units, width = block.W_in.shape
        products += units * width * (2 if block.W_gate is None else 3) + (0 if block.W_gate is None else units)
    return {
        "parameters": len(entries),
        "nonzeros": len(entries[entries != 0.0]),
        "multiply_adds": products,
        "depth": len(network.blocks),
        "max_weight": float(np.sort(np.abs(entries))[-1]),
    }


def _products(model: Compiled) -> int:
    """The products of attention for one token, from the matrices that are written out."""
    written = model.dense()
    tokens = len(written.references) + len(written.W_pos)
    count = written.W_E.size + written.W_U.size
    for layer in written.layers:
        for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
            features = np.flatnonzero(W_Q.any(axis=0) | W_K.any(axis=0))[-1] + 1
            values = np.flatnonzero(W_V.any(axis=0) | W_O.any(axis=1))[-1] + 1
            count += int(features + values) * (2 * written.d_model + tokens)
    return count


def _pairs(rows: Rows) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """For each target and error, attention by the recipe auto, and all feed-forward networks."""
    found = []
    for row in rows:
        if row["way"] == "attention, auto":
            same = [other for other in rows if (other["target"], other["error"]) == (row["target"], row["error"])]
            found.append((row, [other for other in same if not other["way"].startswith("attention")]))
    return found


def _summary(rows: Rows) -> dict[str, Any]:
    """How often attention wins and loses, and by how much; what never happens is left out."""
    figure: dict[str, Any] = {"comparisons": len(_pairs(rows))}
    for name in ("nonzeros", "multiply_adds", "depth"):
        gaps = [mine[name] - min(other[name] for other in others) for mine, others in _pairs(rows)]
        figure[f"{name}_won"], figure[f"{name}_lost"] = sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)
    times = [mine["nonzeros"] / min(other["nonzeros"] for other in others) for mine, others in _pairs(rows)]
    relu = [
        row["nonzeros"] / other["nonzeros"]
        for row in rows
        for other in rows
        if (row["way"], other["way"]) == ("attention, relu", "ReLU network")
        and (row["target"], row["error"]) == (other["target"], other["error"])
    ]
    figure |= {"most_times_nonzeros": max(times), "least_times_nonzeros": min(times)}
    return {name: value for name, value in figure.items() if value} | {
        "relu_recipe_times_nonzeros": float(np.mean(relu))
    }


def _faults(rows: Rows) -> list[str]:
    wrong = []
    for row in rows:
        rounding = 0.0 if row["way"].startswith("attention") else ROUNDING
        wrong += need(row["found"] <= row["certified"] + rounding, f"{row['target']}: found more than is certified")
        wrong += need(row["certified"] <= row["error"], f"{row['target']}: certified more than was asked for")
    pairs = _pairs(rows)
    wrong += need(len(pairs) == len(TARGETS) * len(ERRORS), "a target or an error is missing")
    wrong += need(all(others for _, others in pairs), "attention stands alone")
    exact = {row["target"] for row in rows if row["way"].endswith("exact") and row["certified"] == 0.0}
    gates = [row for row in rows if row["way"] == "attention, relu"]
    own = {(row["target"], row["error"]): row["nonzeros"] for row in rows if row["way"] == "ReLU network"}
    fewer = any(row["nonzeros"] < own[row["target"], row["error"]] for row in gates)
    wrong += need(not fewer, "the relu recipe has fewer non-zeros than the network that it begins with")
    return wrong + need(exact == {"x*y", "gelu(x)"}, "gated units are not exact for x*y and gelu(x)")
