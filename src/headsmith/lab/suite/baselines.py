"""The usual methods, run on models of the suite: what each would say of every edge.

    random      a random number
    weights     the norm of what is written times what is read: no data
    patch       exact edge patching: the mean absolute effect of cutting the edge, pair by pair
    eap         edge attribution patching: (what the source returns at x' less at x) . the gradient at x
    eap-ig      the same with the gradient averaged over five inputs on the way from x to x'

All see the same pairs; scores are means of absolute values over pairs, outputs averaged. Gradients are torch's. A
linear probe, for variables: ridge regression of a variable on the stream before a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.inside.ablation import OUTPUT, Edge, Machine, edge_name
from headsmith.inside.causal import tokens_of
from headsmith.inside.circuit import draws
from headsmith.kernel.rules.witness import READ_AS
from headsmith.lab.suite.folder import Folder
from headsmith.lab.suite.scorer import score

PAIRS, STEPS = 64, 5
MOST_OUTPUTS = 8
"""Gradients are taken of so many outputs at most, spread over tokens."""

Scores = dict[str, float]


def run(folder: Folder, method: str, seed: int = 0) -> Scores:
    """What a method says of every edge of a model."""
    if method not in METHODS:
        raise TargetError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    machine, rng = folder.machine, np.random.default_rng([seed, 11])
    draw = draws(folder.model)
    return METHODS[method](machine, draw(rng, PAIRS), draw(rng, PAIRS), rng)


def _random(machine: Machine, bases: Array, sources: Array, rng: np.random.Generator) -> Scores:
    return {edge_name(edge): float(rng.random()) for edge in machine.edges()}


def _weights(machine: Machine, bases: Array, sources: Array, rng: np.random.Generator) -> Scores:
    return {
        edge_name(edge): float(np.linalg.norm(machine.writes(edge.source) @ machine.reads(edge.target, edge.read_as)))
        for edge in machine.edges()
    }


def _patch(machine: Machine, bases: Array, sources: Array, rng: np.random.Generator) -> Scores:
    mine, other = machine.run(bases), machine.run(sources)
    return {
        edge_name(edge): float(np.mean(np.abs(machine.cut(mine, other, [edge]).outputs - mine.outputs)))
        for edge in machine.edges()
    }


def _eap(machine: Machine, bases: Array, sources: Array, rng: np.random.Generator) -> Scores:
    return attributed(machine, bases, sources, (0.0,))


def _eap_ig(machine: Machine, bases: Array, sources: Array, rng: np.random.Generator) -> Scores:
    return attributed(machine, bases, sources, tuple((step + 0.5) / STEPS for step in range(STEPS)))


METHODS: dict[str, Callable[[Machine, Array, Array, np.random.Generator], Scores]] = {
    "random": _random,
    "weights": _weights,
    "patch": _patch,
    "eap": _eap,
    "eap-ig": _eap_ig,
}


def attributed(machine: Machine, bases: Array, sources: Array, ways: tuple[float, ...]) -> Scores:
    """Edge attribution patching, with gradients at inputs so far on the way."""
    mine, other = machine.run(bases), machine.run(sources)
    total: dict[tuple[int, str], Array] = {}
    size = mine.outputs.shape[1] * mine.outputs.shape[2]
    wanted = np.unique(np.linspace(0, size - 1, min(size, MOST_OUTPUTS)).astype(int))
    scores = {edge_name(edge): 0.0 for edge in machine.edges()}
    for output in wanted.tolist():
        total = {}
        for way in ways:
            for key, slope in _gradients(machine, bases + way * (sources - bases), output).items():
                total[key] = total.get(key, 0.0) + slope / len(ways)
        for edge in machine.edges():
            scores[edge_name(edge)] += _effect(edge, mine.added, other.added, total) / len(wanted)
    return scores


def _effect(edge: Edge, mine: Mapping[int, Array], other: Mapping[int, Array], slopes: Mapping[Any, Array]) -> float:
    layer, head = edge.source
    moved = other[layer][:, head] - mine[layer][:, head]
    slope = slopes[edge.target[0], edge.read_as][:, edge.target[1] if edge.target != OUTPUT else 0]
    return float(np.mean(np.abs(np.sum(moved * slope, axis=(1, 2)))))


def _gradients(machine: Machine, inputs: Array, output: int) -> dict[tuple[int, str], Array]:
    """How one output moves with what every head reads, (batch, head, token, column), by layer and q, k or v."""
    import torch

    def tensor(array: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.float64)

    stream, leaves = tensor(machine.run(inputs).streams[0]), dict[tuple[int, str], Any]()

    def seen(layer: int, read_as: str, heads: int) -> Any:
        leaf = torch.zeros((len(stream), heads, *stream.shape[1:]), dtype=torch.float64, requires_grad=True)
        leaves[layer, read_as] = leaf
        return stream[:, None] + leaf

    for number, (query, key, value, write) in enumerate(machine.layers):
        q, k, v = (
            seen(number, read_as, len(query)) @ tensor(matrix)
            for read_as, matrix in zip(READ_AS, (query, key, value), strict=True)
        )
        scores = q @ k.transpose(-1, -2)
        if machine.config["causal"]:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        stream = stream + (torch.softmax(scores, dim=-1) @ v @ tensor(write)).sum(dim=1)
    last = seen(OUTPUT[0], "", 1)[:, 0]
    outputs = last[:, machine.references :] @ tensor(machine.tensors["unembed.weight"].T)
    outputs.reshape(len(outputs), -1)[:, output].sum().backward()
    return {key: leaf.grad.numpy() for key, leaf in leaves.items()}


def probed(folder: Folder) -> dict[str, dict[str, float]]:
    """The angle between what a linear probe finds of each variable, and what reads it."""
    machine, causal = folder.machine, folder.plain.causal()
    points = folder.inputs["train"]
    values = causal.values(points)
    streams = machine.run(tokens_of(folder.plain, points)).streams
    found: dict[str, dict[str, float]] = {}
    for told in folder.circuit["variables"]:
        wanted = np.asarray(values[told["id"]]).reshape(-1)
        for layer in told["layers"]:
            stream = streams[int(layer)][:, machine.references :].reshape(len(wanted), -1)
            centred = stream - stream.mean(axis=0)
            gram = centred.T @ centred + 1e-6 * np.eye(centred.shape[1]) * np.trace(centred.T @ centred)
            column = np.linalg.solve(gram, centred.T @ (wanted - wanted.mean()))
            if np.any(column):
                told_ = score(folder, {"variables": {told["id"]: {layer: column}}})["variables"]
                found.setdefault(told["id"], {})[layer] = told_[told["id"]][layer]["angle"]
    return found


def table(folders: list[Folder], methods: list[str], seed: int = 0) -> list[dict[str, Any]]:
    """Scores by method, family and level: means over models, and their standard deviations."""
    rows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for folder in folders:
        for method in methods:
            found = score(folder, {"edges": run(folder, method, seed)})
            rows.setdefault((method, folder.told["family"], folder.told["level"]), []).append(found)
    return [
        {
            "method": method,
            "family": family,
            "level": level,
            "models": len(found),
            **{f"{name}": _mean([each[name] for each in found]) for name in ("auroc", "live", "ap", "cpr", "cmd")},
            "auroc_sd": _spread([each["auroc"] for each in found]),
        }
        for (method, family, level), found in rows.items()
    ]


def _mean(values: list[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known else None


def _spread(values: list[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None
