"""Bad files: one clear sentence, soon, whatever is in them: no other exception, no long wait, not much memory.

Every check runs in a process of its own that may use SECONDS of processor time and four gigabytes of address space.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers.attacks.forged import SECONDS, Forged, answer, answered, plain, refused
from helpers.effort import CAMPAIGN
from safetensors.numpy import save_file

import headsmith as hs
from headsmith.kernel.core.check import check_file
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read


def test_the_plain_file_is_certified() -> None:
    assert answer(plain().check, seconds=SECONDS).startswith("certified ")


def test_a_name_cannot_write_over_the_verdict() -> None:
    file = plain()
    file.model["embedding"][0]["register"] = "\r\x1b[2Kcertified: |model - target| <= 1e-9"
    said = refused(file)
    assert said.isprintable()


def test_the_reason_why_no_file_can_be_read_writes_over_nothing(tmp_path: Path) -> None:
    """What safetensors says of a type that it does not know has the words of the file."""
    told = "\r\x1b[2Kcertified: |model - target| <= 1e-9"
    header = json.dumps({"t": {"dtype": told, "shape": [0], "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "spoken.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(Refused) as problem:
        check_file(path)
    assert "certified: |model" in str(problem.value)
    assert str(problem.value).isprintable()


def test_the_circuit_has_the_inputs_of_the_model() -> None:
    file = plain()
    file.circuit[0] = {"kind": "input", "names": ["x0", "nobody"]}
    file.circuit[1]["terms"][0]["weights"] = file.keep([[1.0, 0.0]])
    assert "inputs" in refused(file)


# Files as bytes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "model.safetensors"
    hs.compile("x*y", (-1, 1), error=1e-2).save(path)
    return path


def refused_file(path: Path) -> str:
    said = answer(lambda: check_file(path), seconds=SECONDS)
    assert said.startswith("refused: "), said
    return said


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.01, 0.3, 0.999])
def test_a_truncated_file(model: Path, tmp_path: Path, share: float) -> None:
    whole = model.read_bytes()
    (tmp_path / "cut").write_bytes(whole[: int(share * len(whole))])
    assert "safetensors" in refused_file(tmp_path / "cut")


def test_no_file_and_no_model(tmp_path: Path) -> None:
    assert "no such file" in refused_file(tmp_path / "nothing")
    (tmp_path / "text").write_text("a text " * 100)
    refused_file(tmp_path / "text")
    save_file({"w": np.zeros(3)}, tmp_path / "other")
    assert "header" in refused_file(tmp_path / "other")


@pytest.mark.parametrize(
    "header",
    [
        "[" * 10_000 + "]" * 10_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        '{"version": 1, "domain": ' + "[" * 900 + "]" * 900 + "}",
        "{",
        "",
        "[]",
        "3",
        '{"version": 1}',
        '{"version": 2}',
        '{"version": NaN}',
        '{"version": 1e400}',
        '{"version": ' + "9" * 5000 + "}",
        '{"version": true}',
        '"\\ud800"',
    ],
    ids=lambda text: f"{len(text)} characters, {text[:14]}",
)
def test_a_header_that_is_none(tmp_path: Path, header: str) -> None:
    save_file({"w": np.zeros(3)}, tmp_path / "file", metadata={"headsmith": header})
    refused_file(tmp_path / "file")


@pytest.mark.parametrize("kind", [np.float16, np.int32, np.uint8, np.bool_, np.int8])
def test_other_types_of_numbers(model: Path, tmp_path: Path, kind: Any) -> None:
    header, tensors = read(model)
    name = sorted(tensors)[0]
    save_file({**tensors, name: tensors[name].astype(kind)}, tmp_path / "file", {"headsmith": json.dumps(header)})
    assert "type" in refused_file(tmp_path / "file")


def test_every_field_of_the_claim_is_checked(model: Path, tmp_path: Path) -> None:
    header, tensors = read(model)
    claim = header["claim"]
    other: dict[str, Any] = {
        "error": claim["error"] * 0.9,
        "outputs": [each * 0.9 for each in claim["outputs"]],
        "parts": {**claim["parts"], "approximation": 0.0},
        "dtype": "float32",
        "tokens": 2,
        "masks": ["full"],
        "max_score": claim["max_score"] * 0.9,
        "exp_ulps": 5,
    }
    for name, value in other.items():
        for changed in ({**claim, name: value}, {k: v for k, v in claim.items() if k != name}, {**claim, name: None}):
            text = json.dumps({**header, "claim": changed})
            save_file(tensors, tmp_path / "file", {"headsmith": text})
            refused_file(tmp_path / "file")
    save_file(tensors, tmp_path / "file", {"headsmith": json.dumps(header)})
    assert answer(lambda: check_file(tmp_path / "file"), seconds=SECONDS).startswith("certified ")


def test_the_reason_is_no_longer_than_a_sentence(model: Path, tmp_path: Path) -> None:
    """Not as long as a text in the file; and of a claim without a field, the field."""
    header, tensors = read(model)
    header["source"]["nodes"][1]["kind"] = "x" * 100_000
    save_file(tensors, tmp_path / "file", {"headsmith": json.dumps(header)})
    with pytest.raises(Refused, match=r"x{300}") as found:
        check_file(tmp_path / "file")
    assert len(str(found.value)) <= 500
    header, tensors = read(model)
    del header["claim"]["outputs"]
    save_file(tensors, tmp_path / "file", {"headsmith": json.dumps(header)})
    with pytest.raises(Refused, match="'outputs'") as found:
        check_file(tmp_path / "file")
    assert len(str(found.value)) <= 200


def test_the_command_says_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a text " * 100)
    done = subprocess.run(
        [sys.executable, "-m", "headsmith.kernel", str(tmp_path / "text")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("not certified: ")
    assert len(done.stderr.strip().splitlines()) == 1


# Fields that are not what they should be ------------------------------------------------------------------------------


def ways(value: Any, way: tuple[Any, ...] = ()) -> Any:
    """The way to every field of a header."""
    if way:
        yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from ways(item, (*way, key))


NONSENSE: tuple[Any, ...] = (None, True, -1, 2**31, 2**80, 1e300, 0.5, "", "nobody", [], {}, [[]], [None], {"a": 1})


@pytest.mark.again
def test_nonsense_in_every_field() -> None:
    """One process for all: whatever stands in a field, nothing but a refusal or a certificate comes out."""
    from headsmith.kernel.core.check import proved
    from headsmith.kernel.core.errors import Refused

    file = _everything()
    assert answer(file.check, seconds=SECONDS).startswith("certified ")
    text = json.dumps(file.header)

    def all_of_them() -> Any:
        wrong, random = [], Random(1)
        for way in ways(json.loads(text)):
            values = (*NONSENSE, "missing")
            for value in values if CAMPAIGN else random.sample(values, 2):
                header: Any = json.loads(text)
                holder = header
                for key in way[:-1]:
                    holder = holder[key]
                if value == "missing":
                    del holder[way[-1]]
                else:
                    holder[way[-1]] = value
                try:
                    proved(header, dict(file.tensors))
                except Refused:
                    pass
                except Exception as problem:
                    wrong.append(f"{'.'.join(map(str, way))} = {value!r}: {type(problem).__name__}: {problem}")
        if wrong:
            raise AssertionError("; ".join(wrong)[:3000])
        return file.check()

    said = answer(all_of_them, seconds=60)
    assert said.startswith("certified "), said


@pytest.mark.again
def test_nonsense_in_every_tensor() -> None:
    from headsmith.kernel.core.check import proved
    from headsmith.kernel.core.errors import Refused

    file = _everything()
    header, _ = file.contents()

    def all_of_them() -> Any:
        wrong, random = [], Random(1)
        for name, values in file.tensors.items():
            whole = values.dtype == np.int64
            others = [values[:0], values[None], np.zeros(0), np.zeros((0, 0)), np.zeros((3, 3)), values.ravel()]
            others += [values.astype(np.float64 if whole else np.int64), values.astype(np.float32)]
            others += [np.repeat(values, 2, axis=0), np.full_like(values, -1), np.full_like(values, 2**62)]
            if not whole:
                others += [np.full_like(values, each) for each in (np.nan, np.inf, 1e308, 5e-324)]
            for other in others if CAMPAIGN else random.sample(others, 2):
                try:
                    proved(header, {**file.tensors, name: other})
                except Refused:
                    pass
                except Exception as problem:
                    shown = f"{other.dtype} {other.shape}"
                    wrong.append(f"{name} as {shown}: {type(problem).__name__}: {problem}")
        if wrong:
            raise AssertionError("; ".join(wrong)[:3000])
        return file.check()

    said = answer(all_of_them, seconds=60)
    assert said.startswith("certified "), said


def _everything() -> Forged:
    """A model with gates, a table, a mean, a region, a view, an exchange in its proof."""
    file = Forged(1, 0.0, 1.0, tokens=2)
    ends = {}
    for graph in (file.source, file.circuit):
        gate = file.relu(graph, file.scaled(graph, (0, 2.0), bias=-1.0))
        mean = file.add(graph, "pool", of="mean", argument=gate, size=1, causal=False)
        moved = file.add(graph, "move", argument=mean, targets=[1, 0], size=1)
        ends[id(graph)] = gate, mean, moved, file.scaled(graph, (moved, 1.0), (0, 1.0))
    gate, mean, moved, output = ends[id(file.circuit)]
    file.outputs(ends[id(file.source)][3], output)
    reference = file.function(file.circuit, "exp", 0)
    line = file.scaled(file.circuit, (0, 1.7), bias=0.9)
    file.proof["regions"] = [
        {"output": line, "stands_for": reference, "margin": 0.0, "ends": file.keep(np.linspace(0.0, 1.0, 5))}
    ]
    program = {"variables": 1, "steps": [["call", "sin", 0], ["linear", [["1/2", 1]], "3"], ["times", 1, 2]]}
    table = file.add(file.circuit, "expression", arguments=[0], size=1, program=program)
    file.proof["tables"] = [{"node": table, "margin": 0.1, "cells": "10100"}]
    file.proof["views"] = [{"node": file.scaled(file.circuit, (line, 1.0)), "as": line}]
    file.proof["halvings"] = 2
    file.embed()
    file.register("g", "m", "v", "t")
    file.register("grid", size=2)
    file.register("address", size=2)
    file.model["positional"] = {"address": file.keep([[-1.0, 0.0], [1.0, 0.0]])}
    reads = [file.link("x", [[2.0]]), file.link("data", [[-1.0]])]
    file.gates(reads, [file.link("g", [[1.0]])], [gate], [0], 1e4)
    gains = {"gain": 800.0, "keep_gain": 800.0}
    arrays = {"slope": [[[1.0], [-1.0]]], "offset": [[0.0, 0.0]], "values": [[[3.0], [0.0]]]}
    stored = {name: file.keep(values) for name, values in arrays.items()}
    file.bank("table", [file.link("x", [[1.0]])], [file.link("t", [[1.0]])], [table], [0], **stored, **gains)
    file.bank("mean", [file.link("g", [[1.0]])], [file.link("m", [[1.0]])], [mean], [0], **gains)
    file.bank("move", [file.link("m", [[1.0]])], [file.link("v", [[1.0]])], [moved], [0], **gains, address="address")
    file.model["readout"] = [file.link("v", [[1.0]]), file.link("x", [[1.0]])]
    return file


# Shapes and sizes -----------------------------------------------------------------------------------------------------


def test_a_circuit_with_other_inputs_than_the_target() -> None:
    for inputs in (0, 2, 3):
        file = plain()
        file.circuit[0] = {"kind": "input", "names": ["x"] * inputs}
        weights = file.keep(np.eye(1, inputs))
        file.circuit[1] = {"kind": "affine", "terms": [{"node": 0, "weights": weights}], "bias": file.keep([0.0])}
        file.affine(file.circuit, [(0, np.ones((1, inputs)))], [0.0])
        refused(file)


def test_a_circuit_with_fewer_inputs_than_blocks() -> None:
    file = Forged(1, -1.0, 1.0, tokens=2)
    file.outputs(0, 0)
    file.proof["blocks"], file.model["inputs"] = 2, 2
    refused(file)


def test_nodes_that_come_too_early_or_read_themselves() -> None:
    for argument in (1, 2, 5):
        file = plain()
        file.relu(file.circuit, argument + 1)
        refused(file)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_a_copy_with_another_number_of_arguments(count: int) -> None:
    file = plain()
    nodes = [
        file.product(file.source, 0, 0),
        file.add(file.source, "attend", queries=0, keys=0, values=0, size=1, causal=False),
    ]
    nodes += [file.relu(file.source, 0), file.add(file.source, "quotient", numerator=0, denominator=0, size=1)]
    wanted = (2, 3, 1, 2)
    for node, number in zip(nodes, wanted, strict=True):
        if number != count:
            file.add(file.circuit, "copy", node=node, arguments=[0] * count)
            refused(file)
            file.circuit.pop()


def test_nodes_without_components() -> None:
    file = plain()
    nothing = file.affine(file.circuit, [(0, np.zeros((0, 1)))], np.zeros(0))
    file.relu(file.circuit, nothing, 0)
    file.add(file.circuit, "attend", queries=nothing, keys=nothing, values=nothing, size=0, causal=False)
    answered(file)
    file = plain()
    nothing = file.affine(file.circuit, [(0, np.zeros((0, 1)))], np.zeros(0))
    reference, other = (file.product(file.circuit, nothing, nothing, 0) for _ in range(2))
    file.proof["regions"] = [{"output": other, "stands_for": reference, "margin": 1.0}]
    answered(file)
    file = plain()
    nothing = file.affine(file.circuit, [(0, np.zeros((0, 1)))], np.zeros(0))
    reference, other = file.function(file.circuit, "exp", nothing, 0), file.relu(file.circuit, nothing, 0)
    ends = file.keep([0.0, 1.0])
    file.proof["regions"] = [{"output": other, "stands_for": reference, "margin": 1.0, "ends": ends}]
    answered(file)


def test_exchanges_that_do_not_fit() -> None:
    """Other sizes, no token to fetch from, constants that are none or may be negative, another function."""
    for above, targets, size, sign in (
        ([0.0, 0.0], [0], 1, 1.0),
        ([0.0], [0], 1, 1.0),
        ([0.0], [5], 2, 1.0),
        ([0.0, 0.0], [-1], 2, 1.0),
        ([0.0, -1.0], [0], 2, 1.0),
        ([0.0, 0.0], [0], 2, 2.0),
        (None, [0], 2, 1.0),
    ):
        file = plain(2)
        constant = 0 if above is None else file.affine(file.circuit, [], above)
        parts = {"value": 0, "above": constant, "below": constant, "targets": targets, "size": size}
        reference = file.add(file.circuit, "exchange", **parts)
        output = file.affine(file.circuit, [(0, sign * np.eye(2))], [0.0, 0.0])
        file.proof["regions"] = [{"output": output, "stands_for": reference, "margin": 1.0}]
        refused(file)


def test_a_gate_that_is_closed_and_stands_for_a_function() -> None:
    file = Forged(1, -10.0, -9.0)
    x = file.scaled(file.source, (0, 1.0))
    file.outputs(file.scaled(file.source, (file.function(file.source, "exp", x), 1.0), (x, 1.0)), 0)
    x = file.scaled(file.circuit, (0, 1.0))
    reference = file.function(file.circuit, "exp", x)
    gate = file.relu(file.circuit, file.scaled(file.circuit, (x, 1.0)))
    file.proof["circuit"]["output"] = file.scaled(file.circuit, (gate, 1.0), (x, 1.0))
    ends = file.keep(np.linspace(-10.0, -9.0, 11))
    file.proof["regions"] = [{"output": gate, "stands_for": reference, "margin": 0.0, "ends": ends}]
    file.embed()
    file.model["readout"] = [file.link("x", [[1.0]])]
    answered(file)


def test_heads_claimed_twice_or_not_at_all() -> None:
    for nodes, components in (([1, 1], [0, 0]), ([1], [1]), ([1], [-1]), ([7], [0]), ([0], [0]), ([-1], [0]), ([], [])):
        file = Forged(1, -1.0, 1.0)
        file.outputs(file.relu(file.source, 0), file.relu(file.circuit, 0))
        file.embed()
        file.register("g")
        count = len(nodes)
        file.gates([file.link("x", np.ones((count, 1)))], [file.link("g", np.ones((1, count)))], nodes, components, 1e4)
        file.model["readout"] = [file.link("g", [[1.0]])]
        refused(file)
