"""The dimension table of a model: the shape of every matrix, layer by layer, with the law that the widths follow.

    W_E         inputs x d_model         what data tokens hold at first
    W_Q, W_K    d_model x d_head         of each head
    W_V         d_model x d_value        of each head
    W_O         d_value x d_model        of each head
    W_U         d_model x outputs        the read-out

The laws are in the terms of the recipe: n data tokens in a sequence, a gate, a table of k arguments. Positions are
written in binary, so a head that must find its own token among n is wider by ceil(log2 n) columns. d_model is
2 + ceil(log2 n) + p + (columns of registers): what tells tokens of data and the sink, the position among n, the p
tokens of the grid; and what gates and functions read.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from headsmith.core.figures import number
from headsmith.core.markup import PREAMBLE, csv_text, latex_table, markdown_table, table
from headsmith.transformer.bill import head_features
from headsmith.transformer.heads.stream import position_bits
from headsmith.transformer.ir import Bank, Transformer, width

COLUMNS = ("layer", "heads", "kind", "W_Q, W_K", "W_V", "W_O", "d_head", "one head for each")


@dataclass(frozen=True)
class HeadShapes:
    """Heads of one kind in one layer. `W_Q` is the shape of W_Q and of W_K of each of them; `law` is d_head in symbols,
    and `stands_for` what one head computes."""

    layer: int
    kind: str
    heads: int
    W_Q: tuple[int, int]
    W_V: tuple[int, int]
    W_O: tuple[int, int]
    law: str
    stands_for: str

    @property
    def d_head(self) -> int:
        """The width of queries and keys."""
        return self.W_Q[1]

    @property
    def parameters(self) -> int:
        """Entries of all four matrices of all heads."""
        return self.heads * (2 * self.W_Q[0] * self.W_Q[1] + self.W_V[0] * self.W_V[1] + self.W_O[0] * self.W_O[1])


@dataclass(frozen=True)
class Dimensions:
    """The shapes of a model's matrices, and how many tokens its sequences have."""

    W_E: tuple[int, int]
    layers: tuple[HeadShapes, ...]
    W_U: tuple[int, int]
    reference_tokens: int
    data_tokens: int
    neurons: tuple[tuple[int, int], ...] = ()
    """Layers that are SwiGLU blocks, and how many neurons each has: W_gate and W_up are d_model x neurons."""
    law: str = ""
    """d_model in symbols: two columns that tell tokens of data and the sink, the position code of n tokens, p tokens of
    the grid, and the columns of registers; nothing, where the grid's tokens hold rows of a table."""

    def __repr__(self) -> str:
        lines = [list(COLUMNS), *cells(self)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
        texts = [
            "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([caption(self), *texts])

    def _repr_html_(self) -> str:
        return table("Dimensions", cells(self), COLUMNS, (0, 1), caption(self))

    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown_table(COLUMNS, cells(self))

    def latex(self) -> str:
        """The table in LaTeX (booktabs), for a paper."""
        return f"{PREAMBLE}\n{latex_table(COLUMNS, cells(self), caption(self))}"

    def csv(self) -> str:
        """The table as csv."""
        names = [each.name for each in fields(HeadShapes)]
        rows = [[_product(each) if isinstance(each, tuple) else each for each in astuple(row)] for row in self.layers]
        return csv_text(names, rows)


def dimensions(transformer: Transformer) -> Dimensions:
    """The dimension table of a model."""
    attention = transformer.layers[:-1] if transformer.grid_form == "softmax" else transformer.layers
    rows = [
        _shapes(transformer, place + 1, bank)
        for place, layer in enumerate(attention)
        for bank in layer.banks
        if bank.heads
    ]
    neurons = tuple((place + 1, layer.neurons) for place, layer in enumerate(attention) if layer.neurons)
    columns = width(transformer)
    return Dimensions(
        (transformer.inputs, columns),
        tuple(rows),
        (columns, transformer.outputs),
        transformer.reference_tokens,
        transformer.tokens,
        neurons,
        _law(transformer),
    )


def _law(transformer: Transformer) -> str:
    if transformer.grid_form != "one-hot":
        return ""
    bits, grid = position_bits(transformer.tokens), transformer.grid_tokens
    named = ["2", *(["ceil(log2 n)"] if bits else []), *(["p"] if grid else [])]
    return " + ".join([*named, str(width(transformer) - 2 - bits - grid)])


def _shapes(transformer: Transformer, layer: int, bank: Bank) -> HeadShapes:
    columns, features, values = width(transformer), head_features(transformer, bank), bank.outputs // bank.heads
    shapes = (columns, features), (columns, values), (values, columns)
    return HeadShapes(layer, bank.kind, bank.heads, *shapes, bank.law(transformer), bank.stands_for)


def cells(found: Dimensions) -> list[list[str]]:
    """The rows for reading."""
    return [
        [
            number(row.layer),
            number(row.heads),
            row.kind,
            _product(row.W_Q),
            _product(row.W_V),
            _product(row.W_O),
            f"{row.d_head} = {row.law}" if str(row.d_head) != row.law else row.law,
            row.stands_for,
        ]
        for row in found.layers
    ]


def caption(found: Dimensions) -> str:
    """What the table is about, in one sentence."""
    law = f" = {found.law}" if found.law else ""
    return (
        f"Shapes of the matrices, of each head: d_model is {found.W_E[1]}{law}, W_E {_product(found.W_E)}, W_U "
        f"{_product(found.W_U)}; {found.reference_tokens} reference tokens and n <= {found.data_tokens} data tokens."
        + "".join(f" Layer {layer} is a SwiGLU block of {number(size)} neurons." for layer, size in found.neurons)
    )


def _product(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"
