"""What floating point does to a sum of products, as inequalities that hold in any order of summation.

The standard model of rounding (Higham, Accuracy and Stability of Numerical Algorithms, chapters 2 and 3): with unit
roundoff u, every operation returns the exact result times (1 + d) with |d| <= u, as long as nothing overflows or
underflows. A sum of k products, added in any order, with or without fused multiply-add, is off by at most gamma_k times
the sum of their absolute values, gamma_k = k u / (1 - k u). Underflow adds at most one smallest normal number for each
operation (flushing to zero included).

Search uses these inequalities twice: for the model's own arithmetic, in its dtype, and for its own arithmetic, which is
numpy in float64: `upper` and `lower` turn a computed figure into a bound.

Formats of 16 bits compute in float32 and hold fewer bits (kernel/core/arithmetic.py, Precision): their unit roundoff
here is that of what they hold.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array

Dtype = Literal["float64", "float32", "bfloat16", "float16"]

HALVES = ("bfloat16", "float16")
"""Formats of 16 bits, which compute in float32."""


@dataclass(frozen=True)
class Precision:
    """The constants of one floating-point format."""

    name: Dtype
    unit_roundoff: float
    smallest_normal: float
    largest: float

    @property
    def inside(self) -> float:
        """What counts as one rounding inside of a head: most of them are not held, where 16 bits are."""
        return self.unit_roundoff / (8.0 if self.name in HALVES else 1.0)

    def gamma(self, operations: Any) -> Any:
        """An upper bound of gamma_k; infinite where k u reaches 1/2, so that nothing can be certified from it."""
        if isinstance(operations, int):
            share = operations * self.unit_roundoff
            return share / (1.0 - share) * (1.0 + 1e-12) if share < 0.5 else float("inf")
        product = np.asarray(operations, dtype=np.float64) * self.unit_roundoff
        with np.errstate(divide="ignore", invalid="ignore"):
            value = product / (1.0 - product) * (1.0 + 1e-12)
        result = np.where(product < 0.5, value, np.inf)
        return float(result) if result.ndim == 0 else result


PRECISIONS: dict[str, Precision] = {
    "float64": Precision("float64", 2.0**-53, 2.0**-1022, float(np.finfo(np.float64).max)),
    "float32": Precision("float32", 2.0**-24, 2.0**-126, float(np.finfo(np.float32).max)),
    "bfloat16": Precision("bfloat16", 2.0**-8, 2.0**-118, (2.0 - 2.0**-7) * 2.0**127),
    "float16": Precision("float16", 2.0**-11, 2.0**-14, 65504.0),
}

FLOAT64 = PRECISIONS["float64"]


def arithmetic(dtype: str) -> str:
    """The format in which sums, scores and powers of e are computed."""
    return "float32" if dtype in HALVES else dtype


def held(values: Any, dtype: str) -> Any:
    """Numbers as a model of this dtype holds them, in the format of its arithmetic: rounded to nearest, even numbers
    first. What is beyond the format becomes infinite."""
    kind = np.dtype(arithmetic(dtype))
    with np.errstate(over="ignore"):
        if dtype not in HALVES:
            return np.asarray(values, dtype=kind)
        if dtype == "float16":
            return np.asarray(values).astype(np.float16).astype(kind)
        mantissa, exponent = np.frexp(np.asarray(values))
        digits = -round(np.log2(PRECISIONS[dtype].unit_roundoff))
        whole = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
        small = np.abs(whole) < PRECISIONS[dtype].smallest_normal
        return np.where(small, 0.0, whole).astype(kind)


def upper(value: Any, operations: int) -> Any:
    """A bound above the exact value of a sum of non-negative products that float64 computed as `value`.

    Guarantee: if `value` came from at most `operations` roundings, all terms non-negative, then exact <= upper(value).
    """
    factor = 1.0 + 2.0 * FLOAT64.gamma(operations + 2)
    return np.asarray(value) * factor + (operations + 2) * FLOAT64.smallest_normal


def lower(value: Any, operations: int) -> Any:
    """A bound below the exact value of a sum of non-negative products; never negative."""
    factor = 1.0 - 2.0 * FLOAT64.gamma(operations + 2)
    return np.maximum(np.asarray(value) * factor - (operations + 2) * FLOAT64.smallest_normal, 0.0)


def magnitude_product(weights: Array, magnitudes: Array) -> Array:
    """|weights| @ magnitudes, rounded up. `weights` is dense (to, from), or diagonal (a vector)."""
    absolute = abs(weights)
    if weights.ndim == 1:
        return np.asarray(upper((absolute * magnitudes.T).T, 1))
    return np.asarray(upper(absolute @ magnitudes, weights.shape[1]))
