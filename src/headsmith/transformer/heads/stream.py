"""The vocabulary in which heads are written: registers (named columns of the residual stream), links (weights between
registers and heads), and features (columns of queries and keys).

Nobody writes a column index: weights are attached to names, and `transformer.ir.layout` alone knows which columns a
name has.

A feature is one column of W_Q and of W_K: what the query holds there, and what the key does. Either side, and the value
of a head, is a sum of terms:

    Read(rows, scale)           linear forms that the bank reads, so many for each head, times a factor for each
    On(register, weights)       weights of a register's columns, alike for all heads or (heads, columns)

The matrices, how many of their entries are not zero, the largest of these and the width in symbols follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from headsmith.core.arrays import Array, Weights, frozen
from headsmith.kernel.core.sparse import Sparse, entries_of

DATA = "data"
"""One on every data token, zero on the reference tokens."""

REFERENCE = "reference"
"""One on the first reference token, the sink that stands for zero; zero on all others."""

GRID = "grid"
"""Which of the grid's reference tokens a token is: a one-hot row; zero on the sink and on data tokens."""

POSITION = "position"
"""The binary position code of a data token, +1 or -1 a bit; absent when there is a single data token."""

RESERVED = (DATA, REFERENCE, POSITION, GRID)


@dataclass(frozen=True)
class Register:
    """A named block of residual columns. The column i of the block is called name[i]."""

    name: str
    size: int


@dataclass(frozen=True, eq=False)
class Link:
    """Weights (to, from) between one register block and a run of heads, inputs or outputs that starts at `first`. Banks
    and transformers make the weights of their links read-only.

    A vector stands for a diagonal matrix. Read by heads: to = heads, from = register. Written by heads: to = register,
    from = heads.
    """

    register: str
    weights: Weights
    first: int = 0

    @property
    def rows(self) -> int:
        return int(self.weights.shape[0])

    @property
    def columns(self) -> int:
        return int(self.weights.shape[-1])

    @property
    def reads(self) -> slice:
        """The heads (or outputs) that this link feeds, where it reads a register."""
        return slice(self.first, self.first + self.rows)

    @property
    def sources(self) -> slice:
        """The heads (or inputs) that this link takes from, where it writes a register."""
        return slice(self.first, self.first + self.columns)

    def grouped(self, group: Callable[[Any], Any]) -> Any:
        """What a runtime makes of the weights, made once."""
        if "_grouped" not in self.__dict__:
            object.__setattr__(self, "_grouped", group(self.weights))
        return self.__dict__["_grouped"]

    @property
    def entries(self) -> Array:
        """The numbers that are stored of the weights, all that are not zero among them."""
        return np.asarray(self.weights.values if isinstance(self.weights, Sparse) else self.weights)

    @property
    def nonzeros(self) -> int:
        return int(np.count_nonzero(self.entries))


def position_bits(tokens: int) -> int:
    """How many columns the position code of `tokens` data tokens takes: ceil(log2(tokens))."""
    return (tokens - 1).bit_length()


def position_code(tokens: int, count: int | None = None) -> Array:
    """The binary code of positions 0 .. tokens-1, one row each, entries +1 and -1; the first `count` of them.

    Guarantee: two rows i != j have inner product bits - 2 h, where h >= 1 is the number of bits in which they differ.
    """
    bits = position_bits(tokens)
    return frozen(
        1.0 - 2.0 * ((np.arange(tokens if count is None else count)[:, None] >> np.arange(bits)[None, :]) & 1)
    )


# What heads read and hold, column by column ---------------------------------------------------------------------------

Columns = Mapping[str, slice]
"""Which columns of the stream each register has."""


class Matrices(NamedTuple):
    """W_Q and W_K are (heads, d_model, d_head), W_V is (heads, d_model, d_value), W_O (heads, d_value, d_model)."""

    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array


@dataclass(frozen=True, eq=False)
class Read:
    """Some of the linear forms that the bank reads: as many for each head as for any other, in the order of heads. A
    scale that is an array has a factor for each form, and then all of them are read."""

    rows: slice = field(default_factory=lambda: slice(None))
    scale: Any = 1.0


@dataclass(frozen=True, eq=False)
class On:
    """Weights of the columns of one register: (columns) or (heads, columns); of values, these and a last axis for the
    numbers of a value. Registers that a model does not have hold nothing."""

    register: str
    weights: Any


Terms = Sequence[Read | On]


@dataclass(frozen=True, eq=False)
class Feature:
    """One column of queries and keys. `counted` is how many such features there are, in symbols; those of one symbol
    stand side by side."""

    name: str
    query: Terms
    key: Terms
    counted: str = ""


def unit(size: int, place: int, value: float) -> Array:
    """`value` at one place of a register, and zero elsewhere."""
    weights = np.zeros(size)
    weights[place] = value
    return weights


def written(
    features: Sequence[Feature], values: Terms, heads: int, columns: Columns, read: Array, write: Array
) -> Matrices:
    """The matrices; `read` and `write` have a row of d_model numbers for each form and for each output."""
    W_Q, W_K = np.zeros((2, heads, read.shape[1], len(features)))
    for place, feature in enumerate(features):
        for held, terms in ((W_Q, feature.query), (W_K, feature.key)):
            _add(held[:, :, place : place + 1], terms, columns, read)
    W_O = write.reshape(heads, -1, write.shape[1])
    W_V = np.zeros((heads, read.shape[1], W_O.shape[1]))
    _add(W_V, values, columns, read)
    return Matrices(W_Q, W_K, W_V, W_O)


def _add(held: Array, terms: Terms, columns: Columns, read: Array) -> None:
    """Add terms to (heads, d_model, numbers), in place."""
    heads, d_model, numbers = held.shape
    for term in terms:
        match term:
            case Read(rows, scale):
                forms = read[rows] * np.reshape(scale, (-1, 1))
                held += forms.reshape(heads, numbers, d_model).transpose(0, 2, 1)
            case On(register, weights):
                if register in columns:
                    place = columns[register]
                    shape = (heads, place.stop - place.start, numbers)
                    several = np.ndim(weights) == 3
                    held[:, place] += np.broadcast_to(weights if several else np.asarray(weights)[..., None], shape)


def nonzeros(
    features: Sequence[Feature], values: Terms, heads: int, sizes: Mapping[str, int], readers: int, read: int
) -> int:
    """Entries of W_Q, W_K and W_V that are not zero, where the linear forms have `read` of them together. Each form is
    used as often as any other."""
    uses, count = np.zeros(readers, np.int64), 0
    for term in _terms(features, values):
        match term:
            case Read(rows):
                uses[rows] += 1
            case On(register, weights):
                alike = heads if np.ndim(weights) < 2 else 1
                width = sizes.get(register, 0) if np.ndim(weights) == 0 else 1
                count += int(np.count_nonzero(weights)) * alike * width
    return read * int(uses.max(initial=0)) + count


def largest_entry(features: Sequence[Feature], values: Terms, links: Sequence[Link]) -> float:
    """The largest entry of W_Q, W_K and W_V that no field of the bank and no link holds as it is."""
    most = 0.0
    for term in _terms(features, values):
        match term:
            case Read(_, scale) if np.ndim(scale):
                most = max(most, largest_scaled(links, np.asarray(scale)))
            case On(_, weights):
                most = max(most, largest(weights))
    return most


def law(features: Sequence[Feature]) -> str:
    """How many features there are, in symbols: a sum in the order in which they stand."""
    terms: list[str | int] = []
    for feature in features:
        if feature.counted:
            terms += [feature.counted] if feature.counted not in terms else []
        elif not any(isinstance(term, int) for term in terms):
            terms.append(1)
        else:
            terms = [term + 1 if isinstance(term, int) else term for term in terms]
    return " + ".join(map(str, terms)) or "0"


def _terms(features: Sequence[Feature], values: Terms) -> Iterable[Read | On]:
    sides = [side for feature in features for side in (feature.query, feature.key)]
    return (term for terms in (*sides, values) for term in terms)


def largest(values: Any) -> float:
    """The largest absolute value; zero, if there is none."""
    return float(np.max(np.abs(values), initial=0.0))


def largest_scaled(links: Sequence[Link], scales: Array) -> float:
    """The largest entry of a read times the factors of its rows."""
    most = 0.0
    for link in links:
        scale = scales[link.reads]
        with np.errstate(over="ignore"):
            scaled = link.weights * (scale if link.weights.ndim == 1 else scale[:, None])
        most = max(most, largest(entries_of(scaled)))
    return most
