"""Move head: one head that copies any number of linear forms from another token, or nothing.

A positional register, the address, holds for each data token the position code of the token that it fetches from,
and 0 in its last column; or zeros and 1 in the last column, to fetch nothing. Token i scores

    data token j        gain <address_i, code_j> = gain (bits - 2 h)      h bits differ from the address
    the sink            gain bits (last column of the address)            value 0
    other references    0                                                 value 0

so that token i gets what its addressee holds (the sink: zero), up to the others.

Leak lemma.  An address of a token: the other data tokens weigh at most (1 + e^{-2 gain})^bits - 1 (every pattern of
    differing bits belongs to at most one token), r reference tokens r e^{-gain bits}. The address of the sink: n data
    tokens weigh at most n e^{-gain bits}, and the reference tokens hold at most `drift`. Scores off by d multiply all
    these by e^{2d}, and the rest of the rounding is that of the sum alone.

Shifts, broadcasts and permutations are nothing but tables of addresses. What an address names must be there: the token
must exist in the sequence and, under a causal mask, not lie ahead.

The features of query and key, and the value:

    bit k       gain / KEY * address[k]                                     KEY * position[k]
    sink        gain bits / KEY * address[bits] + keep_gain / KEY * (reference + sum grid)
                                                                            KEY * reference    where there is a sink
    value       read . x, one number for each output

Where all tokens fetch from the same one, whose code is c, the address needs no register, and one feature is enough:

    all bits    gain / KEY * data                                           KEY sum_k c[k] position[k]

Under sigmoid and relu attention, which know no sink, one feature more takes gain (bits - 1/2) from all scores, so that
the addressee has gain/2, and all others less than zero (kernel/attentions.py):

    offset      KEY * data                                                  -gain (bits - 1/2) / KEY * data
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen, frozen_indices
from headsmith.core.errors import DomainError
from headsmith.heads.attentions import WITHOUT_SINK
from headsmith.heads.bank import HeadBank
from headsmith.heads.stream import position_bits, position_code

NOTHING = -1
"""Stands for a token's index where nothing is fetched."""


@dataclass(frozen=True, eq=False)
class MoveBank(HeadBank):
    """One move head. Output k is row k of `read` at the addressee: component `component[k]` of node `node[k]`.

    `address` is the positional register that holds the addresses, or the one token that all tokens fetch from. With
    `split`, that many heads of the same scores return the same number of outputs each.
    """

    kind: ClassVar[str] = "move"

    address: str | int
    gain: float
    keep_gain: float
    split: int = 1

    @property
    def heads(self) -> int:
        return self.split


def feature_count(bank: MoveBank, tokens: int, sink: int, attention: str = "softmax") -> int:
    """The width of queries and keys."""
    return (1 if isinstance(bank.address, int) else position_bits(tokens)) + sink + (attention in WITHOUT_SINK)


def address_rows(bank: MoveBank, positional: Mapping[str, Array], tokens: int) -> Array:
    """The address of each token: a row of the bank's register, or that of the one token."""
    return constant_address(tokens, bank.address) if isinstance(bank.address, int) else positional[bank.address]


# Addresses ----------------------------------------------------------------------------------------------------------


def addresses(targets: Sequence[int], tokens: int) -> Array:
    """The table of addresses (len(targets), bits + 1) of tokens by index, or NOTHING."""
    wanted = np.asarray(targets, dtype=np.int64)
    if tokens < 2 or np.any((wanted < NOTHING) | (wanted >= tokens)):
        raise DomainError(f"addresses must name one of 0 .. {tokens - 1}, of two tokens or more, or {NOTHING}: nothing")
    nothing = (wanted == NOTHING)[:, None]
    return frozen(np.hstack([np.where(nothing, 0.0, position_code(tokens)[wanted]), nothing]))


def shift_address(tokens: int, offset: int) -> Array:
    """Token i fetches from token i - offset, and nothing where there is none: values move on by `offset` places."""
    wanted = np.arange(tokens) - offset
    return addresses(np.where((wanted >= 0) & (wanted < tokens), wanted, NOTHING).tolist(), tokens)


def constant_address(tokens: int, index: int) -> Array:
    """All tokens fetch from token `index`."""
    return addresses([index] * tokens, tokens)


def permutation_address(permutation: Sequence[int]) -> Array:
    """Token i fetches from token permutation[i]."""
    if sorted(permutation) != list(range(len(permutation))):
        raise DomainError(f"{list(permutation)} is no permutation of 0 .. {len(permutation) - 1}")
    return addresses(permutation, len(permutation))


def targets(address: Array, tokens: int) -> Indices:
    """The token that each row of an address names, or NOTHING; -2 where the row is no address."""
    bits = position_bits(tokens)
    codes = {tuple(row): index for index, row in enumerate(addresses(range(tokens), tokens).tolist())}
    codes[(0.0,) * bits + (1.0,)] = NOTHING
    return frozen_indices(np.array([codes.get(tuple(row), -2) for row in address.tolist()], dtype=np.int64))


def refuse_missing(address: Array, tokens: int, present: int, causal: bool) -> None:
    """Raise DomainError if one of the first `present` tokens fetches from a token that it cannot see."""
    wanted = targets(address, tokens)[:present]
    absent = np.flatnonzero((wanted >= present) | (causal & (wanted > np.arange(len(wanted)))))
    if len(absent):
        first = int(absent[0])
        why = "which a causal mask hides" if wanted[first] < present else f"but the sequence has {present} tokens"
        raise DomainError(f"token {first} fetches from token {int(wanted[first])}, {why}")


# Lemmas -------------------------------------------------------------------------------------------------------------
