"""Proofs about several tokens that an adversary writes by hand, each with a step that looks right and is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.attacks.forged import Forged


def ahead() -> tuple[Forged, Any]:
    """A token that fetches from the next one, under a mask that hides it."""
    file = Forged(1, -1.0, 1.0, tokens=2)
    nodes = [file.add(graph, "move", argument=0, targets=[1, 0], size=1) for graph in (file.source, file.circuit)]
    file.outputs(*nodes)
    file.embed()
    file.register("m")
    file.register("address", size=2)
    file.model["positional"] = {"address": file.keep([[-1.0, 0.0], [1.0, 0.0]])}
    reads, writes = [file.link("x", [[1.0]])], [file.link("m", [[1.0]])]
    file.bank("move", reads, writes, [nodes[1]], [0], gain=800.0, keep_gain=800.0, address="address")
    file.model["readout"] = [file.link("m", [[1.0]])]
    return file, [[[1.0], [-1.0]]]


def one_argument_as_two() -> tuple[Forged, Any]:
    """x + x as the perspective s + V with s = V = x: what is read once is counted as both, so x stands for 2 x."""
    file = Forged(1, 1.0, 2.0)
    program = {"variables": 2, "steps": [["linear", [["1", 0], ["1", 1]], "0"]]}
    reference = file.add(file.circuit, "expression", arguments=[0, 0], size=1, program=program)
    output = file.scaled(file.circuit, (0, 1.0))
    file.outputs(file.scaled(file.source, (0, 2.0)), output)
    ends = file.keep(np.linspace(0.5, 2.0, 5))
    file.proof["regions"] = [{"output": output, "stands_for": reference, "margin": None, "ends": ends}]
    file.embed()
    file.model["readout"] = [file.link("x", [[1.0]])]
    return file, [[[2.0]]]


def _zeros(tokens: int = 2) -> tuple[Forged, Any]:
    """Inputs below zero, so that their gate is exactly zero; a head computes it, and is off by 0.0028."""
    file = Forged(1, -0.02, -0.01, tokens=tokens)
    file.embed()
    file.register("y", "b")
    file.register("address", size=2)
    return file, [[[-0.0128], [-0.0128]]]


def _fetch(file: Forged, node: int, addresses: Any) -> None:
    file.model["positional"] = {"address": file.keep(addresses)}
    reads, writes = [file.link("y", [[1.0]])], [file.link("b", [[1.0]])]
    file.bank("move", reads, writes, [node], [0], gain=800.0, keep_gain=800.0, address="address")
    file.model["readout"] = [file.link("y", [[1.0]]), file.link("b", [[1000.0]])]


def joined_blocks() -> tuple[Forged, Any]:
    """A token fetches its own zero, that is off; errors pass by the move, so that what it returns counts as zero, and
    the wrong weight with which it is read as nothing."""
    file, sequences = _zeros()
    for graph in (file.source, file.circuit):
        gate = file.relu(graph, 0)
        moved = file.add(graph, "move", argument=gate, targets=[0, -1], size=1)
        output = file.scaled(graph, (moved, 1.0), (gate, 1.0))
    file.outputs(output, output)
    file.gates([file.link("x", [[1.0]])], [file.link("y", [[1.0]])], [gate], [0], 100.0)
    _fetch(file, moved, [[1.0, 0.0], [0.0, 1.0]])
    return file, sequences


def exchanged_zeros() -> tuple[Forged, Any]:
    """The same with what an exchange fetches."""
    file, sequences = _zeros()
    for graph in (file.source, file.circuit):
        gate = file.relu(graph, 0)
        moved = file.add(graph, "move", argument=gate, targets=[1, 0], size=1)
        falls = file.scaled(graph, (gate, 1.0), (moved, -1.0), bias=-1.0)
        rises = file.scaled(graph, (moved, 1.0), (gate, -1.0), bias=-1.0)
        gates = file.relu(graph, falls), file.relu(graph, rises)
        if graph is file.circuit:
            one = file.affine(graph, [], [1.0])
            reference = file.add(graph, "exchange", value=gate, above=one, below=one, targets=[1, 0], size=1)
        output = file.scaled(graph, (gate, 1.0), (gates[0], -1.0), (gates[1], 1.0))
    file.outputs(len(file.source) - 1, output)
    file.proof["regions"] = [{"output": output, "stands_for": reference, "margin": 3e-3}]
    file.gates([file.link("x", [[1.0]])], [file.link("y", [[1.0]])], [gate], [0], 100.0)
    _fetch(file, moved, [[-1.0, 0.0], [1.0, 0.0]])
    return file, sequences


def zeros_in_a_region() -> tuple[Forged, Any]:
    """The same with a head inside of a region that reads the region's argument."""
    file, sequences = _zeros()
    gate, one = file.relu(file.circuit, 0), file.affine(file.circuit, [], [1.0])
    reference = file.product(file.circuit, gate, one)
    mean = file.add(file.circuit, "pool", of="mean", argument=gate, size=1, causal=False)
    output = file.scaled(file.circuit, (gate, 1.0), (mean, 0.0))
    file.outputs(file.relu(file.source, 0), output)
    file.proof["regions"] = [{"output": output, "stands_for": reference, "margin": 3e-3}]
    file.gates([file.link("x", [[1.0]])], [file.link("y", [[1.0]])], [gate], [0], 100.0)
    reads, writes = [file.link("y", [[1.0]])], [file.link("b", [[1.0]])]
    file.bank("mean", reads, writes, [mean], [0], gain=800.0, keep_gain=800.0)
    file.model["readout"] = [file.link("y", [[1.0]]), file.link("b", [[1000.0]])]
    return file, sequences
