"""The check, from a file to the bound that it proves.

    |run(model, x) - target(x)| <= outputs,    for every input in the box, every mask of the claim, any order of sums

because: the circuit computes the target (same); every node has a range (ranges); the stream is an affine form of
what heads computed (stream); heads are within their lemmas (heads, tables); and errors travel to the output by
gains or by norms. The document docs/certificate.md has the theorem, and every rule with its number there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headsmith.small_kernel import heads, tables
from headsmith.small_kernel.bounds import FLOOR, SLACK, Array, Loose, Refused, Span, gamma, require
from headsmith.small_kernel.circuit import Circuit, circuit_of, demanded, reached
from headsmith.small_kernel.errors import Edge, Edges, gains
from headsmith.small_kernel.file import FORMATS, Bank, File, Tensors, file_of, read
from headsmith.small_kernel.norm import norms
from headsmith.small_kernel.ranges import box, ranges
from headsmith.small_kernel.same import check_same
from headsmith.small_kernel.stream import Form, Held, Reads, Register, held, nothing


@dataclass(frozen=True)
class Verdict:
    """What is proved: a bound of the error, for each output, and of its parts for the worst one."""

    error: float
    outputs: tuple[float, ...]
    parts: dict[str, float]
    max_score: float
    claimed: float


def check(path: Any) -> Verdict:
    """What the small kernel proves of a file; Refused, with one sentence, if that is nothing."""
    return guarded(lambda: proved(read(path)))


def check_contents(header: Any, tensors: Any) -> Verdict:
    """The same of a header and its tensors."""
    return guarded(lambda: proved(file_of(header, Tensors(tensors))))


def guarded(work: Callable[[], Verdict]) -> Verdict:
    try:
        with np.errstate(all="ignore"):
            return work()
    except Refused:
        raise
    except BaseException as problem:  # whatever else goes wrong with a file is a refusal
        if isinstance(problem, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise Refused(f"{type(problem).__name__}: {str(problem)[:300]}") from None


def proved(file: File) -> Verdict:
    circuit = circuit_of(file)
    check_claim(file, circuit)
    check_same(file.target, circuit)
    cells = box(file.low, file.high, file.halvings)
    found, errors = ranges(circuit.nodes, cells, circuit, file.linear)
    if any(node.program for node in file.target[0]):
        ranges(file.target[0], cells)  # the target is defined
    tabulated = tables.tabulate(file, circuit, found)
    errors |= {n: parts[0] for n, parts in tabulated.items()}
    return Walk(file, circuit, heads.setting_of(file), found, errors, tabulated).verdict()


def check_claim(file: File, circuit: Circuit) -> None:
    """What the claim says beside its numbers; and all numbers of the model are numbers of its format."""
    nodes, claim = [*file.target[0], *circuit.nodes], file.claim
    causal = {node.plain[1] for node in nodes if node.kind == "pool"}
    ahead = any(t > i for node in nodes if node.kind == "move" for i, t in enumerate(node.plain))
    masks = [mask for mask, fits in (("full", causal <= {False}), ("causal", causal <= {True} and not ahead)) if fits]
    about = {"pool", "move", "positional"} & {node.kind for node in nodes}
    require(masks and not (file.alone and (about or file.tokens > 1)), "no mask is left, or the model is not alone")
    stated = {"dtype": file.dtype, "tokens": file.tokens, "exp_ulps": 4, "blocks": 0, **file.digests, "assumes": [],
              "masks": masks + ["self+prefix"] * file.alone}  # fmt: skip
    for name, truth in stated.items():
        require(type(claim[name]) is type(truth) and claim[name] == truth, f"the claim says of {name} what is not so")
    require(
        set(claim) == {*stated, "error", "max_score", "max_weight", "outputs", "parts"}, "the claim has other fields"
    )
    banks = [bank for layer in file.layers for bank in layer]
    links = [link for links in (file.embedding, file.readout, *(b.read + b.write for b in banks)) for link in links]
    numbers = [
        file.bias,
        *file.start.values(),
        *(link.weights for link in links),
        *(x for b in banks for x in b.arrays.values()),
    ]
    for x in [*numbers, *(np.array(list(b.gains.values())) for b in banks)]:
        fits = file.dtype == "float64" or (x == x.astype(np.float32)).all()
        require(
            fits and np.abs(x).max(initial=0.0) < FORMATS[file.dtype][2] / 16,
            f"a number is no {file.dtype}, or too large",
        )
    roundings = sum(200 + x.shape[-1] for x in numbers) + sum(
        200 + w.shape[-1] for node in circuit.nodes for w in node.weights
    )
    require(roundings < 2**21, "a file with too many roundings in a row")


@dataclass(eq=False)
class Walk:
    """Layer by layer: what is read, what heads commit, how far nodes are off, what is written."""

    file: File
    circuit: Circuit
    s: heads.Setting
    found: list[Span]
    errors: dict[int, Span]  # of tables and circuits of one variable, against what they stand for
    tabulated: dict[int, list[Span]]
    off: dict[int, Array] = field(default_factory=dict)
    commits: dict[int, dict[str, Array]] = field(default_factory=dict)
    within: dict[int, tuple[Array, Array]] = field(default_factory=dict)  # what is computed lies within [-below, above]
    forms: dict[int, Form] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        file, s, score = self.file, self.s, 0.0
        self.sizes = [node.size for node in self.circuit.nodes]
        restarted = [
            r.stands_for for o, r in self.circuit.regions.items() if r.margin is not None and o in self.circuit.needed
        ]
        arguments = reached(self.circuit.nodes, [a for n in restarted for a in self.circuit.nodes[n].reads])
        self.edges: Edges = {n: self.edges_of(n) for n in sorted(self.circuit.needed | arguments)}
        rounded = (self.found[0].size * s.u + s.tiny) * (file.dtype == "float32")
        require((self.found[0].size < s.largest / 16).all(), "inputs may leave the format", Loose)
        self.input_error = rounded
        self.arrive()
        self.registers = {name: self.first(name, size) for name, size in file.registers.items()}
        for link in file.embedding:
            inputs = self.itself(0).rows(np.arange(self.sizes[0])[link.at])
            below, above = (x[link.at] for x in self.within[0])
            self.registers[link.register].add(link.weights, inputs, below, above, 0.0 * below)
        for banks in file.layers:
            # All banks read the stream as it is before the layer.
            results = [(bank, *self.commit(bank)) for bank in banks]
            score = max([score, *(most for *_, most in results)])
            self.arrive()
            for bank, committed, copied, _ in results:
                self.write(bank, committed, copied)
        for register in self.registers.values():
            require(
                max(register.magnitude.max(), register.drift.max()) < min(s.largest / 16, 1 / FLOOR),
                "a register may leave the format",
                Loose,
            )
        for n, off in self.off.items():
            require(
                (off * SLACK <= self.limit(n)).all(),
                f"node {n} is off by {off.max():.3g}, and a margin is {self.limit(n):.3g}",
                Loose,
            )
        return self.sum(score)

    def edges_of(self, n: int) -> list[Edge]:
        """The slopes of a node; refused unless a head computes it, or it follows from others."""
        node, circuit = self.circuit.nodes[n], self.circuit
        computed = circuit.heads.get(n, np.zeros(node.size, dtype=bool))
        zero, one = np.zeros(node.size), np.ones(node.size)
        if node.kind == "affine":
            edges = [Edge(a, w) for a, w in zip(node.reads, node.weights, strict=True)]
        elif node.kind == "relu":
            seen = self.found[node.reads[0]].wider(circuit.margin([n], node.reads[0]))
            low, high = 1.0 * ~computed * (seen.high > 0), 1.0 * (computed | (seen.high > 0))
            require((seen.low >= 0)[low > 0].all(), f"a gate of node {n} has no head, and may be open or closed", Loose)
            edges = [Edge(node.reads[0], Span(low, high))] if high.any() else []
        elif node.kind in ("pool", "move") and computed.all():
            edges = [Edge(node.reads[0], Span(zero, one), elsewhere=True)]
        elif node.kind == "expression" and computed.all():
            edges = [Edge(a, slope) for a, slope in zip(node.reads, self.tabulated[n][1:], strict=True)]
        else:
            require(
                node.kind in ("input", "positional"), f"node {n} of kind {node.kind} is needed, and no head computes it"
            )
            edges = []
        edges = [e for e in edges if not circuit.between(n, e.argument)]
        region = circuit.regions.get(n)
        return edges + (self.restart(region.stands_for, region.margin) if region and region.margin is not None else [])

    def restart(self, stands_for: int, margin: float) -> list[Edge]:
        """How what a region stands for moves with its arguments, over their ranges widened by the margin."""
        node = self.circuit.nodes[stands_for]
        seen, zero = [self.found[a].wider(margin) for a in node.reads], np.zeros(node.size)
        slopes = [Span(zero, zero + 1)] * len(seen)
        if node.program:
            from headsmith.small_kernel.functions import slopes_of

            slopes = slopes_of(node.program, seen)
        require(node.program or node.kind in ("relu", "maximum", "minimum"), f"node {stands_for} has no slopes")
        return [Edge(a, slope) for a, slope in zip(node.reads, slopes, strict=True)]

    def arrive(self) -> None:
        """`off` of all nodes whose arguments are known by now; where much arrives, also by gains to the node
        itself."""
        for n in sorted(self.edges.keys() - self.off.keys()):
            node = self.circuit.nodes[n]
            if all(e.argument in self.off for e in self.edges[n]) and (
                n not in self.circuit.heads or n in self.commits
            ):
                off = self.own(n) + sum(e.sizes(self.off[e.argument]) for e in self.edges[n])
                allowed = np.minimum(self.limit(n), self.found[n].size if self.limit(n) == np.inf else np.inf)
                if (off > 2.0**-10 * allowed).any() and node.size <= 2**9:
                    by = gains(n, self.sizes, self.edges)
                    off = np.minimum(
                        off, sum(by.carried(m, self.own(m)) for m in sorted(by.here.keys() | by.far.keys()))
                    )
                self.off[n] = off
                if node.kind in ("input", "positional"):
                    self.within[n] = self.around(n)

    def around(self, n: int) -> tuple[Array, Array]:
        below, above = self.found[n].sides
        return below + self.off[n], above + self.off[n]

    def limit(self, n: int) -> float:
        """The least margin of what reads a node: of regions as an argument, of tables."""
        regions = [r.margin for r in self.circuit.regions.values() if n in self.circuit.nodes[r.stands_for].reads]
        read = [margin for t, (margin, _) in self.file.tables.items() if n in self.circuit.nodes[t].reads]
        return min([m for m in regions if m is not None] + read, default=np.inf)

    def own(self, n: int) -> Array:
        """What a node commits itself."""
        c, error = self.commits.get(n), self.errors[n].size if n in self.errors else np.zeros(self.sizes[n])
        return self.input_error if n == 0 else error + (c["below"] + c["leak"] + c["rounding"] if c else 0.0)

    def itself(self, n: int) -> Form:
        require(n in self.within, f"a head reads node {n}, which no earlier layer computes")
        zero = np.zeros(self.sizes[n])
        return Form({n: zero + 1}, zero, zero, np.maximum(*self.within[n]))

    def form(self, n: int) -> Form:
        """What a node should be, as a form of what heads computed; refused if it is none, or not computed yet."""
        node, computed = self.circuit.nodes[n], self.circuit.heads.get(n, np.zeros(self.sizes[n], dtype=bool))
        if n not in self.forms:
            total = nothing(node.size)
            if computed.all() or node.kind in ("input", "positional"):
                total = self.itself(n)
            elif node.kind == "affine":
                total = Form({}, node.bias, 0.0 * node.bias, np.abs(node.bias))
                for a, weights in zip(node.reads, node.weights, strict=True):
                    total = total.plus(self.form(a).mapped(weights))
            else:
                require(node.kind == "relu" and n in self.edges, f"node {n} is no form of what heads computed")
                total = self.itself(n).mapped(1.0 * computed) if computed.any() else total
                seen = self.found[node.reads[0]].wider(self.circuit.margin([n], node.reads[0]))
                active = 1.0 * ~computed * (seen.high > 0)
                total = total.plus(self.form(node.reads[0]).mapped(active)) if active.any() else total
            self.forms[n] = total
        return self.forms[n]

    def first(self, name: str, size: int) -> Register:
        """What a register holds before the first layer; one with positional values the node that has (nearly) the
        same."""
        start = self.file.start.get(name, np.ones(size) if name == "data" else np.zeros(size))
        table, zero = np.atleast_2d(start), np.zeros(size)
        sizes, middle = np.abs(table).max(axis=0), table.min(axis=0) / 2 + table.max(axis=0) / 2
        form = Form({}, middle, np.abs(table - middle).max(axis=0), sizes)
        for n in sorted(self.within):
            like = self.circuit.nodes[n].table
            if (
                like is not None
                and like.shape == start.shape
                and (np.abs(start - like).max(axis=0) <= 1e-6 * np.abs(like).max(axis=0)).all()
            ):
                form = Form(
                    {n: zero + 1}, zero, np.abs(start - like).max(axis=0), np.maximum(sizes, np.abs(like).max(axis=0))
                )
        return Register(form, sizes, sizes, 1 * (sizes != 0), zero)

    def commit(self, bank: Bank) -> tuple[heads.Committed, Form | None, float]:
        """What the heads of a bank commit, and, of heads that copy, what they read."""
        s, n = self.s, len(bank.node)
        got = held(bank.read, self.registers, bank.forms, s.u, s.tiny)
        require(max(got.size.max(), got.drift.max()) < s.largest / 16, "what is read may leave the format", Loose)
        if (bank.node == -1).all():
            # A copying head looks at its own token alone, and should return what it reads.
            alone = bank.kind == "mean" and s.data == 1
            alone = alone or (bank.kind == "move" and self.addresses(bank) == list(range(s.data)))
            require(alone, "a copying head looks at other tokens")
            zero = 0.0 * got.size
            reads = Reads(Span(got.size, got.size), zero, zero, zero, got.read, got.drift, got.columns)
            committed, score = heads.committed(getattr(heads, bank.kind)(bank, reads, s), s, n)
            eps = got.form.eps + got.stored + committed.leak + committed.rounding
            return committed, Form(got.form.terms, got.form.constant, eps, got.form.size + eps), score
        reads = self.compared(bank, got)
        if bank.kind in ("table", "gate"):
            lemma = tables.lemma(bank, reads, s, self.circuit.nodes, self.file.tables, self.tabulated)
        else:
            lemma = getattr(heads, bank.kind)(bank, reads, s)
        if bank.kind == "move":
            moves = [self.circuit.nodes[m].plain for m in set(bank.node.tolist())]
            require(all(self.addresses(bank) == list(targets) for targets in moves), "a move has another address")
        committed, score = heads.committed(lemma, s, n)
        require(
            committed.reach.max() < min(s.largest / 16, 1 / FLOOR), "what a head returns may leave the format", Loose
        )
        for m in set(bank.node.tolist()):
            self.commits[m] = {name: np.zeros(self.sizes[m]) for name in ("below", "leak", "rounding", "reach")}
            for name, values in self.commits[m].items():
                values[bank.component[bank.node == m]] = getattr(committed, name)[bank.node == m]
        return committed, None, score

    def addresses(self, bank: Bank) -> list[int]:
        """The tokens that the tokens of a move fetch from: codes of -1 (bit set) and 1; or zeros and a 1 for none."""
        if type(bank.address) is int:
            return [bank.address] * self.s.data
        codes, places = self.file.start[bank.address], 2 ** np.arange(self.s.bits)
        require(codes.shape == (self.s.data, self.s.bits + 1), "an address has other columns")
        none = (codes[:, :-1] == 0).all(axis=1) & (codes[:, -1] == 1)
        require(
            (none | ((np.abs(codes[:, :-1]) == 1).all(axis=1) & (codes[:, -1] == 0))).all(),
            "an address is no code of a token",
        )
        return [int(x) for x in np.where(none, -1, (codes[:, :-1] == -1) @ places)]

    def compared(self, bank: Bank, got: Held) -> Reads:
        """Of each form: the value that it should be, what arrives there, and how far it deviates from the
        circuit's."""
        low, high, arriving, deviation = np.zeros((4, bank.forms))
        sizes = {m: np.maximum(*x) for m, x in self.within.items()}
        for a, rows, components in demanded(bank, self.circuit.nodes):
            require(a in self.off, f"a head reads node {a}, which no earlier layer computes")
            exact = self.found[a].wider(self.circuit.margin(set(bank.node.tolist()), a))[components]
            low[rows], high[rows], arriving[rows] = exact.low, exact.high, self.off[a][components]
            deviation[rows] = got.form.rows(rows).away(self.form(a).rows(components), sizes)
        return Reads(Span(low, high), arriving, deviation, got.stored, got.read, got.drift, got.columns)

    def write(self, bank: Bank, c: heads.Committed, copied: Form | None) -> None:
        """The outputs of a bank, as forms of the nodes that they stand for (or of what was copied), added to
        registers."""
        outputs, form, below, above = len(bank.node), copied or nothing(len(bank.node)), c.reach, c.reach
        for n in sorted(set(bank.node.tolist()) - {-1}):
            where, reach = np.flatnonzero(bank.node == n), self.commits[n]["reach"]
            below_n, above_n = (np.minimum(x, reach) for x in self.around(n))
            self.within[n] = (reach, reach) if self.circuit.sheltered(n) else (below_n, above_n)
            chosen = np.zeros((outputs, self.sizes[n]))
            chosen[where, bank.component[where]] = 1.0
            same = np.array_equal(chosen, np.eye(outputs))
            form = form.plus(self.itself(n) if same else self.itself(n).mapped(chosen))
            below, above = (
                np.where(bank.node == n, (chosen @ x), old)
                for x, old in zip(self.within[n], (below, above), strict=True)
            )
        for link in bank.write:
            part = form.rows(np.arange(outputs)[link.at])
            self.registers[link.register].add(link.weights, part, below[link.at], above[link.at], c.spilled[link.at])

    def sum(self, score: float) -> Verdict:
        """The bound: what tables and circuits approximate, softmax, leak and rounding, each carried to the output."""
        out, file = self.circuit.output, self.file
        to, norm = gains(out, self.sizes, self.edges), norms(self.edges, self.sizes, file.norms, out)
        sides = {part: [np.zeros(self.sizes[out]), np.zeros(self.sizes[out])] for part in ("approximation", "softmax")}
        leak, rounding = np.zeros((2, self.sizes[out]))

        def carry(n: int, error: Array) -> Array:
            return norm.carried(n, out, error, to.carried(n, error))

        for n in sorted(to.here.keys() | to.far.keys()):
            committed = []
            if n in self.errors:
                committed.append(("approximation", *self.errors[n].sides))
            if n in self.commits:
                c = self.commits[n]
                committed.append(("softmax", c["below"], 0.0 * c["below"]))
                leak, rounding = leak + carry(n, c["leak"]), rounding + carry(n, c["rounding"])
            for part, below, above in committed:
                moved = to.moved(n, below, above)
                sides[part] = [
                    a + norm.carried(n, out, np.maximum(below, above), b)
                    for a, b in zip(sides[part], moved, strict=True)
                ]
        if 0 in to.here:
            rounding = rounding + carry(0, self.input_error)
        parts = {part: np.maximum(*both) for part, both in sides.items()} | {
            "leak": leak,
            "rounding": rounding + self.read_out(),
        }
        parts = {part: x * SLACK for part, x in parts.items()}
        outputs = np.sum([*parts.values()], axis=0) * SLACK
        require(np.isfinite(outputs).all() and outputs.max() < self.s.largest / 16, "nothing finite is proved", Loose)
        worst = int(np.argmax(outputs))
        of_worst = {part: float(x[worst]) for part, x in parts.items()}
        return Verdict(float(outputs[worst]), tuple(outputs.tolist()), of_worst, score, float(file.claim["error"]))

    def read_out(self) -> Array:
        """How far the read-out deviates from the output's form, and what storing and reading round."""
        file, s, bias = self.file, self.s, np.abs(self.file.bias)
        got = held(file.readout, self.registers, len(bias), s.u, s.tiny)
        require((got.size + bias).max() < s.largest / 16, "outputs may leave the format", Loose)
        with_bias = got.form.plus(Form({}, file.bias, 0 * bias, bias))
        read = np.where(
            bias > 0, gamma(4 + got.columns, s.u) * (got.size + bias) + (got.columns + 1) * s.tiny, got.read
        )
        return (
            with_bias.away(self.form(self.circuit.output), {m: np.maximum(*x) for m, x in self.within.items()})
            + got.stored
            + read
        )


__all__ = ["Verdict", "check", "check_contents"]
