"""How well a method has found the circuit of a model of the suite.

    hs.suite.score("suite/sort-0-level2", {"edges": {"a0.h1->a1.h0<q>": 0.7, ...}})

A prediction is a graph of scores, as MIB's code writes it (edges with `score`), or plain scores of edges by name; or
{"variables": {id: {layer: matrix}}}, columns that span where a method believes a variable to be. What is returned:

    auroc, ap        true edges against false ones, grey and rare ones left out; `live` against those false edges alone
                     whose ends numbers of some size join: the others are easy
    precision        among as many edges as are true, best scores first
    rare             how many of the rare edges (they matter at less than 1 % of pairs) are among these
    cpr, cmd         faithfulness when the best edges are kept and all others are resampled, 1 - MSE(kept) / MSE(all
                     resampled), over sizes: the area below it, and that between it and one
    angle, probe     of a variable: the largest principal angle between what was found and what reads it

The pitfalls that were met: scores below 1e-9 of the largest count as zero, because after a rotation exact zeros become
dust; absolute values are compared, signs cancel; ten sizes see nothing where most edges are true.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.inside.ablation import Edge, Machine, edge_of
from headsmith.inside.circuit import draws
from headsmith.lab.suite.folder import Folder

DUST, RARE = 1e-9, 0.01
SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SEEN = 64
"""Pairs of inputs for faithfulness."""


def score(folder: str | os.PathLike[str] | Folder, prediction: Mapping[str, Any]) -> dict[str, Any]:
    """All figures for one prediction about one model."""
    each = folder if isinstance(folder, Folder) else Folder(_path(folder))
    found: dict[str, Any] = {}
    if "variables" in prediction:
        found["variables"] = {
            name: {layer: _angle(each, name, layer, columns) for layer, columns in layers.items()}
            for name, layers in prediction["variables"].items()
        }
    edges = prediction.get("edges", prediction if "variables" not in prediction else {})
    if edges:
        scores = {
            name: abs(float(value["score"] if isinstance(value, Mapping) else value)) for name, value in edges.items()
        }
        found |= of_edges(each, scores)
    if not found:
        raise TargetError('a prediction has scores of "edges", or columns for "variables"')
    return found


def _path(folder: str | os.PathLike[str]) -> Any:
    from pathlib import Path

    return Path(folder)


def of_edges(folder: Folder, scores: Mapping[str, float]) -> dict[str, Any]:
    """The figures of scored edges; an edge without a score has zero."""
    truth, machine = folder.circuit["edges"], folder.machine
    if unknown := [
        name
        for name in scores
        if name not in truth and not name.startswith("m") and ".m" not in name and "->m" not in name
    ]:
        raise TargetError(f"{folder.name} has no edge {unknown[0]!r}")
    names = list(truth)
    values = np.array([scores.get(name, 0.0) for name in names])
    if not np.all(np.isfinite(values)):
        raise TargetError("a score is no number")
    values = np.where(values < DUST * values.max(initial=0.0), 0.0, values)
    label = np.array([truth[name]["label"] for name in names])
    rare = np.array([_is_rare(truth[name]) for name in names])
    true, false = (label == "true") & ~rare, label == "false"
    live = false & np.array([joins(machine, edge_of(name)) for name in names])
    order = np.argsort(-values, kind="stable")
    best = order[: int(true.sum())]
    found = {
        "auroc": auroc(values[true], values[false]),
        "live": auroc(values[true], values[live]),
        "ap": average_precision(values[true | false], true[true | false]),
        "precision": float(np.mean(true[best])) if len(best) else None,
        "true": int(true.sum()),
        "false": int(false.sum()),
        "live_false": int(live.sum()),
        "grey": int((label == "grey").sum()),
        "rare": {"there": int(rare.sum()), "found": int(rare[order[: int((true | rare).sum())]].sum())},
    }
    return found | faithfulness(folder, [names[place] for place in order])


def _is_rare(edge: Mapping[str, Any]) -> bool:
    return edge["label"] == "true" and float(edge["damage"]["resample"]["share"]) < RARE


def auroc(positive: Array, negative: Array) -> float | None:
    """The chance that a true edge has a larger score than a false one; ties count half. None without both."""
    if not len(positive) or not len(negative):
        return None
    above = (positive[:, None] > negative).mean() + 0.5 * (positive[:, None] == negative).mean()
    return float(above)


def average_precision(values: Array, true: Array) -> float | None:
    """The mean precision at true edges, best scores first; among equal scores, true ones are spread evenly."""
    if not true.any():
        return None
    order = np.lexsort((np.arange(len(values)), -values))
    hits, total, seen, found = true[order], 0.0, 0, 0.0
    for start in range(0, len(order)):
        if start and values[order[start]] == values[order[start - 1]]:
            continue
        group = values[order] == values[order[start]]
        size, mine = int(group.sum()), int(hits[group].sum())
        for place in range(1, size + 1):
            expected = found + mine * place / size
            total += mine / size * expected / (seen + place)
        found, seen = found + mine, seen + size
    return float(total / true.sum())


def joins(machine: Machine, edge: Edge) -> bool:
    """Whether products of what is written and what is read are numbers of some size, and no dust of a rotation."""
    rows, columns = machine.writes(edge.source), machine.reads(edge.target, edge.read_as)
    size = np.linalg.norm(rows) * np.linalg.norm(columns)
    return bool(np.max(np.abs(rows @ columns), initial=0.0) > 1e-12 * size)


def faithfulness(folder: Folder, ranked: list[str]) -> dict[str, float]:
    """CPR and CMD of a ranking, over ten sizes."""
    machine, rng = folder.machine, np.random.default_rng(0)
    draw = draws(folder.model)
    mine, other = machine.run(draw(rng, SEEN)), machine.run(draw(rng, SEEN))
    edges = [edge_of(name) for name in ranked]

    def wrong(kept: int) -> float:
        if kept >= len(edges):
            return 0.0
        return float(np.mean((machine.cut(mine, other, edges[kept:]).outputs - mine.outputs) ** 2))

    none = wrong(0)
    values = [1.0 - wrong(round(size * len(edges))) / none if none else 1.0 for size in SIZES]
    area = float(np.trapezoid(values, SIZES) / (SIZES[-1] - SIZES[0]))
    gap = float(np.trapezoid(np.abs(1.0 - np.array(values)), SIZES) / (SIZES[-1] - SIZES[0]))
    return {"cpr": area, "cmd": gap}


def _angle(folder: Folder, name: str, layer: str, columns: Any) -> dict[str, float]:
    """The largest principal angle, in degrees, between columns (d_model, k) and what reads a variable."""
    told = next((each for each in folder.circuit["variables"] if each["id"] == name), None)
    if told is None or str(layer) not in told["layers"]:
        raise TargetError(f"{folder.name}: nothing is told of {name!r} before layer {layer}")
    read, found = np.array(told["layers"][str(layer)]["read"]), np.asarray(columns, dtype=np.float64)
    basis, _ = np.linalg.qr(found.reshape(len(read), -1))
    cosine = np.linalg.norm(basis.T @ read) / np.linalg.norm(read)
    return {"angle": float(np.degrees(np.arccos(min(1.0, float(cosine)))))}
