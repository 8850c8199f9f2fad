"""What every kind of head says of itself, in one place: the protocol of a bank.

A bank is all heads of one kind in one layer. Its file has the lemma and says how the heads are

    checked     needs_sink, shapes, check           what must hold before anybody runs it
    run         evaluated, closed, constants        as attention, through the closed form, and for other runtimes
    declared    features, value                     what each column of W_Q, W_K and W_V holds (stream.py); from that
                                                    follow dense, law, nonzeros and folded: matrices and the bill
    chosen      scaled, softmax_constant            the scales and gains, once the whole model is known
    told        called, told, held_texts            in words
    stored      arrays, numbers, counts, registers  the fields as a file has them

`heads/kinds.py` lists the kinds. Whoever has a bank asks it; nobody else needs to know which kinds there are. The lemma
is proven once more where nothing of this is trusted, in kernel/core/heads.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from headsmith.core.arrays import Array, Indices, freeze
from headsmith.core.errors import CertificateError
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.scaling import Scaling
from headsmith.transformer.heads.stream import (
    GRID,
    POSITION,
    REFERENCE,
    Columns,
    Feature,
    Link,
    Matrices,
    On,
    Read,
    Terms,
    largest_entry,
    law,
    nonzeros,
    position_bits,
    unit,
    written,
)
from headsmith.transformer.heads.surroundings import Surroundings

KEY = 8.0
"""Keys of constants: it only shares gains between query and key, so that neither has large weights. A power of two, it
rounds nothing."""


class Words(Protocol):
    """What a bank is told with."""

    def read(self, row: int) -> str:
        """What is read by one of the linear forms."""

    def output(self, place: int) -> str:
        """What one of the outputs stands for."""

    def pieces(self, place: int) -> Sequence[str] | None:
        """The affine pieces whose maximum an output is, where the data tokens hold them."""

    @property
    def grid(self) -> str:
        """The names of the grid's tokens."""


@dataclass(frozen=True, eq=False)
class HeadBank:
    """Output k is component `component[k]` of circuit node `node[k]` (-1: of none). Unless a kind says otherwise, the
    bank is one head that reads one linear form for each output."""

    kind: ClassVar[str]
    called: ClassVar[str]
    """What one of its heads is called in a list; the kind, or a word that says what it computes."""
    arrays: ClassVar[tuple[str, ...]] = ()
    """The fields that hold arrays of numbers."""
    folded_arrays: ClassVar[tuple[str, ...]] = ()
    """Those of which matrices hold no entry as it is, but sums and products with others."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """The fields that hold one number: gains."""
    counts: ClassVar[tuple[str, ...]] = ()
    """The fields that hold a whole number."""
    registers: ClassVar[Mapping[str, str | None]] = {}
    """The fields that name a register, and which one they name in files that do not say (None: they must say)."""
    mixes: ClassVar[bool] = False
    """Whether data tokens read values from data tokens."""
    approximates: ClassVar[bool] = False
    """Whether the heads only approximate what they stand for, however sharp the attention is."""
    heavy: ClassVar[bool] = False
    """Whether what the heads write is multiplied by large weights."""

    node: Indices
    component: Indices
    read: tuple[Link, ...]
    write: tuple[Link, ...]

    def __post_init__(self) -> None:
        freeze(self, arrays=self.arrays, indices=("node", "component"), weighted=(*self.read, *self.write))

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return 1

    @property
    def neurons(self) -> int:
        """How many neurons there are, in a layer that has these in place of heads (heads/swiglu.py)."""
        return 0

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns."""
        return int(self.node.size)

    @property
    def cleared(self) -> tuple[str, ...]:
        """The registers that the bank clears: one whose outputs stand for no node adds -1 times what it reads to what
        it reads (lower/reuse.py)."""
        if np.any(self.node >= 0):
            return ()
        return tuple(link.register for link in self.write if link.weights.ndim == 1)

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads."""
        return self.outputs

    # Checked --------------------------------------------------------------------------------------------------------

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        """Whether softmax heads of this kind need the sink; `later` than in the first layer."""
        return False

    def shapes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The shapes of arrays, and what they should be."""
        return [(values.shape, (self.outputs,)) for values in (self.node, self.component)]

    def check(self, model: Surroundings, where: str) -> None:
        """Raise CertificateError unless the bank fits its model."""

    def refuse_run(self, model: Surroundings, tokens: int, causal: bool) -> None:
        """Raise DomainError if the bank cannot run on a sequence of so many tokens, or under that mask."""

    # Run ------------------------------------------------------------------------------------------------------------

    def evaluated(self, attention: Attention) -> Any:
        """What the heads return, (batch, token, outputs), from scores and their powers of e."""
        raise NotImplementedError(f"{self.kind} banks have no runner")

    def closed(self, attention: Attention) -> Any:
        """What the heads return by their closed form, without the tokens that hold nothing."""
        return self.evaluated(attention)

    def constants(self, model: Surroundings) -> dict[str, Any]:
        """The numbers of the closed form, in float64, for other runtimes (run/torch_fused.py, export/onnx_model.py)."""
        return {}

    # Written out ----------------------------------------------------------------------------------------------------

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        """What the columns of queries and keys are for, in order."""
        return ()

    def value(self, model: Surroundings) -> Terms:
        """What a head's value is: the linear forms, unless a kind says otherwise."""
        return (Read(),)

    def dense(self, model: Surroundings, columns: Columns, read: Array, write: Array) -> Matrices:
        """All matrices of the heads; `read` and `write` have a row of d_model numbers for each form and output."""
        return written(self.features(model), self.value(model), self.heads, columns, read, write)

    # Counted --------------------------------------------------------------------------------------------------------

    @property
    def stands_for(self) -> str:
        """What one head stands for, in a table of shapes."""
        return self.called

    def law(self, model: Surroundings) -> str:
        """d_head in symbols."""
        return law(self.features(model))

    def nonzeros(self, model: Surroundings, read: int) -> int:
        """Non-zero entries of W_Q, W_K and W_V; the linear forms that are read have so many."""
        return nonzeros(self.features(model), self.value(model), self.heads, model.sizes, self.readers, read)

    def write_nonzeros(self, write: int) -> int:
        """Non-zero entries of W_O, or of W_down; what is written has so many."""
        return write

    def folded(self, model: Surroundings) -> float:
        """The largest weight that is a sum or a product of stored numbers."""
        return largest_entry(self.features(model), self.value(model), self.read)

    # Chosen ---------------------------------------------------------------------------------------------------------

    def scaled(self, scaling: Scaling) -> Self:
        """The same bank with the scales and gains that its model needs."""
        return self

    def softmax_constant(self, model: Surroundings) -> float:
        """How far a head of scale one can be from its sharp limit; zero for kinds whose scale is not chosen."""
        return 0.0

    def value_sizes(self) -> Any:
        """How large the values are that a head averages, for each output, as far as they are known: (outputs, 1)."""
        return 1.0

    # Told -----------------------------------------------------------------------------------------------------------

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        """What one head does, in a few lines; of neurons, what those of one output do."""
        return []

    def held_texts(self, sinks: int) -> list[dict[int, str]]:
        """What reference tokens hold for each head, as text by token number; the grid begins after the sinks."""
        return [{}] * self.heads


@dataclass(frozen=True, eq=False)
class ScaledBank(HeadBank):
    """Heads of one linear form and one output each, whose scores have scales of their own."""

    arrays: ClassVar[tuple[str, ...]] = ("query_scale", "key_scale")

    query_scale: Array
    key_scale: Array

    @property
    def heads(self) -> int:
        return len(self.query_scale)

    @property
    def outputs(self) -> int:
        """How many numbers the bank returns: one for each head."""
        return self.heads

    @property
    def scale(self) -> Array:
        """b of each head."""
        return self.query_scale * self.key_scale

    def constants(self, model: Surroundings) -> dict[str, Any]:
        return {"scale": self.scale}


def check_vector(bank: HeadBank, where: str) -> None:
    """At least one output, in a row, and as many for each head."""
    if bank.node.ndim != 1 or bank.outputs == 0 or bank.heads < 1 or bank.outputs % bank.heads:
        raise CertificateError(f"{where}: outputs of shape {bank.node.shape} for {bank.heads} heads")


def keep(model: Surroundings, gain: float, also: Terms = (), name: str = "keep") -> tuple[Feature, ...]:
    """The last feature: reference tokens keep to the sink, where there is one. Others may score there too."""
    if not model.sink_tokens:
        return ()
    grid = (On(GRID, gain / KEY),) if model.grid_tokens else ()
    return (Feature(name, (On(REFERENCE, gain / KEY), *grid, *also), (On(REFERENCE, KEY),)),)


def position_features(model: Surroundings, gain: float, register: str = POSITION) -> tuple[Feature, ...]:
    """A feature for each bit of the position: a query of `gain` times what `register` holds, and the key's own bit."""
    bits, size = position_bits(model.tokens), model.sizes.get(register, 0)
    return tuple(
        Feature(
            f"bit {bit}",
            (On(register, unit(size, bit, gain / KEY)),),
            (On(POSITION, unit(bits, bit, KEY)),),
            "ceil(log2 n)",
        )
        for bit in range(bits)
    )
