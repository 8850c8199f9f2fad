"""The transformer, as data.

    transformer ::= registers  tokens  dtype  embedding initial positional  layer*  readout readout_bias
    layer       ::= bank*                     all heads of one kind, as arrays with a leading head axis
                  | (swiglu | silu)*          neurons, in place of heads
    bank        ::= sink | table              token-wise: a data token looks at itself and at reference tokens
                  | gate                      the same, with values of its own
                  | product                   linear attention: a data token looks at itself alone
                  | mean | boltzmann | move | attend      data tokens look at each other; see heads/

Attention only, unless asked for: a residual stream, softmax attention, no normalisation. A layer of neurons is the
feed-forward block (SwiGLU) that follows the attention in a Llama.

    X in R^{T x d}                            T = reference tokens (the sink, then the grid), then the data tokens
    X_data      = embedding(x) + initial + positional
                                              reference tokens start at zero, but for what tells them apart
    X          <- X + sum_h softmax(Q_h K_h^T) V_h O_h        for each layer, all heads at once
    X          <- X + (silu(X W_gate) * (X W_up)) W_down      or all neurons at once
    output      = readout(X_data) + readout_bias

Where one table head in the last layer is all that looks at the grid, its tokens need not be told apart: they hold the
rows of the table, (slopes, offset, values), and keys and values are read from there (`grid_form` "rows"). Or there are
no such tokens, and the last layer is softmax(X W + b) V of every data token ("softmax"). Keys and values are the same
numbers in all three forms.

The bias of the read-out is a weight on the register `data`, which is one on data tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array, freeze
from headsmith.core.errors import CertificateError
from headsmith.core.figures import count
from headsmith.core.rounding import PRECISIONS, Dtype, Precision, arithmetic, held
from headsmith.transformer.heads.attentions import ATTENTIONS, BANKS, ONE_TOKEN, WITHOUT_SINK, AttentionKind
from headsmith.transformer.heads.bank import HeadBank
from headsmith.transformer.heads.move import MoveBank
from headsmith.transformer.heads.stream import (
    DATA,
    GRID,
    POSITION,
    REFERENCE,
    RESERVED,
    Link,
    Register,
    position_bits,
    position_code,
)
from headsmith.transformer.heads.swiglu import NeuronBank
from headsmith.transformer.heads.table import TableBank

GridForm = Literal["one-hot", "rows", "softmax"]
Bank = HeadBank
"""One of the kinds that heads/kinds.py lists."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The heads, or the neurons, that run side by side."""

    banks: tuple[Bank, ...]

    @property
    def heads(self) -> int:
        return sum(bank.heads for bank in self.banks)

    @property
    def neurons(self) -> int:
        return sum(bank.neurons for bank in self.banks)


@dataclass(frozen=True, eq=False)
class Transformer:
    """A complete model. `tokens` is the largest number of data tokens in one sequence.

    `positional` holds the constants of data tokens, (tokens, size) for each register: a sequence of fewer tokens uses
    the first rows. `attention` is the kind of all heads. With `alone`, the model also runs under the mask self+prefix:
    every data token sees itself and the reference tokens alone, so that one is like any number of them.
    """

    inputs: int
    outputs: int
    tokens: int
    dtype: Dtype
    registers: tuple[Register, ...]
    embedding: tuple[Link, ...]
    initial: Mapping[str, Array]
    layers: tuple[Layer, ...]
    readout: tuple[Link, ...]
    readout_bias: Array
    positional: Mapping[str, Array] = field(default_factory=dict)
    grid_form: GridForm = "one-hot"
    attention: AttentionKind = "softmax"
    alone: bool = False
    sizes: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        links = (*self.embedding, *self.readout)
        freeze(self, arrays=("readout_bias",), tables=("initial", "positional"), weighted=links)
        object.__setattr__(self, "sizes", {register.name: register.size for register in self.registers})
        check(self)

    def __repr__(self) -> str:
        heads, references = self.heads, count(self.reference_tokens, "reference token")
        return (
            f"<Transformer: {count(len(self.layers), 'layer')}, {count(heads, 'head')}, {references}, "
            f"up to {count(self.tokens, 'data token')}, {self.dtype}>"
        )

    @property
    def heads(self) -> int:
        return sum(layer.heads for layer in self.layers)

    @property
    def precision(self) -> Precision:
        return PRECISIONS[self.dtype]

    @property
    def arithmetic(self) -> np.dtype[Any]:
        """The numbers with which sums, scores and powers of e are computed."""
        return np.dtype(arithmetic(self.dtype))

    def held(self, values: Any) -> Any:
        """Numbers as the model holds them, in the format of its arithmetic; the same array where nothing is rounded."""
        return held(values, self.dtype)

    @property
    def sink_tokens(self) -> int:
        """One, if any head needs the sink: a gate, a move that fetches nothing, or, beside a grid, one that reads
        values from all tokens, so that the grid's tokens must stay zero; but a move in the first layer, to all tokens
        alike."""
        banks = [(place, bank) for place, layer in enumerate(self.layers) for bank in layer.banks]
        if self.attention in WITHOUT_SINK:
            return 0
        return int(any(bank.needs_sink(self, place > 0) for place, bank in banks))

    @property
    def grid_tokens(self) -> int:
        return self.sizes.get(GRID, 0) if self.grid_form != "softmax" else 0

    @property
    def table(self) -> TableBank:
        """The only table of a model whose grid is not one-hot."""
        (bank,) = self.layers[-1].banks
        assert isinstance(bank, TableBank)
        return bank

    @property
    def reference_tokens(self) -> int:
        return self.sink_tokens + self.grid_tokens


def layout(transformer: Transformer) -> dict[str, slice]:
    """Which columns of the stream each register has: the only place where names become positions."""
    columns: dict[str, slice] = {}
    start = 0
    for register in transformer.registers:
        size = _columns(transformer, register)
        if register.name in transformer.positional and size == 0 < register.size:
            columns[register.name] = columns[POSITION]
            continue
        columns[register.name] = slice(start, start + size)
        start += size
    return columns


def width(transformer: Transformer) -> int:
    """d_model."""
    return sum(_columns(transformer, register) for register in transformer.registers)


def _columns(transformer: Transformer, register: Register) -> int:
    """How many columns a register has of its own. Where the grid is not one-hot, none are spent on what nobody reads,
    or on a second copy of the position code."""
    if transformer.grid_form == "one-hot":
        return register.size
    if register.name == GRID and transformer.grid_form == "rows":
        return transformer.table.arguments + 1 + transformer.table.columns
    softmax = transformer.grid_form == "softmax" and register.name in {link.register for link in transformer.readout}
    code = transformer.positional.get(register.name)
    twice = code is not None and np.array_equal(code, position_code(transformer.tokens))
    return 0 if register.name in (GRID, REFERENCE) or softmax or twice else register.size


def reserved_registers(tokens: int, grid: int = 0) -> tuple[Register, ...]:
    """The constant registers: token kinds and, where needed, the position code and the grid's identities."""
    position = (Register(POSITION, position_bits(tokens)),) if tokens > 1 else ()
    identity = (Register(GRID, grid),) if grid else ()
    return (Register(DATA, 1), Register(REFERENCE, 1), *position, *identity)


def arrays(transformer: Transformer, folded: bool = True) -> Iterator[tuple[str, Array]]:
    """Every stored number of the model with the place where it stands. Without `folded`, those alone that stand in a
    matrix as they are, and not in sums and products with others."""
    for link in transformer.embedding:
        yield f"embedding into {link.register}", link.entries
    for name, value in transformer.initial.items():
        yield f"initial value of {name}", value
    for name, value in transformer.positional.items():
        yield f"positional values of {name}", value
    for number, layer in enumerate(transformer.layers):
        for bank in layer.banks:
            where = f"layer {number}, {bank.kind} bank"
            for link in bank.read:
                yield f"{where}, read of {link.register}", link.entries
            for link in bank.write:
                yield f"{where}, write to {link.register}", link.entries
            for name in bank.arrays:
                if folded or name not in bank.folded_arrays:
                    yield f"{where}, {name.replace('_', ' ')}", getattr(bank, name)
            if folded and bank.numbers:
                yield f"{where}, gains", np.array([getattr(bank, name) for name in bank.numbers])
    for link in transformer.readout:
        yield f"read-out of {link.register}", link.entries
    yield "read-out bias", transformer.readout_bias


def check(transformer: Transformer) -> None:
    """Raise CertificateError unless shapes fit, names exist, constants are never written, numbers are of the dtype."""
    if transformer.dtype not in PRECISIONS:
        raise CertificateError(f"unknown dtype {transformer.dtype!r}")
    if len(transformer.sizes) != len(transformer.registers):
        raise CertificateError("two registers have the same name")
    if transformer.tokens < 1 or transformer.inputs < 1 or transformer.outputs < 1:
        raise CertificateError("a transformer needs at least one token, one input and one output")
    reserved = reserved_registers(transformer.tokens, transformer.sizes.get(GRID, 0))
    if tuple(r for r in transformer.registers if r.name in RESERVED) != reserved:
        raise CertificateError(f"the constant registers must be {', '.join(r.name for r in reserved)}")
    for name, value in transformer.positional.items():
        if name in RESERVED or value.shape != (transformer.tokens, transformer.sizes.get(name)):
            raise CertificateError(f"the positional values of {name} have shape {value.shape}")
    for link in transformer.embedding:
        _check_write(transformer, link, transformer.inputs, "embedding")
    for name, value in transformer.initial.items():
        if name in RESERVED or name in transformer.positional or value.shape != (transformer.sizes.get(name),):
            raise CertificateError(f"the initial value of {name} has shape {value.shape}")
    for number, layer in enumerate(transformer.layers):
        if len({isinstance(bank, NeuronBank) for bank in layer.banks}) > 1:
            raise CertificateError(f"layer {number} has heads and neurons")
        for bank in layer.banks:
            _check_bank(transformer, bank, f"layer {number}, {bank.kind} bank")
    for link in transformer.readout:
        _check_read(transformer, link, transformer.outputs, "read-out")
    if transformer.readout_bias.shape != (transformer.outputs,):
        raise CertificateError(f"the read-out bias has shape {transformer.readout_bias.shape}")
    for where, values in arrays(transformer):
        _check_numbers(transformer, where, values)
    _check_attention(transformer)
    if transformer.grid_form != "one-hot":
        *others, last = (layer.banks for layer in transformer.layers)
        alone = len(last) == 1 and isinstance(last[0], TableBank) and last[0].heads == 1 and last[0].grid == GRID
        if not alone or any(not isinstance(bank, MoveBank) for banks in others for bank in banks):
            raise CertificateError(f"a grid of {transformer.grid_form} is for moves and then one table head")
        if transformer.sink_tokens or transformer.grid_form not in ("rows", "softmax"):
            raise CertificateError(f"a grid of {transformer.grid_form!r} does not go with this model")


def _check_attention(transformer: Transformer) -> None:
    """What heads there are under other attentions than softmax, and for how many tokens."""
    kind, banks = transformer.attention, [bank for layer in transformer.layers for bank in layer.banks]
    if kind not in ATTENTIONS:
        raise CertificateError(f"unknown attention {kind!r}")
    if transformer.alone and transformer.tokens > 1:
        raise CertificateError("under the mask self+prefix data tokens are alone: a model has one")
    known = {"softmax": {bank.kind for bank in banks} - {"product"}, **BANKS}[kind]
    others = [bank.kind for bank in banks if bank.kind not in known]
    if others or (kind != "softmax" and (GRID in transformer.sizes or (kind in ONE_TOKEN and transformer.tokens > 1))):
        what = f"{others[0]} heads" if others else "tables, or several tokens"
        raise CertificateError(f"there are no {what} under {kind} attention")


def _check_bank(transformer: Transformer, bank: Bank, where: str) -> None:
    bank.check(transformer, where)
    for found, shape in bank.shapes():
        if found != shape:
            raise CertificateError(f"{where}: {bank.heads} heads need an array of shape {shape}, not {found}")
    if bank.heads + bank.neurons == 0:
        raise CertificateError(f"{where}: no heads")
    for link in bank.read:
        _check_read(transformer, link, bank.readers, where)
    for link in bank.write:
        _check_write(transformer, link, bank.outputs, where)


def _check_read(transformer: Transformer, link: Link, readers: int, where: str) -> None:
    if link.register in (REFERENCE, POSITION, GRID):
        raise CertificateError(f"{where}: the register {link.register} tells tokens apart; only scores may use it")
    size = transformer.sizes.get(link.register)
    fits = link.weights.ndim in (1, 2) and link.columns == size and link.first >= 0
    if not fits or link.first + link.rows > readers:
        raise CertificateError(f"{where}: a read of {link.register} with weights {link.weights.shape} does not fit")


def _check_write(transformer: Transformer, link: Link, writers: int, where: str) -> None:
    if link.register in RESERVED or link.register in transformer.positional:
        raise CertificateError(f"{where}: the constant register {link.register} is written")
    size = transformer.sizes.get(link.register)
    fits = link.weights.ndim in (1, 2) and link.rows == size and link.first >= 0
    if not fits or link.first + link.columns > writers:
        raise CertificateError(f"{where}: a write to {link.register} with weights {link.weights.shape} does not fit")


def _check_numbers(transformer: Transformer, where: str, values: Array) -> None:
    if not np.isfinite(values).all():
        raise CertificateError(f"{where}: a number is not finite")
    if transformer.dtype != "float64" and not np.array_equal(values, held(values, transformer.dtype)):
        raise CertificateError(f"{where}: a number is not a {transformer.dtype}")
