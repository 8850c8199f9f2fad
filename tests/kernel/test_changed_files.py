"""A changed file is refused, or its bound holds: models of every class, with changes of every tensor, of every kind of
field and of the order of things. What is still certified is attacked with an oracle of many digits and with the worst
rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from helpers.effort import CAMPAIGN, tried

import headsmith as hs
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.lab.attack.file_attack import CannotRunError, worst_ratio
from headsmith.lab.attack.mutations import ORDERS, changed_field, changed_tensor, fields_of, kind_of
from headsmith.sequence import tokens as over


def _network(*widths: int) -> hs.Network:
    rng = np.random.default_rng([*widths])
    layers = [(rng.normal(size=(b, a)) / np.sqrt(a), 0.5 * rng.normal(size=b)) for a, b in pairwise(widths)]
    return hs.Network(layers)


MODELS: dict[str, Callable[[], Any]] = {
    "network": lambda: hs.compile(_network(2, 3, 2), (-1, 1), error=1e-3),
    "network, float32": lambda: hs.compile(_network(1, 3, 1), (-1, 1), error=1e-2, dtype="float32", tokens=2),
    "native": lambda: hs.compile(["sin(x)", "x*x"], (-1, 1), error=1e-3, recipe="native"),
    "product": lambda: hs.compile("x*y", (-1, 1), error=1e-3),
    "relu": lambda: hs.compile("x*y", (-1, 1), error=0.2, recipe="relu"),
    "ramp": lambda: hs.compile("max(x, y/2)", (-1, 1), error=5e-2, recipe="ramp"),
    "maximum": lambda: hs.compile_sequence(lambda x: over.max(x) + over.shift(x), tokens=3, domain=(-1, 1), error=1e-2),
    "causal": lambda: hs.compile_sequence(
        lambda x: over.mean(x) - over.max(x), tokens=3, domain=(-1, 1), error=1e-2, causal=True
    ),
    "maxout": lambda: hs.compile("max(x, y, 1 - x)", (-1, 1), error=1e-2, recipe="maxout"),
    "attention": lambda: hs.compile_sequence(lambda x: over.attend(x, 2 * x, x), tokens=3, domain=(-1, 1), error=1e-2),
}


@cache
def contents(name: str) -> tuple[Any, Any]:
    """The header and the tensors of a model's file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        MODELS[name]().save(path)
        return read(path)


def changes(header: Any, tensors: Any, rng: np.random.Generator) -> Any:
    """One change of every tensor, of every kind of field, and of every sort of order."""
    for name in sorted(tensors):
        yield changed_tensor(header, tensors, name, rng)
    kinds: dict[str, list[Any]] = {}
    for path, value in fields_of(header):
        kinds.setdefault(kind_of(path), []).append((path, value))
    for found in kinds.values():
        yield changed_field(header, tensors, *found[int(rng.integers(len(found)))], rng)
    for order, change in ORDERS.items():
        yield change(order, header, tensors, rng)


@pytest.mark.again
@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", MODELS)
def test_a_changed_file_is_refused_or_its_bound_holds(name: str) -> None:
    rng = np.random.default_rng([len(name), 3])
    header, tensors = contents(name)
    found = proved(header, tensors)
    assert worst_ratio(header, tensors, found.outputs, found.masks, rng).ratio <= 1.0
    refused = attacked = 0
    for change in islice(changes(header, tensors, rng), 0, None, 1 if CAMPAIGN else 3):
        try:
            found = proved(change.header, change.tensors)
        except Refused:
            refused += 1
            continue
        attacked += 1
        try:
            worst = worst_ratio(change.header, change.tensors, found.outputs, found.masks, rng, count=8, steps=1)
        except CannotRunError:
            continue
        assert worst.ratio <= 1.0, (change.label, worst)
    assert refused > tried(10, 3)
    assert attacked > tried(5, 3)
