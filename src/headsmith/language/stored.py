"""Targets, and the circuits of proofs, as a file holds them: structure as JSON, numbers as tensors by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, assert_never

import numpy as np

from headsmith.core.arrays import Array, Weights, frozen
from headsmith.core.errors import FileFormatError
from headsmith.core.program import Call, Linear, Over, Program, Step, Times
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
    PoolKind,
    Positional,
    Product,
    Quotient,
    Relu,
    Sampled,
    Term,
)

Header = dict[str, Any]
Tensors = dict[str, Any]

SOURCE, PROOF, APPROXIMATES = "source.", "proof.", "approximates"
"""How the names of the target's tensors begin, and those of a proof's own; the field of a file, and the beginning of
the names of tensors, of what a network approximates."""

ROLES = "roles"
"""The field of a proof that says which nodes of its circuit the heads compute."""


@dataclass(frozen=True, eq=False)
class Proof:
    """What a file carries for the kernel: structure as JSON, and the tensors that are the proof's own."""

    stored: Header
    tensors: Tensors

    @staticmethod
    def of(stored: Header, tensors: Tensors) -> Proof:
        """The proof of a file, without the roles of heads, which the model's banks have."""
        names = [name for name in tensors if name.startswith(PROOF) and not name.startswith(PROOF + ROLES)]
        fields = {name: each for name, each in stored.items() if name != ROLES}
        return Proof(fields, {name: tensors[name] for name in names})


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


def read_program(stored: Header) -> Program:
    """The program that `program_data` stored."""
    steps: list[Step] = []
    for name, *rest in stored["steps"]:
        match name:
            case "linear":
                terms = tuple((Fraction(c), int(operand)) for c, operand in rest[0])
                steps.append(Linear(terms, Fraction(rest[1])))
            case "call":
                steps.append(Call(str(rest[0]), int(rest[1]), float(rest[2]) if len(rest) > 2 else None))
            case "times":
                steps.append(Times(int(rest[0]), int(rest[1])))
            case "over":
                steps.append(Over(int(rest[0]), int(rest[1])))
            case _:
                raise FileFormatError(f"unknown step {name!r} of a program")
    return Program(int(stored["variables"]), tuple(steps))


def read_graph(stored: Header, tensor: Callable[[str], Any]) -> Graph:
    """The target that `graph_data` stored, or FileFormatError."""
    return Graph(tuple(read_node(item, tensor) for item in stored["nodes"]), int(stored["output"]))


def read_node(item: Header, tensor: Callable[[str], Any], target: Graph | None = None) -> Node:
    """The node that `node_data` stored, or FileFormatError; of a circuit also a copy of a node of its `target`."""
    match item["kind"]:
        case "input":
            return Input(tuple(str(name) for name in item["names"]))
        case "affine":
            terms = tuple(Term(int(term["node"]), read_weights(term["weights"], tensor)) for term in item["terms"])
            return Affine(terms, tensor(item["bias"]))
        case "relu":
            return Relu(int(item["argument"]), int(item["size"]))
        case "maximum":
            return Maximum(tuple(int(number) for number in item["arguments"]), int(item["size"]))
        case "minimum":
            return Minimum(tuple(int(number) for number in item["arguments"]), int(item["size"]))
        case "product":
            return Product(int(item["left"]), int(item["right"]), int(item["size"]))
        case "quotient":
            return Quotient(int(item["numerator"]), int(item["denominator"]), int(item["size"]))
        case "hypotenuse":
            return Hypotenuse(int(item["left"]), int(item["right"]), int(item["size"]))
        case "function":
            parameter = None if item["parameter"] is None else float(item["parameter"])
            return Function(str(item["name"]), int(item["argument"]), int(item["size"]), parameter)
        case "expression":
            return Expression(read_program(item["program"]), tuple(map(int, item["arguments"])), int(item["size"]))
        case "positional":
            return Positional(tensor(item["values"]))
        case "pool":
            kinds: dict[str, PoolKind] = {"mean": "mean", "max": "max", "min": "min"}
            return Pool(kinds[item["of"]], int(item["argument"]), int(item["size"]), bool(item["causal"]))
        case "move":
            return Move(int(item["argument"]), tuple(map(int, item["targets"])), int(item["size"]))
        case "attend":
            queries, keys, values, size = (int(item[name]) for name in ("queries", "keys", "values", "size"))
            return Attend(queries, keys, values, size, bool(item["causal"]))
        case "average":
            return Average(*(int(item[name]) for name in ("scores", "values", "keys", "size")))
        case "sampled":
            answers, lipschitz, scale = (tensor(item[name]) for name in ("answers", "lipschitz", "scale"))
            places = tuple(map(int, item["arguments"]))
            return Sampled(places, answers, lipschitz, scale, item["norm"], float(item["evaluation"]))
        case "copy" if target is not None:
            return _copied(target.nodes[item["node"]], tuple(map(int, item["arguments"])))
        case kind:
            raise FileFormatError(f"unknown source node kind {kind!r}")


def _copied(node: Node, read: tuple[int, ...]) -> Node:
    """A node of the target that reads others."""
    match node:
        case Affine():
            moved = zip(read, node.terms, strict=True)
            return Affine(tuple(Term(number, term.weights) for number, term in moved), node.bias)
        case Sampled():
            return replace(node, arguments=read)
    raise FileFormatError(f"a circuit copies sums and sampled functions, not a {type(node).__name__.lower()}")
