"""Registers are used again: what no later layer reads is cleared, and others take its columns.

A deep network has a register for the arguments of every layer of gates, each of which is read once. With one more head
in a layer the same few columns serve all of them. That head looks at its own token alone, reads what a register holds,
and adds -1 times that to it; the biases of what comes next are written by the same head, from the register `data`
(kernel/core/stream.py, rule Clear, has what this leaves behind). For one data token it is a mean over one token, else a
move from every token to itself.

    lifetimes   a register is written from its first layer on, and read up to its last
    columns     each register takes the columns of those whose last layer is over (the greedy colouring of an interval
                graph: no layout is narrower)
    shared      columns that have the same registers one after the other are one register of the result

A register may be cleared and written in the same layer, or only in a later one (`apart`): the first takes half the
columns, in the second what is cleared adds nothing to the rounding of what comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank, addresses
from headsmith.transformer.heads.stream import DATA, RESERVED, Link, Register
from headsmith.transformer.ir import Bank, Layer, Transformer, width

NARROWER, MORE_HEADS = 0.45, 0.125
"""Registers are used again where that leaves at most so much of d_model, and takes at most so many more heads."""

MOST_PADDED, LEAST_VALUES = 1 << 22, 10
"""Tools that pad all heads of a layer to the widest value store so many numbers of W_V at most if one head clears. In
wider models several heads of the same scores do, so many values each or more: all heads have these few columns then,
which is less than the columns that are saved."""

SMALL = 24
"""A register that is so many times smaller than another does not take some of its columns: all links to the larger one
would be cut in two for a few."""

SHARED = "shared"
"""Registers that hold several others one after the other: shared, shared/2, ..."""

OWN = "own"
"""The register of addresses by which every token finds itself."""


@dataclass(frozen=True)
class Lifetime:
    """A register is written in the layers from `first` on (0: by the embedding) and read up to the layer `last`."""

    name: str
    size: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class SharedRegister:
    """Columns of a register of the result: which registers they hold one after the other, and which part of each."""

    name: str
    tenants: tuple[str, ...]
    parts: tuple[slice, ...]

    @property
    def size(self) -> int:
        return int(self.parts[0].stop - self.parts[0].start)


def with_registers_reused(transformer: Transformer, carrying: Transformer | None, apart: bool) -> Transformer:
    """The same function with fewer columns, where that pays; else the model as it is. `carrying` computes it, too, with
    heads that carry what is complete to later registers (registers.py). What is cleared stays empty for a layer if
    `apart`."""
    before, heads, best = width(transformer), transformer.heads, transformer
    for candidate in (transformer, carrying):
        if candidate is None or not all(_plain(bank) for bank in _banks(candidate)):
            continue
        found = lifetimes(candidate)
        shared = allotted(found, apart)
        saved = sum(each.size for each in found.values()) - sum(home.size for home in shared)
        if width(candidate) - saved <= min(NARROWER * before, width(best) - 1):
            reused = _rewritten(candidate, found, shared)
            best = reused if reused.heads <= (1.0 + MORE_HEADS) * heads else best
    return best


def own_addresses(tokens: int) -> dict[str, Array]:
    """The register by which every token finds itself, where there are several."""
    return {OWN: addresses(range(tokens), tokens)} if tokens > 1 else {}


def own_head(
    read: Sequence[Link], write: Sequence[Link], count: int, tokens: int, split: int = 1
) -> MeanBank | MoveBank:
    """A head that looks at its own token alone: of `count` numbers that it reads, and returns; or `split` of them."""
    none = np.full(-(-count // split) * split, -1)
    if len(none) > count:
        # What is left over in the last head reads `data`, and goes nowhere.
        read = [*read, Link(DATA, np.ones((len(none) - count, 1)), count)]
    if tokens == 1:
        return MeanBank(none, 0 * none, tuple(read), tuple(write), 1.0, 1.0, split)
    return MoveBank(none, 0 * none, tuple(read), tuple(write), OWN, 1.0, 1.0, split)


def _plain(bank: Bank) -> bool:
    return not bank.mixes or bool(np.all(bank.node == -1))


def lifetimes(transformer: Transformer) -> dict[str, Lifetime]:
    """When each register that is written is written first, and read last. What is read out is read after all layers,
    and what is never read as soon as it is written."""
    end = len(transformer.layers) + 1
    writes: dict[str, list[int]] = {}
    reads: dict[str, list[int]] = {}
    for number, layer in enumerate(transformer.layers, 1):
        for bank in layer.banks:
            for link in bank.write:
                writes.setdefault(link.register, []).append(number)
            for link in bank.read:
                reads.setdefault(link.register, []).append(number)
    for link in transformer.embedding:
        writes.setdefault(link.register, []).append(0)
    for link in transformer.readout:
        reads.setdefault(link.register, []).append(end)
    return {
        each.name: Lifetime(
            each.name,
            each.size,
            min([*writes.get(each.name, [0]), *(layer - 1 for layer in reads.get(each.name, []))]),
            max([*reads.get(each.name, []), *writes.get(each.name, [0])]),
        )
        for each in transformer.registers
        if each.name not in RESERVED and each.name not in transformer.positional
    }


def allotted(found: Mapping[str, Lifetime], apart: bool) -> list[SharedRegister]:
    """Which columns each register takes: those that have been free for longest, or new ones."""
    history: list[list[tuple[str, int]]] = []  # for each column its tenants, each with the column of theirs that it is
    for each in sorted(found.values(), key=lambda each: (each.first, each.last)):
        ends = [found[column[-1][0]].last for column in history]
        free = [place for place, last in enumerate(ends) if last + apart <= each.first and last > 0]
        free = [place for place in free if found[history[place][-1][0]].size < SMALL * each.size]
        # Whole registers first, so that few are cut.
        free.sort(key=lambda place: (abs(found[history[place][-1][0]].size - each.size), history[place][-1]))
        new = range(len(history), len(history) + max(each.size - len(free), 0))
        history += [[] for _ in new]
        for own, place in enumerate(sorted([*free[: each.size], *new])):
            history[place].append((each.name, own))
    shared: list[SharedRegister] = []
    start = 0
    for place in range(1, len(history) + 1):
        if place < len(history) and [(name, own - 1) for name, own in history[place]] == history[place - 1]:
            continue
        first, size = history[start], place - start
        stem = SHARED if len(first) > 1 else first[0][0]
        alike = sum(home.name.partition("/")[0] == stem for home in shared)
        name = f"{stem}/{alike + 1}" if alike else stem
        shared.append(
            SharedRegister(name, tuple(each for each, _ in first), tuple(slice(own, own + size) for _, own in first))
        )
        start = place
    return shared


def _rewritten(
    transformer: Transformer, found: Mapping[str, Lifetime], shared: Sequence[SharedRegister]
) -> Transformer:
    """The same model over shared registers, with heads that clear them."""
    homes: dict[str, list[tuple[SharedRegister, slice]]] = {}
    for home in shared:
        for tenant, part in zip(home.tenants, home.parts, strict=True):
            homes.setdefault(tenant, []).append((home, part))
    initial = {
        home.name: transformer.initial[home.tenants[0]][home.parts[0]]
        for home in shared
        if home.tenants[0] in transformer.initial
    }
    kept = [each for each in transformer.registers if each.name not in found]
    added = {name: table for name, table in own_addresses(transformer.tokens).items() if name not in transformer.sizes}
    kept += [Register(name, table.shape[1]) for name, table in added.items()]
    narrow = sum(each.size for each in kept) + sum(home.size for home in shared)
    layers = []
    for number, layer in enumerate(transformer.layers, 1):
        banks: list[Bank] = [
            replace(bank, read=_placed(bank.read, homes, reading=True), write=_placed(bank.write, homes, reading=False))
            for bank in layer.banks
        ]
        carrying = [bank for bank in banks if np.all(bank.node == -1)]
        others = [bank for bank in banks if bank not in carrying]
        layers.append(Layer((*others, *_clearing(transformer, found, shared, number, carrying, narrow))))
    return replace(
        transformer,
        registers=(*kept, *(Register(home.name, home.size) for home in shared)),
        embedding=_placed(transformer.embedding, homes, reading=False),
        initial=initial,
        positional={**transformer.positional, **added},
        layers=tuple(layers),
        readout=_placed(transformer.readout, homes, reading=True),
    )


def _placed(
    links: Iterable[Link], homes: Mapping[str, Sequence[tuple[SharedRegister, slice]]], reading: bool
) -> tuple[Link, ...]:
    """The same links, to or from the shared registers that hold a register."""
    placed = []
    for link in links:
        for home, part in homes.get(link.register, ()):
            if link.weights.ndim == 1:
                placed.append(Link(home.name, link.weights[part], link.first + part.start))
            else:
                placed.append(Link(home.name, link.weights[:, part] if reading else link.weights[part], link.first))
        if link.register not in homes:
            placed.append(link)
    return tuple(placed)


def _clearing(
    transformer: Transformer,
    found: Mapping[str, Lifetime],
    shared: Sequence[SharedRegister],
    number: int,
    carrying: Sequence[Bank],
    narrow: int,
) -> list[Bank]:
    """The head that clears what was read for the last time in this layer, where something else comes after it; it does
    what the head that is `carrying` something in this layer does, too."""
    read, write = ([link for bank in carrying for link in getattr(bank, way)] for way in ("read", "write"))
    count = sum(bank.outputs for bank in carrying)
    biases: list[tuple[str, Array]] = []
    for home in shared:
        for tenant, following, part in zip(home.tenants, home.tenants[1:], home.parts[1:], strict=False):
            if found[tenant].last == number:
                # What is carried has outputs of its own: else two links would meet in one weight of W_O.
                read.append(Link(home.name, np.ones(home.size), count))
                write.append(Link(home.name, -np.ones(home.size), count))
                count += home.size
                bias = transformer.initial.get(following)
                if bias is not None and bias[part].any():
                    biases.append((home.name, bias[part]))
    if not read:
        return []
    if biases:
        read.append(Link(DATA, np.ones((1, 1)), count))
        write += [Link(name, bias[:, None], count) for name, bias in biases]
        count += 1
    heads = transformer.layers[number - 1].heads
    values = max(LEAST_VALUES, MOST_PADDED // ((heads + 1) * narrow))
    return [own_head(read, write, count, transformer.tokens, max(1, min(-(-count // values), int(MORE_HEADS * heads))))]


def _banks(transformer: Transformer) -> list[Bank]:
    return [bank for layer in transformer.layers for bank in layer.banks]
