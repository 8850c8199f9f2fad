"""A model taken apart by hand: model.layers[0].heads[3] is one head, with what it computes, where it reads and writes,
its four matrices with names on rows and columns, and its share of the proven error; model.directions names the stream.

    >>> import headsmith as hs
    >>> model = hs.compile("relu(x - y)", (-1, 1), 1e-3)
    >>> model.directions
    <Directions: data, reference, z1, out>
    >>> model.layers[0].heads[0].kind
    'sink'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, TargetError
from headsmith.core.figures import bound, count, number
from headsmith.inside.explain import bank_sentences, neuron_sentences
from headsmith.inside.meanings import Meanings, Model, without_kind
from headsmith.inside.shares import Share
from headsmith.transformer.dense import DenseLayer, dense_layer
from headsmith.transformer.heads.table import TableBank
from headsmith.transformer.ir import Bank, Layer, Transformer, layout

ROWS = 12
"""How many rows of a matrix are printed."""

LAST = "no attention: the model ends in softmax(X W + b) V, and model.dense().last has W, b and V"
"""What is said of the head of a model that ends in a softmax."""

Shares = Callable[[], list[list[Share]] | None]


class Directions(Sequence[str]):
    """The columns of the residual stream by name, in order: "z1[0]"; the register alone where it has one column."""

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer
        self.columns = layout(transformer)
        self.names = [
            each.name if each.size == 1 else f"{each.name}[{column}]"
            for each in transformer.registers
            for column in range(each.size)
        ]

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if not isinstance(place, int | slice | np.integer):
            where = f"; column {self.names.index(place)} is {place}" if place in self.names else ""
            raise TargetError(
                f"directions[{place!r}]: directions are numbered, and what is at a number is a name{where}; "
                f"directions.columns[{str(place).partition('[')[0]!r}] has the columns of a register"
            )
        return self.names[place]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        told = [each.name if each.size == 1 else f"{each.name}[0..{each.size - 1}]" for each in self.registers[:12]]
        more = f", and {count(len(self.registers) - 12, 'more register')}" if len(self.registers) > 12 else ""
        return f"<Directions: {', '.join(told)}{more}>"

    @property
    def registers(self) -> Sequence[Any]:
        """The registers: names and how many columns each has."""
        return self.transformer.registers


@dataclass(frozen=True, eq=False)
class Head:
    """One head. `W_Q` and `W_K` are (d_model, d_head), `W_V` (d_model, d_value), `W_O` (d_value, d_model); `features`
    names the columns of queries and keys. `share` says how much of the proven error is its own, part by part."""

    layer: int
    index: int
    name: str
    kind: str
    computes: str
    sentences: tuple[str, ...]
    features: tuple[str, ...]
    directions: Directions
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    matrices: Callable[[], tuple[Array, Array, Array, Array]]
    shares: Callable[[], Share | None]
    last: bool = False

    @property
    def W_Q(self) -> Array:
        return self.matrices()[0]

    @property
    def W_K(self) -> Array:
        return self.matrices()[1]

    @property
    def W_V(self) -> Array:
        return self.matrices()[2]

    @property
    def W_O(self) -> Array:
        return self.matrices()[3]

    @property
    def share(self) -> Share | None:
        """Bounds of what the head's own errors do to the output, by part; None where the model has no proof."""
        return self.shares()

    def __repr__(self) -> str:
        lines = [f"<{self.name}: {self.computes}", *(f"  {sentence}" for sentence in self.sentences)]
        lines += [f"  {LAST}"] if self.last else self._labelled()
        share = self.share
        if share is not None:
            told = ", ".join(f"{name} {bound(value)}" for name, value in share.items() if value)
            lines += ["", f"share of the proven error: {bound(sum(share.values()))}{f' ({told})' if told else ''}"]
        return "\n".join(lines) + ">"

    def _labelled(self) -> list[str]:
        """The matrices as text."""
        W_Q, W_K, W_V, W_O = self.matrices()
        outputs, lines = [f"value {place}" for place in range(W_V.shape[1])], list[str]()
        for title, matrix, columns in (("W_Q", W_Q, self.features), ("W_K", W_K, self.features), ("W_V", W_V, outputs)):
            lines += ["", *labelled(f"{title}, from the stream", matrix, self.directions, columns)]
        return [*lines, "", *labelled("W_O, transposed, to the stream", W_O.T, self.directions, outputs)]


def labelled(title: str, matrix: Array, rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """A matrix (row, column) as text, without the rows and columns that are zero."""
    kept = np.flatnonzero(matrix.any(axis=1))
    used = np.flatnonzero(matrix.any(axis=0))[:ROWS]
    if not len(kept):
        return [f"{title}: zero"]
    cells = [["", *(columns[place] for place in used)]]
    for row in kept[:ROWS]:
        cells.append([rows[row], *("." if not value else number(float(value)) for value in matrix[row, used])])
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    lines = ["  " + "  ".join(cell.rjust(size) for cell, size in zip(line, widths, strict=True)) for line in cells]
    more = [f"  and {count(len(kept) - ROWS, 'more row')}"] if len(kept) > ROWS else []
    return [f"{title} (rows that are not zero)", *lines, *more]


@dataclass(frozen=True, eq=False)
class Unit:
    """One product or gate of a SwiGLU block, by two neurons or by one. `share` is as that of heads."""

    name: str
    kind: str
    computes: str
    sentence: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    shares: Callable[[], Share | None]

    @property
    def share(self) -> Share | None:
        """Bounds of what its own errors do to the output, by part; None where the model has no proof."""
        return self.shares()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.computes}\n  {self.sentence}>"


@dataclass(frozen=True, eq=False)
class LayerView:
    """One layer: its heads in order, or what its neurons compute."""

    number: int
    heads: tuple[Head, ...]
    neurons: tuple[Unit, ...] = ()

    def __repr__(self) -> str:
        if self.neurons:
            told = [f"  {each.name.partition(' / ')[2]}: {each.computes}" for each in self.neurons[:ROWS]]
            more = [f"  and {len(self.neurons) - ROWS} more"] if len(self.neurons) > ROWS else []
            return "\n".join([f"<layer {self.number}: a SwiGLU block", *told, *more]) + ">"
        told = [f"  {place}  {head.kind} head: {head.computes}" for place, head in enumerate(self.heads[:ROWS])]
        more = [f"  and {count(len(self.heads) - ROWS, 'more head')}"] if len(self.heads) > ROWS else []
        return "\n".join([f"<layer {self.number}: {count(len(self.heads), 'head')}", *told, *more]) + ">"


@dataclass(frozen=True, eq=False)
class Anatomy:
    """All layers of a model; shares of the error are computed when one is asked for."""

    model: Model
    shares: Shares

    @cached_property
    def layers(self) -> tuple[LayerView, ...]:
        """Every layer with its heads."""
        meanings, directions = Meanings(self.model), Directions(self.model.transformer)
        layers = enumerate(self.model.transformer.layers)
        return tuple(
            LayerView(number + 1, (), tuple(self._units(meanings, number, each)))
            if each.neurons
            else LayerView(number + 1, tuple(self._heads(meanings, directions, number, each)))
            for number, each in layers
        )

    @cached_property
    def _shares(self) -> list[list[Share]] | None:
        return self.shares()

    def _share(self, layer: int, head: int) -> Share | None:
        return None if self._shares is None else self._shares[layer][head]

    def _units(self, meanings: Meanings, number: int, layer: Layer) -> Iterator[Unit]:
        first = 0
        for bank in layer.banks:
            told, texts = list(neuron_sentences(meanings, bank)), meanings.neurons(bank)
            for output in range(bank.outputs):
                yield Unit(
                    name=f"layer {number + 1} / {bank.called} {output}",
                    kind=bank.kind,
                    computes=texts[output],
                    sentence=told[output],
                    reads=_touched(bank.read, bank.readers // bank.outputs, output, reading=True),
                    writes=_touched(bank.write, 1, output, reading=False),
                    shares=partial(self._share, number, first + output),
                )
            first += bank.outputs

    def _heads(self, meanings: Meanings, directions: Directions, number: int, layer: Layer) -> Iterator[Head]:
        transformer, texts, first = self.model.transformer, meanings.heads[number], 0
        counts: dict[str, int] = {}
        for bank in layer.banks:
            told = [tuple(each) for each in bank_sentences(meanings, bank, bank.heads)]
            matrices = _Matrices(transformer, bank)
            features = tuple(feature.name for feature in bank.features(transformer))
            for head in range(bank.heads):
                place = counts[bank.kind] = counts.get(bank.kind, -1) + 1
                yield Head(
                    layer=number + 1,
                    index=first + head,
                    name=f"layer {number + 1} / {bank.kind} head {place}",
                    kind=bank.kind,
                    computes=without_kind(texts[first + head]),
                    sentences=told[head] if head < len(told) else (),
                    features=features,
                    directions=directions,
                    reads=_touched(bank.read, bank.readers // bank.heads, head, reading=True),
                    writes=_touched(bank.write, bank.outputs // bank.heads, head, reading=False),
                    matrices=partial(matrices.of, head),
                    shares=partial(self._share, number, first + head),
                    last=matrices.last,
                )
            first += bank.heads


@dataclass(eq=False)
class _Matrices:
    """The matrices of a bank, written out when one of its heads is looked at."""

    transformer: Transformer
    bank: Bank

    @property
    def last(self) -> bool:
        """Whether it stands for a softmax that is no attention."""
        return self.transformer.grid_form == "softmax" and isinstance(self.bank, TableBank)

    @cached_property
    def layer(self) -> DenseLayer:
        if self.last:
            raise DomainError(LAST)
        return dense_layer(self.transformer, Layer((self.bank,)))

    def of(self, head: int) -> tuple[Array, Array, Array, Array]:
        layer = self.layer
        return layer.W_Q[head], layer.W_K[head], layer.W_V[head], layer.W_O[head]


def _touched(links: Sequence[Any], each: int, head: int, reading: bool) -> tuple[str, ...]:
    """The registers that a head reads or writes."""
    rows = range(head * each, (head + 1) * each)
    found = []
    for link in links:
        span = link.reads if reading else link.sources
        mine = [row - link.first for row in rows if span.start <= row < span.stop]
        weights = link.weights if link.weights.ndim == 1 else (link.weights if reading else link.weights.T)
        if mine and np.any(weights[mine]):
            found.append(link.register)
    return tuple(dict.fromkeys(found))
