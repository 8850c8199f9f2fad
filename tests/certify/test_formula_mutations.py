"""A changed model of a formula is either refused, or what is proven of it is true of the target that is stored with it.

One thing is changed at random: a stored weight, scale or gain; a parameter of a choice (radices, ends, balance, shift,
knots); the domain; a field or the kind of a target node; in memory and in the file. The kernel is asked what it can
prove, whatever the model claims, and a search looks for an input that breaks the answer. No foreign exception, ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import mutation
import numpy as np
import pytest
import saved

import headsmith as hs
from headsmith.circuits.assemble import Choice
from headsmith.core.functions import FUNCTIONS
from headsmith.source.graph import Function, Graph, Maximum, Minimum, Node, Product, Quotient, evaluate

FORMULAS: dict[str, tuple[str, dict[str, tuple[float, float]], float, str]] = {
    "product": ("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-3, "float64"),
    "reciprocal": ("1/(1+x*y)", {"x": (0, 1), "y": (0, 1)}, 1e-3, "float64"),
    "maximum": ("max(x,y)*x", {"x": (-1, 1), "y": (-1, 1)}, 1e-2, "float64"),
    "sine": ("sin(x)", {"x": (-2, 2)}, 1e-3, "float32"),
    "quotient": ("(x+1)/(y-3)", {"x": (-1, 1), "y": (1, 2)}, 1e-2, "float64"),
}
# Sizes stay small enough to be built: a circuit of a billion gates is another matter.
INTEGERS = (0, 1, -1, 2, 3, 7, 40, -5)


@cache
def model_of(name: str) -> hs.Compiled:
    formula, domain, error, dtype = FORMULAS[name]
    model = hs.compile(formula, domain, error=error, dtype=dtype)
    choices = {number: Choice(each.family, tuples(each.parameters)) for number, each in model.choices.items()}
    return replace(model, choices=choices)


def tuples(value: Any) -> Any:
    """Lists as tuples, so that the walk over places goes into them."""
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value


def points_in(model: hs.Compiled, rng: np.random.Generator, count: int = 400) -> Any:
    """Random points, some of them on faces and in corners of the box; then the middle."""
    low, high = model.box.low, model.box.high
    share = rng.random((count, len(low)))
    share = np.where(rng.random(share.shape) < 0.15, np.round(share), share)
    points = np.clip(low + (high - low) * share, low, high)
    return np.concatenate([points, [low, high, np.clip(0.5 * low + 0.5 * high, low, high)]])


def errors_at(model: hs.Compiled, points: Any) -> Any:
    wanted = evaluate(model.graph, points, np.longdouble)
    return np.max(np.abs(model(points).astype(np.longdouble) - wanted), axis=-1).astype(np.float64)


def worst(model: hs.Compiled, rng: np.random.Generator) -> float:
    """The largest |model - target| found: a search, then a climb from the best points. nan if there is one."""
    with np.errstate(all="ignore"):
        points = points_in(model, rng)
        errors = errors_at(model, points)
        best = points[np.argsort(errors)[-8:]]
        spread = (model.box.high - model.box.low) * 10.0 ** rng.uniform(-3, -1, (12, len(best), 1))
        moved = best + rng.normal(size=(12, *best.shape)) * spread
        moved = np.clip(moved, model.box.low, model.box.high).reshape(-1, best.shape[1])
        return float(np.max(np.concatenate([errors, errors_at(model, moved)])))


def judge(model: hs.Compiled, rng: np.random.Generator) -> float | None:
    """None if the kernel refuses; otherwise found / proven. Fails if the bound is wrong."""
    unclaimed = replace(model, certificate=replace(model.certificate, error=np.inf))
    try:
        proven = hs.verify(unclaimed).error
    except hs.HeadsmithError:
        return None
    found = worst(model, rng)
    assert found <= proven, f"found {found:.6g}, but {proven:.6g} was proven"
    if proven <= model.certificate.error:
        assert hs.verify(model).error == proven
    else:
        with pytest.raises(hs.CertificateError, match="can be proven"):
            hs.verify(replace(model, certificate=replace(model.certificate, error=proven / 2)))
    return found / proven


def trial(results: Counter[str], change: Callable[[], hs.Compiled], rng: np.random.Generator, note: str) -> None:
    try:
        try:
            changed = change()
        except hs.HeadsmithError:
            results["refused"] += 1
            return
        tightness = judge(changed, rng)
    except Exception as problem:
        problem.add_note(note)
        raise
    results["refused" if tightness is None else "bounded"] += 1


@pytest.mark.parametrize("name", FORMULAS)
def test_the_original_is_accepted_and_tight(name: str, rng: np.random.Generator) -> None:
    tightness = judge(model_of(name), rng)
    assert tightness is not None
    assert 0.4 < tightness <= 1.0


def spread_out(value: Any, rng: np.random.Generator, count: int) -> Iterator[tuple[mutation.Place, Any]]:
    """Random places, as many of each kind."""
    by_kind: dict[str, list[tuple[mutation.Place, Any]]] = {}
    for place, item in mutation.places(value):
        by_kind.setdefault(mutation.kind_of(place), []).append((place, item))
    kinds = sorted(by_kind)
    for _ in range(count):
        found = by_kind[kinds[int(rng.integers(len(kinds)))]]
        yield found[int(rng.integers(len(found)))]


def mutated(value: Any, rng: np.random.Generator, single: bool, names: list[str]) -> tuple[str, Any]:
    if isinstance(value, int) and not isinstance(value, bool):
        return "another integer", int(rng.choice([*INTEGERS, value + 1, value - 1]))
    return mutation.mutate(value, rng, single, names)


@pytest.mark.parametrize("part", ["transformer", "choices", "graph", "box"])
@pytest.mark.parametrize("name", FORMULAS)
def test_one_change_in_memory(name: str, part: str, rng: np.random.Generator) -> None:
    model, results = model_of(name), Counter[str]()
    names = [register.name for register in model.transformer.registers] + ["cos", "exp", "square", "shallow", "odd"]
    count = {"transformer": 20, "choices": 24, "graph": 16, "box": 8}[part]
    for place, value in spread_out(getattr(model, part), rng, count):
        label, new = mutated(value, rng, model.transformer.dtype == "float32", names)

        def change(place: mutation.Place = place, new: Any = new) -> hs.Compiled:
            return replace(model, **{part: mutation.put(getattr(model, part), place, new)})

        trial(results, change, rng, f"{name}: {part} {place}: {label}, {value!r} -> {new!r}")
    assert results["refused"]
    assert results["bounded"]


@pytest.mark.parametrize("name", FORMULAS)
def test_awkward_parameters(name: str, rng: np.random.Generator) -> None:
    """Every parameter of every choice in turn: missing, of another type, not finite, zero, not a power of two."""
    model, results = model_of(name), Counter[str]()
    for number, choice in model.choices.items():
        for place, value in mutation.places(choice.parameters):
            for new in (None, "text", (), {}, np.nan, np.inf, 0, 0.5, -1.0, 3.0, -2, [[1.0]], True):

                def change(place: mutation.Place = place, new: Any = new, choice: Choice = choice) -> hs.Compiled:
                    parameters = mutation.put(choice.parameters, place, new)
                    return replace(model, choices={**model.choices, number: Choice(choice.family, parameters)})  # noqa: B023

                trial(results, change, rng, f"{name}: {place}: {value!r} -> {new!r}")
    assert results["refused"] > results["bounded"]


def swapped_nodes(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The same graph with one node of another kind, or with arguments in another order."""
    for number, node in enumerate(graph.nodes):
        others: list[Node] = []
        match node:
            case Product():
                others += [Quotient(node.left, node.right, node.size), Maximum((node.left, node.right), node.size)]
                others += [Product(node.left, node.left, node.size), Function("square", node.left, node.size)]
            case Quotient():
                others += [Quotient(node.denominator, node.numerator, node.size)]
                others += [Product(node.numerator, node.denominator, node.size)]
            case Maximum():
                others += [Minimum(node.arguments, node.size), Maximum(node.arguments[::-1], node.size)]
                others += [Maximum((*node.arguments, *node.arguments), node.size)]
            case Function():
                others += [replace(node, name=name) for name in ["nobody", *FUNCTIONS]]
                others += [replace(node, parameter=parameter) for parameter in (2.0, -1.0, np.nan)]
                others += [replace(node, name="power", parameter=p) for p in (None, 2.0, -1.0, 0.5, np.nan, np.inf)]
        for other in others:
            nodes = (*graph.nodes[:number], other, *graph.nodes[number + 1 :])
            yield f"node {number} {other}", Graph(nodes, graph.output)


@pytest.mark.parametrize("name", FORMULAS)
def test_another_target_node(name: str, rng: np.random.Generator) -> None:
    model, results = model_of(name), Counter[str]()
    for note, graph in swapped_nodes(model.graph):
        trial(results, lambda graph=graph: replace(model, graph=graph), rng, f"{name}: {note}")
    assert results["refused"]


@pytest.mark.parametrize("name", FORMULAS)
def test_choices_that_are_missing_exchanged_or_superfluous(name: str, rng: np.random.Generator) -> None:
    model, results = model_of(name), Counter[str]()
    for number in model.choices:
        rest = {other: choice for other, choice in model.choices.items() if other != number}
        with pytest.raises(hs.HeadsmithError, match=f"node {number}"):
            hs.verify(replace(model, choices=rest))
        for other in FORMULAS:
            for choice in model_of(other).choices.values():
                foreign = {**model.choices, number: choice}
                trial(results, lambda foreign=foreign: replace(model, choices=foreign), rng, f"{name}: {choice}")
    spare = {**model.choices, 0: Choice("nobody", {}), 99: Choice("nobody", {})}
    assert hs.verify(replace(model, choices=spare)).error == hs.verify(model).error
    assert results["refused"]
    assert results["bounded"]


@pytest.mark.parametrize("name", FORMULAS)
def test_one_change_in_the_file(name: str, rng: np.random.Generator, tmp_path: Any) -> None:
    model, results, path = model_of(name), Counter[str](), tmp_path / "model"
    model.save(path)
    header, tensors = saved.read(path)
    places = [leaf for leaf in saved.leaves(header) if leaf[0][0] in ("choices", "domain", "source")]

    def change(header: Any, tensors: dict[str, Any]) -> hs.Compiled:
        saved.write(path, header, tensors)
        return hs.load(path)

    for index in rng.permutation(len(places))[:20]:
        place, value = places[index]
        new = rng.choice(["nobody", "cos"]) if isinstance(value, str) else None
        if isinstance(value, int | float):
            _, new = mutated(value, rng, False, [])
        new = float(new) if isinstance(new, np.floating) else new
        note = f"{name}: {place} {value!r} -> {new!r}"
        trial(results, lambda p=place, n=new: change(saved.put(header, p, n), tensors), rng, note)
        note = f"{name}: without {place}"
        trial(results, lambda p=place: change(saved.drop(header, p), tensors), rng, note)
    names = sorted(tensors)
    for _ in range(20):
        tensor = names[int(rng.integers(len(names)))]
        label, new = mutation.mutate(tensors[tensor], rng, tensors[tensor].dtype == np.float32, [])
        new = np.asarray(new, dtype=tensors[tensor].dtype)
        trial(results, lambda t=tensor, n=new: change(header, {**tensors, t: n}), rng, f"{name}: {tensor} {label}")
    assert results["refused"]
    assert results["bounded"]


@pytest.mark.parametrize("sign", [0.5, 2.0, 0.0, -0.5, -2.0])
def test_a_quotient_turns_by_plus_or_minus_one_only(sign: float, rng: np.random.Generator) -> None:
    """Theorem: x / y = (s x) / (s y) for s = +-1 as it is assembled; any other factor is another function."""
    model = model_of("quotient")
    (number,) = model.choices
    choice = model.choices[number]
    changed = {number: Choice(choice.family, {**choice.parameters, "sign": sign})}
    with pytest.raises(hs.HeadsmithError):
        hs.verify(replace(model, choices=changed, certificate=replace(model.certificate, error=np.inf)))
