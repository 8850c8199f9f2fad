"""What a transformer costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import assert_never

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.figures import bound, number, per_layer
from headsmith.core.html import table
from headsmith.core.markup import PREAMBLE, csv_text, latex_table, markdown_table
from headsmith.heads import attend, boltzmann, gate, mean, move
from headsmith.heads.attend import AttendBank
from headsmith.heads.attentions import WITHOUT_SINK
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.product import ProductBank
from headsmith.heads.sink import KEY, SinkBank, feature_count
from headsmith.heads.stream import POSITION, Link, position_bits
from headsmith.heads.swiglu import SiluBank, SwigluBank
from headsmith.heads.table import TableBank, silent_registers
from headsmith.kernel.sparse import Sparse, added, entries_of, sparse_of
from headsmith.transformer.ir import Bank, Heads, Transformer, arrays, layout, width

FOLDED = ("gains", "offsets", "sink bank, query scale", "boltzmann bank, key scale", "silu bank, scale")
"""Stored numbers that are no weights themselves: matrices hold their sums and products with others."""


@dataclass(frozen=True)
class Bill:
    """Sizes of the model. `parameters` counts dense matrices, `nonzeros` their non-zero entries.

    `neurons` are those of SwiGLU blocks, which are layers of their own; most models have none.
    `data_tokens` is how many tokens of a sequence hold inputs: one, those of a sequence model, or one for each affine
    piece with the recipe "maxout". `d_head` is the width of queries and keys, the largest of all heads, and `max_score`
    a bound.
    """

    layers: int
    heads: int
    heads_per_layer: tuple[int, ...]
    reference_tokens: int
    data_tokens: int
    d_model: int
    d_head: int
    parameters: int
    nonzeros: int
    max_weight: float
    max_score: float
    neurons: int = 0

    def __repr__(self) -> str:
        neurons = f", neurons {number(self.neurons)}" if self.neurons else ""
        return (
            f"<Bill: layers {number(self.layers)}, heads {number(self.heads)}{neurons}, reference tokens "
            f"{number(self.reference_tokens)}, d_model {number(self.d_model)}, parameters {number(self.parameters)}, "
            f"largest weight {number(self.max_weight)}>"
        )

    def _repr_html_(self) -> str:
        return table("Bill", bill_rows(self))

    def markdown(self) -> str:
        """The bill as a Markdown table."""
        return markdown_table(BILL_COLUMNS, bill_rows(self))

    def latex(self, caption: str = "What the transformer costs.") -> str:
        """The bill as a LaTeX table (booktabs), for a paper."""
        return f"{PREAMBLE}\n{latex_table(BILL_COLUMNS, bill_rows(self), caption)}"

    def csv(self) -> str:
        """The bill as csv: one row, numbers in full; heads_per_layer is separated by spaces."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        figures["heads_per_layer"] = " ".join(map(str, self.heads_per_layer))
        return csv_text(list(figures), [list(figures.values())])


BILL_COLUMNS = ("figure", "value", "meaning")


def bill_rows(bill: Bill) -> list[tuple[str, str, str]]:
    """The figures of a bill for reading: name, figure, meaning."""
    return [
        ("layers", number(bill.layers), _kinds_of_layers(bill)),
        ("heads", number(bill.heads), per_layer(bill.heads_per_layer)),
        *([("neurons", number(bill.neurons), "in SwiGLU blocks")] if bill.neurons else []),
        ("reference tokens", number(bill.reference_tokens), "a constant prefix"),
        ("data tokens", number(bill.data_tokens), "tokens that hold inputs, at most"),
        ("d_model", number(bill.d_model), "columns of the residual stream"),
        ("d_head", number(bill.d_head), "width of queries and keys"),
        ("parameters", number(bill.parameters), "with every matrix written out"),
        ("nonzeros", number(bill.nonzeros), "of these, not zero"),
        ("max_weight", number(bill.max_weight), "largest absolute weight"),
        ("max_score", bound(bill.max_score), "no attention score exceeds it"),
    ]


def _kinds_of_layers(bill: Bill) -> str:
    if not bill.neurons:
        return "attention layers, no feed-forward block"
    blocks = sum(not heads for heads in bill.heads_per_layer)
    return f"{bill.layers - blocks} of attention and {blocks} SwiGLU blocks"


def bill(transformer: Transformer, max_score: float) -> Bill:
    """Count everything, as if every W_Q, W_K, W_V and W_O were written out."""
    layers = transformer.layers[:-1] if transformer.grid_form == "softmax" else transformer.layers
    heads = [layer.heads for layer in layers]
    d_model = width(transformer)
    banks = [bank for layer in layers for bank in layer.banks if not isinstance(bank, SwigluBank | SiluBank)]
    neurons = sum(layer.neurons for layer in layers)
    constants = transformer.tokens * position_bits(transformer.tokens)
    constants += transformer.reference_tokens if transformer.grid_form == "one-hot" else 0
    constants += _table_nonzeros(transformer.table) if transformer.grid_form == "rows" else 0
    columns = layout(transformer)
    extra = [value for name, value in transformer.positional.items() if columns[name] != columns.get(POSITION)]
    constants += sum(int(np.count_nonzero(value)) for value in extra)
    dense = sum(bank.heads * d_model * 2 * (head_features(transformer, bank) + _values(bank)) for bank in banks)
    dense += d_model * (3 * neurons + transformer.inputs + 1) + (d_model + 1) * transformer.outputs + constants
    if transformer.grid_form == "softmax":
        last = transformer.table
        dense += last.offset.size * (d_model + 1 + last.columns) - d_model * transformer.outputs
    return Bill(
        layers=len(layers),
        heads=sum(heads),
        heads_per_layer=tuple(heads),
        reference_tokens=transformer.reference_tokens,
        data_tokens=transformer.tokens,
        d_model=d_model,
        d_head=max((head_features(transformer, bank) for bank in banks), default=0),
        parameters=dense,
        nonzeros=_nonzeros(transformer) + constants + 1,
        max_weight=_max_weight(transformer),
        max_score=max_score,
        neurons=neurons,
    )


def head_features(transformer: Transformer, bank: Bank) -> int:
    """The width of a head's queries and keys; neurons have none."""
    match bank:
        case SinkBank():
            return feature_count(transformer.tokens, transformer.grid_tokens, transformer.attention)
        case TableBank():
            return bank.arguments + 1 + transformer.sink_tokens
        case MeanBank():
            return mean.feature_count(transformer.sink_tokens)
        case BoltzmannBank():
            return boltzmann.feature_count(transformer.sink_tokens)
        case MoveBank():
            return move.feature_count(bank, transformer.tokens, transformer.sink_tokens)
        case GateBank():
            return gate.feature_count(transformer.tokens)
        case AttendBank():
            return attend.feature_count(bank, transformer.sink_tokens, transformer.grid_tokens)
        case ProductBank():
            return 1
        case SwigluBank() | SiluBank():
            return 0
        case _:
            assert_never(bank)


def _values(bank: Heads) -> int:
    """The width of a head's value."""
    return bank.outputs // bank.heads


def _nonzeros(transformer: Transformer) -> int:
    count = _link_nonzeros(transformer.embedding, False) + _link_nonzeros(transformer.readout, True)
    count += sum(int(np.count_nonzero(value)) for value in transformer.initial.values())
    count += int(np.count_nonzero(transformer.readout_bias))
    for layer in transformer.layers:
        for bank in layer.banks:
            twice = 2 if isinstance(bank, SwigluBank) else 1  # two neurons write the same
            count += twice * _link_nonzeros(bank.write, False) + _bank_nonzeros(transformer, bank)
    return count


def _link_nonzeros(links: Sequence[Link], reading: bool) -> int:
    """Non-zero entries of the matrix that the links add up to."""
    count = 0
    for register in dict.fromkeys(link.register for link in links):
        mine = [link for link in links if link.register == register]
        if len(mine) == 1:
            count += mine[0].nonzeros
            continue
        # Several links may meet in one entry: add them up first.
        shape = max(link.first + link.rows for link in mine), max(link.first + link.columns for link in mine)
        parts = []
        for link in mine:
            found, (down, right) = sparse_of(link.weights), (link.first, 0) if reading else (0, link.first)
            parts.append(Sparse(shape, found.rows + down, found.columns + right, found.values))
        count += int(np.count_nonzero(added(parts).values))
    return count


def _bank_nonzeros(transformer: Transformer, bank: Bank) -> int:
    """W_Q, W_K and W_V of a bank."""
    bits, grid = position_bits(transformer.tokens), transformer.grid_tokens
    read = _link_nonzeros(bank.read, True)
    # Reference tokens keep to the sink: the queries of the sink and of the grid, the key of the sink.
    keep = 2 + grid if transformer.sink_tokens else 0
    match bank:
        case SinkBank():
            # Besides the read (in W_Q and in W_V): the key's slope, the pairs of reference, position, offset, grid.
            if transformer.attention in WITHOUT_SINK:
                # The value of a gate of relu attention is one.
                return (read + 2 * bank.heads) if transformer.attention == "relu" else 2 * read + bank.heads
            if transformer.attention == "elu+1":
                return 3 * read + 2 * bank.heads
            pairs = 3 + (2 * bits + 2 if transformer.tokens > 1 else 0) + (2 * grid + 1 if grid else 0)
            return 2 * read + bank.heads * pairs
        case TableBank():
            if transformer.grid_form == "softmax":
                # W is the read times the slopes; then b and V.
                rows = np.count_nonzero(bank.slope[0], axis=0)
                links = [(link, np.count_nonzero(np.atleast_2d(link.weights.T).T, axis=1)) for link in bank.read]
                products = sum(int(rows[link.reads] @ each) for link, each in links)
                return products + int(np.count_nonzero(bank.offset)) + int(np.count_nonzero(bank.values))
            if transformer.grid_form == "rows":
                # Keys and values are columns of the grid's register.
                return read + bank.arguments + 1 + bank.columns + 1 + (bank.gain != 0.0)
            keys = _table_nonzeros(bank)
            sizes = [transformer.sizes[name] for name in silent_registers(bank, transformer.grid_tokens)]
            return read + keys + bank.heads * (1 + keep + (bank.gain != 0.0) * sum(sizes))
        case MeanBank():
            return read + bank.heads * ((bank.gain != 0.0) + 1 + keep)
        case BoltzmannBank():
            return 2 * read + bank.heads * (1 + (bank.gain != 0.0) + 1 + keep)
        case MoveBank():
            pairs = 1 + bits if isinstance(bank.address, int) else 2 * bits + transformer.sink_tokens
            return read + bank.heads * (pairs + keep)
        case GateBank():
            keys = int(np.count_nonzero(bank.slope)) + int(np.count_nonzero(bank.offset))
            return read + keys + bank.heads * (1 + (bits > 0) + 2 * bits + keep + 1)
        case AttendBank():
            return read + (1 + transformer.reference_tokens if transformer.reference_tokens else 0) + keep
        case ProductBank():
            return read + bank.heads
        case SwigluBank():
            return 2 * read
        case SiluBank():
            return read + bank.neurons
        case _:
            assert_never(bank)


def _table_nonzeros(bank: TableBank) -> int:
    return sum(int(np.count_nonzero(array)) for array in (bank.slope, bank.offset, bank.values))


def _max_weight(transformer: Transformer) -> float:
    weights = (values for where, values in arrays(transformer) if not where.endswith(FOLDED))
    largest = max((_largest(values) for values in weights), default=0.0)
    for layer in transformer.layers:
        for bank in layer.banks:
            kept = []
            if not isinstance(bank, SinkBank | ProductBank | SwigluBank | SiluBank):
                kept = [KEY, bank.keep_gain / KEY] * transformer.sink_tokens
            largest = max([largest, 1.0, *map(abs, kept), *_folded(transformer, bank)])
    return largest


def _folded(transformer: Transformer, bank: Bank) -> list[float]:
    """The largest of the weights that are sums and products of stored numbers."""
    bits = position_bits(transformer.tokens)
    match bank:
        case SinkBank():
            steep = _largest_scaled(bank, bank.query_scale)
            if transformer.attention in (*WITHOUT_SINK, "elu+1"):
                return [bank.reference_gain * transformer.sink_tokens, steep]
            return [KEY, bank.reference_gain / KEY, bank.position_gain * bits / 2.0 / KEY, steep]
        case TableBank():
            return [_largest(bank.offset), abs(bank.gain)]
        case MeanBank():
            return [KEY, abs(bank.gain) / KEY]
        case BoltzmannBank():
            return [KEY, abs(bank.gain) / KEY, _largest_scaled(bank, bank.key_scale)]
        case MoveBank():
            return [KEY, abs(bank.gain) * max(1, bits * transformer.sink_tokens) / KEY]
        case GateBank():
            return [KEY, _largest(bank.offset) / KEY, abs(bank.position_gain) * bits / 2.0 / KEY]
        case AttendBank():
            return [KEY, abs(bank.gain) / KEY] if transformer.reference_tokens else []
        case ProductBank() | SwigluBank():
            return []
        case SiluBank():
            return [_largest_scaled(bank, bank.scale)]
        case _:
            assert_never(bank)


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _largest_scaled(bank: SinkBank | BoltzmannBank | SiluBank, scales: Array) -> float:
    """The largest entry of a read times the heads' scales."""
    largest = 0.0
    for link in bank.read:
        scale = scales[link.reads]
        with np.errstate(over="ignore"):
            found = _largest(entries_of(link.weights * (scale if link.weights.ndim == 1 else scale[:, None])))
        largest = max(largest, found)
    return largest
