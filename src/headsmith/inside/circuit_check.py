"""Is a circuit.json what it says it is? Everything in it is checked against the model: names, trees, registers and
bounds are made again and compared; every witness is run again, enclosed by the kernel's rule.

What is made again may differ in its last digits on another machine, whose matrix products add up in another order: no
number that is told may be off by more than a billionth of itself, no bound by more than its rounding to six digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.inside.ablation import Machine, edge_of, node_of
from headsmith.inside.circuit import draws, machine_of
from headsmith.inside.necessity import PAIRS, TRUE, enclosed, joined, outgoing, searched
from headsmith.kernel.rules.witness import Edge
from headsmith.plan.circuits.pieces import in_blocks

BOUNDS = ("error", "in_all", "gain", "error_at_most", "share_of_error")
CLOSE, ROUNDED = 1e-9, 1e-5
SHARE = 4.0 / PAIRS
"""Shares of pairs may differ by so much: a pair may lie at the edge."""

SEARCHED = ("label", "in_graph", "score", "damage")
"""What a search found of edges; it is checked by its witnesses."""


def check_circuit(found: Any, model: Any) -> None:
    """Raise CertificateError unless everything that a circuit.json says is so."""
    if not isinstance(found, dict) or found.get("version") != 2 or type(found.get("seed", 0)) is not int:
        raise CertificateError("circuit.json is none of version 2")
    wanted = model.circuit(damages=False, seed=found.get("seed", 0))
    wanted["unique"] = _unique(found, model)
    _compare("circuit.json", _bare(found), _bare(wanted))
    machine, _ = machine_of(model)
    if machine is not None and found["edges"]:
        try:
            _check_damages(found, model, machine)
        except CertificateError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
            raise CertificateError(f"circuit.json is damaged ({type(problem).__name__}: {problem})") from None


def _unique(found: Mapping[str, Any], model: Any) -> str:
    """How much of the circuit is needed, proven again if the file says more than of single edges."""
    said = found.get("unique")
    if said == "irredundant":
        return "irredundant"
    return str(model.circuit(unique=True, seed=found.get("seed", 0))["unique"])


def _bare(found: Mapping[str, Any]) -> dict[str, Any]:
    """A circuit without what was searched."""
    bare = dict(found)
    for name in ("nodes", "edges"):
        each = bare.get(name)
        if not isinstance(each, dict) or not all(isinstance(value, dict) for value in each.values()):
            raise CertificateError(f"circuit.json has no {name}")
        left_out = SEARCHED if name == "edges" else ("damage",)
        bare[name] = {
            key: {part: item for part, item in value.items() if part not in left_out} for key, value in each.items()
        }
    return bare


def _compare(where: str, found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            named = sorted({*found} ^ {*wanted}) if isinstance(found, dict) else []
            raise CertificateError(f"{where}: {', '.join(map(str, named[:4])) or 'an object'} is missing, or too much")
        for key, value in wanted.items():
            _compare(f"{where} / {key}", found[key], value)
    elif isinstance(wanted, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(wanted):
            raise CertificateError(f"{where}: a list of {len(wanted)} is wanted")
        for place, value in enumerate(wanted):
            _compare(f"{where}[{place}]", found[place], value)
    elif isinstance(wanted, float) and isinstance(found, float | int) and not isinstance(found, bool):
        bound = any(f" / {name}" in where for name in BOUNDS)
        if not abs(found - wanted) <= (ROUNDED if bound else CLOSE) * abs(wanted) + 1e-290:
            raise CertificateError(f"{where}: {found!r} is told, and {wanted!r} is the case")
    elif found != wanted or type(found) is not type(wanted):
        raise CertificateError(f"{where}: {found!r} is told, and {wanted!r} is the case")


def _check_damages(found: Mapping[str, Any], model: Any, machine: Machine) -> None:
    """Every edge that is called true or grey, and every head: its witness, run again."""
    error, cuts, told = model.certificate.error, list[tuple[Edge, ...]](), list[tuple[str, Any]]()
    for name, each in found["edges"].items():
        damage = each.get("damage", {}).get("resample")
        if each["label"] not in ("true", "false", "grey") or each["in_graph"] is not (each["label"] == "true"):
            raise CertificateError(f"edge {name}: a label is true, false or grey, and true edges are in the graph")
        if each["score"] != (1.0 if each["in_graph"] else 0.0):
            raise CertificateError(f"edge {name}: the score of a true edge is 1, that of others 0")
        if (each["label"] == "false") != ("at_most" in each):
            raise CertificateError(f"edge {name} is {each['label']}, and no theorem says so")
        if each["label"] == "true" and not (damage and damage["proved"] > TRUE * error):
            raise CertificateError(f"edge {name} is called true without {TRUE:g} certificates of damage")
        if damage is not None:
            cuts.append((edge_of(name),))
            told.append((f"edge {name}", damage))
    for name, each in found["nodes"].items():
        damage = each.get("damage", {}).get("resample")
        if damage is not None:
            cuts.append(outgoing(machine, node_of(name)))
            told.append((f"node {name}", damage))
    if cuts:
        _check_witnesses(machine, model, cuts, told, found.get("seed", 0))


def _check_witnesses(machine: Machine, model: Any, cuts: Any, told: Any, seed: int) -> None:
    bases, sources = (
        np.stack([_inside(model, where, each[side]) for where, each in told]) for side in ("base", "source")
    )
    proved = enclosed(machine, cuts, bases, sources)
    again = searched(machine, cuts, model.certificate.error, draws(model), PAIRS, seed)
    for (where, each), least, cut, base, source in zip(told, proved, cuts, bases, sources, strict=True):
        place = each["token"], each["output"]
        known = all(type(index) is int and 0 <= index < size for index, size in zip(place, least.shape, strict=True))
        if not known or not each["proved"] <= least[place]:
            raise CertificateError(f"{where}: its witness proves less damage than {each['proved']!r}")
        mine, other = machine.run(base[None]), machine.run(source[None])
        seen = float(np.abs(machine.cut(mine, other, cut).outputs - mine.outputs)[0][place])
        if not abs(each["found"] - seen) <= 1e-6 * seen + 1e-9 * model.certificate.error:
            raise CertificateError(f"{where}: {each['found']!r} was found, and {seen!r} is the case")
        if joined(machine, cut[0]) and not abs(each["share"] - again[cut].share) <= SHARE + 0.1 * again[cut].share:
            raise CertificateError(f"{where}: a share of {each['share']!r}, and {again[cut].share!r} is the case")


def _inside(model: Any, where: str, told: Any) -> Array:
    """An input of a witness, which lies in the domain."""
    try:
        point = np.array(told, dtype=np.float64)
    except (TypeError, ValueError):
        raise CertificateError(f"{where}: its witness is no input") from None
    box, shape = model.box, (model.transformer.tokens, model.transformer.inputs)
    if point.shape != shape or not np.isfinite(point).all():
        raise CertificateError(f"{where}: its witness has the shape {point.shape}, not {shape}")
    # Blocks that are another token's hold zeros.
    rows = point[:1, : box.size] if model.blocks else point.reshape(-1, box.size)
    laid = in_blocks(rows, shape[0])[0] if model.blocks else point
    if not (np.array_equal(laid, point) and ((rows >= box.low) & (rows <= box.high)).all()):
        raise CertificateError(f"{where}: its witness lies outside the domain")
    return point
