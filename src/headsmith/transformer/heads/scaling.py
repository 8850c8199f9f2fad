"""What the scales and gains of a bank are chosen from, once the whole model is known (lower/scales.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.rounding import FLOAT64, Precision, held
from headsmith.kernel.core.sparse import parts_of
from headsmith.transformer.heads.running import Reader
from headsmith.transformer.heads.surroundings import Surroundings

SMALLEST_SCALE = 2.0**-20


@dataclass(frozen=True, eq=False)
class Scaling:
    """For the banks of one layer:

    common      the scale of all gates and maxima, up to the weights of what they read
    relief      by how much the scales of this layer's gates may be smaller
    reach       how far, in scores, silent tokens must be kept below the others
    position    the gain that keeps data tokens apart
    reference   the gain that keeps reference tokens to the sink
    sizes       by node of the circuit: what is read where maxima are taken over tokens, and the scores of attention;
                what gates read, under attentions without a sink and for several tokens
    """

    model: Surroundings
    common: float
    relief: float
    reach: float
    position: float
    reference: float
    sizes: Mapping[int, float]

    @property
    def of_gates(self) -> float:
        """The scale of this layer's gates, up to the weights of what they read."""
        return max(self.common * self.relief, SMALLEST_SCALE)

    def lifted(self, depth: float) -> float:
        """The gain that keeps reference tokens `depth` below the others: even, and zero where there are none."""
        return even(depth + 4.0, self.model.precision) if self.model.reference_tokens else 0.0

    def alone(self, node: int) -> float:
        """How far others must be kept below. What clears a register (node -1) must leave no more of it than rounding
        does."""
        rounding = -math.log(self.model.precision.unit_roundoff) + 4.0
        return self.reach if node >= 0 else max(self.reach, rounding)


def even(size: float, precision: Precision) -> float:
    """An even number of the format that is at least so large."""
    unit = max(2.0, 2.0 ** math.ceil(math.log2(size * 4.0 * precision.unit_roundoff)))
    return unit * math.ceil(size / unit)


def heaviest_read(bank: Reader) -> Array:
    """For each head, the largest weight that it reads by; 1 for one that reads nothing."""
    heaviest = np.zeros(bank.readers)
    for link in bank.read:
        size = np.abs(link.weights) if link.weights.ndim == 1 else np.abs(link.weights).max(axis=1)
        heaviest[link.reads] = np.maximum(heaviest[link.reads], size)
    return np.where(heaviest > 0.0, heaviest, 1.0)


def in_parts(bank: Reader) -> bool:
    """Whether heads read sums of several registers, all by the same weights."""
    first = {(link.first, *(part.tobytes() for part in parts_of(link.weights))) for link in bank.read}
    return len(first) < len(bank.read)


def split_scale(scale: Array, precision: Precision) -> tuple[Array, Array]:
    """(query_scale, key_scale) with product at least `scale`, both near its square root; the key's is a power of
    two."""
    exponent = np.rint(np.log2(scale) / 2.0)
    key = np.exp2(exponent)
    return rounded_up(np.asarray(scale / key), precision), frozen(key)


def rounded_up(scale: Array, precision: Precision) -> Array:
    """The next number of the format."""
    if precision is not FLOAT64:
        nearest = held(scale, precision.name).astype(np.float64)
        # One step of the format, from numbers that are too small.
        step = np.ldexp(2.0 * precision.unit_roundoff, np.frexp(nearest)[1] - 1)
        scale = np.where(nearest < scale, nearest + step, nearest)
    return frozen(scale)
