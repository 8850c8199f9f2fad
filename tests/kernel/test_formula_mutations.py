"""A changed model of a formula is either refused, or what is proven of it is true of the target that is stored with it.

One thing is changed at random: a stored weight, scale or gain; a field of the proof; a circuit in place of a function,
before the model is built from it; the domain; a field or the kind of a target node; in memory and in the file. The
kernel is asked what it can prove, whatever the model claims, and a search looks for an input that breaks the answer. No
foreign exception, ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.attacks import mutation, saved
from helpers.attacks.proving import proven, with_proof
from helpers.effort import CAMPAIGN, cases, tried

import headsmith as hs
from headsmith.core.functions import FUNCTIONS
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Affine, Function, Graph, Hypotenuse, Maximum, Minimum, Node, Product, Quotient
from headsmith.language.stored import Proof
from headsmith.lower.lower import Setting, lower
from headsmith.lower.scales import demand_of, with_softmax_budget
from headsmith.plan.analysis.ranges import ranges
from headsmith.plan.approximation import approximate
from headsmith.plan.choose import Chooser
from headsmith.plan.circuits.assemble import Choice, _made, assemble
from headsmith.plan.circuits.fragment import Fragment
from headsmith.prove.prove import Wanted, drafted
from headsmith.transformer.stored import numbered

FORMULAS: dict[str, tuple[Any, dict[str, tuple[float, float]], float, str]] = {
    "product": ("x*y", {"x": (-1, 1), "y": (-1, 1)}, 1e-3, "float64"),
    "reciprocal": ("1/(1+x*y)", {"x": (0, 1), "y": (0, 1)}, 1e-3, "float64"),
    "maximum": ("max(x,y)*x", {"x": (-1, 1), "y": (-1, 1)}, 1e-2, "float64"),
    "sine": ("sin(x)", {"x": (-2, 2)}, 1e-3, "float32"),
    "quotient": ("(x+1)/(y-3)", {"x": (-1, 1), "y": (1, 2)}, 1e-2, "float64"),
    "norm": (lambda x, y: hs.norm([x * x, y]), {"x": (-1, 1), "y": (-1, 1)}, 1e-2, "float64"),
}


def of(*names: str) -> pytest.MarkDecorator:
    """All formulas, of which `make test` tries these and `make campaign` the others."""
    return pytest.mark.parametrize("name", cases(FORMULAS, FORMULAS.keys() - {*names}))


# Sizes stay small enough to be built: a circuit of a billion gates is another matter.
INTEGERS = (0, 1, -1, 2, 3, 7, 40, -5)
AWKWARD = (None, "text", (), {}, np.nan, np.inf, 0, 0.5, -1.0, 3.0, -2, [[1.0]], True)


@cache
def model_of(name: str) -> hs.Compiled:
    formula, domain, error, dtype = FORMULAS[name]
    # A circuit for a coarser error has fewer gates, of the same kinds.
    return hs.compile(formula, domain, error=error if CAMPAIGN else 1e-2, dtype=dtype, recipe="relu")


def points_in(model: hs.Compiled, rng: np.random.Generator, count: int = 160) -> Any:
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
        spread = (model.box.high - model.box.low) * 10.0 ** rng.uniform(-3, -1, (6, len(best), 1))
        moved = best + rng.normal(size=(6, *best.shape)) * spread
        moved = np.clip(moved, model.box.low, model.box.high).reshape(-1, best.shape[1])
        return float(np.max(np.concatenate([errors, errors_at(model, moved)])))


def judge(model: hs.Compiled, rng: np.random.Generator) -> float | None:
    """None if the kernel refuses; otherwise found / proven. Fails if the bound is wrong."""
    try:
        bound = proven(model).error
    except hs.HeadsmithError:
        return None
    found = worst(model, rng)
    assert found <= bound, f"found {found:.6g}, but {bound:.6g} was proven"
    return found / bound


def built(model: hs.Compiled, choices: dict[int, Choice], budget: float) -> hs.Compiled:
    """A model that faithfully computes the circuit of these choices, whatever that circuit is worth, with a proof."""
    found = tuple(ranges(model.graph, model.box))
    assembly = assemble(model.graph, choices)
    approximation = approximate(model.graph, found, assembly, choices)
    gains = approximation.flow.gains
    skeleton = lower(assembly.circuit, approximation.ranges, {}, Setting(dtype=model.transformer.dtype))
    transformer = with_softmax_budget(skeleton, demand_of(skeleton, gains), budget, leak=1e-6 * budget)
    draft = drafted(Wanted(model.graph, choices, None, transformer, assembly=assembly), model.box)
    return replace(model, transformer=numbered(transformer, draft.places), proof=draft.proof)


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


@of("product", "sine")
def test_the_original_is_accepted_and_tight(name: str, rng: np.random.Generator) -> None:
    tightness = judge(model_of(name), rng)
    assert tightness is not None
    assert 0.4 < tightness <= 1.0


def mutated(value: Any, rng: np.random.Generator, single: bool, names: list[str]) -> tuple[str, Any]:
    if isinstance(value, int) and not isinstance(value, bool):
        return "another integer", int(rng.choice([*INTEGERS, value + 1, value - 1]))
    return mutation.mutate(value, rng, single, names)


@pytest.mark.again
@pytest.mark.parametrize("part", ["transformer", "graph", "box"])
@of("product")
def test_one_change_in_memory(name: str, part: str, rng: np.random.Generator) -> None:
    model, results = model_of(name), Counter[str]()
    names = [register.name for register in model.transformer.registers] + ["cos", "exp", "square", "shallow", "odd"]
    count = tried({"transformer": 12, "graph": 8, "box": 5}[part], 2)
    for place, value in mutation.spread_out(getattr(model, part), rng, count):
        label, new = mutated(value, rng, model.transformer.dtype == "float32", names)

        def change(place: mutation.Place = place, new: Any = new) -> hs.Compiled:
            return replace(model, **{part: mutation.put(getattr(model, part), place, new)})

        trial(results, change, rng, f"{name}: {part} {place}: {label}, {value!r} -> {new!r}")
    assert part == "box" or results["refused"]
    assert part != "transformer" or results["bounded"]


@of("sine")
def test_awkward_proofs(name: str, rng: np.random.Generator) -> None:
    """Fields of the proof in turn: of another type, not finite, zero, another node."""
    model, results = model_of(name), Counter[str]()
    places = [place for place, _ in saved.leaves(model.proof.stored)]
    for index in rng.permutation(len(places))[: tried(40, 2)]:
        new = AWKWARD[int(rng.integers(len(AWKWARD)))]
        stored = saved.put(model.proof.stored, places[index], new)
        changed = replace(model, proof=Proof(stored, model.proof.tensors))
        trial(results, lambda c=changed: c, rng, f"{name}: {places[index]} -> {new!r}")
    assert results["refused"] > results["bounded"]


@of("product")
def test_margins(name: str, rng: np.random.Generator) -> None:
    """A margin is a premise: too thin, or not a number, it is refused; wide or absent, the bound is true."""
    model, results = model_of(name), Counter[str]()
    for number in range(len(model.proof.stored["regions"])):
        for margin in (None, 0.0, 1e-4, 0.3, -1e-9, np.nan):

            def change(stored: Any, number: int = number, margin: Any = margin) -> None:
                stored["regions"][number]["margin"] = margin

            trial(results, lambda c=change: with_proof(model, c), rng, f"{name}: {number}: margin {margin}")
    assert results["refused"] >= 2
    assert results["bounded"]


CONSISTENT: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "scaled": lambda v, rng: v * rng.choice([0.5, 1.5, 1.01]),
    "moved": lambda v, rng: v + rng.choice([-1.0, 1e-3, 0.25]),
    "noise": lambda v, rng: v + 0.05 * rng.normal(size=v.shape),
    "turned": lambda v, rng: v[::-1],
}


def changed_fragment(fragment: Fragment, rng: np.random.Generator) -> tuple[str, Fragment]:
    """The circuit of a function with other constants in one of its sums."""
    nodes = list(fragment.graph.nodes)
    place = int(rng.choice([number for number, node in enumerate(nodes) if isinstance(node, Affine)]))
    label = str(rng.choice(list(CONSISTENT)))
    nodes[place] = replace(nodes[place], bias=CONSISTENT[label](nodes[place].bias, rng))
    return f"{label} constants of node {place}", replace(fragment, graph=Graph(tuple(nodes), fragment.graph.output))


@pytest.mark.again
@of("product")
def test_models_built_from_changed_circuits(name: str, rng: np.random.Generator) -> None:
    """The strongest forgery: a circuit is changed first, and transformer and proof are made from it, so that weights
    and circuit agree. What is then certified is the circuit against the target, and that must be true."""
    model, results = model_of(name), Counter[str]()
    found = ranges(model.graph, model.box)
    plan = Chooser(model.graph, found).choose(1e-2)
    for _ in range(tried(11, 2)):
        choices = dict(plan.choices)
        number = int(rng.choice(list(choices)))
        fragments = list(choices[number].fragments)
        place = int(rng.integers(len(fragments)))
        label, fragments[place] = changed_fragment(_made(fragments[place]), rng)
        margin = rng.choice([None, 0.0, 1e-3, 0.02, 0.2])
        choices[number] = replace(choices[number], fragments=tuple(fragments), margin=margin)
        budget = model.certificate.error * float(rng.choice([1e-3, 0.3, 10.0]))
        trial(results, lambda c=choices, b=budget: built(model, c, b), rng, f"{name}: {label}, margin {margin}")
    assert results["bounded"]


def swapped_nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """The same nodes with one of another kind, or with arguments in another order."""
    for number, node in enumerate(graph.nodes):
        others: list[Node] = []
        match node:
            case Product():
                others += [Quotient(node.left, node.right, node.size), Maximum((node.left, node.right), node.size)]
                others += [Product(node.left, node.left, node.size), Function("square", node.left, node.size)]
            case Quotient():
                others += [Quotient(node.denominator, node.numerator, node.size)]
                others += [Product(node.numerator, node.denominator, node.size)]
            case Hypotenuse():
                others += [Product(node.left, node.right, node.size), Maximum((node.left, node.right), node.size)]
                others += [Hypotenuse(node.right, node.left, node.size)]
            case Maximum():
                others += [Minimum(node.arguments, node.size), Maximum(node.arguments[::-1], node.size)]
                others += [Maximum((*node.arguments, *node.arguments), node.size)]
            case Function():
                others += [replace(node, name=name) for name in ["nobody", *list(FUNCTIONS)[::4]]]
                others += [replace(node, parameter=parameter) for parameter in (2.0, np.nan)]
                others += [replace(node, name="power", parameter=p) for p in (None, -1.0, 0.5, np.inf)]
        for other in others:
            yield (*graph.nodes[:number], other, *graph.nodes[number + 1 :])


@of("sine")
def test_another_target_node(name: str, rng: np.random.Generator) -> None:
    model, results = model_of(name), Counter[str]()
    for nodes in swapped_nodes(model.graph):
        trial(results, lambda n=nodes: replace(model, graph=Graph(n, model.graph.output)), rng, f"{name}: {nodes}")
    assert results["refused"]


@pytest.mark.again
@of("sine")
def test_one_change_in_the_file(name: str, rng: np.random.Generator, tmp_path: Any) -> None:
    model, results, path = model_of(name), Counter[str](), tmp_path / "model"
    model.save(path)
    assert hs.verify(path).error == hs.verify(model).error
    header, tensors = saved.read(path)
    places = [leaf for leaf in saved.leaves(header) if leaf[0][0] in ("proof", "domain", "source")]

    def change(header: Any, tensors: dict[str, Any]) -> hs.Compiled:
        saved.write(path, header, tensors)
        return hs.load(path)

    for index in rng.permutation(len(places))[: tried(8, 2)]:
        place, value = places[index]
        new = rng.choice(["nobody", "cos"]) if isinstance(value, str) else None
        if isinstance(value, int | float):
            _, new = mutated(value, rng, False, [])
        new = float(new) if isinstance(new, np.floating) else new
        note = f"{name}: {place} {value!r} -> {new!r}"
        trial(results, lambda p=place, n=new: change(saved.put(header, p, n), tensors), rng, note)
        if rng.random() < 0.5:
            note = f"{name}: without {place}"
            trial(results, lambda p=place: change(saved.drop(header, p), tensors), rng, note)
    names = sorted(tensors)
    for _ in range(tried(8, 2)):
        tensor = names[int(rng.integers(len(names)))]
        label, new = mutation.mutate(tensors[tensor], rng, tensors[tensor].dtype == np.float32, [])
        new = np.asarray(new, dtype=tensors[tensor].dtype)
        trial(results, lambda t=tensor, n=new: change(header, {**tensors, t: n}), rng, f"{name}: {tensor} {label}")
    assert results["refused"]
    assert results["bounded"]
