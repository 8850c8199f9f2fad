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
the addressee has gain/2, and all others less than zero (kernel/rules/attentions.py):

    offset      KEY * data                                                  -gain (bits - 1/2) / KEY * data
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.arrays import Array, Indices, frozen, frozen_indices
from headsmith.core.errors import CertificateError, DomainError
from headsmith.core.figures import shortened
from headsmith.transformer.heads.attentions import EXACT, WITHOUT_SINK
from headsmith.transformer.heads.bank import (
    KEY,
    HeadBank,
    Words,
    check_vector,
    keep,
    position_features,
)
from headsmith.transformer.heads.other_gates import other_moves
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.scaling import Scaling, even
from headsmith.transformer.heads.stream import DATA, POSITION, Feature, On, Terms, position_bits, position_code, unit
from headsmith.transformer.heads.surroundings import Surroundings

NOTHING = -1
"""Stands for a token's index where nothing is fetched."""

TARGETS = "targets"
"""The constant that holds places of tokens, not numbers."""


@dataclass(frozen=True, eq=False)
class MoveBank(HeadBank):
    """One move head. Output k is row k of `read` at the addressee: component `component[k]` of node `node[k]`.

    `address` is the positional register that holds the addresses, or the one token that all tokens fetch from. With
    `split`, that many heads of the same scores return the same number of outputs each.
    """

    kind: ClassVar[str] = "move"
    called: ClassVar[str] = "move"
    numbers: ClassVar[tuple[str, ...]] = ("gain", "keep_gain")
    registers: ClassVar[Mapping[str, str | None]] = {"address": None}
    mixes: ClassVar[bool] = True

    address: str | int
    gain: float
    keep_gain: float
    split: int = 1

    @property
    def heads(self) -> int:
        return self.split

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        """Not a move in the first layer to all tokens alike: the grid's tokens hold zero there."""
        if isinstance(self.address, int):
            return model.grid_tokens > 0 and later
        # The last column of an address says: nothing.
        return model.grid_tokens > 0 or bool(model.positional[self.address][:, -1].any())

    def check(self, model: Surroundings, where: str) -> None:
        """The address is a positional register whose rows are position codes, or say: nothing."""
        check_vector(self, where)
        if model.tokens < 2:
            raise CertificateError(f"{where}: a single data token has nobody to fetch from")
        if isinstance(self.address, int):
            if not 0 <= self.address < model.tokens:
                raise CertificateError(f"{where}: token {self.address} is not one of {model.tokens} tokens")
            return
        address = model.positional.get(self.address)
        if address is None or address.shape != (model.tokens, position_bits(model.tokens) + 1):
            raise CertificateError(
                f"{where}: the address {self.address} must be a positional register of {position_bits(model.tokens)} "
                "+ 1 columns"
            )
        wrong = np.flatnonzero(targets(address, model.tokens) < -1)
        if len(wrong):
            raise CertificateError(f"{where}: row {int(wrong[0])} of {self.address} is the address of no token")

    def refuse_run(self, model: Surroundings, tokens: int, causal: bool) -> None:
        refuse_missing(address_rows(self, model.positional, model.tokens), model.tokens, tokens, causal)

    def evaluated(self, attention: Attention) -> Any:
        """The weights are the same for every sequence."""
        values, dtype, tokens = attention.reads(self), attention.dtype, attention.tokens
        bits = position_bits(attention.transformer.tokens)
        position = position_code(attention.transformer.tokens, tokens).astype(dtype)
        rows = address_rows(self, attention.transformer.positional, attention.transformer.tokens)
        address = rows[:tokens].astype(dtype)
        if attention.transformer.attention in WITHOUT_SINK:
            return other_moves(attention, values, address[:, :bits], self.gain)
        places, outputs = np.arange(tokens), np.empty_like(values)
        for queries in attention.query_chunks(tokens):
            scores = (address[queries, :bits] * dtype.type(self.gain)) @ position.T
            if attention.causal:
                scores[places[None, :] > places[queries, None]] = -np.inf
            sink = address[queries, bits:] * dtype.type(self.gain * bits)
            top = scores.max(axis=1, keepdims=True)
            if attention.references:
                top = np.maximum(top, np.maximum(sink, 0.0) if attention.transformer.grid_tokens else sink)
            weights = attention.powers(scores - top)
            total = weights.sum(axis=1, keepdims=True)
            if attention.transformer.sink_tokens:
                total += attention.powers(sink - top)
            if attention.transformer.grid_tokens:
                total += attention.power(0.0, top) * dtype.type(attention.transformer.grid_tokens)
            weights /= total
            np.matmul(weights, values, out=outputs[:, queries])
        return outputs

    def closed(self, attention: Attention) -> Any:
        """The value at the address itself."""
        values = attention.reads(self)
        address = address_rows(self, attention.transformer.positional, attention.transformer.tokens)[: attention.tokens]
        wanted = targets(address, attention.transformer.tokens)
        moved = values[:, wanted]
        moved[:, wanted == NOTHING] = 0.0
        return moved

    def constants(self, model: Surroundings) -> dict[str, Any]:
        wanted = targets(address_rows(self, model.positional, model.tokens), model.tokens)
        return {TARGETS: np.maximum(wanted, 0), "there": (wanted != NOTHING).astype(np.float64)[:, None]}

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        bits = position_bits(model.tokens)
        nothing: Terms = ()
        if isinstance(self.address, int):
            key = On(POSITION, KEY * position_code(model.tokens)[self.address])
            address: tuple[Feature, ...] = (Feature("all bits", (On(DATA, self.gain / KEY),), (key,)),)
        else:
            address = position_features(model, self.gain, self.address)
            nothing = (On(self.address, unit(bits + 1, bits, self.gain * bits / KEY)),)
        if model.attention in WITHOUT_SINK:
            return (*address, Feature("offset", (On(DATA, KEY),), (On(DATA, -self.gain * (bits - 0.5) / KEY),)))
        return (*address, *keep(model, self.keep_gain, also=nothing, name="sink"))

    @property
    def stands_for(self) -> str:
        return "move between tokens"

    def scaled(self, scaling: Scaling) -> Self:
        bits, far = position_bits(scaling.model.tokens), scaling.alone(int(self.node[0]))
        if scaling.model.attention in WITHOUT_SINK:
            # The addressee scores half the gain above zero, and others at least as much below.
            exact = scaling.model.attention in EXACT
            gain = 2.0 if exact else 2.0 * even(far + 4.0, scaling.model.precision)
            return replace(self, gain=gain, keep_gain=scaling.reference)
        # Other data tokens are 2 gain below, and reference tokens gain * bits.
        least = max(max(scaling.position, far) / 2.0, (far + 4.0) / max(bits, 1))
        gain = even(least, scaling.model.precision)
        return replace(self, gain=gain, keep_gain=scaling.reference)

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        values = ", ".join(words.read(row) for row in range(min(self.outputs, 3)))
        if isinstance(self.address, int):
            return [f"all tokens look at token {self.address}, so it returns {values} of that token"]
        address = shortened(self.address, 40)
        return [f"looks at the token that the register {address!r} names, so it returns {values} of that token"]


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
