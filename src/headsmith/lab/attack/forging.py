"""A draft as a file: a model that computes its circuit, the proof, and what the circuit means for a target.

Every node with heads has a register of its own, every bank a layer of its own and reads the circuit's linear forms of
these registers; and the target is what the circuit means, so that all equalities hold. What is left for a rule to
refuse is what the rule itself must know.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.expressions import arguments_of
from headsmith.kernel.core.fields import NODES
from headsmith.kernel.core.functions import named
from headsmith.kernel.core.graph import HYPOTENUSE, PRODUCT, QUOTIENT, Graph, Node, dense, needed
from headsmith.kernel.core.heads import addresses
from headsmith.kernel.core.model import Bank
from headsmith.lab.attack.circuit_values import evaluated
from headsmith.lab.attack.drafts import DraftHead, FileDraft
from headsmith.lab.attack.mutations import Change

OPERATIONS = {
    PRODUCT: ("product", "left", "right"),
    named("square"): ("product", "left", "right"),
    QUOTIENT: ("quotient", "numerator", "denominator"),
    HYPOTENUSE: ("hypotenuse", "left", "right"),
}
"""Programs that a file knows by a name, and what it calls their arguments."""


Form = dict[int, Any]
"""For every base, a node whose value is in a register (-1: what is 1 at every token), the matrix that multiplies it."""


def forms_of(draft: FileDraft) -> dict[int, Form]:
    """The nodes that are computed, as linear forms of what has registers. Of gates without heads those count as open
    that are so at most of a few points."""
    rng, forms = np.random.default_rng(0), dict[int, Form]()
    low, high = (np.asarray(draft.domain[name], dtype=np.float64) for name in ("low", "high"))
    points = low + (high - low) * rng.random((64, draft.tokens, len(low)))
    gates = [n for n, node in enumerate(draft.nodes) if node.kind == "relu"]
    values = evaluated(draft.meant, [draft.nodes[n].arguments[0] for n in gates], points)
    for number, node in enumerate(draft.nodes):
        if node.kind == "affine" and all(each in forms for each in node.arguments):
            form: Form = {-1: node.constants[:, None].copy()}
            for argument, weights in zip(node.arguments, node.weights, strict=True):
                for base, matrix in forms[argument].items():
                    form[base] = form.get(base, 0.0) + dense(weights) @ matrix
            forms[number] = form
        elif node.kind == "relu":
            has = np.isin(np.arange(node.size), draft.heads[number].components if number in draft.heads else ())
            passing = np.where(has, 0.0, np.median(values[node.arguments[0]], axis=(0, 1)) > 0.0)
            if passing.any() and node.arguments[0] not in forms:
                continue
            source = forms[node.arguments[0]] if passing.any() else {}
            forms[number] = {base: passing[:, None] * matrix for base, matrix in source.items()}
            if has.any():
                forms[number][number] = np.diag(has.astype(float))
        elif node.kind in ("input", "positional") or number in draft.heads:
            forms[number] = {number: np.eye(node.size)}
    return forms


@dataclass(eq=False)
class _File:
    dtype: str
    tensors: dict[str, Any] = field(default_factory=dict)

    def keep(self, values: Any, kind: Any = np.float64) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(values, dtype=kind)
        return name

    def link(self, register: str, weights: Any) -> dict[str, Any]:
        single = np.asarray(weights, dtype=np.float64 if self.dtype == "float64" else np.float32)
        return {"register": register, "first": 0, "weights": self.keep(single)}

    def links(self, rows: Form) -> list[dict[str, Any]]:
        """What reads rows of forms."""
        names = {base: "data" if base < 0 else f"n{base}" for base in rows}
        return [self.link(names[base], matrix) for base, matrix in rows.items() if np.any(matrix)]

    def graph(self, nodes: list[Node], output: int) -> dict[str, Any]:
        return {"nodes": [self.node(each) for each in nodes], "output": output}

    def node(self, node: Node) -> dict[str, Any]:
        found = self._fields(node)
        return {name: found[name] for name in NODES[found["kind"]] if name in found}

    def _fields(self, node: Node) -> dict[str, Any]:
        """The fields of a node, and some that only others have."""
        found: dict[str, Any] = {"kind": node.kind, "size": node.size, "arguments": list(node.arguments)}
        match node.kind:
            case "input":
                return {"kind": "input", "names": list(node.names)}
            case "affine":
                terms = zip(node.arguments, node.weights, strict=True)
                found["terms"] = [{"node": each, "weights": self.keep(weights)} for each, weights in terms]
                found["bias"] = self.keep(node.constants)
            case "positional":
                found["values"] = self.keep(node.constants)
            case "relu" | "pool" | "move":
                found |= {"argument": node.arguments[0], "of": node.name, "causal": node.causal}
            case "exchange":
                found |= dict(zip(("value", "above", "below"), node.arguments, strict=True))
            case "attend":
                found |= dict(zip(("queries", "keys", "values"), node.arguments, strict=True))
                found["causal"] = node.causal
            case "expression" if node.program in OPERATIONS:
                kind, *names = OPERATIONS[node.program]
                found |= {"kind": kind, **dict(zip(names, (*node.arguments, *node.arguments), strict=False))}
            case "expression" if node.program.steps[0][0] == "call" and len(node.program.steps) == 1:
                _, name, _, parameter = node.program.steps[0]
                found |= {"kind": "function", "argument": node.arguments[0], "name": name, "parameter": parameter}
            case "expression":
                steps = [[_plain(part) for part in step if part is not None] for step in node.program.steps]
                found["program"] = {"variables": node.program.variables, "steps": steps}
        return found | ({"targets": list(node.targets)} if node.targets else {})


def _plain(part: Any) -> Any:
    """A part of a program's step, as a file has it."""
    if isinstance(part, tuple):
        return [[str(coefficient), operand] for coefficient, operand in part]
    return part if isinstance(part, str | int | float) else str(part)


def contents(draft: FileDraft) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the tensors of a file that claims what a draft says."""
    file, bits = _File(draft.dtype), (draft.tokens - 1).bit_length()
    forms = forms_of(draft)
    sizes = {"data": 1, "reference": 1} | ({"position": bits} if bits else {})
    sizes |= {"grid": draft.grid} if draft.grid else {}
    bases = [n for n, node in enumerate(draft.nodes) if node.kind in ("input", "positional") or n in draft.heads]
    sizes |= {f"n{number}": draft.nodes[number].size for number in bases}
    positional = {f"n{n}": draft.nodes[n].constants for n in bases if draft.nodes[n].kind == "positional"}
    levels, layers = dict.fromkeys(bases, 0), list[tuple[int, Any, Any]]()
    graph = Graph(tuple(draft.nodes), draft.output)
    for number, head in sorted(draft.heads.items()):
        rows, address = _rows(graph, forms, number, head), ""
        levels[number] = 1 + max([levels[base] for base, matrix in rows.items() if base >= 0 and np.any(matrix)] + [0])
        node, count = draft.nodes[number], len(head.components)
        if head.kind == "move":
            address = f"address{number}"
            sizes[address], positional[address] = bits + 1, addresses(node.targets, bits)
        writes = np.zeros((node.size, count))
        writes[head.components, np.arange(count)] = 1.0
        bank: dict[str, Any] = {"kind": head.kind, "read": file.links(rows), "write": [file.link(f"n{number}", writes)]}
        bank |= {name: file.keep(values) for name, values in head.arrays.items()} | dict(head.gains)
        bank |= {"address": address} if address else {}
        bank |= {"width": draft.nodes[node.arguments[0]].size} if head.kind == "attend" else {}
        role = {"node": file.keep(np.full(count, number), np.int64), "component": file.keep(head.components, np.int64)}
        layers.append((levels[number], bank, role))
    layers.sort(key=lambda each: each[0])
    out = forms[draft.output]
    model = {
        "inputs": draft.nodes[0].size,
        "outputs": draft.nodes[draft.output].size,
        "tokens": draft.tokens,
        "dtype": draft.dtype,
        "registers": [{"name": name, "size": size} for name, size in sizes.items()],
        "embedding": [file.link("n0", np.eye(draft.nodes[0].size))],
        "initial": {},
        "positional": {name: file.keep(values) for name, values in positional.items()},
        "layers": [[bank] for _, bank, _ in layers],
        "readout": file.links({base: matrix for base, matrix in out.items() if base >= 0}),
        "readout_bias": file.keep(out[-1][:, 0] if -1 in out else np.zeros(draft.nodes[draft.output].size)),
    }
    proof: dict[str, Any] = {
        "circuit": file.graph(draft.nodes, draft.output),
        "steps": draft.steps,
        "powers": draft.powers,
        "halvings": draft.halvings,
        "blocks": 0,
        "roles": [[role] for _, _, role in layers],
    }
    for name, entries in draft.lists.items():
        proof[name] = [
            {key: file.keep(value) if isinstance(value, np.ndarray) else value for key, value in each.items()}
            for each in entries
        ]
    source = _target(draft, file)
    return {"domain": draft.domain, "source": source, "transformer": model, "proof": proof}, file.tensors


def laid_out(draft: FileDraft) -> Change | None:
    """A draft as a change of a file; None where something is read that nobody computes."""
    try:
        return Change("; ".join(draft.label) or "as it was", *contents(draft))
    except (KeyError, IndexError, ValueError, Refused):
        return None


def _rows(graph: Graph, forms: dict[int, Form], number: int, head: DraftHead) -> Form:
    """What the forms of a bank read."""
    count, width = len(head.components), graph.nodes[graph.nodes[number].arguments[0]].size
    forms_read = {"table": count * head.arrays["slope"].shape[2]} if head.kind == "table" else {"gate": 2 * count}
    bank = Bank(
        head.kind,
        (),
        (),
        dict(head.arrays),
        {},
        forms_read.get(head.kind, 0),
        count,
        count,
        np.full(count, number),
        head.components,
        "",
        width if head.kind == "attend" else 0,
    )
    nodes, components = arguments_of(bank, graph)
    found: Form = {}
    for row, (node, component) in enumerate(zip(nodes.tolist(), components.tolist(), strict=True)):
        for base, matrix in forms[node].items():
            found.setdefault(base, np.zeros((len(nodes), matrix.shape[1])))[row] = matrix[component]
    return found


def _target(draft: FileDraft, file: _File) -> dict[str, Any]:
    """What the circuit means, exchanges written out."""
    nodes, output = draft.meant, draft.output
    kept = needed(Graph(tuple(nodes), output), [output, 0])
    found, places = list[Node](), dict[int, int]()
    for number in kept:
        node = replace(nodes[number], arguments=tuple(places[each] for each in nodes[number].arguments))
        if node.kind == "exchange":
            value, above, below = node.arguments
            one, first = np.ones(node.size), len(found)
            zero = np.zeros(node.size)
            found.append(Node("move", node.size, (value,), targets=node.targets))
            found.append(Node("affine", node.size, (value, first, above), (one, -one, -one), zero))
            found.append(Node("affine", node.size, (value, first, below), (-one, one, -one), zero))
            found += [Node("relu", node.size, (first + 1,)), Node("relu", node.size, (first + 2,))]
            node = Node("affine", node.size, (value, first + 3, first + 4), (one, -one, one), zero)
        found.append(node)
        places[number] = len(found) - 1
    return file.graph(found, places[output])
