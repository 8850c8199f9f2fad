"""The scales of a model: those of its gates, and the units of its registers, so that the softmax part fits the budget
and the largest weight is as small as that allows.

A gate with scale b errs by at most w/b, w = W(1/e), always downwards (a maximum over n tokens: w = W((n-1)/e)), and
moves output o by c_oh times that. The softmax part of output o is

    max( sum_h w c_oh^+ / b_h ,  sum_h w c_oh^- / b_h ).

Among all scales that meet the budget, the largest weight b_h |W_V| is smallest when b_h |W_V|_max is the same for all
heads: a gate's share of the budget is then proportional to its sensitivity. (The equal split gives every gate the same
share, and so the most sensitive gate a scale that is larger by up to the number of gates.)

Scales are planned with gains entry by entry, b for all gates up to the weights of their reads. The kernel knows better
gains for layers of gates, by norms (kernel/core/norms.py). So, with c_k what the gates of layer k would add to the
softmax part at b = 1, there is a relief:

    ratio     (sum of c_k by the kernel's gains) / (the same entry by entry): b may be smaller by that
    factors   a score is b z, and later layers read larger z. Layers whose c_k are small may have smaller b, if the
              others have larger ones: b_k = b f_k with sum of c_k / f_k = sum of c_k, such that the largest f_k z_k is
              smallest. No f_k is more than 2, or than what the ratio has saved: weights are never larger than before

Registers hold larger units, where that makes the largest weight of a model smaller. A column may hold 2^k times what it
stands for: it is then written by weights that are 2^k times as large, and read by weights that are so much smaller. All
products are the same numbers as before, and so is all rounding. A gate that follows x a little multiplies by the
difference of two numbers that are nearly the same,

    x y  =  -512 (y - 2 y g(x)),        g(x) = 1/2 + x / 1024,

which takes no weight above 32 where the register holds 16 y.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.kernel.core.arithmetic import Interval, Upper, smallest
from headsmith.kernel.core.flow import Far, Gain
from headsmith.kernel.core.sparse import Sparse
from headsmith.kernel.core.walk import Facts
from headsmith.language.graph import Attend, Pool, Relu
from headsmith.lower.registers import product
from headsmith.plan.approximation import Design
from headsmith.transformer.bill import max_weight
from headsmith.transformer.heads.scaling import SMALLEST_SCALE, Scaling, heaviest_read
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.stream import RESERVED, Link, largest, position_bits
from headsmith.transformer.heads.swiglu import SiluBank
from headsmith.transformer.ir import Bank, Layer, Transformer

TINY = 1e-280
ROOM = 1.05
"""Times the size of what is read where scales depend on it."""
ENOUGH = 0.999
"""A ratio above that is none."""


@dataclass(frozen=True, eq=False)
class Relief:
    """By how much all scales may be smaller; and for each layer, a factor of its own."""

    ratio: float = 1.0
    factors: tuple[float, ...] = ()

    def of(self, layer: int) -> float:
        """By how much the scales of a layer differ from those without norms."""
        return self.ratio * (self.factors[layer] if self.factors else 1.0)


NONE = Relief()


@dataclass(frozen=True, eq=False)
class Demand:
    """`softmax`: the softmax part when all scales are one, up to the weights of the reads. `leak`: how much a unit of
    leaked weight in every head could move an output."""

    softmax: float
    leak: float


def demand_of(transformer: Transformer, gains: Mapping[int, Gain]) -> Demand:
    """What a model asks of its scales, by the gains of the circuit's nodes."""
    if transformer.attention == "linear":
        return Demand(0.0, 0.0)
    heads = [[gains_of_heads(bank, gains, transformer.outputs) for bank in layer.banks] for layer in transformer.layers]
    return Demand(_softmax(transformer, heads), _leak(transformer, heads))


def with_softmax_budget(
    transformer: Transformer,
    demand: Demand,
    budget: float,
    leak: float,
    sizes: Mapping[int, float] | None = None,
    relief: Relief = NONE,
) -> Transformer:
    """The same model with score scales such that the softmax part is at most `budget`, and gains that keep the leak
    near `leak`. `sizes` bounds what is read where maxima are taken over tokens, and the scores of attention, by circuit
    node; `relief` says by how much scales of gates may be smaller than the model's `demand` says."""
    if not transformer.layers or transformer.attention == "linear":
        return transformer
    common = max(demand.softmax / max(budget, TINY), SMALLEST_SCALE)
    if not (common < transformer.precision.largest**0.9 and math.isfinite(demand.leak)):
        raise CertificateError(f"the gates would need scales of {common:.3g}, beyond {transformer.dtype}")
    reach = math.log(max(2.0 * transformer.tokens * demand.leak / max(leak, TINY), 2.0))
    position, reference = _gains(transformer, reach)

    layers = []
    for number, layer in enumerate(transformer.layers):
        scaling = Scaling(transformer, common, relief.of(number), reach, position, reference, sizes or {})
        layers.append(Layer(tuple(bank.scaled(scaling) for bank in layer.banks)))
    return replace(transformer, layers=tuple(layers))


def _gains(transformer: Transformer, reach: float) -> tuple[float, float]:
    """Position and reference gain: even integers, so that every score of the position code is an exact integer.

    The position gain also covers the bits' count; the reference token is left as alone as float32's exponents allow.
    """
    bits = position_bits(transformer.tokens)
    position = 2.0 * math.ceil((reach + math.log(max(bits, 1)) + 2.0) / 2.0) if bits else 0.0
    # What leaks into the sink token may grow by the weights of each further layer; those of gates are large.
    heavy = sum(any(bank.heavy for bank in layer.banks) for layer in transformer.layers)
    return position, 2.0 * math.ceil((reach + 8.0 + 4.0 * (len(transformer.layers) + heavy)) / 2.0)


def _softmax(transformer: Transformer, heads: list[list[Far]]) -> float:
    """max over outputs of sum_h w_h |W_V|_h c_oh over gates and maxima, the larger of the two signs."""
    below: Array = np.zeros(1)
    above: Array = np.zeros(1)
    for layer, gains in zip(transformer.layers, heads, strict=True):
        for bank, gain in zip(layer.banks, gains, strict=True):
            constant = bank.softmax_constant(transformer)
            if constant == 0.0:
                continue
            heavy = constant * heaviest_read(bank)
            below = below + gain.rising.value.T @ heavy
            above = above + gain.falling.value.T @ heavy
    return float(max(below.max(), above.max()))


def _leak(transformer: Transformer, heads: list[list[Far]]) -> float:
    """How much a unit of leaked weight in every head could move an output; values of gates count as one."""
    total = 0.0
    for layer, gains in zip(transformer.layers, heads, strict=True):
        for bank, gain in zip(layer.banks, gains, strict=True):
            total += float((bank.value_sizes() * gain.size.value).sum(axis=0).max())
    return total


def sizes_read(design: Design, gates: bool) -> dict[int, float]:
    """By circuit node, the size of what is read where maxima are taken over tokens (and by `gates`, if that is asked
    for), and of the scores of attention, with some room."""
    sizes = {}
    for number, node in enumerate(design.circuit.nodes):
        if isinstance(node, Pool) or (gates and isinstance(node, Relu)):
            sizes[number] = ROOM * float(np.max(design.ranges[node.argument].magnitude, initial=0.0))
        elif isinstance(node, Attend):
            sizes[number] = ROOM * float(design.ranges[node.queries].magnitude @ design.ranges[node.keys].magnitude)
    return sizes


def enlarged(sizes: Mapping[int, float], facts: Facts, skeleton: Transformer) -> dict[int, float]:
    """The sizes, with room for what the kernel knows of the same values, which may be less: its ranges may be wider."""
    largest_read = dict(sizes)
    for stored, layer in zip(facts.model.layers if sizes else (), skeleton.layers if sizes else (), strict=True):
        for known, bank in zip(stored, layer.banks, strict=True):
            pairs = set() if known.copies else {*zip(known.node.tolist(), bank.node.tolist(), strict=True)}
            for number, name in pairs:
                node = facts.circuit.nodes[number]
                if name in sizes and node.kind in ("pool", "relu"):
                    read = float(np.max(facts.ranges[node.arguments[0]].magnitude.value))
                    largest_read[name] = max(largest_read[name], ROOM * read)
    return largest_read


def gains_of_heads(bank: Bank, gains: Mapping[int, Gain], outputs: int) -> Far:
    """The gains of a bank's heads, (heads, outputs), from those of the circuit's nodes."""
    found = np.zeros((3, bank.outputs, outputs))
    for number in map(int, np.unique(bank.node)):
        if number in gains:
            mine, every = bank.node == number, gains[number].anywhere
            sides = [smallest(side, every.size) for side in (every.rising, every.falling)]
            found[:, mine] = [each.value[bank.component[mine]] for each in (*sides, every.size)]
    return Far(*map(Upper, found))


def relief_of(facts: Facts, transformer: Transformer) -> Relief:
    """What the kernel's gains allow for a network of gates; nothing for all other models."""
    banks = [[bank for bank in layer.banks if isinstance(bank, SinkBank | SiluBank)] for layer in transformer.layers]
    roles = [[bank.node for bank in layer if not bank.copies] for layer in facts.model.layers]
    if not facts.proof.norms or any(len(mine) != len(each) for mine, each in zip(banks, roles, strict=True)):
        return NONE
    every = facts.gains
    known, plain, sizes = [], [], []
    for mine, nodes in zip(banks, roles, strict=True):
        pushes = [_pushes(bank, node, facts, every) for bank, node in zip(mine, nodes, strict=True)]
        known.append(np.sum([each[0] for each in pushes], axis=0))
        plain.append(np.sum([each[1] for each in pushes], axis=0))
        sizes.append(max(each[2] for each in pushes))
    ratio = float(np.sum(known, axis=0).max() / max(np.sum(plain, axis=0).max(), 1e-300))
    if not 0.0 < ratio < ENOUGH:
        return NONE
    worst = int(np.argmax(np.sum(known, axis=0)))
    shares = np.array([each.ravel()[worst] for each in known])
    return Relief(ratio, tuple(_factors(shares, np.array(sizes), min(2.0, 1.0 / ratio))))


def _pushes(bank: Bank, nodes: Array, facts: Facts, every: Mapping[int, Gain]) -> tuple[Array, Array, float]:
    """What errors of size 1, times the heaviest weight that a head reads by, do to each output, down and up: by all
    that the kernel knows, and entry by entry; and the largest score at a scale of 1."""
    heaviest, size = heaviest_read(bank), 0.0
    known, plain = np.zeros((2, 2, facts.circuit.nodes[facts.circuit.output].size))
    for number in np.unique(nodes).tolist():
        mine = nodes == number
        error = np.zeros(facts.circuit.nodes[number].size)
        error[bank.component[mine]] = heaviest[mine]
        argument = facts.ranges[facts.circuit.nodes[number].arguments[0]].magnitude.value[bank.component[mine]]
        size = max(size, float(np.max(argument / heaviest[mine])))
        if number in every:
            sides = Interval(-error, 0.0 * error)
            known = known + np.stack([each.value for each in every[number].pushes(sides)])
            plain = plain + np.stack([each.value for each in replace(every[number], via=None).pushes(sides)])
    return known, plain, size


def _factors(shares: Array, sizes: Array, most: float) -> Array:
    """Factors of at most `most` that make the largest score smallest and keep the sum of shares / factors."""
    low, high = 0.0, most * float(sizes.max())
    for _ in range(100):
        score = 0.5 * (low + high)
        found = np.minimum(score / np.maximum(sizes, 1e-300), most)
        if np.sum(shares / np.maximum(found, 1e-300)) > np.sum(shares):
            low = score
        else:
            high = score
    return np.minimum(high / np.maximum(sizes, 1e-300), most)


# Units ----------------------------------------------------------------------------------------------------------------

LARGEST = 2.0**20
"""The largest unit: numbers in the stream are to stay far from overflow."""


def in_other_units(transformer: Transformer) -> Transformer | None:
    """The same model in units that make its largest weight smaller; None where that is not a weight by which something
    reads or writes a register, and where tokens read each other: layers that do the same, step by step, are to stay the
    same.

    Guarantee: registers hold powers of two times what they held, and outputs are the same, unless a number is beyond
    the format.
    """
    if any(bank.mixes for layer in transformer.layers for bank in layer.banks):
        return None
    found = transformer
    for wanted in (_units, _smaller_units):
        units = {name: unit for name, unit in wanted(found).items() if np.any(unit != 1.0)}
        other = with_units(found, units) if units else found
        found = other if max_weight(other) < max_weight(found) else found
    return found if found is not transformer else None


def _units(transformer: Transformer) -> dict[str, Array]:
    """By register, how many times what they stand for its columns are to hold: as few as will do. What tells tokens
    apart is left alone, and so is what heads clear."""
    read, written, fixed = _sizes(transformer)
    rest = max([fixed, *map(largest, written.values())])
    return {
        name: np.array([_unit(*pair, rest) for pair in zip(read[name], written[name], strict=True)]) for name in read
    }


def _smaller_units(transformer: Transformer) -> dict[str, Array]:
    """The same the other way: columns that hold less are written by smaller weights, and read by larger ones."""
    read, written, fixed = _sizes(transformer)
    rest = max([fixed, *map(largest, read.values())])
    return {
        name: np.array([1.0 / _unit(*pair, rest) for pair in zip(written[name], read[name], strict=True)])
        for name in read
    }


def _sizes(transformer: Transformer) -> tuple[dict[str, Array], dict[str, Array], float]:
    """How large the weights are by which each column may be read, and written, where its units may change; and the
    largest of all weights that stay as they are."""
    banks = [bank for layer in transformer.layers for bank in layer.banks]
    kept = {*RESERVED, *transformer.positional}.union(*(bank.cleared for bank in banks))
    read, written = ({name: np.zeros(size) for name, size in transformer.sizes.items()} for _ in range(2))
    for link in (*transformer.readout, *(link for bank in banks for link in bank.read)):
        _enter(read[link.register], link, 1)
    for link in (*transformer.embedding, *(link for bank in banks for link in bank.write)):
        _enter(written[link.register], link, 0)
    for name, value in transformer.initial.items():
        written[name] = np.maximum(written[name], np.abs(value))
    stay = [largest(sizes[name]) for sizes in (read, written) for name in kept & sizes.keys()]
    fixed = max([1.0, largest(transformer.readout_bias), *stay, *map(_own, banks)])
    moving = [{name: size for name, size in sizes.items() if name not in kept} for sizes in (read, written)]
    return moving[0], moving[1], fixed


def _enter(sizes: Array, link: Link, axis: int) -> None:
    """Note how large the weights of a link are, for each column of its register."""
    weights = link.weights
    if isinstance(weights, Sparse):
        np.maximum.at(sizes, (weights.rows, weights.columns)[axis], np.abs(weights.values))
    else:
        found = weights if weights.ndim == 1 else np.abs(weights).max(axis=1 - axis, initial=0.0)
        np.maximum(sizes, np.abs(found), out=sizes)


def _own(bank: Bank) -> float:
    """The largest number of a bank that stands in a matrix as it is."""
    return max([0.0, *(largest(getattr(bank, name)) for name in bank.arrays if name not in bank.folded_arrays)])


def _unit(read: float, written: float, rest: float) -> float:
    """The least power of two after which a weight that reads is no longer larger than all others."""
    found = 1.0
    while written > 0.0 and read / found > max(rest, written * found) and found < LARGEST:
        found *= 2.0
    return found


def with_units(transformer: Transformer, units: Mapping[str, Array]) -> Transformer:
    """The model whose registers hold so many times what they held; powers of two leave its outputs as they are."""

    def reading(link: Link) -> Link:
        scale = units.get(link.register)
        return link if scale is None else replace(link, weights=product(link.weights, 1.0 / scale))

    def writing(link: Link) -> Link:
        scale = units.get(link.register)
        return link if scale is None else replace(link, weights=product(scale, link.weights))

    def moved(bank: Bank) -> Bank:
        return replace(bank, read=tuple(map(reading, bank.read)), write=tuple(map(writing, bank.write)))

    return replace(
        transformer,
        embedding=tuple(map(writing, transformer.embedding)),
        initial={name: value * units.get(name, 1.0) for name, value in transformer.initial.items()},
        layers=tuple(Layer(tuple(map(moved, layer.banks))) for layer in transformer.layers),
        readout=tuple(map(reading, transformer.readout)),
    )
