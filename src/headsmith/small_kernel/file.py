"""Reading: what a file holds, as plain values, or one sentence why it is refused.

A file is a safetensors file with a JSON header (docs/certificate.md, section 2). Reading executes nothing, and
reads only tensors that the header names. `take` is the only way into an object: it wants exactly the fields that it
is told, each of its type, and so a field that nobody here knows is refused. Whatever else does not fit ends in an
exception, which is a refusal, too. What is outside the small kernel is refused by name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from safetensors import safe_open

from headsmith.small_kernel.bounds import Array, Outside, require

FORMATS = {
    "float64": (2.0**-53, 2.0**-1022, 1.7976931348623157e308),
    "float32": (2.0**-24, 2.0**-126, 3.4028234663852886e38),
}
BANKS = {
    "sink": ("query_scale key_scale", "reference_gain position_gain"),
    "table": ("slope offset values", "gain keep_gain"),
    "gate": ("slope offset", "position_gain keep_gain"),
    "mean": ("", "gain keep_gain"),
    "boltzmann": ("query_scale key_scale", "gain keep_gain"),
    "move": ("", "gain keep_gain"),
}
NODES = {
    "input": "names:list",
    "affine": "terms:list bias:text",
    "relu": "argument:whole size:whole",
    "maximum": "arguments:list size:whole",
    "minimum": "arguments:list size:whole",
    "product": "left:whole right:whole size:whole",
    "hypotenuse": "left:whole right:whole size:whole",
    "quotient": "numerator:whole denominator:whole size:whole",
    "function": "name:text argument:whole size:whole parameter:any",
    "expression": "arguments:list size:whole program:any",
    "positional": "values:text",
    "pool": "of:text argument:whole size:whole causal:truth",
    "move": "argument:whole size:whole targets:list",
    "copy": "node:whole arguments:list",
}
CALLS = """exp log sqrt sin cos tan arcsin arccos arctan erf expm1 log1p square reciprocal sinh cosh tanh sigmoid
softplus gelu gaussian hypotenuse power""".split()  # noqa: SIM905
TYPES: dict[str, Any] = {
    "any": lambda v: True,
    "list": lambda v: type(v) is list,
    "whole": lambda v: type(v) is int and 0 <= v <= 2**40,
    "number": lambda v: type(v) in (int, float) and abs(v) <= 1e300,
    "size": lambda v: type(v) in (int, float) and 0 <= v <= 1e300,
    "text": lambda v: type(v) is str and v.isprintable(),
    "truth": lambda v: type(v) is bool,
}


@dataclass(frozen=True, eq=False)
class Node:
    kind: str
    reads: tuple[int, ...]
    size: int
    weights: tuple[Array, ...] = ()  # of an affine node, one for each node that it reads; a vector is a diagonal matrix
    bias: Any = None
    program: Any = None  # of an expression: (variables, steps)
    table: Any = None  # of a positional node: one row for each token
    plain: Any = None  # what else the kind needs: the targets of a move; (of, causal) of a pool


@dataclass(frozen=True, eq=False)
class Link:
    """Weights between a register and the places `at`: forms of what reads it, outputs of what writes to it."""

    register: str
    at: slice
    weights: Array


@dataclass(frozen=True, eq=False)
class Bank:
    kind: str
    read: list[Link]
    write: list[Link]
    arrays: dict[str, Array]
    gains: dict[str, float]
    address: Any  # of a move: a register or a token
    forms: int
    node: Array  # output k stands for component[k] of node[k] of the circuit
    component: Array


@dataclass(frozen=True, eq=False)
class Region:
    stands_for: int
    margin: float | None
    ends: Any


@dataclass(frozen=True, eq=False)
class File:
    low: Array
    high: Array
    target: tuple[list[Node], int]  # the nodes of a graph, and which of them is the output
    circuit: tuple[list[Node], int]
    tokens: int
    dtype: str
    registers: dict[str, int]
    embedding: list[Link]
    start: dict[str, Array]  # registers with initial (size,) or positional (tokens, size) values
    layers: list[list[Bank]]
    readout: list[Link]
    bias: Array
    alone: bool
    regions: dict[int, Region]
    tables: dict[int, tuple[float, str]]
    norms: dict[int, tuple[Array, bool]]
    linear: dict[int, Array]
    halvings: int
    claim: dict[str, Any]
    digests: dict[str, str]  # of the target, and of how the model is called


def take(value: Any, wanted: str, what: str) -> list[Any]:
    """The fields of an object, in the order in which they are wanted, as "name:type"; "name?:type" may be missing."""
    names = {field.partition(":")[0].rstrip("?"): field for field in wanted.split()}
    require(type(value) is dict, f"{what} is no object")
    for name in set(value) - set(names):
        raise Outside(f"{what} has a field {str(name)[:40]!r}")
    for name, field in names.items():
        optional, kind = "?" in field, field.partition(":")[2]
        require(name in value or optional, f"{what} has no field {name}")
        missing = optional and value.get(name) is None
        require(missing or TYPES[kind](value[name]), f"{what} has a field {name} that is no {kind} in its range")
    return [value.get(name) for name in names]


class Lazy:
    """The tensors of a file, each read when it is named."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getitem__(self, name: str) -> Any:
        return self.file.get_tensor(name)


class Tensors:
    """Tensors by name, as arrays of a stated type and shape."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def read(self, name: str, types: str = "float64 float32") -> Array:
        array = np.asarray(self.held[name])
        require(array.dtype.name in types.split(), f"tensor {name} has another type")
        return array

    def numbers(self, name: str, *shape: int | None) -> Array:
        array = self.read(name).astype(np.float64)
        fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        require(fits and np.isfinite(array).all(), f"tensor {name} has another shape, or a number that is not finite")
        return array

    def weights(self, value: Any, rows: int | None, columns: int | None) -> Array:
        """A matrix: a vector if it is diagonal; written out, as far as that is possible, if its entries are
        stored."""
        if type(value) is dict:
            shape, gaps, entries = take(value, "shape:list gaps:text values:text", "a sparse matrix")
            require(
                all(TYPES["whole"](n) for n in shape) and rows in (None, shape[0]) and columns in (None, shape[1]),
                "a sparse matrix does not fit",
            )
            if shape[0] * shape[1] > 2**25:
                raise Outside("a sparse matrix with more than 2^25 places")
            steps, matrix = self.read(gaps), np.zeros(shape)
            require(
                steps.ndim == 1 and (steps == np.floor(steps)).all() and (steps >= 1).all(), "gaps of a sparse matrix"
            )
            require(bool(steps.sum() <= matrix.size), "places of a sparse matrix")
            matrix.reshape(-1)[np.cumsum(steps.astype(np.int64)) - 1] = self.numbers(entries, len(steps))
            return matrix
        array = self.numbers(value, *[None] * self.read(value).ndim)
        require(
            array.ndim in (1, 2) and rows in (None, array.shape[0]) and columns in (None, array.shape[-1]),
            f"weights {value} do not fit",
        )
        return array


def fraction(value: Any) -> Fraction:
    whole = type(value) is int and abs(value) <= 2**53
    require(
        whole or (TYPES["text"](value) and len(value) <= 2048 and set(value) <= set("-/0123456789")),
        "a coefficient is no rational",
    )
    return Fraction(value)


def program(value: Any) -> tuple[int, tuple[Any, ...]]:
    """(variables, steps): ("linear", ((c, operand), ...), c), ("call", name, operand, exponent), ("times" or
    "over", a, b)."""
    variables, steps = take(value, "variables:whole steps:list", "a program")
    require(variables in (1, 2) and 1 <= len(steps) <= 256, "a program has one or two variables, and 1 to 256 steps")
    result: list[Any] = []
    for place, (operation, *rest) in enumerate(steps, variables):
        read = []
        if operation == "linear":
            terms, constant = rest
            result.append(("linear", tuple((fraction(c), i) for c, i in terms), fraction(constant)))
            read = [i for _, i in terms]
        elif operation == "call":
            name, i, *exponent = rest
            if name in ("j0", "j1"):
                raise Outside("Bessel functions")
            require(name in CALLS and len(exponent) == (name == "power"), "a call that is not known")
            require(
                not exponent or (TYPES["number"](exponent[0]) and abs(exponent[0]) <= 1024), "an exponent beyond 1024"
            )
            result.append(("call", name, i, *exponent))
            read = [i]
        else:
            read = rest
            require(operation in ("times", "over") and len(rest) == 2, "a step that is not known")
            result.append((operation, *rest))
        require(all(TYPES["whole"](i) and i < place for i in read), "a step reads what is not there")
    return variables, tuple(result)


SQUARE, RECIPROCAL = ((1, (("call", name, 0),)) for name in ("square", "reciprocal"))
NORM = (
    2,
    (
        ("times", 0, 0),
        ("times", 1, 1),
        ("linear", ((Fraction(1), 2), (Fraction(1), 3)), Fraction(0)),
        ("call", "sqrt", 4),
    ),
)
PAIRS: dict[str, Any] = {"product": (2, (("times", 0, 1),)), "quotient": (2, (("over", 0, 1),)), "hypotenuse": NORM}


def graph(value: Any, tensors: Tensors, tokens: int, target: list[Node]) -> tuple[list[Node], int]:
    """A graph; copies of nodes of `target` become these nodes, of their own arguments."""
    described, output = take(value, "nodes:list output:whole", "a graph")
    nodes: list[Node] = []
    for each in described:
        nodes.append(node_of(each, nodes, tensors, tokens, target))
        require(
            (nodes[-1].kind == "input") == (len(nodes) == 1) and nodes[-1].size >= 1,
            "node 0 alone is the input, and none is empty",
        )
    require(output < len(nodes) <= 2**14, "a graph has no such output, or too many nodes")
    return nodes, output


def node_of(value: Any, nodes: list[Node], tensors: Tensors, tokens: int, target: list[Node]) -> Node:
    kind = value["kind"]
    if kind not in NODES or (kind == "copy" and not target):
        raise Outside(f"nodes of kind {str(kind)[:40]}")
    names = [field.partition(":")[0] for field in NODES[kind].split()]
    given = dict(zip(["kind", *names], take(value, "kind:text " + NODES[kind], f"a node of kind {kind}"), strict=True))
    terms = [take(term, "node:whole weights:any", "a term") for term in given.get("terms", [])]
    one = [given[name] for name in names if name in ("argument", "left", "right", "numerator", "denominator")]
    reads = tuple(given.get("arguments", one) or [n for n, _ in terms])
    require(all(TYPES["whole"](n) and n < len(nodes) for n in reads), "a node reads what is not before it")
    if kind == "input":
        return Node(kind, (), len([name for name in given["names"] if TYPES["text"](name)]))
    if kind == "positional":
        table = tensors.numbers(given["values"], tokens, None)
        return Node(kind, (), table.shape[1], table=table)
    if kind == "affine":
        bias = tensors.numbers(given["bias"], None)
        weights = tuple(tensors.weights(w, len(bias), nodes[n].size) for n, w in terms)
        return Node(kind, reads, len(bias), weights, bias)
    if kind == "copy":
        original = target[given["node"]]
        require(
            original.kind != "input" and [nodes[n].size for n in reads] == [target[n].size for n in original.reads],
            "a copy does not fit",
        )
        copied: Node = replace(original, reads=reads)
        return copied
    size, plain, steps = given["size"], None, PAIRS.get(kind)
    require(reads and all(nodes[n].size == size for n in reads), f"a node of kind {kind} reads a node of another size")
    if kind == "function":
        named = [given["name"], 0] + ([] if given["parameter"] is None else [given["parameter"]])
        steps = program({"variables": 1, "steps": [["call", *named]]})
    if kind == "expression":
        steps = program(given["program"])
    if kind == "product" and reads[0] == reads[1]:
        reads, steps = reads[:1], SQUARE
    require(steps is None or steps[0] == len(reads), "an expression has as many arguments as its program has variables")
    if kind == "move":
        plain = tuple(given["targets"])
        require(
            len(plain) == tokens and all(type(t) is int and -1 <= t < tokens for t in plain),
            "a move has one target for each token",
        )
    if kind == "pool":
        plain = given["of"], given["causal"]
        require(given["of"] in ("mean", "max", "min"), "a pool is a mean, max or min")
    return Node("expression" if steps else kind, reads, size, program=steps, plain=plain)


def links(value: list[Any], tensors: Tensors, registers: dict[str, int], reads: bool, places: int) -> list[Link]:
    """Links that read (rows are forms) or write (columns are outputs); no two of them meet in one weight."""
    result: list[Link] = []
    met: dict[str, Array] = {}
    for each in value:
        register, first, weights = take(each, "register:text first:whole weights:any", "a link")
        forbidden = ("reference", "position", "grid") if reads else ("reference", "position", "grid", "data")
        require(register not in forbidden, f"register {register} is no register to read or write here")
        matrix = tensors.weights(weights, *((None, registers[register]) if reads else (registers[register], None)))
        end = first + (len(matrix) if reads else matrix.shape[-1])
        require(end <= places, "a link reaches further than what it feeds")
        others = [link for link in result if link.register == register and link.at.start < end and first < link.at.stop]
        if others:
            met[register] = met.get(register, np.zeros(0))
        result.append(Link(register, slice(first, end), matrix))
    for register in met:
        used = np.zeros((places, registers[register]), dtype=int)
        for link in (link for link in result if link.register == register):
            used[link.at] += (written(link.weights) if reads else written(link.weights).T) != 0
        require(used.max() <= 1, f"two links meet in a weight of register {register}")
    return result


def written(weights: Array) -> Array:
    """A matrix, also where its weights are a diagonal."""
    return np.diag(weights) if weights.ndim == 1 else weights


def bank_of(value: Any, role: Any, tensors: Tensors, registers: dict[str, int], tokens: int) -> Bank:
    kind = value["kind"]
    if kind not in BANKS:
        raise Outside(f"heads of kind {str(kind)[:40]}")
    arrays, gains = (names.split() for names in BANKS[kind])
    fields = "kind:text read:list write:list split?:whole grid?:text address?:any "
    wanted = fields + " ".join([f"{name}:text" for name in arrays] + [f"{name}:size" for name in gains])
    _, read, write, split, _, address, *numbers = take(value, wanted, f"a bank of kind {kind}")
    node, component = (tensors.read(name, "int64") for name in take(role, "node:text component:text", "a role"))
    outputs, grid = len(node), registers.get("grid", 0)
    require(
        node.ndim == component.ndim == 1 and len(component) == outputs >= 1 and outputs % (split or 1) == 0,
        "a role does not fit its bank",
    )
    require(kind in ("mean", "move") or split is None, "heads that cannot be split")
    require((address is None) == (kind != "move"), "an address is for moves")
    ranks = {"slope": 3 if kind == "table" else 2, "offset": 2, "values": 3}
    held = {
        name: tensors.numbers(tensor, *[None] * ranks.get(name, 1))
        for name, tensor in zip(arrays, numbers, strict=False)
    }
    slope, heads = held.get("slope", np.zeros((outputs, 1, 1))), outputs
    if kind == "table":
        heads = len(slope)
        require(
            held["values"].shape[:2] == slope.shape[:2] and heads * held["values"].shape[2] == outputs,
            "a table has other outputs",
        )
    require(
        kind not in ("table", "gate") or slope.shape[:2] == held["offset"].shape == (heads, grid) != (heads, 0),
        "arrays do not fit the grid",
    )
    require(all(len(held[name]) == outputs for name in arrays if "scale" in name), "scales do not fit the outputs")
    forms = {"table": heads * slope.shape[-1], "gate": 2 * outputs}.get(kind, outputs)
    require(
        kind != "move"
        or (
            tokens > 1
            and (address in registers if type(address) is str else TYPES["whole"](address) and address < tokens)
        ),
        "an address",
    )
    feeds, writes = links(read, tensors, registers, True, forms), links(write, tensors, registers, False, outputs)
    scores = dict(zip(gains, numbers[len(arrays) :], strict=True))
    return Bank(kind, feeds, writes, held, scores, address, forms, node, component)


def digest_of(source: Any, tensors: Tensors, key: str = "") -> Any:
    """A part of a header with tensors replaced by the SHA-256 of their shapes and numbers; of the whole its SHA-256."""
    if type(source) is dict:
        named = {k: digest_of(v, tensors, k) for k, v in source.items()}
        if key:
            return named
        return hashlib.sha256(json.dumps(named, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    if type(source) is list:
        return [digest_of(v, tensors, " ") for v in source]
    if type(source) is str and key in ("bias", "weights", "gaps", "values", "preconditioner"):
        array = tensors.read(source, "float64 float32 int64").astype("<f8")
        return hashlib.sha256(json.dumps(list(array.shape)).encode() + array.tobytes()).hexdigest()
    return source


def refuse_constant(name: str) -> Any:
    require(False, f"the header has the number {name}")


def read(path: Any) -> File:
    with safe_open(str(path), "np") as opened:
        stored = (opened.metadata() or {})["headsmith"]
        require(len(stored) <= 2**26, "the header is too long")
        return file_of(json.loads(stored, parse_constant=refuse_constant), Tensors(Lazy(opened)))


def file_of(header: Any, tensors: Tensors) -> File:
    wanted = "version:whole domain:any source:any transformer:any run:any proof:any claim:any extensions?:any"
    version, domain, source, model, run, proof, claim, _ = take(header, wanted, "the header")
    if version != 3:
        raise Outside("files of another version")
    wanted = """circuit:any halvings:whole blocks:whole roles:list regions?:list tables?:list norms?:list linear?:list
                views?:list steps?:list powers?:list bends?:list alike?:list"""
    circuit, halvings, blocks, roles, regions, tables, norms, linear, *_ = take(proof, wanted, "the proof")
    wanted = """inputs:whole outputs:whole tokens:whole dtype:text registers:list embedding:list initial:any
                layers:list readout:list readout_bias:text positional?:any attention?:text alone?:truth"""
    inputs, outputs, tokens, dtype, named, *parts = take(model, wanted, "the model")
    embedding, initial, layers, readout, bias, positional, attention, alone = parts
    beyond = {"models in blocks": blocks, "attention that is no softmax": attention not in (None, "softmax")}
    for what in (name for name, true in (beyond | {f"the format {dtype}": dtype not in FORMATS}).items() if true):
        raise Outside(what)
    registers = dict(take(each, "name:text size:whole", "a register") for each in named)
    reserved = [registers.get(name, 0) for name in ("data", "reference", "position")]
    require(
        len(registers) == len(named) and all(registers.values()) and reserved == [1, 1, (tokens - 1).bit_length()],
        "registers",
    )
    start = {r: tensors.numbers(t, registers[r]) for r, t in initial.items()}
    require(not set(initial) & set(positional or {}), "a register starts in two ways")
    start |= {r: tensors.numbers(t, tokens, registers[r]) for r, t in (positional or {}).items()}
    require(
        not {"data", "reference", "position", "grid"} & set(start) and tokens >= 1 and halvings <= 16,
        "reserved registers have no values",
    )
    banks = [
        [bank_of(b, r, tensors, registers, tokens) for b, r in zip(*each, strict=True)]
        for each in zip(layers, roles, strict=True)
    ]
    target = graph(source, tensors, tokens, [])
    nodes, output = graph(circuit, tensors, tokens, target[0])
    box = take(domain, "low:list high:list", "the domain")
    require(all(TYPES["number"](x) for end in box for x in end), "an end of the domain is no number")
    low, high = (np.array(end, dtype=float) for end in box)
    require(
        {inputs, len(low), len(high), nodes[0].size} == {target[0][0].size} and (low <= high).all(), "inputs do not fit"
    )
    require({outputs, nodes[output].size} == {target[0][target[1]].size}, "outputs do not fit")
    found = [take(each, "output:whole stands_for:whole margin?:size ends?:text", "a region") for each in regions or []]
    cells = [take(each, "node:whole margin:size cells:text", "a table") for each in tables or []]
    scaled = [take(each, "node:whole diagonal:text flat:truth", "a norm") for each in norms or []]
    lines = [take(each, "node:whole slopes:text", "linear bounds") for each in linear or []]
    require(all(len({each[0] for each in x}) == len(x) for x in (found, cells, scaled, lines)), "a node is named twice")
    write = links(embedding, tensors, registers, False, inputs)
    wrote = {link.register for b in [write, *(bank.write for layer in banks for bank in layer)] for link in b}
    require(all(x.ndim == 1 for r, x in start.items() if r in wrote), "a register with positional values is written")
    return File(
        low=low,
        high=high,
        target=target,
        circuit=(nodes, output),
        tokens=tokens,
        dtype=dtype,
        registers=registers,
        embedding=write,
        start=start,
        layers=banks,
        readout=links(readout, tensors, registers, True, outputs),
        bias=tensors.numbers(bias, outputs),
        alone=bool(alone),
        regions={o: Region(s, m, None if e is None else tensors.numbers(e, None)) for o, s, m, e in found},
        tables={n: (m, c) for n, m, c in cells},
        norms={n: (tensors.numbers(d, nodes[n].size), f) for n, d, f in scaled},
        linear={n: tensors.numbers(s, 2, None) for n, s in lines},
        halvings=halvings,
        claim=claim,
        digests={"target": digest_of(source, tensors), "run": digest_of(run, tensors)},
    )
