"""Targets, and the circuits of proofs, as a file holds them: structure as JSON, numbers as tensors by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from headsmith.core.arrays import Array, Weights, frozen
from headsmith.core.errors import FileFormatError
from headsmith.core.program import Call, Linear, Over, Program, Times
from headsmith.core.sparse import SparseArray
from headsmith.language.graph import (
    Affine,
    Attend,
    Average,
    Expression,
    Function,
    Graph,
    Hypotenuse,
    Input,
    Maximum,
    Minimum,
    Move,
    Node,
    Pool,
    Positional,
    Product,
    Quotient,
    Relu,
    Sampled,
)

Header = dict[str, Any]
Tensors = dict[str, Any]

SOURCE, PROOF, APPROXIMATES = "source.", "proof.", "approximates"
"""How the names of the target's tensors begin, and those of a proof's own; the field of a file, and the beginning of
the names of tensors, of what a network approximates."""


@dataclass(frozen=True, eq=False)
class Proof:
    """What a file carries for the kernel: structure as JSON, and the tensors that are the proof's own."""

    stored: Header
    tensors: Tensors


def proof_of(header: Header, tensors: Tensors) -> Proof:
    """The proof in a file."""
    return Proof(header["proof"], {name: each for name, each in tensors.items() if name.startswith(PROOF)})


def graph_data(graph: Graph, tensors: Tensors, prefix: str = "source") -> Header:
    """A target as JSON; its weights are added to the tensors."""
    if any(isinstance(node, Expression) for node in graph.nodes):
        raise FileFormatError("a target that is stored has no fused expressions")
    return {"nodes": nodes_data(graph.nodes, tensors, prefix), "output": graph.output}


def nodes_data(nodes: Sequence[Node], tensors: Tensors, prefix: str) -> list[Header]:
    """Nodes as JSON, with the numbers that they have; their weights are added to the tensors."""

    def stored(number: int, node: Node) -> Header:
        def keep(name: str, values: Any, kind: Any = np.float64) -> str:
            tensors[f"{prefix}.{number}.{name}"] = np.ascontiguousarray(values, dtype=kind)
            return f"{prefix}.{number}.{name}"

        return node_data(node, int, keep)

    return [stored(number, node) for number, node in enumerate(nodes)]


def approximated_data(graph: Graph | None, tensors: Tensors) -> Header:
    """What a network approximates, as the fields of a file."""
    return {} if graph is None else {APPROXIMATES: graph_data(graph, tensors, APPROXIMATES)}


def node_data(node: Node, place: Callable[[int], int], keep: Callable[..., str]) -> dict[str, Any]:
    """A node as JSON. `place` says which numbers the nodes that it reads have in the file; `keep` stores an array, by a
    name that is the node's own, and returns the name that it has in the file."""
    match node:
        case Input():
            return {"kind": "input", "names": list(node.names)}
        case Affine():
            terms = [
                {"node": place(term.node), "weights": stored_weights(f"terms.{index}", term.weights, keep)}
                for index, term in enumerate(node.terms)
            ]
            return {"kind": "affine", "terms": terms, "bias": keep("bias", node.bias)}
        case Positional():
            return {"kind": "positional", "values": keep("values", node.values)}
        case Relu():
            return {"kind": "relu", "argument": place(node.argument), "size": node.size}
        case Maximum() | Minimum():
            kind = "maximum" if isinstance(node, Maximum) else "minimum"
            return {"kind": kind, "arguments": [place(each) for each in node.arguments], "size": node.size}
        case Product() | Hypotenuse():
            kind = "product" if isinstance(node, Product) else "hypotenuse"
            return {"kind": kind, "left": place(node.left), "right": place(node.right), "size": node.size}
        case Quotient():
            ends = {"numerator": place(node.numerator), "denominator": place(node.denominator)}
            return {"kind": "quotient", **ends, "size": node.size}
        case Function():
            stored = {"kind": "function", "name": node.name, "argument": place(node.argument), "size": node.size}
            return {**stored, "parameter": node.parameter}
        case Expression():
            stored = {"kind": "expression", "arguments": [place(each) for each in node.arguments], "size": node.size}
            return {**stored, "program": program_data(node.program)}
        case Pool():
            stored = {"kind": "pool", "of": node.kind, "argument": place(node.argument), "size": node.size}
            return {**stored, "causal": node.causal}
        case Move():
            stored = {"kind": "move", "argument": place(node.argument), "targets": list(node.targets)}
            return {**stored, "size": node.size}
        case Attend():
            read = {name: place(getattr(node, name)) for name in ("queries", "keys", "values")}
            return {"kind": "attend", **read, "size": node.size, "causal": node.causal}
        case Average():
            ends = {"scores": place(node.scores), "values": place(node.values)}
            return {"kind": "average", **ends, "keys": node.keys, "size": node.size}
        case Sampled():
            arrays = {name: keep(name, getattr(node, name)) for name in ("answers", "lipschitz", "scale")}
            stored = {"kind": "sampled", "arguments": [place(each) for each in node.arguments], **arrays}
            return {**stored, "norm": node.norm, "evaluation": node.evaluation}
        case _:
            assert_never(node)


def stored_weights(name: str, weights: Weights, keep: Callable[..., str]) -> Any:
    """The name of the tensor of a matrix, or of a vector; of a matrix by its entries its shape, the entries, and how
    far each of them is from the one before it, row by row: in float32, where that is exact."""
    if not isinstance(weights, SparseArray):
        return keep(name, weights)
    places = weights.rows.astype(np.int64) * weights.shape[1] + weights.columns
    arrays = {"gaps": np.diff(places, prepend=-1).astype(np.float64), "values": weights.values}
    tensors = {each: keep(f"{name}.{each}", array, _narrow(array)) for each, array in arrays.items()}
    return {"shape": list(weights.shape), **tensors}


def _narrow(values: Array) -> Any:
    """float32 where that holds all of the numbers exactly."""
    with np.errstate(over="ignore"):
        return np.float32 if np.array_equal(values.astype(np.float32), values) else np.float64


def read_weights(stored: Any, tensor: Callable[[str], Any]) -> Weights:
    """The weights that `stored_weights` stored."""
    if isinstance(stored, str):
        return frozen(tensor(stored))
    (rows, columns), gaps = stored["shape"], tensor(stored["gaps"])
    places = np.cumsum(gaps, dtype=np.int64) - 1
    if (gaps < 1).any() or places.max(initial=-1) >= rows * columns:
        raise FileFormatError(f"the entries of a matrix of shape {(rows, columns)} are not in order, or outside of it")
    return SparseArray((int(rows), int(columns)), places // columns, places % columns, frozen(tensor(stored["values"])))


def program_data(program: Program) -> dict[str, Any]:
    """A program as JSON; its rational numbers are texts such as 3/7."""
    steps: list[list[Any]] = []
    for step in program.steps:
        match step:
            case Linear():
                steps.append(["linear", [[str(c), operand] for c, operand in step.terms], str(step.constant)])
            case Call():
                steps.append(["call", step.name, step.operand, *([] if step.parameter is None else [step.parameter])])
            case Times():
                steps.append(["times", step.left, step.right])
            case Over():
                steps.append(["over", step.numerator, step.denominator])
            case _:
                assert_never(step)
    return {"variables": program.variables, "steps": steps}
