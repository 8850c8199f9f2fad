"""circuit.json: labels that are true, edges that are proven, and files that are refused when they say anything else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headsmith as hs
from headsmith.inside.ablation import Machine, edge_of
from headsmith.inside.circuit import draws, machine_of
from headsmith.inside.circuit_check import check_circuit
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.rules.witness import OUTPUT, Edge, damages

over = hs.tokens


@pytest.fixture(scope="module")
def model() -> hs.Compiled:
    return hs.compile("relu(x - y) + x*y*z", (-1, 1), 1e-3)


@pytest.fixture(scope="module")
def circuit(model: hs.Compiled) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(model.circuit(unique=True)))
    return found


def test_a_product_head_returns_one_thing_and_stands_for_another(circuit: dict[str, Any]) -> None:
    head = circuit["nodes"]["a0.h1"]
    assert head["returns"][0]["text"] == "y*(0.03125*x + 0.5)"
    assert head["stands_for"] == [{"variable": "v1", "text": "x*y"}]
    assert head["completed_by"] == [{"variable": "v1", "from": "y", "weight": -16.0}]
    assert circuit["variables"][1]["tree"] == ["*", "x", "y"]
    assert circuit["variables"][2]["python"] == "v1*z"


def test_heads_return_what_is_said(model: hs.Compiled, circuit: dict[str, Any], rng: np.random.Generator) -> None:
    """|hook_z - returns| is at most the proven error, and comes within ten times of it for gates and sinks."""
    points = rng.uniform(-1, 1, (4096, 3))
    plain = model.plain()
    machine = Machine(plain.config, plain.tensors)
    trace = machine.run(points[:, None])
    x, y, z = points.T
    known = {"x": x, "y": y, "z": z, "v1": x * y, "relu": lambda v: np.maximum(v, 0.0)}
    for layer, head in machine.heads:
        returned = circuit["nodes"][f"a{layer}.h{head}"]["returns"][0]
        row = machine.layers[layer][3][head][0]
        column = int(np.flatnonzero(row)[0])
        value = trace.added[layer][:, head, -1, column] / row[column]
        off = np.abs(value - eval(returned["text"], {"__builtins__": {}}, known)).max()
        assert 0.1 * returned["in_all"] <= off <= returned["in_all"]


def test_variables_are_read_where_it_is_said(model: hs.Compiled, circuit: dict[str, Any], rng: Any) -> None:
    plain = model.plain()
    points = rng.uniform(-1, 1, (1000, 3))
    trace = Machine(plain.config, plain.tensors).run(points[:, None])
    product = circuit["variables"][1]
    for layer, told in product["layers"].items():
        seen = trace.streams[int(layer)][:, -1] @ np.array(told["read"]) + told["offset"]
        assert np.abs(seen - points[:, 0] * points[:, 1]).max() <= told["error_at_most"]


def test_every_edge_is_decided_and_the_circuit_is_the_only_one(circuit: dict[str, Any], model: hs.Compiled) -> None:
    labels = [edge["label"] for edge in circuit["edges"].values()]
    assert (labels.count("true"), labels.count("false"), len(labels)) == (11, 8, 19)
    assert circuit["unique"] == "all"
    least = min(each["damage"]["resample"]["proved"] for each in circuit["edges"].values() if each["in_graph"])
    assert least > 1000 * model.certificate.error


def test_positions_of_a_sort_are_named() -> None:
    model = hs.compile_sequence(lambda x: over.sort(x), tokens=4, domain=(-1, 1), error=1e-3)
    told = model.circuit(damages=False)
    says = [each["says"] for each in told["variables"] if "says" in each]
    first = "token 0 with token 2: the smaller stays at the first; token 1 with token 3: the smaller stays at the first"
    assert says[0] == first
    assert len(says) == 3
    assert "..." not in json.dumps(told)
    assert "[:, 0]" not in json.dumps([told["variables"], told["registers"]])


def test_what_a_run_does_is_enclosed(model: hs.Compiled, rng: np.random.Generator) -> None:
    """A run in higher precision lies within what the rule says: the damage of every edge, at random pairs."""
    plain = model.plain()
    wide = Machine(plain.config, {name: each.astype(np.longdouble) for name, each in plain.tensors.items()})
    object.__setattr__(wide, "_tensor", lambda name: wide.tensors[name])
    draw = draws(model)
    for name in ("input->a0.h0<q>", "a0.h1->a1.h0<v>", "a1.h0->logits"):
        bases, sources = draw(rng, 50), draw(rng, 50)
        least = damages(plain.tensors, plain.config, [(edge_of(name),)] * 50, bases, sources)
        mine, other = wide.run(bases.astype(np.longdouble)), wide.run(sources.astype(np.longdouble))
        moved = np.abs(wide.cut(mine, other, [edge_of(name)]).outputs - mine.outputs)
        assert np.all(least <= moved)
        assert np.all(least >= moved * (1 - 1e-6) - 1e-8)


def edge(name: str, part: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["edges"][name].__setitem__(part, value)


def damage(name: str, part: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["edges"][name]["damage"]["resample"].__setitem__(part, value)


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "a label": edge("input->a0.h0<k>", "label", "true"),
    "a label without its place in the graph": edge("a0.h0->logits", "label", "grey"),
    "a theorem": edge("a0.h0->logits", "at_most", 0.0),
    "a larger damage": damage("a0.h0->logits", "proved", 1e6),
    "another base": damage("a0.h0->logits", "base", [[0.0, 0.0, 0.0]]),
    "a base outside": damage("a0.h0->logits", "base", [[9.0, -9.0, 0.0]]),
    "a share": damage("a0.h0->logits", "share", 0.01),
    "what was found": damage("a0.h0->logits", "found", 1.0),
    "an edge": lambda found: found["edges"].pop("a0.h0->logits"),
    "a tree": lambda found: found["variables"][1].__setitem__("tree", ["*", "x", "z"]),
    "a read": lambda found: found["variables"][1]["layers"]["1"].__setitem__("offset", 1.0),
    "an error": lambda found: found["nodes"]["a0.h0"]["returns"][0].__setitem__("error", 1e-9),
    "a digest": lambda found: found.__setitem__("weights_sha256", "0" * 64),
    "a certificate": lambda found: found["certificate"].__setitem__("error", 1e-9),
    "a witness that is none": lambda found: found["edges"]["a0.h0->logits"]["damage"]["resample"].pop("base"),
    "a kind": lambda found: found["nodes"]["a0.h0"].__setitem__("kind", "table"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused(name: str, model: hs.Compiled, circuit: dict[str, Any]) -> None:
    found = copy.deepcopy(circuit)
    found["unique"] = "irredundant"
    check_circuit(found, model)
    FORGED[name](found)
    with pytest.raises(hs.CertificateError):
        check_circuit(found, model)


def test_more_than_is_unique_is_refused(model: hs.Compiled, circuit: dict[str, Any]) -> None:
    found = copy.deepcopy(circuit)
    found["unique"] = "order 3"
    with pytest.raises(hs.CertificateError, match="unique"):
        check_circuit(found, model)


def test_a_witness_lies_in_the_domain() -> None:
    """Zero is no input of 1/x on [0.1, 1], although blocks of other tokens hold zeros; and blocks hold one input."""
    model = hs.compile("1/x", (0.1, 1), 1e-2)
    found = copy.deepcopy(model.circuit())
    name, each = next((name, each) for name, each in found["edges"].items() if each["label"] == "true")
    told = each["damage"]["resample"]
    machine, _ = machine_of(model)
    cut, base, source = (edge_of(name),), np.zeros((1, 1, 1)), np.array([told["source"]])
    mine, other = machine.run(base), machine.run(source)
    least = damages(machine.tensors, machine.config, [cut], base, source)[0]
    seen = np.abs(machine.cut(mine, other, cut).outputs - mine.outputs)[0]
    token, output = told["token"], told["output"]
    told |= {"base": [[0.0]], "proved": float(least[token, output]), "found": float(seen[token, output])}
    with pytest.raises(hs.CertificateError, match="outside the domain"):
        check_circuit(found, model)


def test_an_edge_is_cut_once_and_somewhere(model: hs.Compiled) -> None:
    machine, _ = machine_of(model)
    base = np.zeros((1, 1, 3))
    good = Edge((0, 0), OUTPUT)
    for cut in ([good, good], [Edge((0, -1), OUTPUT)], [Edge((0, 0), (1, -1), "q")]):
        with pytest.raises(Refused):
            damages(machine.tensors, machine.config, [cut], base, base)
