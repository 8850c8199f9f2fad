"""What is known of every register while the kernel walks the layers: how large, how often added to, how far from
zero on the reference tokens.

A register on a data token is a sum: its initial value, the embedding's products, and for each layer the products
that heads write. In floating point, in any order, that sum is off by at most gamma_k times the sum of absolute
values, k being the number of terms whose weights are not zero (the others are zero, and adding zero is exact). On the
reference tokens a register should stay zero; `drift` bounds what leaks
into it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, Indices
from headsmith.core.rounding import magnitude_product, upper
from headsmith.heads.stream import RESERVED, Link
from headsmith.transformer.ir import Bank, Transformer


@dataclass(eq=False)
class _Account:
    magnitude: Array
    count: int
    drift: Array


class Accounts:
    """One account for each register."""

    def __init__(self, transformer: Transformer, inputs: Array) -> None:
        """`inputs` bounds the absolute values of the inputs."""
        self.precision = transformer.precision
        self._accounts: dict[str, _Account] = {}
        for register in transformer.registers:
            initial = transformer.initial.get(register.name, np.zeros(register.size))
            if register.name in RESERVED:
                initial = np.ones(register.size)
            if register.name in transformer.positional:
                initial = np.abs(transformer.positional[register.name]).max(axis=0)
            self._accounts[register.name] = _Account(np.abs(initial), 1, np.zeros(register.size))
        for link in transformer.embedding:
            self._add(link, inputs)

    def _add(self, link: Link, magnitudes: Array) -> None:
        account = self._accounts[link.register]
        added = magnitude_product(link.weights, magnitudes[link.sources])
        account.magnitude = upper(account.magnitude + added, 2)
        account.count += int(np.max(_terms(link), initial=0))

    def write(self, links: Sequence[Link], magnitudes: Array, spilled: Array) -> None:
        """Heads add outputs of at most `magnitudes` on data tokens and `spilled` on reference tokens."""
        for link in links:
            self._add(link, magnitudes)
            account = self._accounts[link.register]
            added = magnitude_product(link.weights, spilled[link.sources])
            account.drift = upper(account.drift + 1.01 * added, 4)

    def read_rounding(self, links: Sequence[Link], rows: int) -> tuple[Array, Array]:
        """Bounds of the rounding of the sums that are read, and of the read itself: any order, fused or not."""
        gamma, tiny = self.precision.gamma, self.precision.smallest_normal
        terms = np.full(rows, 4)
        for link in links:
            terms[link.reads] += _terms(link)
        stored, read, copied = np.zeros(rows), np.zeros(rows), np.ones(rows, dtype=bool)
        for link in links:
            account, mine = self._accounts[link.register], link.reads
            each = upper(gamma(account.count + 2) * account.magnitude + (account.count + 1) * tiny, 3)
            stored[mine] = upper(stored[mine] + magnitude_product(link.weights, each), 2)
            value = magnitude_product(link.weights, upper(account.magnitude + each, 1))
            read[mine] = upper(read[mine] + gamma(terms[mine]) * value + link.columns * tiny, 3)
            copied[mine] &= _copies(link)
        # One number times a power of two is read as it is.
        return stored, np.where(copied & (terms <= 5), sum(link.columns for link in links) * tiny, read)

    def read_magnitude(self, links: Sequence[Link], rows: int) -> Array:
        """Bound of the sum of absolute values of what is read: no partial sum is larger."""
        return _summed(links, rows, {name: account.magnitude for name, account in self._accounts.items()})

    def read_drift(self, links: Sequence[Link], rows: int) -> Array:
        """Bound of what is read on a reference token, where it should be zero."""
        return _summed(links, rows, {name: account.drift for name, account in self._accounts.items()})

    def largest(self) -> float:
        """Bound of every register on every token, partial sums included."""
        both = (np.maximum(account.magnitude, account.drift) for account in self._accounts.values())
        return max(float(np.max(each, initial=0.0)) for each in both)


def _summed(links: Sequence[Link], rows: int, bounds: Mapping[str, Array]) -> Array:
    """Bound of what is read through `links`, from bounds of the registers."""
    total = np.zeros(rows)
    for link in links:
        value = magnitude_product(link.weights, bounds[link.register])
        total[link.reads] = upper(total[link.reads] + value, 2)
    return total


def _terms(link: Link) -> Indices:
    """How many terms that are not zero each row of a link adds."""
    nonzero = np.asarray(link.weights != 0.0)
    return np.asarray(nonzero.sum(axis=1) if nonzero.ndim == 2 else nonzero, dtype=np.int64)


def _copies(link: Link) -> Any:
    """Which rows of a link have no weights but powers of two, of an ordinary size."""
    sizes = np.abs(link.weights)
    fine = (sizes == 0.0) | ((np.frexp(sizes)[0] == 0.5) & (sizes >= 2.0**-20) & (sizes <= 2.0**20))
    return fine.all(axis=1) if fine.ndim == 2 else fine


def read_rows(bank: Bank) -> Array | None:
    """All weights that each reader of a bank reads with, registers side by side; None where two links add up."""
    widths = {link.register: link.columns for link in bank.read}
    places = dict(zip(widths, np.cumsum([0, *widths.values()]), strict=False))
    rows = np.zeros((bank.readers, sum(widths.values())))
    for link in bank.read:
        part = rows[link.reads, places[link.register] : places[link.register] + link.columns]
        weights = np.diag(link.weights) if link.weights.ndim == 1 else link.weights
        if np.any((part != 0.0) & (weights != 0.0)):
            return None
        part += weights
    return rows
