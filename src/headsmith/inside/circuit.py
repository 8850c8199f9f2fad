"""circuit.json: what every head of a model does, as data, with proofs. Ground truth for tools that look for circuits.

    nodes        every head: what it returns, exactly; the variable that it stands for, and what completes that; whether
                 it is active; what ablating it does
    edges        from every node to the queries, keys, values and outputs that may read it: true, false, or grey, with a
                 witness or a theorem (necessity.py)
    variables    what the model computes on the way, as trees, and for each layer what reads and what writes them
    registers    what every column of the stream holds on data tokens, before each layer and at the end

It is also the file of a graph that MIB's code reads: it needs `cfg`, `nodes`, and `edges` with `in_graph` and `score`.
The schema is circuit.schema.json beside this file. `circuit_check.py` checks all of it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Protocol

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.core.rounding import HALVES
from headsmith.export.plain import Plain
from headsmith.inside.ablation import Edge, Machine, edge_name, node_name
from headsmith.inside.anatomy import Anatomy, Head
from headsmith.inside.labels import Labels, Output, Variable
from headsmith.inside.meanings import Model
from headsmith.inside.necessity import PAIRS, Damage, Draw, Judged, by_weights, judged, outgoing, searched, uniqueness
from headsmith.inside.trees import Writer, text
from headsmith.inside.walked import Walked, walked
from headsmith.language.describe import Reading
from headsmith.plan.circuits.pieces import in_blocks
from headsmith.transformer.bill import Bill
from headsmith.transformer.ir import layout

MOST_EDGES = 1 << 15
"""Models with more edges are told without them."""

MOST_HEADS = 512
"""Models with more heads are told without edges and variables."""

ROLES = {"sink": "gate", "move": "mover", "mean": "aggregator", "boltzmann": "selector", "gate": "multiplier"}
"""What heads of a kind are called in annotations of circuits; all others look something up."""

DIGITS = 6


class Anatomical(Model, Protocol):
    """A model that can be taken apart."""

    @property
    def anatomy(self) -> Anatomy: ...
    @property
    def bill(self) -> Bill: ...
    def plain(self) -> Plain: ...
    def save(self, path: Any) -> None: ...


def circuit(model: Anatomical, *, damages: bool = True, unique: bool = False, seed: int = 0) -> dict[str, Any]:
    """The whole model as data. Without `damages`, edges have no witnesses, and those that weights join no label; with
    `unique`, it is proven how many edges may be cut at once."""
    machine, why_not = machine_of(model)
    if model.bill.heads > MOST_HEADS:
        machine, why_not = None, f"the model has {model.bill.heads:,} heads: more than {MOST_HEADS} are not told"
    found = {**_about(model), "nodes": {}, "edges": {}, "unique": "irredundant", "variables": [], "registers": []}
    found |= {"groups": [], "rewrites": []}
    if machine is None:
        return found | {"nodes": _plain_nodes(model), "edges_missing": why_not}
    labels, known = Labels(model, machine), _known(model)
    found["variables"] = [_variable(labels, each, known) for each in labels.variables]
    found["registers"] = _registers(labels)
    edges: dict[Edge, Judged] = {}
    if machine_edges(machine) > MOST_EDGES:
        found["edges_missing"] = f"there are {machine_edges(machine):,} edges, more than are looked at one by one"
    else:
        decided = by_weights(machine)
        edges = judged(machine, decided, model.certificate.error, draws(model), seed, search=damages)
    if unique and edges:
        found["unique"] = uniqueness(machine, edges, model.certificate.error, draws(model), seed)
    found["nodes"] = _nodes(model, labels, edges, known, damages, seed)
    found["edges"] = {edge_name(edge): edge_data(edge, each) for edge, each in edges.items()}
    return found | {"seed": seed}


def machine_of(model: Anatomical) -> tuple[Machine | None, str]:
    """The model as edges are cut in it; or why they are not."""
    if model.transformer.dtype in HALVES:
        return None, f"there are no witnesses of formats of 16 bits, as {model.transformer.dtype}"
    try:
        plain = model.plain()
        return Machine(plain.config, plain.tensors), ""
    except HeadsmithError as problem:
        return None, str(problem)


def machine_edges(machine: Machine) -> int:
    """How many edges there can be."""
    sizes = [len(layer[0]) for layer in machine.layers]
    return sum(3 * size * (1 + sum(sizes[:place])) for place, size in enumerate(sizes)) + 1 + sum(sizes)


def draws(model: Any) -> Draw:
    """Draws inputs of the domain, laid out as the tokens of sequences."""
    transformer, box = model.transformer, model.box

    def draw(generator: np.random.Generator, count: int) -> Array:
        blocks, whole = model.blocks, box.size > transformer.inputs
        shape = (count, box.size) if blocks or whole else (count, transformer.tokens, box.size)
        points = generator.uniform(box.low, box.high, shape)
        if blocks:
            return np.asarray(in_blocks(points, transformer.tokens))
        return points.reshape(count, transformer.tokens, transformer.inputs)

    return draw


def digest(plain: Plain) -> str:
    """SHA-256 of the names, shapes and bytes of all weights."""
    found = hashlib.sha256()
    for name in sorted(plain.tensors):
        array = np.ascontiguousarray(plain.tensors[name])
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def short(value: float, upwards: bool = True) -> float:
    """A bound, rounded away from what it bounds to a few digits; the last ones depend on the machine's products."""
    if not np.isfinite(value) or value == 0.0:
        return float(value) if np.isfinite(value) else 1e300
    rounding = ROUND_CEILING if upwards else ROUND_FLOOR
    return float(Decimal(value).normalize(Context(prec=DIGITS, rounding=rounding)))


def _about(model: Anatomical) -> dict[str, Any]:
    """The model, its target and its domain."""
    certificate, box, transformer = model.certificate, model.box, model.transformer
    heads = [layer.heads for layer in transformer.layers]
    about: dict[str, Any] = {
        "format": "headsmith circuit",
        "version": 2,
        "certificate": {
            "error": certificate.error,
            "parts": dict(certificate.parts),
            "dtype": certificate.dtype,
            "masks": list(certificate.masks),
        },
        "cfg": {"n_layers": len(heads), "n_heads": max(heads, default=0), "parallel_attn_mlp": False},
        "target": _target(model),
        "domain": {
            name: [low, high] for name, low, high in zip(box.names, box.low.tolist(), box.high.tolist(), strict=True)
        },
        "tokens": {
            "sink": transformer.sink_tokens,
            "grid": transformer.grid_tokens,
            "data": transformer.tokens,
        },
        "directions": {
            name: {"columns": [place.start, place.stop], "constant": name in transformer.positional}
            for name, place in layout(transformer).items()
        },
    }
    machine, _ = machine_of(model)
    if machine is not None:
        width = max((layer["d_head"] for layer in machine.config["layers"]), default=0)
        about["cfg"] |= {"d_model": machine.config["d_model"], "d_head": width, "attn_only": True}
        about["weights_sha256"] = digest(Plain(dict(machine.config), dict(machine.tensors)))
    return about


def _target(model: Anatomical) -> dict[str, Any]:
    """What is computed, output by output."""
    graph = model.wanted
    writer = Writer({}, {})
    trees = [writer.tree(Reading(graph), graph.output, k) for k in range(graph.nodes[graph.output].size)]
    return {"source": ", ".join(map(text, trees)), "tree": trees[0] if len(trees) == 1 else ["list", *trees]}


def _known(model: Anatomical) -> Walked | None:
    try:
        return walked(model)
    except HeadsmithError:
        return None


# Nodes ----------------------------------------------------------------------------------------------------------------


def _plain_nodes(model: Anatomical) -> dict[str, Any]:
    """Nodes of a model whose edges are not known: heads, and blocks of neurons."""
    found: dict[str, Any] = {"input": {"in_graph": True}, "logits": {"in_graph": True}}
    for number, layer in enumerate(model.anatomy.layers):
        for place, head in enumerate(layer.heads):
            found[f"a{number}.h{place}"] = {"in_graph": True, **_named(head)}
        units = [{"name": each.name, "kind": each.kind, "text": each.computes} for each in layer.neurons]
        found[f"m{number}"] = {"in_graph": bool(units), **({"neurons": units} if units else {})}
    return found


def _named(head: Head) -> dict[str, Any]:
    return {
        "kind": head.kind,
        "name": head.name,
        "hook": f"blocks.{head.layer - 1}.attn.hook_z",
        "index": head.index,
        "role": ROLES.get(head.kind, "lookup"),
        "says": list(head.sentences),
        "features": list(head.features),
        "share_of_error": None if head.share is None else {name: short(value) for name, value in head.share.items()},
    }


def _nodes(
    model: Anatomical, labels: Labels, edges: Mapping[Edge, Judged], known: Walked | None, damages: bool, seed: int
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "input": {"in_graph": True, "kind": "input"},
        "logits": {"in_graph": True, "kind": "output"},
    }
    cuts = {head: outgoing(labels.machine, head) for head in labels.machine.heads} if damages and edges else {}
    wanted, error = [cut for cut in cuts.values() if cut], model.certificate.error
    seen = searched(labels.machine, wanted, error, draws(model), PAIRS, seed)
    most = max((layer.heads for layer in model.transformer.layers), default=0)
    for number, row in enumerate(labels.heads):
        for place, (bank, outputs) in enumerate(row):
            head, damage = model.anatomy.layers[number].heads[place], seen.get(cuts.get((number, place), ()))
            node: dict[str, Any] = {"in_graph": True, **_named(head)}
            node["kind"] = "clear" if bank.cleared else bank.kind
            node["returns"] = [_returned(labels, each, known) for each in outputs]
            meant = {each.id: each for output in outputs for each in labels.variables_of(output)}
            node["stands_for"] = [{"variable": each.id, "text": each.text} for each in meant.values()]
            parts = {each.id: each.completed for each in meant.values() if each.completed and len(each.completed) > 1}
            node["completed_by"] = [
                {"variable": name, "from": other, "weight": weight}
                for name, form in parts.items()
                for other, weight in form.items()
                if other not in {each.name for each in outputs}
            ]
            node["active"], node["gain"] = _active(outputs, known), _gain(outputs, known)
            if damage is not None:
                node["damage"] = {"resample": damage_data(damage)}
            found[node_name((number, place))] = node
        found |= {f"a{number}.h{place}": {"in_graph": False, "kind": "padding"} for place in range(len(row), most)}
        found[f"m{number}"] = {"in_graph": False}
    return found


def _returned(labels: Labels, output: Output, known: Walked | None) -> dict[str, Any]:
    """What one output is, and how far it is from that: by what the head commits, and with what arrives there."""
    tree = labels.returns(output)
    found: dict[str, Any] = {"output": output.name, "tree": tree, "text": text(tree), "error": None, "in_all": None}
    if known is not None:
        node, component = _proven_place(known, output)
        own, final = known.walk.own.get(node), known.off(node)
        found["error"] = None if own is None else short(float(own.value[component]))
        found["in_all"] = None if final is None else short(float(final.value[component]))
    return found


def _proven_place(known: Walked, output: Output) -> tuple[int, int]:
    """The node and the component of the proof's circuit that an output is."""
    bank, _, mine = known.layers[output.head[0]][output.head[1]]
    return int(bank.node[mine][output.number]), int(bank.component[mine][output.number])


def _active(outputs: list[Output], known: Walked | None) -> str:
    """Whether a gate is open always, never, or sometimes, as far as ranges decide."""
    if known is None or len(outputs) != 1:
        return "unknown"
    node, component = _proven_place(known, outputs[0])
    if known.facts.circuit.nodes[node].kind != "relu":
        return "always"
    range_ = known.facts.ranges[known.facts.circuit.nodes[node].arguments[0]]
    if range_.low[component] >= 0.0:
        return "always"
    return "never" if range_.high[component] <= 0.0 else "unknown"


def _gain(outputs: list[Output], known: Walked | None) -> float | None:
    """How far the model's outputs move, at most, for one of the head's."""
    if known is None:
        return None
    found = 0.0
    for output in outputs:
        node, component = _proven_place(known, output)
        if node in known.facts.gains:
            found = max(found, float(np.max(known.facts.gains[node].anywhere.size.value[component])))
    return short(found)


# Edges ----------------------------------------------------------------------------------------------------------------


def edge_data(edge: Edge, each: Judged) -> dict[str, Any]:
    """One edge."""
    true = each.label == "true"
    found: dict[str, Any] = {"in_graph": true, "score": 1.0 if true else 0.0, "label": each.label}
    found |= {"carries": each.carries}
    if each.damage is not None:
        found["damage"] = {"resample": damage_data(each.damage)}
    if each.at_most is not None:
        found |= {"at_most": each.at_most, "why": each.why}
    return found


def damage_data(damage: Damage) -> dict[str, Any]:
    """One damage with its witness."""
    return {
        "proved": short(damage.proved, upwards=False),
        "found": damage.found,
        "share": damage.share,
        "base": damage.base.tolist(),
        "source": damage.source.tolist(),
        "output": damage.output,
        "token": damage.token,
    }


# Variables and registers ---------------------------------------------------------------------------------------------


def _variable(labels: Labels, variable: Variable, known: Walked | None) -> dict[str, Any]:
    last, writers = labels.write(variable)
    layers = {}
    for layer in range(last + 1, len(labels.forms)):
        read = labels.read(variable, layer)
        if read is not None:
            vector, offset = read
            layers[str(layer)] = {"read": vector.tolist(), "offset": offset}
            layers[str(layer)]["error_at_most"] = _read_error(labels, variable, vector, layer, known)
    found: dict[str, Any] = {
        "id": variable.id,
        "tree": variable.tree,
        "python": variable.text,
        "completed": None if variable.completed is None else dict(variable.completed),
        "written_after_layer": last,
        "write": [{"head": name, "vector": row.tolist()} for name, row in writers],
        "layers": layers,
    }
    return found | ({"says": variable.says} if variable.says else {})


def _read_error(labels: Labels, variable: Variable, vector: Array, layer: int, known: Walked | None) -> float | None:
    """How far what is read may be from the variable: what its heads are off by, and what the registers round."""
    if known is None or variable.completed is None:
        return None
    walk, total = known.walk, 0.0
    for output in labels.outputs:
        weight = abs(variable.completed.get(output.name, 0.0))
        if weight:
            node, component = _proven_place(known, output)
            off = known.off(node)
            if off is None:
                return None
            total += weight * float(off.value[component])
    stream = walk.past[layer] if layer < len(walk.past) else walk.stream
    for name, place in layout(labels.model.transformer).items():
        if name in stream and place.stop - place.start == len(stream[name].count):
            rounded = stream[name].off(known.facts.model.precision).value
            total += float(np.abs(vector[place]) @ rounded)
    return short(total * (1.0 + 1e-9)) if np.isfinite(total) else None


def _registers(labels: Labels) -> list[dict[str, Any]]:
    """What columns hold before each layer and at the end, by name; of later ones, what has changed."""
    names = [
        name if place.stop - place.start == 1 else f"{name}[{column - place.start}]"
        for name, place in layout(labels.model.transformer).items()
        for column in range(place.start, place.stop)
    ]
    columns = [
        column for place in layout(labels.model.transformer).values() for column in range(place.start, place.stop)
    ]
    found: list[dict[str, Any]] = []
    for layer, forms in enumerate(labels.forms):
        changed = {
            name: {
                "column": column,
                "form": labels.form(forms[column]),
                "text": labels.told(labels.form(forms[column])),
            }
            for name, column in zip(names, columns, strict=True)
            if layer == 0 or not np.array_equal(forms[column], labels.forms[layer - 1][column])
        }
        found.append(changed)
    return found
