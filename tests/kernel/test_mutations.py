"""A changed model is either refused, or its re-derived bound is still true. Never a wrong bound, never a foreign
exception.

One thing is changed at random, anywhere in the transformer, the target or the domain, in memory or in the file; the
kernel is asked what it can prove (whatever the model claims); and then a search looks for an input that breaks the
answer.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers.attacks import mutation, saved
from helpers.attacks.gates import worst_error
from helpers.attacks.proving import proven
from helpers.effort import cases, tried
from helpers.models.networks import folding_circuit, random_network, shifted_network

import headsmith as hs


@cache
def build(name: str) -> hs.Compiled:
    """Small models whose bounds are tight, so that a wrong one shows."""
    match name:
        case "one gate":
            return hs.compile(random_network([1, 1, 1], 1), (-2, 2), error=1e-2)
        case "one input":
            return hs.compile(random_network([1, 4, 1], 3), (-2, 2), error=1e-2)
        case "two layers":
            return hs.compile(random_network([2, 4, 3, 2], 5), (-1, 1), error=1e-3)
        case "loose":
            return hs.compile(random_network([2, 4, 3, 1], 6, weight=3.0), (-8, 8), error=1e3, dtype="float32")
        case "tokens":
            return hs.compile(random_network([2, 4, 3, 2], 5), (-1, 1), error=1e-3, tokens=4)
        case "float32":
            return hs.compile(random_network([2, 4, 1], 9), (-1, 1), error=1e-4, dtype="float32")
        case "float32 tokens":
            return hs.compile(random_network([2, 4, 3, 1], 9), (-1, 1), error=1e-2, dtype="float32", tokens=4)
        case "folds":
            return hs.compile(folding_circuit(6), (-1, 1), error=1e-2)
        case "gates of gates":
            return hs.compile(folding_circuit(4), (-1, 1), error=1e-2, tokens=2)
        case "sparsemax" | "elu+1":
            return hs.compile(random_network([1, 4, 1], 3), (-2, 2), error=1e-2, attention=name)
        case "stable gates":
            network = shifted_network([6, 2, 8, 2], 2, -1.0, 1.0, ["active", "free"])
            return hs.compile(network, (-1, 1), error=1e-3)
    raise KeyError(name)


NAMES = [
    "one gate",
    "one input",
    "two layers",
    "loose",
    "tokens",
    "float32",
    "float32 tokens",
    "stable gates",
    "folds",
    "gates of gates",
    "sparsemax",
    "elu+1",
]
SLOW = ("folds", "gates of gates")


def judge(model: hs.Compiled, rng: np.random.Generator) -> float | None:
    """None if the kernel refuses; otherwise the tightness of its bound. Fails if the bound is wrong."""
    try:
        bound = proven(model).error
    except hs.HeadsmithError:
        with pytest.raises(hs.HeadsmithError):
            hs.verify(model)
        return None
    with np.errstate(all="ignore"):
        found = worst_error(model, rng, points=60, steps=1)
    assert found <= bound, f"found {found:.6g}, but {bound:.6g} was proven"
    with contextlib.suppress(hs.CertificateError):
        assert found <= hs.verify(model).error <= model.certificate.error * (1 + 2e-9)
    return found / bound if bound > 0.0 else 1.0


@pytest.mark.parametrize("name", cases(NAMES, SLOW))
def test_the_original_is_accepted(name, rng) -> None:
    assert 0.05 < judge(build(name), rng) <= 1.0


@pytest.mark.again
@pytest.mark.one_in(12)
@pytest.mark.parametrize("part", ["transformer", "graph", "box"])
@pytest.mark.parametrize("name", NAMES)
def test_one_change_in_memory(name, part, rng) -> None:
    model = build(name)
    names = [register.name for register in model.transformer.registers]
    by_kind: dict[str, list] = {}
    for place, value in mutation.places(getattr(model, part)):
        by_kind.setdefault(mutation.kind_of(place), []).append((place, value))
    kinds = sorted(by_kind)
    results: Counter[str] = Counter()
    count = {"transformer": 150, "graph": 50, "box": 15}[part] // (8 if name in SLOW else 1)
    for _ in range(tried(count, 3)):
        options = by_kind[kinds[int(rng.integers(len(kinds)))]]
        place, value = options[int(rng.integers(len(options)))]
        label, new = mutation.mutate(value, rng, model.transformer.dtype == "float32", names)
        try:
            changed = replace(model, **{part: mutation.put(getattr(model, part), place, new)})
        except hs.HeadsmithError:
            results["refused at once"] += 1
            continue
        try:
            tightness = judge(changed, rng)
        except Exception as problem:
            problem.add_note(f"{part} {place}: {label}, {value!r} -> {new!r}")
            raise
        results["refused" if tightness is None else "still bounded"] += 1
    assert sum(results.values()) == tried(count, 3)
    assert results["still bounded"] > 0


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["one input", "tokens", "float32", "float32 tokens", "stable gates"])
def test_one_change_in_the_file(name, rng, tmp_path) -> None:
    """Every number of the header in turn, and random entries of every tensor."""
    model = build(name)
    path = tmp_path / "model"
    model.save(path)
    header, tensors = saved.read(path)
    numbers = [(place, value) for place, value in saved.leaves(header) if isinstance(value, int | float)]
    changes = [(place, value, None) for place, value in numbers]
    changes += [((tensor,), tensors[tensor], tensor) for tensor in tensors for _ in range(2)]
    for place, value, tensor in changes:
        label, new = mutation.mutate(value, rng, model.transformer.dtype == "float32", [])
        if tensor is None:
            saved.write(path, saved.put(header, place, new), tensors)
        else:
            changed = np.ascontiguousarray(new.astype(value.dtype))
            saved.write(path, header, {**tensors, tensor: changed})
        try:
            _judge_file(path, rng)
        except Exception as problem:
            problem.add_note(f"{place}: {label}, {value!r} -> {new!r}")
            raise


def _judge_file(path, rng) -> None:
    try:
        loaded = hs.load(path)
    except hs.HeadsmithError:
        with pytest.raises(hs.HeadsmithError):
            hs.verify(path)
        return
    judge(loaded, rng)
    try:
        proven = hs.verify(path).error
    except hs.HeadsmithError:
        return
    with np.errstate(all="ignore"):
        assert worst_error(loaded, rng, points=60, steps=1) <= proven


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["one input", "two layers", "tokens", "float32 tokens"])
def test_two_changes_that_hide_each_other(name, rng) -> None:
    """Scales moved from query to key, heads permuted together with their links, a register scaled up where it is
    written and down where it is read: the function is the same, so the bound must stay true, or the kernel must
    refuse."""
    model = build(name)
    transformer = model.transformer
    bank = transformer.layers[0].banks[0]
    for power in (-120, -60, -20, 20, 60, 120):
        factor = 2.0**power
        for scales in ({"query_scale": bank.query_scale * factor, "key_scale": bank.key_scale / factor},):
            try:
                changed = mutation.put(transformer, ("layers", 0, "banks", 0), replace(bank, **scales))
            except hs.HeadsmithError:
                continue
            judge(replace(model, transformer=changed), rng)
    for power in (-40, -3, 3, 40):
        try:
            changed = _rescaled_register(transformer, "z1", 2.0**power)
        except hs.HeadsmithError:
            continue
        assert judge(replace(model, transformer=changed), rng) is not None


def _rescaled_register(transformer, register: str, factor: float):
    def link(item, scale):
        return replace(item, weights=item.weights * scale) if item.register == register else item

    layers = tuple(
        replace(
            layer,
            banks=tuple(
                replace(
                    bank,
                    read=tuple(link(item, 1 / factor) for item in bank.read),
                    write=tuple(link(item, factor) for item in bank.write),
                )
                for bank in layer.banks
            ),
        )
        for layer in transformer.layers
    )
    return replace(
        transformer,
        embedding=tuple(link(item, factor) for item in transformer.embedding),
        initial={name: value * (factor if name == register else 1.0) for name, value in transformer.initial.items()},
        layers=layers,
        readout=tuple(link(item, 1 / factor) for item in transformer.readout),
    )
