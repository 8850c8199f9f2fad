"""Neurons of SwiGLU blocks, which stand in layers of their own: products and gates without attention.

A neuron reads two linear forms g and v of its token and returns silu(g) v, silu(t) = t / (1 + e^-t).

    swiglu      x y, by two neurons:    silu(x) y - silu(-x) y = x y            exactly, up to rounding
    silu        relu(z), by one:        silu(b z) / b = z / (1 + e^(-b z))      below relu(z) by at most 0.2785 / b

In a Llama such a layer is the MLP that follows the attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.balls import gate_constant
from headsmith.core.figures import number
from headsmith.transformer.heads.attentions import GATES
from headsmith.transformer.heads.bank import HeadBank, Words
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.scaling import Scaling, heaviest_read
from headsmith.transformer.heads.stream import largest_scaled
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class NeuronBank(HeadBank):
    """Neurons of one kind in one layer: no heads."""

    @property
    def heads(self) -> int:
        """None."""
        return 0

    def matrices(self, read: Array, write: Array, data: int) -> tuple[Array, Array, Array]:
        """W_gate and W_up (d_model, neurons) and W_down (neurons, d_model), from what is read and where outputs go, a
        row each; `data` is the column of the register that is one."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class SwigluBank(NeuronBank):
    """Products. Rows 2 k and 2 k + 1 of `read` are x and y of output k; its neurons are 2 k and 2 k + 1, too."""

    kind: ClassVar[str] = "swiglu"
    called: ClassVar[str] = "product"

    @property
    def neurons(self) -> int:
        return 2 * self.outputs

    @property
    def readers(self) -> int:
        """How many linear forms the bank reads: two for each product."""
        return 2 * self.outputs

    def matrices(self, read: Array, write: Array, data: int) -> tuple[Array, Array, Array]:
        sign = np.tile([1.0, -1.0], self.outputs)[:, None]
        x, y = (np.repeat(read[place::2], 2, axis=0) for place in range(2))
        return (sign * x).T, y.T, sign * np.repeat(write, 2, axis=0)

    def evaluated(self, attention: Attention) -> Any:
        reads = attention.reads(self)
        x, y = reads[..., 0::2], reads[..., 1::2]
        return silu(x) * y - silu(-x) * y

    def nonzeros(self, model: Surroundings, read: int) -> int:
        return 2 * read

    def write_nonzeros(self, write: int) -> int:
        """Two neurons write the same."""
        return 2 * write

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        pair = f"reads s = {words.read(2 * head)} and v = {words.read(2 * head + 1)}"
        return [f"{pair}; two neurons return silu(s) v and -silu(-s) v, which add up to s v"]


@dataclass(frozen=True, eq=False)
class SiluBank(NeuronBank):
    """Gates. `scale` has a power of two for each."""

    kind: ClassVar[str] = "silu"
    called: ClassVar[str] = "gate"
    arrays: ClassVar[tuple[str, ...]] = ("scale",)
    folded_arrays: ClassVar[tuple[str, ...]] = ("scale",)

    scale: Array

    @property
    def neurons(self) -> int:
        return self.outputs

    def matrices(self, read: Array, write: Array, data: int) -> tuple[Array, Array, Array]:
        up = np.zeros_like(read)
        up[:, data] = 1.0
        return (read * self.scale[:, None]).T, up.T, write / self.scale[:, None]

    def shapes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        return [(self.scale.shape, (self.outputs,)), *super().shapes()]

    def evaluated(self, attention: Attention) -> Any:
        scale = self.scale.astype(attention.dtype)
        return silu(attention.reads(self) * scale) / scale

    def constants(self, model: Surroundings) -> dict[str, Any]:
        return {"scale": self.scale}

    def nonzeros(self, model: Surroundings, read: int) -> int:
        return read + self.neurons

    def folded(self, model: Surroundings) -> float:
        return largest_scaled(self.read, self.scale)

    def scaled(self, scaling: Scaling) -> Self:
        steep = np.exp2(np.ceil(np.log2(np.maximum(scaling.of_gates / heaviest_read(self), 1.0))))
        return replace(self, scale=steep)

    def softmax_constant(self, model: Surroundings) -> float:
        return GATES.get(model.attention, gate_constant())

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        score = number(float(self.scale[head]))
        returned = f"silu({score} z)/{score}, which is z/(1 + exp(-{score} z))"
        return [f"reads z = {words.read(head)}; a neuron returns {returned}"]


def silu(values: Any) -> Any:
    """values / (1 + e^-values), in the dtype of the array."""
    with np.errstate(over="ignore"):
        return values / (values.dtype.type(1.0) + np.exp(-values))
