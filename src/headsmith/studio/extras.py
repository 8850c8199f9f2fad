"""What a view may have beside the model: linear regions as polygons, and inputs with Python's own outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.errors import HeadsmithError
from headsmith.files import Model
from headsmith.lab.regions.enumeration import regions
from headsmith.model import Compiled
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.universal import Universal

MOST_CELLS = 1500
"""Partitions into more cells are not drawn on a page."""


def regions_data(model: Model) -> dict[str, Any] | None:
    """The cells of a target of two inputs that is piecewise linear, and which of them are still one after each level.
    None for other targets, and for more cells than a page draws."""
    if not isinstance(model, Compiled) or isinstance(model, CompiledSequence) or model.box.size != 2:
        return None
    try:
        found = regions(model.graph, model.box, limit=MOST_CELLS + 1)
    except HeadsmithError:
        return None
    if len(found) < 2 or len(found) > MOST_CELLS or not found.complete:
        return None
    ends = np.cumsum([level.units for level in found.oracle.levels.levels])
    groups = [np.unique(found.patterns[:, :end], axis=0, return_inverse=True)[1].reshape(-1).tolist() for end in ends]
    return {
        "names": list(found.box.names),
        "low": found.box.low.tolist(),
        "high": found.box.high.tolist(),
        "cells": [part.round(9).reshape(-1).tolist() for part in np.split(found.points, found.starts[1:-1])],
        "groups": groups,
        "linear": found.count("linear"),
        "pieces": found.count("pieces"),
    }


def checks(model: Model, count: int = 6) -> list[dict[str, Any]]:
    """Random inputs of the domain and what Python returns for them: a page tells how far its own outputs are."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        rows = random_rows(model, random)
        outputs = np.asarray(model(rows), dtype=np.float64)
        found.append({"rows": rows.tolist(), "outputs": outputs.tolist()})
    return found


def random_rows(model: Model, random: np.random.Generator) -> Any:
    """A sequence of inputs in the domain, of a length that the model takes; one row for a function."""
    if isinstance(model, Universal):
        return random.uniform(model.box.low, model.box.high).reshape(model.tokens, -1)
    length = int(random.choice(model.lengths)) if isinstance(model, CompiledSequence) else 1
    return random.uniform(model.box.low, model.box.high, (length, model.box.size))
