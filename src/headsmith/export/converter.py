"""Files of version 2, read as files of version 3.

Version 2 stored the roles of heads twice, in the model and in the proof; said by a choice for each node from what its
circuit could be built again, which a proof has anyway; and had the form of the model, which steers a run, beside what
the claim names. A converted file has no labels: what its heads compute is told from its proof.
"""

from __future__ import annotations

from typing import Any

from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import VERSION, digest

Header = dict[str, Any]
Tensors = dict[str, Any]

BEFORE = 2
KEPT = ("domain", "source", "transformer", "claim", "approximates", "proof")
NOTES = ("node", "component")


def converted(header: Header, tensors: Tensors) -> tuple[Header, Tensors]:
    """The header and the tensors of a file, as this version has them; unchanged, if they are of this version."""
    if header.get("version") == VERSION:
        return header, tensors
    if header.get("version") != BEFORE:
        raise Refused(f"format version {header.get('version')!r}; this release reads version {BEFORE} and {VERSION}")
    if header.get("kind", "compiled") != "compiled":
        raise Refused(f"holds a {header['kind']!r} model, which no release writes any more")
    found = {name: header[name] for name in KEPT if name in header}
    model = dict(found["transformer"])
    form = header.get("form") or {"kind": "points", "causal": False, "preconditioner": None}
    run = {**form, "grid": model.pop("grid_form", "one-hot")}
    roles = [[{name: bank[name] for name in NOTES} for bank in layer] for layer in model["layers"]]
    model["layers"] = [[_without(bank, NOTES) for bank in layer] for layer in model["layers"]]
    proof = found.get("proof", {"roles": roles})
    claim = {**found["claim"], "run": digest(run, tensors)}
    return {**found, "version": VERSION, "transformer": model, "run": run, "proof": proof, "claim": claim}, tensors


def _without(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name not in names}
