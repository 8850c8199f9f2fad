"""The circuit of a model in disguise: the plain model's labels, carried along.

A head is of a head of the plain model, with a share, or of none. Two heads are joined if those of the plain model are:
theorem Z holds of what was rewritten, in the reals, whatever basis the stream is in. Forms, variables and what
completes them name the heads of the plain model; what reads a variable, and what writes it, are vectors of this one's
stream.

    I (idle)        What an idle head writes only idle heads read; what it reads moves nothing else.
    A (amplitude)   A whisper returns a number between 0 and D, and writes it to an output alone: that moves by at most
                    D, whatever is done to its queries, keys and values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.inside.ablation import INPUT, OUTPUT, Edge, Node, edge_name, node_name
from headsmith.inside.circuit import circuit, damage_data, digest, draws, edge_data, short
from headsmith.inside.disguise import Disguised
from headsmith.inside.necessity import PAIRS, Judged, by_weights, judged, outgoing, searched, uniqueness
from headsmith.inside.rewrites import IDLE, WHISPER

DUST = 1e-9
"""A head that can move the outputs by less than this share of the certificate is idle."""

KINDS = {IDLE: "decoy", WHISPER: "whisper"}


def circuit_of(hidden: Disguised, damages: bool, unique: bool, seed: int) -> dict[str, Any]:
    """The circuit as data; see inside/circuit.py."""
    machine, error, draw = hidden.machine, hidden.certificate.error, draws(hidden)
    plain = circuit(hidden.model, damages=False)
    edges = judged(machine, _decided(hidden), error, draw, seed, damages)
    found = {name: plain[name] for name in ("format", "version", "target", "domain", "tokens")}
    width = max((layer["d_head"] for layer in machine.config["layers"]), default=0)
    most = max((layer["heads"] for layer in machine.config["layers"]), default=0)
    found["cfg"] = {**plain["cfg"], "n_heads": most, "d_model": machine.config["d_model"], "d_head": width}
    certificate = {**plain["certificate"], "error": error, "parts": dict(hidden.certificate.parts)}
    found |= {"certificate": certificate, "weights_sha256": digest(hidden.plain())}
    found["nodes"] = _nodes(hidden, plain, most, damages, seed)
    found["edges"] = {edge_name(edge): edge_data(edge, each) for edge, each in edges.items()}
    found["unique"] = uniqueness(machine, edges, error, draw, seed) if unique else "irredundant"
    found["variables"] = [_variable(hidden, each) for each in plain["variables"]]
    found["groups"] = _groups(hidden)
    added = error - plain["certificate"]["error"]
    found["rewrites"] = [{**each, "parameters": each.get("parameters", {})} for each in hidden.recipe]
    return found | {"adds_to_error": max(added, 0.0), "seed": seed}


def origin_of(hidden: Disguised, node: Node) -> Node | int:
    """The node of the plain model that a node is; of heads that are of none, IDLE, or WHISPER where an output is
    reached: so say their weights."""
    if node in (INPUT, OUTPUT):
        return node
    of, _ = hidden.origins[node[0]][node[1]]
    if of >= 0:
        return node[0], of
    return WHISPER if amplitude_of(hidden, node) > DUST * hidden.certificate.error else IDLE


def amplitude_of(hidden: Disguised, node: Node) -> float:
    """How far a head that reads inputs and constants alone can move an output: the largest of its values, times what
    the read-out makes of the row that it writes."""
    machine = hidden.machine
    value = machine.reads(node, "v")
    inputs = np.abs(machine.writes(INPUT) @ value) * _sizes(hidden)[:, None]
    size = np.max(np.abs(machine.constants() @ value), axis=0) + inputs.sum(axis=0)
    moved = np.abs(machine.writes(node) @ machine.reads(OUTPUT, ""))
    return float(np.max(size @ moved, initial=0.0))


def _sizes(hidden: Disguised) -> Array:
    """How large inputs can be."""
    box = np.maximum(np.abs(hidden.box.low), np.abs(hidden.box.high))
    return np.resize(box, hidden.transformer.inputs)


def _decided(hidden: Disguised) -> dict[Edge, Judged]:
    """What theorems say of the edges."""
    plain, found = by_weights(hidden.plain_machine), dict[Edge, Judged]()
    known = {node: origin_of(hidden, node) for node in (INPUT, OUTPUT, *hidden.machine.heads)}
    amplitudes = {node: amplitude_of(hidden, node) for node, of in known.items() if of == WHISPER}
    for edge in hidden.machine.edges():
        source, target = known[edge.source], known[edge.target]
        if isinstance(source, tuple) and isinstance(target, tuple):
            found[edge] = plain[Edge(source, target, edge.read_as)]
        elif WHISPER in (source, target) and IDLE not in (source, target):
            reached = target in (WHISPER, OUTPUT)
            moved = amplitudes.get(edge.target, amplitudes.get(edge.source, 0.0))
            why, most = ("amplitude", short(moved)) if reached else ("weights", 0.0)
            found[edge] = Judged("false", "input" if reached else "nothing", at_most=most, why=why)
        else:
            found[edge] = Judged("false", "input", at_most=0.0, why="idle")
    return found


def _nodes(hidden: Disguised, plain: dict[str, Any], most: int, damages: bool, seed: int) -> dict[str, Any]:
    machine, found = hidden.machine, {name: plain["nodes"][name] for name in ("input", "logits")}
    true = [head for head in machine.heads if isinstance(origin_of(hidden, head), tuple)]
    cuts = {head: outgoing(machine, head) for head in true} if damages else {}
    seen = searched(machine, list(cuts.values()), hidden.certificate.error, draws(hidden), PAIRS, seed)
    for number, layer in enumerate(hidden.origins):
        for place, (of, share) in enumerate(layer):
            name = node_name((number, place))
            where = {"hook": f"blocks.{number}.attn.hook_z", "index": place}
            if of < 0:
                kind = origin_of(hidden, (number, place))
                found[name] = {"in_graph": False, "kind": KINDS[kind] if isinstance(kind, int) else "decoy", **where}
                continue
            own = plain["nodes"][f"a{number}.h{of}"]
            kept = {key: value for key, value in own.items() if key not in ("features", "says", "share_of_error")}
            back = hidden.tensors[f"heads.{number}.devalues"][place].tolist()
            found[name] = {**kept, **where, "of": f"a{number}.h{of}", "share": share, "unmix_values": back}
            if (number, place) in cuts:
                found[name]["damage"] = {"resample": damage_data(seen[cuts[number, place]])}
        for place in range(len(layer), most):
            found[f"a{number}.h{place}"] = {"in_graph": False, "kind": "padding"}
        found[f"m{number}"] = {"in_graph": False}
    return found


def _variable(hidden: Disguised, plain: dict[str, Any]) -> dict[str, Any]:
    """A variable of the plain model: its vectors in this one's stream."""
    reads, writes = hidden.tensors["stream.reads"], hidden.tensors["stream.writes"]
    layers = {
        layer: {"read": (reads @ np.array(each["read"])).tolist(), "offset": each["offset"]}
        for layer, each in plain["layers"].items()
    }
    rows = [{"head": each["head"], "vector": (np.array(each["vector"]) @ writes).tolist()} for each in plain["write"]]
    return {**plain, "layers": layers, "write": rows}


def _groups(hidden: Disguised) -> list[dict[str, Any]]:
    """Heads that are parts of one."""
    found = []
    for number, layer in enumerate(hidden.origins):
        for origin in sorted({of for of, _ in layer if of >= 0}):
            members = [node_name((number, place)) for place, (of, _) in enumerate(layer) if of == origin]
            if len(members) > 1:
                found.append({"kind": "split", "of": f"a{number}.h{origin}", "members": members})
    return found
