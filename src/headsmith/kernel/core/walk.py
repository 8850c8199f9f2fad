"""The walk through the layers: what every bank commits, and how all of it reaches the outputs.

Rules Head (what a bank commits, given what it reads), Arrive (how far nodes are off by then) and Sum (everything,
carried by gains to the outputs).
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from . import stream as streams
from .arithmetic import FLOAT64, Interval, Upper, largest, smallest
from .errors import Refused, ThinMargin, refuse, spend
from .expressions import Computed, arguments_of
from .flow import Gain, arrive, gains
from .graph import Graph
from .heads import addresses, local_errors
from .model import Bank, Model
from .proof import Proof
from .slopes import Edges
from .softmax import Local, Reads, refuse_large

CLOSE, WIDE = 2.0**-10, 1 << 12  # off by more, of what it may be, a node of so many numbers is worth a closer look


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known before the walk: ranges of all nodes, the components that have heads, how close tables and circuits
    are to what they stand for, through which edges errors arrive, and how they move the output."""

    model: Model
    proof: Proof
    ranges: Sequence[Interval]
    places: Mapping[int, Any]
    tables: Mapping[int, Computed]
    approximations: Mapping[int, Interval]
    slopes: Edges
    gains: Mapping[int, Gain]

    @cached_property
    def limits(self) -> dict[int, float]:
        """How far nodes may be off, so that what was proved of regions, tables and attention (its queries) holds."""
        found: dict[int, float] = {}
        regions = [(each.arguments, each.margin) for each in self.proof.regions.values() if each.margin is not None]
        for number, node in enumerate(self.circuit.nodes):
            if number in self.proof.tables or node.kind == "attend":
                margin = self.proof.tables[number].margin if number in self.proof.tables else 0.0
                regions.append((node.arguments[:1] if node.kind == "attend" else node.arguments, margin))
        for arguments, margin in regions:
            found |= {each: min(margin, found.get(each, np.inf)) for each in arguments}
        return found

    @property
    def circuit(self) -> Graph:
        """The circuit that the heads compute."""
        return self.proof.circuit


@dataclass(eq=False)
class Walk:
    """What is known so far: the registers, how large the nodes are that heads have computed, what every node commits
    itself, and of means the part of that which is the same at all tokens; how far nodes are off whose errors are all
    known, what every bank has committed, and the registers before each layer."""

    stream: streams.Stream
    forms: Mapping[int, streams.Form]
    magnitudes: dict[int, Upper]
    own: dict[int, Upper]
    alike: dict[int, Upper]
    final: dict[int, Upper]
    locals_: list[tuple[Bank, Local]]
    past: list[streams.Stream]


def walk_through(facts: Facts) -> Walk:
    """Bound what every bank commits, layer by layer: all banks of a layer see the same stream."""
    circuit, model = facts.circuit, facts.model
    walk, inside = _first(facts), facts.proof.margins_of_reads
    for layer in model.layers:
        spend(4000.0 * len(walk.stream))  # all of the past is kept
        walk.past.append(walk.stream)
        claimed = {number for bank in layer for number, _, _ in _claims(bank)}
        off = _arriving(facts, walk, {argument for number in claimed for argument in circuit.nodes[number].arguments})
        done = [(bank, _copied(model, walk, bank) if bank.copies else _local(facts, walk, bank, off)) for bank in layer]
        for bank, local in done:
            for number, mine, components in _claims(bank):
                committed = _spread(local.committed[mine], components, circuit.nodes[number].size)
                more = facts.approximations[number].magnitude if number in facts.approximations else 0.0
                walk.own[number] = committed + more
                if local.alike is not None:
                    walk.alike[number] = _spread(local.alike[mine], components, circuit.nodes[number].size)
        off = _arriving(facts, walk, claimed)
        for bank, local in sorted(done, key=lambda each: not each[0].copies):
            if bank.copies:
                walk.stream = streams.copy(walk.stream, layer, bank, local, model)
                continue
            outputs = np.zeros((2, bank.outputs))
            for number, mine, components in _claims(bank):
                # What a node is off by that reads anew is not all that it may be off by.
                exact, reach = facts.ranges[number][components], local.reach[mine]
                sides = [Upper(np.maximum(end, 0.0)) + off[number][components] for end in (-exact.low, exact.high)]
                outputs[:, mine] = [(reach if number in inside else smallest(side, reach)).value for side in sides]
                found = Upper(outputs[:, mine].max(axis=0))
                walk.magnitudes[number] = _spread(found, components, circuit.nodes[number].size)
            held = Interval(-outputs[0], outputs[1])
            walk.stream = streams.write(walk.stream, bank, circuit, held, local.spilled, model.precision is not FLOAT64)
        walk.locals_ += done
    # What was proved of regions, tables and attention holds only if what they read is off by no more than that.
    off = _arriving(facts, walk, facts.limits.keys())
    for number, margin in facts.limits.items():
        _refuse_beyond(number, float(np.max(off[number].value)), margin)
    return walk


def _first(facts: Facts) -> Walk:
    """What is known before the first layer. What heads will compute is off by infinity until they have."""
    circuit, precision = facts.circuit, facts.model.precision
    own = {number: error.magnitude for number, error in facts.approximations.items()}
    for number, components in facts.places.items():
        own[number] = _spread(Upper(np.full(len(components), np.inf)), components, circuit.nodes[number].size)
    size, exact = facts.ranges[0].magnitude, precision is FLOAT64
    own[0] = size * 0.0 if exact else size * (precision.unit_roundoff + precision.held) + precision.smallest_normal
    fixed = [number for number, node in enumerate(circuit.nodes) if node.kind == "positional"]
    magnitudes = {number: facts.ranges[number].magnitude for number in fixed}
    magnitudes |= {0: size + own[0], streams.CONSTANT: Upper(np.ones(1))}
    ends = [np.maximum(end, 0.0) + own[0] for end in (-facts.ranges[0].low, facts.ranges[0].high)]
    stream = streams.start(facts.model, circuit, Interval(-ends[0].value, ends[1].value))
    return Walk(stream, _forms(facts), magnitudes, own, {}, {}, [], [])


def _by_node(nodes: Any, components: Any) -> list[tuple[int, Any, Any]]:
    """The nodes that outputs stand for, or forms read: each with the places of these, and their components."""
    found = [(number, np.flatnonzero(nodes == number)) for number in np.unique(nodes).tolist() if number >= 0]
    return [(number, mine, components[mine]) for number, mine in found]


def _claims(bank: Bank) -> list[tuple[int, Any, Any]]:
    """The nodes that a bank computes, each with its outputs and components."""
    return _by_node(bank.node, bank.component)


def _spread(values: Upper, components: Any, size: int) -> Upper:
    """Values of some components, with zeros for the others."""
    whole = np.zeros(size)
    whole[components] = values.value
    return Upper(whole)


def _arriving(facts: Facts, walk: Walk, wanted: Set[int]) -> Mapping[int, Upper]:
    """Rule Arrive: how far the wanted nodes, and what they depend on, can be off."""
    edges, before = facts.slopes.of, {*wanted}
    for number in range(max(wanted, default=-1), -1, -1):
        if number in before and number not in walk.final:
            before |= {argument for argument, _, _ in edges[number]}
    off = ChainMap(dict[int, Upper](), walk.final)
    for number in sorted(before - walk.final.keys()):
        off[number] = arrive(edges, number, facts.circuit.nodes[number].size, off) + walk.own.get(number, 0.0)
        if np.isfinite(off[number].value).all():
            most = facts.limits.get(number, facts.ranges[number].magnitude.value)
            if len(off[number].value) <= WIDE and np.any(off[number].value > CLOSE * most):
                off[number] = smallest(off[number], _by_gains(facts, walk, number))
            walk.final[number] = off[number]
    return off


def _by_gains(facts: Facts, walk: Walk, number: int) -> Upper:
    """How far a node can be off, by the gains of all that was committed before it."""
    total = Upper(np.zeros(facts.circuit.nodes[number].size))
    for each, gain in gains(facts.circuit, facts.slopes.of, number, facts.slopes.steps, facts.slopes.norms).items():
        if each in walk.own:
            total = total + gain.carried(walk.own[each], walk.alike.get(each))
    return total


def _forms(facts: Facts) -> dict[int, streams.Form]:
    """Every node that is computed, as a form of the input, of constants and of what has heads."""
    forms: dict[int, streams.Form] = {}
    for number, node in enumerate(facts.circuit.nodes):
        if node.kind == "affine":
            if all(argument in forms for argument in node.arguments):
                forms[number] = streams.constant(node.constants)
                for argument, weights in zip(node.arguments, node.weights, strict=True):
                    forms[number] = streams.plus(forms[number], streams.image(weights, forms[argument]))
        elif node.kind == "relu":
            has_head = np.isin(np.arange(node.size), facts.places.get(number, ()))
            forms[number] = streams.image(has_head.astype(np.float64), streams.basis(number, node.size))
            active = facts.slopes.gates[number].low if number in facts.slopes.gates else np.zeros(node.size)
            if active.any() and node.arguments[0] not in forms:
                del forms[number]
            elif active.any():
                forms[number] = streams.plus(forms[number], streams.image(active, forms[node.arguments[0]]))
        elif node.kind in ("input", "positional") or number in facts.places:
            forms[number] = streams.basis(number, node.size)
    return forms


def _local(facts: Facts, walk: Walk, bank: Bank, off: Mapping[int, Upper]) -> Local:
    """Rule Head: what one bank commits."""
    model, circuit = facts.model, facts.circuit
    nodes, components = arguments_of(bank, circuit)
    low, high, arriving, deviation = np.zeros((4, bank.forms))
    margins, claimed = facts.proof.margins_of_reads, {*bank.node.tolist()}
    for number, mine, rows in _by_node(nodes, components):
        refuse(number not in walk.forms, f"a head reads node {number}, which is not computed")
        seen = facts.ranges[number].widened(max(margins.get(each, {}).get(number, 0.0) for each in claimed))
        low[mine], high[mine] = seen.low[rows], seen.high[rows]
        arriving[mine] = off[number][rows].value
        pair = streams.read(walk.stream, bank.read, mine), streams.rows_of(walk.forms[number], rows)
        deviation[mine] = streams.difference(*pair, len(mine), walk.magnitudes).value
    exact, known = Interval(low, high), Interval(low, high).magnitude + arriving + deviation
    stored, *others = streams.read_bounds(walk.stream, bank.read, bank.forms, model.precision, known, bank.scale)
    reads = Reads(exact, Upper(deviation), Upper(arriving), stored, *others)
    for targets in {circuit.nodes[number].targets for number in claimed if bank.kind == "move"}:
        rows = model.positional[bank.address] if isinstance(bank.address, str) else np.full(len(targets), bank.address)
        if not np.array_equal(rows, addresses(targets, model.bits) if isinstance(bank.address, str) else targets):
            raise Refused("a move head fetches from other tokens than its node says")
    tables = [number in facts.tables for number in claimed]
    refuse(any(tables) != all(tables), "a bank computes gates and expressions")
    return _of_tables(facts, bank, reads) if all(tables) else local_errors(model, bank, reads)


def _copied(model: Model, walk: Walk, bank: Bank) -> Local:
    """What heads commit that look at their own token alone, against what they read: a mean over one token, or a move
    from every token to itself. Where a sink's head does, what drifted there counts as what others hold, too."""
    own = bank.kind == "mean" and model.tokens == 1
    if bank.kind == "move" and isinstance(bank.address, str):
        own = np.array_equal(model.positional[bank.address], addresses(tuple(range(model.tokens)), model.bits))
    refuse(not own, f"a {bank.kind} head stands for what it reads, but looks at other tokens")
    _, rounded, sizes, drift = streams.read_bounds(walk.stream, bank.read, bank.forms, model.precision)
    zero, size = Upper(np.zeros(bank.forms)), (sizes + drift).value
    return local_errors(model, bank, Reads(Interval(size, size), zero, zero, zero, rounded, sizes, drift))


def _of_tables(facts: Facts, bank: Bank, reads: Reads) -> Local:
    """What table and gate heads commit, whose arguments must be off by no more than the margin of what was proved."""
    columns, width = bank.outputs // bank.heads, bank.forms // bank.heads
    furthest = np.repeat(reads.off.value.reshape(bank.heads, width).max(axis=1), columns)
    slopes = np.zeros((bank.outputs, width))
    for output, (number, component) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
        _refuse_beyond(number, furthest[output], facts.proof.tables[number].margin)
        slopes[output] = [float(slope.magnitude.value[component]) for slope in facts.tables[number].slopes]
    return local_errors(facts.model, bank, reads, Upper(slopes))


def _refuse_beyond(number: int, off: float, margin: float) -> None:
    if not off <= margin:
        raise ThinMargin(f"what is read for node {number} may be off by {off:.3g}, more than the margin {margin:.3g}")


def carried(facts: Facts, walk: Walk) -> dict[str, Upper]:
    """Rule Sum: all errors, carried to the outputs, part by part."""
    circuit, every = facts.circuit, facts.gains
    zero = Upper(np.zeros(circuit.nodes[circuit.output].size))
    sides = {name: [zero, zero] for name in ("approximation", "softmax", "leak", "rounding")}

    def push(part: str, down: Upper, up: Upper | None = None) -> None:
        sides[part] = [sides[part][0] + down, sides[part][1] + (down if up is None else up)]

    for number in facts.approximations.keys() & every.keys():
        push("approximation", *every[number].pushes(facts.approximations[number]))
    for bank, local in walk.locals_:
        for number, mine, components in (each for each in _claims(bank) if each[0] in every):
            found = [each[mine] for each in (local.below, local.above, local.leak, local.rounding)]
            below, above, leak, rounding = (_spread(each, components, circuit.nodes[number].size) for each in found)
            push("softmax", *every[number].pushes(Interval(-below.value, above.value)))
            push("leak", every[number].carried(leak))
            push("rounding", every[number].carried(rounding, walk.alike.get(number)))
    if 0 in every:
        push("rounding", every[0].carried(walk.own[0]))
    parts = {name: largest(*both) for name, both in sides.items()}
    arriving = parts["approximation"] + parts["softmax"] + parts["leak"] + parts["rounding"]
    return parts | {"rounding": parts["rounding"] + _readout(facts, walk, arriving)}


def _readout(facts: Facts, walk: Walk, arriving: Upper) -> Upper:
    """What the read-out is off by, and rounds; its bias is one more term of that sum."""
    model, output = facts.model, facts.circuit.output
    form = streams.read(walk.stream, model.readout, np.arange(model.outputs))
    form = streams.plus(form, streams.constant(model.readout_bias))
    refuse(output not in walk.forms, "the output of the circuit is not computed")
    off = streams.difference(form, walk.forms[output], model.outputs, walk.magnitudes)
    known = facts.ranges[output].magnitude + arriving + off
    stored, rounded, sizes, _ = streams.read_bounds(walk.stream, model.readout, model.outputs, model.precision, known)
    columns, bias = sum(link.weights.shape[-1] for link in model.readout), np.abs(model.readout_bias)
    added = model.precision.gamma(4 + columns, 0) * (sizes + bias) + (columns + 1.0) * model.precision.smallest_normal
    added = added + (known + stored + added + bias) * (2.1 * model.precision.held)
    return off + stored + Upper(np.where(bias > 0.0, added.value, rounded.value))


def refuse_overflow(model: Model, walk: Walk, weight: float) -> None:
    """Raise Refused where a register, weight or output comes near the end of the format; what heads read, and scores,
    have been looked at before."""
    for register in walk.stream.values():
        refuse_large(model, largest(register.magnitude, register.drift), "a register")
    refuse_large(model, Upper(weight), "a weight")
    _, _, outputs, _ = streams.read_bounds(walk.stream, model.readout, model.outputs, model.precision)
    refuse_large(model, outputs + np.abs(model.readout_bias), "an output")
