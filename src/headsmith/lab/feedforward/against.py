"""Attention against feed-forward networks, at equal error: what each costs, losses and all.

    rows = hs.plan("sin(x)", {"x": (-3, 3)}, errors=[1e-2], against="ffn")
    rows[0].way, rows[0].certified, rows[0].work.nonzeros, rows[0].least

Four ways for each error: a ReLU network (the circuits of the relu recipe, without attention); SwiGLU or GeGLU units,
where they are exact, or a polynomial is cheaper; attention by the relu recipe, which turns every gate of the same
circuit into a head; and attention by the recipe auto. `least` names the figures in which no other way of the same error
has less. Bounds of feed-forward networks are about exact arithmetic, those of attention about floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from headsmith.compile import compile
from headsmith.core.errors import HeadsmithError
from headsmith.core.figures import bound, number
from headsmith.core.markup import PREAMBLE, csv_text, latex_table, markdown_table, table
from headsmith.core.rounding import Dtype
from headsmith.lab.feedforward.build import Built, gated_network, relu_network
from headsmith.lab.feedforward.network import FIGURES, FeedForward, MultiplyAdds
from headsmith.model import Compiled
from headsmith.plan.reading import Target, as_graph
from headsmith.transformer.bill import head_features
from headsmith.transformer.ir import width

COLUMNS = ("error", "way", "certified", "parameters", "non-zeros", "multiply-adds", "depth", "largest weight")
SHALLOW = 1e-3
"""For errors from here on a ReLU network of one or two layers may have fewer weights than one with fewer gates."""
CAPTION = (
    "Feed-forward networks and attention for the same target at the same error. * marks the least of each error. "
    "Multiply-adds are those of dense matrices, for one token."
)


@dataclass(frozen=True, eq=False)
class Side:
    """One way to the target: its proven error, its cost, and in which figures no other way has less."""

    way: str
    error: float
    certified: float
    work: MultiplyAdds
    model: Compiled | FeedForward
    least: tuple[str, ...] = ()

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {number(getattr(self.work, name), 3)}" for name in FIGURES)
        return f"<{self.way}: error <= {bound(self.certified)} (asked {number(self.error)}), {figures}>"


class Against(list[Side]):
    """The ways to a target, side by side: a list that shows itself as a table, and writes itself for a paper."""

    def cells(self) -> list[list[str]]:
        """The rows for reading."""
        return [[number(row.error), row.way, bound(row.certified, 3), *_shown(row)] for row in self]

    def __repr__(self) -> str:
        lines = [list(COLUMNS), *self.cells()]
        widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
        told = ["  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([*told, "*: no other way of the same error has less"])

    def _repr_html_(self) -> str:
        return table("Attention against feed-forward", self.cells(), COLUMNS, (0, 2, 3, 4, 5, 6, 7), CAPTION)

    def markdown(self) -> str:
        """The rows as a Markdown table."""
        return markdown_table(COLUMNS, self.cells())

    def latex(self, caption: str = CAPTION) -> str:
        """The rows as a LaTeX table (booktabs)."""
        return f"{PREAMBLE}\n{latex_table(COLUMNS, self.cells(), caption)}"

    def csv(self) -> str:
        """The rows as csv, numbers in full."""
        lines = [[row.error, row.way, row.certified, *asdict(row.work).values(), " ".join(row.least)] for row in self]
        return csv_text(["error", "way", "certified", *FIGURES, "least"], lines)


def _shown(row: Side) -> list[str]:
    return [f"{number(getattr(row.work, name), 3)}{'*' if name in row.least else ''}" for name in FIGURES]


def against_feed_forward(
    target: Target, domain: Any, errors: Sequence[float], tokens: int = 1, dtype: Dtype = "float64"
) -> Against:
    """All ways to a target for each error. Ways that cannot meet it are left out; raises UnreachableError if attention
    cannot."""
    rows = Against()
    for error in errors:
        auto = compile(target, domain, error, tokens=tokens, dtype=dtype, progress=False)
        found: list[Side] = []
        circuits = _circuits(target, domain, error, tokens, dtype)
        gates = circuits[0] if circuits else None
        if gates is not None:
            networks = [_feed_forward("ReLU network", error, relu_network(each)) for each in circuits]
            found.append(min(networks, key=lambda row: (row.work.nonzeros, row.work.depth)))
        most = min((row.work.nonzeros for row in found), default=None)
        gated = gated_network(as_graph(target, domain), auto.box, error, most)
        if gated is not None:
            name = {"swiglu": "SwiGLU", "geglu": "GeGLU"}[gated.network.kind]
            found.append(_feed_forward(f"{name}, {'exact' if gated.certified == 0.0 else 'polynomial'}", error, gated))
        if gates is not None:
            found.append(Side("attention, relu", error, gates.certificate.error, attention_work(gates), gates))
        found.append(Side("attention, auto", error, auto.certificate.error, attention_work(auto), auto))
        rows += [replace(row, least=_least(row, found)) for row in found]
    return rows


def _circuits(target: Target, domain: Any, error: float, tokens: int, dtype: Dtype) -> list[Compiled]:
    """Models of the relu recipe: the one with the fewest gates; for errors that a few gates meet also shallow ones."""
    found = []
    for limit in (None, 1, 2) if error >= SHALLOW else (None,):
        with suppress(HeadsmithError):
            options: dict[str, Any] = {"recipe": "relu", "tokens": tokens, "dtype": dtype, "max_layers": limit}
            found.append(compile(target, domain, error, progress=False, **options))
    return found


def _feed_forward(way: str, error: float, built: Built) -> Side:
    return Side(way, error, built.certified, built.network.work, built.network)


def _least(row: Side, others: Sequence[Side]) -> tuple[str, ...]:
    return tuple(
        name for name in FIGURES if getattr(row.work, name) <= min(getattr(other.work, name) for other in others)
    )


def attention_work(model: Compiled) -> MultiplyAdds:
    """What attention costs, for one data token beside the reference tokens: keys and values of these are the same for
    all inputs, and computed once."""
    transformer, bill = model.transformer, model.bill
    d_model, seen = width(transformer), bill.reference_tokens + bill.data_tokens
    products = d_model * (transformer.inputs + transformer.outputs)
    for layer in transformer.layers:
        for bank in layer.banks:
            size = head_features(transformer, bank) + bank.outputs // bank.heads
            products += bank.heads * size * (2 * d_model + seen)
    return MultiplyAdds(bill.parameters, bill.nonzeros, products, bill.layers, bill.max_weight)
