"""Two graphs compute the same function, wherever both are defined.

Every component of every node gets a normal form: a polynomial with rational coefficients over atoms. An atom is a
component of the input, a column of positional constants, or an operation on normal forms that is none of +, -, x.
Each rewriting is an identity of real numbers: relu(c t) = c relu(t) for c > 0, relu(t) = t + relu(-t), max(a, b) =
b + relu(a - b), 1 / (c t) = (1 / c)(1 / t). Equal atoms are the same operation on equal functions; so, by
induction, equal forms are equal functions. The rows of an affine node that is too large are atoms: the same
numbers, of the same forms."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.small_kernel.bounds import Outside, require
from headsmith.small_kernel.circuit import Circuit
from headsmith.small_kernel.file import Node, written

Polynomial = dict[tuple[int, ...], Fraction]  # monomials, as sorted numbers of atoms, and their coefficients
Forms = list[Polynomial]
LARGE, MOST = 2**12, 2**11
ONE = Fraction(1)


class Same:
    """Normal forms of nodes; equal atoms have one number."""

    def __init__(self) -> None:
        self.atoms: dict[Any, int] = {}

    def atom(self, *key: Any) -> Polynomial:
        return {(self.atoms.setdefault(key, len(self.atoms)),): ONE}

    def free(self, name: Any, size: int) -> Forms:
        return [self.atom("free", name, i) for i in range(size)]

    def apart(self, operation: str, p: Polynomial, power: int) -> tuple[Fraction, Polynomial]:
        """c and the atom of p / c, c the first coefficient that is not constant (up to its sign, for a gate)."""
        c = p[min(m for m in p if m)]
        return c, scaled(self.atom(operation, frozen(scaled(p, 1 / c))), abs(c) if power > 0 else 1 / c)

    def relu(self, p: Polynomial) -> Polynomial:
        if not any(p):
            return constant(max(p.get((), Fraction(0)), Fraction(0)))
        c, gate = self.apart("relu", p, 1)
        return gate if c > 0 else plus(gate, p)

    def inverse(self, p: Polynomial) -> Polynomial:
        return self.apart("reciprocal", p, -1)[1] if any(p) else constant(1 / p[()])

    def run(self, program: Any, values: Forms) -> Polynomial:
        for operation, *rest in program[1]:
            if operation == "linear":
                value = constant(rest[1])
                for c, i in rest[0]:
                    value = plus(value, values[i], c)
            elif operation != "call":
                value = times(
                    values[rest[0]], values[rest[1]] if operation == "times" else self.inverse(values[rest[1]])
                )
            else:
                name, p, power = rest[0], values[rest[1]], {"square": 2, "reciprocal": -1}.get(rest[0], [*rest, 0][2])
                value = p if power else self.atom(name, frozen(p), *rest[2:])
                if power != int(power) or abs(power) > 64:
                    value = self.atom(name, frozen(p), power)
                else:
                    for _ in range(int(abs(power)) - 1):
                        value = times(value, p)
                    value = self.inverse(value) if power < 0 else value
            values = [*values, value]
        return values[-1]

    def largest(self, values: Forms) -> Polynomial:
        """Neighbours in pairs, then pairs of those; an odd one waits."""
        while len(values) > 1:
            pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
            values = [plus(p[1], self.relu(plus(p[0], p[1], -ONE))) if len(p) == 2 else p[0] for p in pairs]
        return values[0]

    def affine(self, node: Node, arguments: list[Forms]) -> Forms:
        if sum(np.count_nonzero(w) * max(map(len, a)) for w, a in zip(node.weights, arguments, strict=True)) > LARGE:
            numbers = tuple((w.shape, w.tobytes()) for w in (*node.weights, node.bias))
            read = tuple(tuple(map(frozen, forms)) for forms in arguments)
            return [self.atom("affine", numbers, read, i) for i in range(node.size)]
        rows = [constant(b) for b in node.bias.tolist()]
        for weights, forms in zip(map(written, node.weights), arguments, strict=True):
            for i, j in np.argwhere(weights).tolist():
                rows[i] = plus(rows[i], forms[j], Fraction(float(weights[i, j])))
        return rows

    def node(self, node: Node, arguments: list[Forms]) -> Forms:
        columns = [list(column) for column in zip(*arguments, strict=True)] if node.kind != "affine" else []
        match node.kind:
            case "affine":
                return self.affine(node, arguments)
            case "positional":
                return [self.atom("positional", node.table[:, i].tobytes()) for i in range(node.size)]
            case "relu":
                return [self.relu(p) for (p,) in columns]
            case "maximum":
                return [self.largest(column) for column in columns]
            case "minimum":
                return [scaled(self.largest([scaled(p, -ONE) for p in column]), -ONE) for column in columns]
            case "expression":
                return [self.run(node.program, column) for column in columns]
            case "pool" if node.plain[0] == "min":
                return [
                    scaled(self.atom("pool", ("max", node.plain[1]), frozen(scaled(p, -ONE))), -ONE) for (p,) in columns
                ]
            case "pool" | "move":
                return [self.atom(node.kind, node.plain, frozen(p)) for (p,) in columns]
        raise Outside(f"nodes of kind {node.kind}")

    def forms(
        self, nodes: list[Node], wanted: Iterable[int], known: dict[int, Forms], stands_for: dict[int, int]
    ) -> list[Forms]:
        """Normal forms of nodes; a region's output has that of what it stands for."""
        todo, result = list(wanted), dict(known)
        while todo:
            n = todo[-1]
            reads = (stands_for[n],) if n in stands_for else nodes[n].reads
            missing = [a for a in reads if a not in result and n not in result]
            if not missing and n not in result:
                result[n] = (
                    result[stands_for[n]] if n in stands_for else self.node(nodes[n], [result[a] for a in reads])
                )
            todo = todo + missing if missing else todo[:-1]
        return [result[n] for n in wanted]


def constant(c: Any) -> Polynomial:
    return {(): Fraction(c)} if c else {}


def scaled(p: Polynomial, c: Fraction) -> Polynomial:
    return {m: d * c for m, d in p.items()}


def plus(a: Polynomial, b: Polynomial, scale: Fraction = ONE) -> Polynomial:
    total = dict(a)
    for m, c in b.items():
        total[m] = total.get(m, 0) + scale * c
    require(len(total) <= LARGE, "a normal form is too large", Outside)
    return {m: c for m, c in total.items() if c}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    require(
        len(a) * len(b) <= MOST and all(len(m) <= 32 for m in (*a, *b)),
        "a product of normal forms is too large",
        Outside,
    )
    total: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n))
            total[key] = total.get(key, 0) + c * d
    return {m: c for m, c in total.items() if c}


def frozen(p: Polynomial) -> Any:
    return tuple(sorted(p.items()))


def identical(a: Node, b: Node) -> bool:
    """The same operation on the same nodes, with equal numbers, matrix by matrix, each stored alike."""
    plain = (a.kind, a.reads, a.size, a.program, a.plain) == (b.kind, b.reads, b.size, b.program, b.plain)
    mine, theirs = (*a.weights, a.bias, a.table), (*b.weights, b.bias, b.table)
    return plain and len(mine) == len(theirs) and all(map(alike, mine, theirs))


def alike(x: Any, y: Any) -> bool:
    return x is y or (x is not None and y is not None and np.array_equal(x, y))


def check_same(target: tuple[list[Node], int], circuit: Circuit) -> None:
    """The circuit computes the target; a region without ends computes what it stands for, of whatever it reads."""
    nodes, stands_for = circuit.nodes, {o: r.stands_for for o, r in circuit.regions.items()}
    if (
        (len(nodes), circuit.output) == (len(target[0]), target[1])
        and not stands_for
        and all(map(identical, nodes, target[0]))
    ):
        return
    same = Same()
    inputs = {0: same.free("input", nodes[0].size)}
    both = [same.forms(target[0], [target[1]], inputs, {}), same.forms(nodes, [circuit.output], inputs, stands_for)]
    require(both[0] == both[1], "the circuit does not compute the target")
    for o, region in circuit.regions.items():
        if region.ends is None:
            arguments = {a: same.free(a, nodes[a].size) for a in nodes[region.stands_for].reads}
            others = {k: v for k, v in stands_for.items() if k != o}
            form, wanted = same.forms(nodes, [o, region.stands_for], arguments, others)
            require(form == wanted, f"the region of node {o} is not what it stands for")
