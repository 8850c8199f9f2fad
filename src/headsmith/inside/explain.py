"""A compiled model told in words: its tokens, what it holds at first, layer by layer and head by head, what it returns.

Every weight that is named is read from the model itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headsmith.core.certificate import MEANING, PARTS, Certificate
from headsmith.core.figures import bound, count, number, shortened
from headsmith.core.intervals import Box
from headsmith.inside.meanings import Meanings, Model, read_text, without_kind
from headsmith.language.builder import masks
from headsmith.language.describe import outputs_text
from headsmith.language.graph import Graph, Relu
from headsmith.transformer.heads.stream import RESERVED
from headsmith.transformer.ir import Bank, Transformer

FEWEST, NAME = 4, 40
"""How many registers are told at least, and how many letters of their names."""

HEADS = 12
"""How many heads of a bank are told one by one, unless asked for more."""

FIRST, LAST = 6, 2
"""How many layers of a deep model are told."""

INTERVALS = 6
"""How many inputs are told with their intervals."""


def explain(model: Model, heads: int = HEADS) -> str:
    """The model in words; of each bank of heads, and of the registers, at most `heads` are told one by one. Of a deep
    model the first and the last layers are told, unless `heads` are as many as it has."""
    meanings = Meanings(model)
    parts = [_opening(model), _tokens(model), _embedding(model, meanings, heads)]
    layers = len(model.transformer.layers)
    many = heads < model.bill.heads + model.bill.neurons and layers > FIRST + LAST + 1
    left_out = range(FIRST, layers - LAST) if many else range(0)
    for place in range(layers):
        if place == left_out.start and left_out:
            parts.append(_passed_over(model.transformer, left_out))
        if place not in left_out:
            parts.append(_layer(meanings, place, heads))
    readout = "\n".join(["Read-out", *(f"  {line}" for line in readout_lines(model))])
    return "\n\n".join([*parts, readout, errors_text(model.certificate)])


def domain_text(box: Box) -> str:
    """Where the inputs lie."""
    if len(set(zip(box.low.tolist(), box.high.tolist(), strict=True))) == 1 and box.size > 1:
        who = ", ".join(box.names) if box.size <= INTERVALS else f"all {count(box.size, 'input')}"
        return f"{who} in [{box.low[0]:g}, {box.high[0]:g}]"
    intervals = [f"{name} in [{low:g}, {high:g}]" for name, low, high in zip(box.names, box.low, box.high, strict=True)]
    more = f", and {count(box.size - INTERVALS, 'more input')}" if box.size > INTERVALS else ""
    return ", ".join(intervals[:INTERVALS]) + more


def size_text(layers: int, heads: int) -> str:
    """How large a model is."""
    return f"{count(layers, 'layer')}, {count(heads, 'head')}"


def errors_text(certificate: Certificate) -> str:
    """What the proven error is made of."""
    lines = [f"Proven: |model - target| <= {bound(certificate.error)} for every input in the domain, made of"]
    for name in (name for name in PARTS if certificate.parts.get(name)):
        lines.append(f"  {name:13} {bound(certificate.parts[name]):>10}  {MEANING[name]}")
    return "\n".join(lines) if len(lines) > 1 else lines[0].removesuffix(", made of") + "."


def _opening(model: Model) -> str:
    cost, mask = model.bill, ", under a causal mask" if True in masks(model.graph) else ""
    inner = f", {count(cost.neurons, 'neuron')} in SwiGLU blocks" if cost.neurons else ", no feed-forward block"
    between = "" if model.approximates is None else f"through a network that approximates it, {_gates(model.graph)}\n"
    other = model.transformer.attention
    kind = "softmax transformer" if other == "softmax" else f"transformer with {other} attention"
    return (
        f"{outputs_text(model.wanted, 100)}, for {domain_text(model.box)}\n{between}"
        f"A {kind}: {size_text(cost.layers, cost.heads)}{inner} and no normalisation.\n"
        f"The residual stream has {count(cost.d_model, 'column')}. It runs in {model.transformer.dtype}{mask}."
    )


def _gates(network: Graph) -> str:
    gates = sum(node.size for node in network.nodes if isinstance(node, Relu))
    return f"of {count(gates, 'gate')}: the approximation part says how closely"


def _tokens(model: Model) -> str:
    transformer = model.transformer
    lines = ["Tokens"]
    if transformer.sink_tokens:
        lines.append("  r0: the sink, a reference token that holds zero; a head that looks at it adds nothing")
    if transformer.grid_tokens:
        first, last = transformer.sink_tokens, transformer.reference_tokens - 1
        which = f"r{first}" if first == last else f"r{first} to r{last}"
        lines.append(f"  {which}: the grid, constant reference tokens that table heads and products look up")
    if transformer.tokens == 1:
        lines.append("  t0: the data token; it holds the inputs, and the outputs in the end")
    elif model.blocks:
        lines.append(f"  t0 to t{transformer.tokens - 1}: one data token for each piece; all of them get the inputs")
    else:
        lines.append(f"  t0 to t{transformer.tokens - 1}, at most: the data tokens, one row of the inputs each")
    return "\n".join(lines)


def _embedding(model: Model, meanings: Meanings, most: int) -> str:
    lines = ["What a data token holds at first, by register"]
    told, registers = meanings.registers[0], [each for each in model.transformer.registers if each.name not in RESERVED]
    for register in registers[: max(most, FEWEST)]:
        lines.append(f"  {_held(register.name, told, register.size)}")
    if len(registers) > max(most, FEWEST):
        lines.append(f"  and {count(len(registers) - max(most, FEWEST), 'more register')}")
    return "\n".join(lines)


def _held(name: str, told: Mapping[str, str], size: int) -> str:
    """What a register holds, or how wide it is."""
    text = f" = {shortened(told[name], 100)}" if name in told else f": {count(size, 'column')}"
    return f"{shortened(name, NAME)}{text}"


def _passed_over(transformer: Transformer, places: range) -> str:
    """A line for layers that are not told."""
    banks = [bank for place in places for bank in transformer.layers[place].banks]
    kinds = ", ".join(dict.fromkeys(bank.kind for bank in banks))
    heads, neurons = (count(sum(getattr(bank, f"{each}s") for bank in banks), each) for each in ("head", "neuron"))
    heads = f"{heads} and {neurons}" if any(bank.neurons for bank in banks) else heads
    return f"Layers {places.start + 1} to {places.stop}: {heads} of the kinds {kinds} (explain more heads to see them)"


def _layer(meanings: Meanings, place: int, heads: int) -> str:
    transformer = meanings.model.transformer
    layer, names = transformer.layers[place], iter(meanings.heads[place])
    lines = [f"Layer {place + 1}: {count(layer.heads, 'head')}"]
    if layer.neurons:
        lines = [f"Layer {place + 1}: a SwiGLU block of {count(layer.neurons, 'neuron')}"]
    before: dict[str, int] = {}
    for bank in layer.banks:
        if bank.neurons:
            lines += _neurons(meanings, bank, heads)
            continue
        first = before.get(bank.kind, 0)
        before[bank.kind] = first + bank.heads
        mine = [next(names) for _ in range(bank.heads)]
        told = list(bank_sentences(meanings, bank, heads))
        for head, sentences in enumerate(told):
            lines.append(f"  {bank.kind} head {first + head}: {without_kind(mine[head])}")
            lines += [f"    {sentence}" for sentence in sentences]
        if bank.heads > len(told):
            lines.append(f"  and {count(bank.heads - len(told), f'more {bank.kind} head')}")
    after = meanings.registers[place + 1]
    written = list(dict.fromkeys(link.register for bank in layer.banks for link in bank.write))
    for name in written[: max(heads, FEWEST)]:
        lines.append(f"  then {_held(name, after, transformer.sizes[name])}")
    if len(written) > max(heads, FEWEST):
        lines.append(f"  and {count(len(written) - max(heads, FEWEST), 'more register')}")
    return "\n".join(lines)


def _neurons(meanings: Meanings, bank: Bank, most: int) -> list[str]:
    texts, lines = meanings.neurons(bank), []
    for place, (text, sentence) in enumerate(zip(texts[:most], neuron_sentences(meanings, bank), strict=False)):
        lines += [f"  {bank.called} {place}: {text}", f"    {sentence}"]
    if bank.outputs > most:
        lines.append(f"  and {count(bank.outputs - most, f'more {bank.called}')}")
    return lines


@dataclass(frozen=True, eq=False)
class _Words:
    """What one bank is told with (transformer/heads/bank.py)."""

    meanings: Meanings
    bank: Bank

    def read(self, row: int) -> str:
        return shortened(read_text(self.bank.read, row, self.meanings.model.transformer.sizes), 70)

    def output(self, place: int) -> str:
        return self.meanings.output(self.bank, place)

    def pieces(self, place: int) -> Sequence[str] | None:
        return self.meanings.pieces.get((int(self.bank.node[place]), int(self.bank.component[place])))

    @property
    def grid(self) -> str:
        return _grid(self.meanings.model.transformer)


def neuron_sentences(meanings: Meanings, bank: Bank) -> Iterator[str]:
    """What the neurons of each output of a bank do."""
    for output in range(bank.outputs):
        yield from bank.told(output, meanings.model.transformer, _Words(meanings, bank))


def bank_sentences(meanings: Meanings, bank: Bank, heads: int) -> Iterator[list[str]]:
    """What each of the first `heads` heads of a bank does, in a few lines."""
    if bank.cleared:
        names = shortened(", ".join(bank.cleared), 70)
        yield [f"looks at its own token alone and takes away what {names} hold: nobody reads that any more"]
        return
    for head in range(min(bank.heads, heads)):
        yield bank.told(head, meanings.model.transformer, _Words(meanings, bank))


def _grid(transformer: Transformer) -> str:
    if transformer.grid_form == "softmax":
        return "all answers, in a softmax at the end without any tokens,"
    first, last = transformer.sink_tokens, transformer.reference_tokens - 1
    return f"r{first}" if first == last else f"r{first} to r{last}"


def readout_lines(model: Model) -> list[str]:
    """What each output is read from, in a line; of many outputs the first ones."""
    transformer, lines = model.transformer, []
    for output in range(min(transformer.outputs, 8)):
        text, constant = read_text(transformer.readout, output, transformer.sizes), transformer.readout_bias[output]
        shift = "" if constant == 0.0 else f" {'-' if constant < 0.0 else '+'} {number(float(np.abs(constant)))}"
        lines.append(f"y{output} = {shortened(text, 100)}{shift}")
    if transformer.outputs > 8:
        lines.append(f"and {count(transformer.outputs - 8, 'more output')}")
    return lines
