"""Registers in larger units, where that makes the largest weight of a model smaller.

A column of a register may hold 2^k times what it stands for: it is then written by weights that are 2^k times as large,
and read by weights that are so much smaller. All products are the same numbers as before, and so is all rounding. A
gate that follows x a little multiplies by the difference of two numbers that are nearly the same,

    x y  =  -512 (y - 2 y g(x)),        g(x) = 1/2 + x / 1024,

which takes no weight above 32 where the register holds 16 y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headsmith.core.arrays import Array
from headsmith.kernel.sparse import Sparse
from headsmith.lower.linear import product
from headsmith.transformer.bill import max_weight
from headsmith.transformer.heads.bank import largest
from headsmith.transformer.heads.stream import RESERVED, Link
from headsmith.transformer.ir import Bank, Layer, Transformer

LARGEST = 2.0**20
"""The largest unit: numbers in the stream are to stay far from overflow."""


def in_larger_units(transformer: Transformer) -> Transformer | None:
    """The same model in units that make its largest weight smaller; None where that is not a weight by which something
    reads a register, and where tokens read each other: layers that do the same, step by step, are to stay the same.

    Guarantee: registers hold powers of two times what they held, and outputs are the same, unless a number is beyond
    the format.
    """
    if any(bank.mixes for layer in transformer.layers for bank in layer.banks):
        return None
    units = {name: found for name, found in _units(transformer).items() if np.any(found > 1.0)}
    found = with_units(transformer, units) if units else None
    return found if found is not None and max_weight(found) < max_weight(transformer) else None


def _units(transformer: Transformer) -> dict[str, Array]:
    """By register, how many times what they stand for its columns are to hold: as few as will do. What tells tokens
    apart is left alone, and so is what heads clear."""
    banks = [bank for layer in transformer.layers for bank in layer.banks]
    kept = {*RESERVED, *transformer.positional}.union(*(bank.cleared for bank in banks))
    read, written = ({name: np.zeros(size) for name, size in transformer.sizes.items()} for _ in range(2))
    for link in (*transformer.readout, *(link for bank in banks for link in bank.read)):
        _enter(read[link.register], link, 1)
    for link in (*transformer.embedding, *(link for bank in banks for link in bank.write)):
        _enter(written[link.register], link, 0)
    for name, value in transformer.initial.items():
        written[name] = np.maximum(written[name], np.abs(value))
    rest = max([1.0, largest(transformer.readout_bias), *map(largest, written.values()), *map(_own, banks)])
    return {
        name: np.array([_unit(*pair, rest) for pair in zip(read[name], written[name], strict=True)])
        for name in transformer.sizes
        if name not in kept
    }


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
