"""The check: from the file alone, how far the model can be from its target; and whether that is what the file claims.

Compare what floating point computes with the exact target. Every head commits two errors,

    r   what it reads is off: stored weights against the circuit's (deviation), rounding of the register sums and of the
        read (times the slope of a table);
    e   what it returns is off, for the argument that it has: its lemma, other tokens (leak), rounding inside the head,

and tables and circuits in place of functions commit theirs (approximation). All are bounded layer by layer, with ranges
that are wider by what has accumulated so far (flow.arrive), and carried to the outputs by gains (flow.gains). The bound
is their sum. nan or infinity anywhere means: not certified.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import EXP_ULPS, FLOAT64, Interval, Upper, largest, smallest
from .compare import check_region
from .errors import Refused
from .expressions import Computed, arguments_of, computed, headed, slopes_of
from .flow import Edge, Edges, Slope, arrive, gains
from .functions import enclose
from .graph import Graph, masks_of, needed, read_graph, tokens_of
from .heads import Local, Reads, address_targets, local_errors
from .model import Bank, Model, check_format, read_model
from .proof import Proof, read_proof
from .ranges import ranges
from .reading import Tensors, field, items, mapping, read, real
from .same import Forms
from .stream import Form, Stream, basis, constant, difference, image, plus, read_bounds, rows_of, start, write
from .stream import read as read_form

MOST_LOOKS = 512
PARTS = ("approximation", "softmax", "leak", "rounding")


@dataclass(frozen=True)
class Certificate:
    """For every input in the domain, every output and every token: |run(model, x) - target(x)| <= error.

    `run` is floating-point execution in `dtype`, rounded to nearest, in any order of summation, with exp correct to
    `exp_ulps` units in the last place, of 1 to `tokens` data tokens, under the masks in `masks`; `target` is exact real
    arithmetic. `parts` belong to the worst output and add up to the error; `outputs` has a bound for each output.
    """

    error: float
    parts: Mapping[str, float]
    outputs: tuple[float, ...]
    dtype: str
    tokens: int
    masks: tuple[str, ...]
    max_score: float
    exp_ulps: int
    domain: tuple[tuple[str, float, float], ...]


def check_file(path: str | os.PathLike[str]) -> Certificate:
    """The certificate of a file, proved again. Raises Refused where less can be proved than is claimed."""
    header, tensors = read(path)
    if "proof" not in header:
        raise Refused("the file carries no proof that this kernel can check")
    found = proved(header, tensors)
    _compare(field(header, "claim"), found)
    return found


def proved(header: Any, tensors: Tensors) -> Certificate:
    """What the contents of a file prove, whatever they claim."""
    with np.errstate(all="ignore"):
        target = read_graph(field(header, "source"), tensors)
        stored = field(header, "proof")
        model = read_model(field(header, "transformer"), tensors, field(stored, "roles"))
        check_format(model)
        return certificate(target, model, read_proof(stored, tensors, target), _box(field(header, "domain"), target))


def _box(stored: Any, target: Graph) -> Interval:
    low, high = ([real(end) for end in items(field(stored, name))] for name in ("low", "high"))
    if not len(low) == len(high) == target.nodes[0].size or any(a > b for a, b in zip(low, high, strict=True)):
        raise Refused("the domain does not have an interval for each input")
    return Interval(low, high)


def _compare(stored: Any, found: Certificate) -> None:
    """Raise Refused unless every field of the claim is at most what was proved."""
    outputs = [real(each) for each in items(field(stored, "outputs"))]
    parts = {name: real(field(field(stored, "parts"), name)) for name in PARTS}
    proven = [("error", real(field(stored, "error")), found.error)]
    proven += [("max_score", real(field(stored, "max_score")), found.max_score)]
    proven += [(f"part {name}", parts[name], found.parts[name]) for name in PARTS]
    proven += [(f"output {n}", a, b) for n, (a, b) in enumerate(zip(outputs, found.outputs, strict=False))]
    for name, claimed, bound in proven:
        if not bound <= claimed:
            raise Refused(f"{name}: {claimed!r} is claimed, and {bound!r} can be proved")
    same = {"dtype": found.dtype, "tokens": found.tokens, "exp_ulps": found.exp_ulps, "masks": list(found.masks)}
    for key, value in same.items():
        if field(stored, key) != value or type(field(stored, key)) is not type(value):
            raise Refused(f"{key}: {field(stored, key)!r} is claimed, and {value!r} is the case")
    if len(outputs) != len(found.outputs) or set(mapping(field(stored, "parts"))) != set(PARTS):
        raise Refused("the claim has other outputs or parts than the model")


def certificate(target: Graph, model: Model, proof: Proof, box: Interval) -> Certificate:
    """What can be proved of a model."""
    circuit = proof.circuit
    masks = _masks(target, model, proof)
    _refuse_other_function(target, proof)
    places = headed(circuit, model)
    found, chords = ranges(proof, box, check_region)
    tables = computed(proof, model, found)
    approximations = {**chords, **{number: each.error for number, each in tables.items()}}
    edges = _edges(proof, found, places, tables)
    walk = _walk(model, proof, box, found, places, tables, approximations, edges)
    parts = _sum(walk, circuit, edges, approximations)
    rounding = parts["rounding"] + _readout(model, circuit, walk)
    parts["rounding"] = rounding
    total = parts["approximation"] + parts["softmax"] + parts["leak"] + rounding
    _refuse_overflow(model, walk, total)
    worst = int(np.argmax(total.value))
    return Certificate(
        error=float(total.value[worst]),
        parts={name: float(parts[name].value[worst]) for name in PARTS},
        outputs=tuple(total.value.tolist()),
        dtype=model.precision.name,
        tokens=model.tokens,
        masks=masks,
        max_score=max((local.max_score for _, local in walk.locals_), default=0.0),
        exp_ulps=EXP_ULPS,
        domain=tuple(zip(target.nodes[0].names, box.low.tolist(), box.high.tolist(), strict=True)),
    )


def _masks(target: Graph, model: Model, proof: Proof) -> tuple[str, ...]:
    """Under which masks the model computes the target: both, unless it pools or attends under one of them, or fetches
    from tokens ahead."""
    if (model.inputs, model.outputs) != (target.nodes[0].size, target.nodes[target.output].size):
        raise Refused("the model's inputs and outputs are not the target's")
    for graph in (target, proof.circuit):
        if not tokens_of(graph) <= {model.tokens}:
            raise Refused(f"a graph is about another number of tokens than {model.tokens}")
    wanted = masks_of(target) | masks_of(proof.circuit)
    if len(wanted) > 1:
        raise Refused("the target looks at all tokens and at those so far: no mask computes both")
    names = {frozenset(): ("full", "causal"), frozenset({False}): ("full",), frozenset({True}): ("causal",)}
    return names[frozenset(wanted)]


def _refuse_other_function(target: Graph, proof: Proof) -> None:
    """Rule Same: the circuit, with what its regions stand for, is the target; regions and views are what they say."""
    forms = Forms()
    wanted = forms.of(target, {})[target.output]
    found = forms.of(proof.circuit, proof.meanings)
    if found[proof.circuit.output] != wanted:
        raise Refused("the circuit of the proof does not compute the target")
    for region in proof.regions.values():
        if region.ends is None and found[region.output] != found[region.stands_for]:
            raise Refused(f"node {region.output} does not stand for node {region.stands_for}")
    for number, exchange in proof.exchanges.items():
        if found[number] != forms.exchanged(
            *(found[n] for n in (exchange.value, exchange.moved, exchange.above, exchange.below))
        ):
            raise Refused(f"node {number} is no exchange")
    for number, views in proof.views.items():
        if any(found[view] != found[number] for view in views):
            raise Refused(f"node {number} is not what it is viewed as")


def _edges(
    proof: Proof, found: Sequence[Interval], places: Mapping[int, Any], tables: Mapping[int, Computed]
) -> dict[int, list[Edge]]:
    """For every node, through which arguments errors arrive, and with which slopes."""
    edges: dict[int, list[Edge]] = {number: [] for number in range(len(proof.circuit.nodes))}
    cut = proof.cut
    # What a gate reads that is zero everywhere, and has no head, does not matter.
    relus = [number for number, node in enumerate(proof.circuit.nodes) if node.kind == "relu" and number not in places]
    dead = {number for number in relus if np.all(found[proof.circuit.nodes[number].arguments[0]].high <= 0.0)}
    for number in needed(proof.circuit, [proof.circuit.output, *places], dead):
        node, slopes = proof.circuit.nodes[number], tuple[Slope, ...]()
        if node.kind == "affine":
            slopes = node.weights
        elif node.kind == "relu":
            gate = _gate_slopes(number, node.size, found[node.arguments[0]], places.get(number))
            slopes = (gate,) if gate.high.any() else ()
        elif node.kind == "expression" and number in tables:
            slopes = tables[number].slopes
        elif node.kind in ("pool", "move"):
            slopes = (Interval(np.zeros(node.size), np.ones(node.size)),)
        elif node.kind == "attend":
            off = proof.margins.get(number, 0.0)
            queries, keys, values = (found[argument] for argument in node.arguments)
            slopes = _attend_slopes(queries, keys, values, off)
        elsewhere = node.kind in ("pool", "move", "attend")
        pairs = zip(node.arguments, slopes, strict=False)
        edges[number] = [(argument, slope, elsewhere) for argument, slope in pairs if (number, argument) not in cut]
        region = proof.regions.get(number)
        if region is not None and region.margin is not None:
            reference = proof.circuit.nodes[region.stands_for]
            wide = [found[argument].widened(region.margin) for argument in region.arguments]
            slopes = slopes_of(reference, wide, _derivative)
            edges[number] += [
                (argument, slope, False) for argument, slope in zip(region.arguments, slopes, strict=True)
            ]
        if number in proof.exchanges:
            unit = Interval(np.zeros(node.size), np.ones(node.size))
            edges[number].append((proof.exchanges[number].value, unit, True))
    return edges


def _derivative(name: str, parameter: float | None, x: Interval) -> Interval:
    return enclose(name, parameter, x.low, x.high, 1)


def _gate_slopes(number: int, size: int, argument: Interval, components: Any) -> Interval:
    """Rule Stable: a gate with a head has slopes in [0, 1]; one without must be active or dead on the whole domain."""
    has_head = np.isin(np.arange(size), () if components is None else components)
    dead = ~has_head & (argument.high <= 0.0)
    active = ~has_head & ~dead & (argument.low >= 0.0)
    if not (has_head | active | dead).all():
        gate = int(np.argmin(has_head | active | dead))
        raise Refused(
            f"gate {gate} of node {number} crosses zero on the domain (its argument ranges over "
            f"[{argument.low[gate]:.6g}, {argument.high[gate]:.6g}]), but no head computes it"
        )
    return Interval(active.astype(np.float64), (active | has_head).astype(np.float64))


def _attend_slopes(queries: Interval, keys: Interval, values: Interval, off: float) -> tuple[Interval, ...]:
    """How attention m = sum_j w_j v_j, w = softmax(q . k_j), moves with queries, keys and values.

    Values off by D move m by at most D. Let queries be off by e, |e_c| <= E_c, and keys by f_j, |f_jc| <= F_c. A score
    moves by e . k_j + (q + e) . f_j, and what moves all scores alike, e . (the middle of the keys' ranges), does not
    count: by at most d = sum_c E_c rad(k_c) + (|q_c| + E_c) F_c. Then m moves by at most R tanh(d/2) <= R d / 2, R the
    spread of the values. So the slopes are R rad(k_c) / 2 by q_c and R (|q_c| + E_c) / 2 by k_c, with E_c <= off.
    """
    spread, radius, size = values.width * 0.5, keys.width * 0.5, queries.magnitude + off
    by_query, by_key = (Upper(spread.value[:, None]) * each.value for each in (radius, size))
    one = np.ones(len(values.low))
    symmetric = [Interval(-each.value, each.value) for each in (by_query, by_key)]
    return *symmetric, Interval(0.0 * one, one)


@dataclass(frozen=True, eq=False)
class _Walk:
    """What is known after the last layer."""

    stream: Stream
    forms: Mapping[int, Form]
    magnitudes: Mapping[int, Upper]
    locals_: Sequence[tuple[Bank, Local]]
    input_error: Upper


def _walk(
    model: Model,
    proof: Proof,
    box: Interval,
    found: Sequence[Interval],
    places: Mapping[int, Any],
    tables: Mapping[int, Computed],
    approximations: Mapping[int, Interval],
    edges: Edges,
) -> _Walk:
    """Bound what every bank commits, layer by layer: all banks of a layer see the same stream."""
    circuit, precision = proof.circuit, model.precision
    forms = _forms(circuit, places, edges)
    input_error = Upper(np.zeros(model.inputs))
    if precision is not FLOAT64:
        input_error = box.magnitude * precision.unit_roundoff + precision.smallest_normal
    magnitudes = {0: box.magnitude + input_error}
    for number, node in enumerate(circuit.nodes):
        if node.kind == "positional" and node.constants is not None:
            magnitudes[number] = Upper(np.abs(node.constants).max(axis=0))
    own: dict[int, Upper] = {number: Upper(_unknown(circuit, number, places)) for number in places}
    own.update({number: error.magnitude for number, error in approximations.items() if number not in places})
    own[0] = input_error
    stream, locals_ = start(model, circuit, magnitudes[0]), list[tuple[Bank, Local]]()
    final: dict[int, Upper] = {}
    for layer in model.layers:
        read_ = {
            argument for bank in layer for number in bank.node.tolist() for argument in circuit.nodes[number].arguments
        }
        off = _arriving(circuit, edges, own, final, read_)
        done = [(bank, _local(model, proof, bank, stream, forms, magnitudes, found, off, tables)) for bank in layer]
        for bank, local in done:
            for number in np.unique(bank.node).tolist():
                mine = bank.node == number
                committed = np.zeros(circuit.nodes[number].size)
                committed[bank.component[mine]] = local.committed[mine].value
                more = approximations[number].magnitude if number in approximations else 0.0
                own[number] = Upper(committed) + more
        off = _arriving(circuit, edges, own, final, {number for bank in layer for number in bank.node.tolist()})
        for bank, local in done:
            outputs = _outputs(circuit, bank, local, off, magnitudes)
            stream = write(stream, bank, circuit, outputs, local.spilled)
        locals_ += done
    arguments = {argument for region in proof.regions.values() for argument in region.arguments}
    arguments |= {node.arguments[0] for node in circuit.nodes if node.kind == "attend"}
    _refuse_thin_margins(proof, _arriving(circuit, edges, own, final, arguments))
    return _Walk(stream, forms, magnitudes, locals_, input_error)


def _unknown(circuit: Graph, number: int, places: Mapping[int, Any]) -> Any:
    """Infinite for what heads will compute."""
    own = np.zeros(circuit.nodes[number].size)
    own[places[number]] = np.inf
    return own


def _arriving(
    circuit: Graph, edges: Edges, own: Mapping[int, Upper], final: dict[int, Upper], wanted: Set[int]
) -> dict[int, Upper]:
    """How far the wanted nodes, and what they depend on, can be off. What does not change any more goes to `final`."""
    stack, before = list(wanted), set[int]()
    while stack:
        number = stack.pop()
        if number not in before:
            before.add(number)
            stack.extend(argument for argument, _, _ in edges[number] if argument not in final)
    off = dict(final)
    for number in sorted(before - final.keys()):
        off[number] = arrive(edges, number, circuit.nodes[number].size, off) + own.get(number, 0.0)
        if number in wanted and _explodes(off[number], [own[each] for each in before if each in own]):
            off[number] = smallest(off[number], _by_gains(circuit, edges, own, number))
        if np.isfinite(off[number].value).all():
            final[number] = off[number]
    return off


def _explodes(off: Upper, own: Sequence[Upper]) -> bool:
    """Whether a bound is so much larger than all that was committed that it is worth a closer look."""
    most = max((float(np.max(each.value)) for each in own), default=0.0)
    few = len(own) <= MOST_LOOKS and len(off.value) <= MOST_LOOKS
    return few and bool(4.0 * most < float(np.max(off.value)) < np.inf)


def _by_gains(circuit: Graph, edges: Edges, own: Mapping[int, Upper], number: int) -> Upper:
    """How far a node can be off, by the gains of all that was committed before it."""
    total = Upper(np.zeros(circuit.nodes[number].size))
    for each, gain in gains(circuit, edges, number).items():
        if each in own:
            total = total + gain.carried(own[each])
    return total


def _outputs(circuit: Graph, bank: Bank, local: Local, off: Mapping[int, Upper], magnitudes: dict[int, Upper]) -> Upper:
    """Bounds of what the heads return, which are noted in `magnitudes`."""
    outputs = np.zeros(bank.outputs)
    for number in np.unique(bank.node).tolist():
        mine, components = bank.node == number, bank.component[bank.node == number]
        outputs[mine] = smallest(local.largest[mine] + off[number][components], local.reach[mine]).value
        sizes = np.zeros(circuit.nodes[number].size)
        sizes[components] = outputs[mine]
        magnitudes[number] = Upper(sizes)
    return Upper(outputs)


def _forms(circuit: Graph, places: Mapping[int, Any], edges: Edges) -> dict[int, Form]:
    """Every node that is computed, as a form of the input, of constants and of what has heads."""
    forms: dict[int, Form] = {}
    for number, node in enumerate(circuit.nodes):
        if node.kind == "affine":
            assert node.constants is not None
            total = constant(node.constants)
            if any(argument not in forms for argument in node.arguments):
                continue
            for argument, weights in zip(node.arguments, node.weights, strict=True):
                total = plus(total, image(weights, forms[argument]))
            forms[number] = total
        elif node.kind == "relu":
            has_head = np.isin(np.arange(node.size), places.get(number, ()))
            form = basis(number, node.size)
            if not has_head.all():
                form = image(has_head.astype(np.float64), form) if has_head.any() else constant(np.zeros(node.size))
                slope = next((slope for _, slope, _ in edges[number]), None)
                active = slope.low if isinstance(slope, Interval) else np.zeros(node.size)
                if active.any() and node.arguments[0] in forms:
                    form = plus(form, image(active, forms[node.arguments[0]]))
            forms[number] = form
        elif node.kind in ("input", "positional") or number in places:
            forms[number] = basis(number, node.size)
    return forms


def _local(
    model: Model,
    proof: Proof,
    bank: Bank,
    stream: Stream,
    forms: Mapping[int, Form],
    magnitudes: Mapping[int, Upper],
    found: Sequence[Interval],
    off: Mapping[int, Upper],
    tables: Mapping[int, Computed],
) -> Local:
    """Rule Head: what one bank commits."""
    circuit = proof.circuit
    nodes, components = arguments_of(bank, circuit)
    form = read_form(stream, bank.read, bank.forms)
    stored, rounded, sizes, drift = read_bounds(stream, bank.read, bank.forms, model.precision)
    low, high, arriving, deviation = np.zeros((4, bank.forms))
    for number in np.unique(nodes).tolist():
        if number not in forms:
            raise Refused(f"a head reads node {number}, which is not computed")
        mine = np.flatnonzero(nodes == number)
        rows = components[mine]
        low[mine], high[mine] = found[number].low[rows], found[number].high[rows]
        arriving[mine] = off[number][rows].value
        deviation[mine] = difference(rows_of(form, mine), rows_of(forms[number], rows), magnitudes).value
    reads = Reads(Interval(low, high), Upper(deviation), Upper(arriving), stored, rounded, sizes, drift)
    if bank.kind == "move" and any(
        circuit.nodes[n].targets != address_targets(model, bank) for n in bank.node.tolist()
    ):
        raise Refused("a move head fetches from other tokens than its node says")
    if bank.kind not in ("table", "gate") or circuit.nodes[int(bank.node[0])].kind == "relu":
        if any(circuit.nodes[number].kind == "expression" for number in bank.node.tolist()):
            raise Refused("a bank computes gates and expressions")
        return local_errors(model, bank, reads)
    columns, width = bank.outputs // bank.heads, bank.forms // bank.heads
    furthest = np.repeat(reads.off.value.reshape(bank.heads, width).max(axis=1), columns)
    slopes, exact = np.zeros((bank.outputs, width)), np.zeros(bank.outputs)
    for output, (number, component) in enumerate(zip(bank.node.tolist(), bank.component.tolist(), strict=True)):
        if number not in tables:
            raise Refused("a bank computes gates and expressions")
        if not furthest[output] <= proof.tables[number].margin:
            raise Refused(
                f"what the heads of node {number} read may be off by {furthest[output]:.3g}, more than the margin "
                f"{proof.tables[number].margin:.3g}"
            )
        slopes[output] = [float(slope.magnitude.value[component]) for slope in tables[number].slopes]
        exact[output] = float(found[number].magnitude.value[component])
    return local_errors(model, bank, reads, Upper(slopes), Upper(exact))


def _refuse_thin_margins(proof: Proof, off: Mapping[int, Upper]) -> None:
    """What was proved of a region holds only if its arguments are off by no more than its margin; and of attention, its
    queries."""
    pairs = [(argument, region.margin) for region in proof.regions.values() for argument in region.arguments]
    attends = [number for number, node in enumerate(proof.circuit.nodes) if node.kind == "attend"]
    pairs += [(proof.circuit.nodes[number].arguments[0], proof.margins.get(number, 0.0)) for number in attends]
    for argument, margin in pairs:
        furthest = float(np.max(off[argument].value))
        if margin is not None and not furthest <= margin:
            raise Refused(f"node {argument} may be off by {furthest:.3g}, more than the margin {margin:.3g}")


def _sum(walk: _Walk, circuit: Graph, edges: Edges, approximations: Mapping[int, Interval]) -> dict[str, Upper]:
    """Rule Sum: all errors, carried to the outputs."""
    every = gains(circuit, edges, circuit.output)
    outputs = circuit.nodes[circuit.output].size
    zero = Upper(np.zeros(outputs))
    sides = dict.fromkeys(("approximation", "softmax"), (zero, zero))
    sums = {"leak": zero, "rounding": zero}
    for number, error in approximations.items():
        if number in every:
            sides["approximation"] = _pushed(sides["approximation"], every[number].pushes(error))
    for bank, local in walk.locals_:
        for number in np.unique(bank.node).tolist():
            if number not in every:
                continue
            mine, size = bank.node == number, circuit.nodes[number].size
            below, above, leak, rounding = (
                _spread(each[mine], bank.component[mine], size)
                for each in (local.below, local.above, local.leak, local.rounding)
            )
            sides["softmax"] = _pushed(sides["softmax"], every[number].pushes(Interval(-below, above)))
            sums["leak"] = sums["leak"] + every[number].carried(Upper(leak))
            sums["rounding"] = sums["rounding"] + every[number].carried(Upper(rounding))
    if 0 in every:
        sums["rounding"] = sums["rounding"] + every[0].carried(walk.input_error)
    return {name: largest(*both) for name, both in sides.items()} | sums


def _pushed(sides: tuple[Upper, Upper], more: tuple[Upper, Upper]) -> tuple[Upper, Upper]:
    return sides[0] + more[0], sides[1] + more[1]


def _spread(values: Upper, components: Any, size: int) -> Any:
    whole_ = np.zeros(size)
    whole_[components] = values.value
    return whole_


def _readout(model: Model, circuit: Graph, walk: _Walk) -> Upper:
    """What the read-out is off by, and rounds; its bias is one more term of that sum."""
    form = plus(read_form(walk.stream, model.readout, model.outputs), constant(model.readout_bias))
    if circuit.output not in walk.forms:
        raise Refused("the output of the circuit is not computed")
    off = difference(form, walk.forms[circuit.output], walk.magnitudes)
    stored, rounded, _, _ = read_bounds(walk.stream, model.readout, model.outputs, model.precision)
    terms = 4 + sum(link.weights.shape[-1] for link in model.readout)
    return off + stored + rounded + model.precision.gamma(terms) * np.abs(model.readout_bias)


def _refuse_overflow(model: Model, walk: _Walk, total: Upper) -> None:
    links = [*model.embedding, *model.readout]
    links += [link for bank, _ in walk.locals_ for link in (*bank.read, *bank.write)]
    sizes = [float(np.max(np.abs(link.weights), initial=0.0)) for link in links]
    registers = [float(largest(each.magnitude, each.drift).max().value) for each in walk.stream.values()]
    _, _, outputs, _ = read_bounds(walk.stream, model.readout, model.outputs, model.precision)
    scores = [local.max_score for _, local in walk.locals_]
    most = max([*sizes, *registers, *scores, float((outputs + np.abs(model.readout_bias)).max().value)])
    if not most * max(1, len(links)) < model.precision.largest / 16.0:
        raise Refused(f"a value, score or weight may reach {most:.3g}, beyond {model.precision.name}")
    if not np.isfinite(total.value).all():
        raise Refused("no finite bound: rounding errors may be as large as the scores themselves")
