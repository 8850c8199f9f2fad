"""What a transformer costs, and how costs are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.figures import bound, number, per_layer
from headsmith.core.markup import PREAMBLE, csv_text, latex_table, markdown_table, table
from headsmith.kernel.core.sparse import Sparse, added, sparse_of
from headsmith.transformer.heads.bank import ScaledBank
from headsmith.transformer.heads.gate import GateBank
from headsmith.transformer.heads.stream import POSITION, Link, largest, position_bits
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Bank, Transformer, arrays, layout, width


@dataclass(frozen=True)
class Bill:
    """Sizes of the model. `parameters` counts dense matrices, `nonzeros` their non-zero entries.

    `neurons` are those of SwiGLU blocks, which are layers of their own; most models have none.
    A weight is an entry of a matrix, and a size can be shared out among several: `max_value` and `max_slope` are
    products that no units change.
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
    max_value: float = 0.0
    max_slope: float = 0.0

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
        ("max_value", number(bill.max_value), "of a table, as it is read"),
        ("max_slope", number(bill.max_slope), "of a score, by what it reads"),
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
    banks = [bank for layer in layers for bank in layer.banks if bank.heads]
    neurons = sum(layer.neurons for layer in layers)
    constants = transformer.tokens * position_bits(transformer.tokens)
    constants += transformer.reference_tokens if transformer.grid_form == "one-hot" else 0
    constants += transformer.table.stored_nonzeros if transformer.grid_form == "rows" else 0
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
        max_weight=max_weight(transformer),
        max_score=max_score,
        neurons=neurons,
        max_value=max_value(transformer),
        max_slope=max_slope(transformer),
    )


def head_features(transformer: Transformer, bank: Bank) -> int:
    """The width of a head's queries and keys; neurons have none."""
    return len(bank.features(transformer))


def _values(bank: Bank) -> int:
    """The width of a head's value."""
    return bank.outputs // bank.heads


def _nonzeros(transformer: Transformer) -> int:
    count = _link_nonzeros(transformer.embedding, False) + _link_nonzeros(transformer.readout, True)
    count += sum(int(np.count_nonzero(value)) for value in transformer.initial.values())
    count += int(np.count_nonzero(transformer.readout_bias))
    for layer in transformer.layers:
        for bank in layer.banks:
            count += bank.write_nonzeros(_link_nonzeros(bank.write, False))
            count += bank.nonzeros(transformer, _link_nonzeros(bank.read, True))
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


def max_weight(transformer: Transformer) -> float:
    """The largest absolute entry of all matrices."""
    found = max((largest(values) for _, values in arrays(transformer, folded=False)), default=0.0)
    for layer in transformer.layers:
        for bank in layer.banks:
            found = max(found, 1.0, bank.folded(transformer))
    return found


COSTS = ("layers", "heads", "reference_tokens", "max_weight")
"""What a model costs, in the default order: less of an earlier one is worth any amount of a later one. Data tokens
count as reference tokens do."""


@dataclass(frozen=True)
class Cost:
    """How models are compared: by the weighted sum of what they cost, or in the default order."""

    weights: tuple[tuple[str, float], ...] = ()

    def of(self, billed: Bill) -> tuple[float, ...]:
        """What a model costs; smaller is better."""
        if not self.weights:
            # Of models that cost the same but for tokens, those of one data token come first.
            tokens = float(billed.reference_tokens + billed.data_tokens)
            return float(billed.layers), float(billed.heads), tokens, float(billed.max_weight)
        return (sum(weight * float(getattr(billed, name)) for name, weight in self.weights),)


def as_cost(weights: Mapping[str, float] | None) -> Cost:
    """A `Cost` from the user's weights; TargetError for names that are not costs."""
    for name, weight in (weights or {}).items():
        if name not in (*COSTS, "data_tokens", "parameters", "nonzeros", "d_model", "max_score"):
            raise TargetError(f"there is no cost named {name!r}; choose among {', '.join(COSTS)}, parameters, nonzeros")
        if not (math.isfinite(weight) and weight >= 0.0):
            raise TargetError(f"the weight of {name} is {weight!r}; it must be a finite number, not negative")
    return Cost(tuple((weights or {}).items()))


def max_value(transformer: Transformer) -> float:
    """The largest value that a reference token holds in a table, times a weight that writes it to a column of the
    stream, times the largest weight that reads the column; 0 without tables."""
    banks = [bank for layer in transformer.layers for bank in layer.banks]
    tables = [bank for bank in banks if isinstance(bank, TableBank)]
    if not tables:
        return 0.0
    read = {name: np.zeros(size) for name, size in transformer.sizes.items()}
    for link in (*transformer.readout, *(link for bank in banks for link in bank.read)):
        found = sparse_of(link.weights)
        np.maximum.at(read[link.register], found.columns, np.abs(found.values))
    most = 0.0
    for bank in tables:
        values = np.abs(bank.values).max(axis=1).reshape(-1)
        for link in bank.write:
            found = sparse_of(link.weights)
            sizes = np.abs(found.values) * values[found.columns + link.first] * read[link.register][found.rows]
            most = max(most, largest(sizes))
    return most


def max_slope(transformer: Transformer) -> float:
    """The largest slope of a score by what a table, a gate or a maximum reads of a data token."""
    most = 0.0
    for bank in (bank for layer in transformer.layers for bank in layer.banks if bank.heads):
        if isinstance(bank, TableBank | GateBank):
            most = max(most, largest(bank.slope))
        elif isinstance(bank, ScaledBank):
            most = max(most, largest(bank.scale))
    return most
