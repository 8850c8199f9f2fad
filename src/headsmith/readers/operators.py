"""What networks are made of, as nodes of a source graph: one function an operator, shared by all readers.

Every function takes the graph's builder and operands (tensors, or numpy arrays of constants) and returns an operand.
All are exact: piecewise linear functions are affine maps and gates, smooth ones are named functions, products and
quotients. Constants that are no doubles, such as 1/9 or a batch norm's 1/sqrt(variance), are the nearest ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS
from headsmith.language.builder import Builder
from headsmith.readers.tensors import Operand, Tensor, add, flat, scale, shape_of, spread, whole


def function(builder: Builder, name: str, x: Operand, parameter: float | None = None) -> Operand:
    """A named function of every number."""
    if not isinstance(x, Tensor):
        return FUNCTIONS[name].value(np.asarray(x, dtype=np.float64), parameter)
    return whole(builder, builder.function(name, flat(builder, x), parameter), x.shape)


def relu(builder: Builder, x: Operand) -> Operand:
    """max(x, 0)."""
    if not isinstance(x, Tensor):
        return np.maximum(np.asarray(x), 0.0)
    return whole(builder, builder.relu(flat(builder, x)), x.shape)


def negative(builder: Builder, x: Operand) -> Operand:
    """-x."""
    return scale(builder, x, -1.0)


def clamp(builder: Builder, x: Operand, low: Any = None, high: Any = None) -> Operand:
    """min(max(x, low), high) = low + relu(x - low) - relu(x - high)."""
    if low is not None and high is not None:
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        if np.any(low > high):
            raise TargetError(f"values are clamped between {low} and {high}: the first must not be larger")
        if np.all(np.isfinite(low)) and np.all(np.isfinite(high)):
            above = relu(builder, add(builder, x, low, -1.0))
            beyond = relu(builder, add(builder, x, high, -1.0))
            return add(builder, add(builder, above, beyond, -1.0), low)
    if low is not None and np.any(np.isfinite(low)):
        x = add(builder, relu(builder, add(builder, x, low, -1.0)), low)
    if high is not None and np.any(np.isfinite(high)):
        x = add(builder, high, relu(builder, add(builder, high, x, -1.0)), -1.0)
    return x


def absolute(builder: Builder, x: Operand) -> Operand:
    """relu(x) + relu(-x)."""
    return add(builder, relu(builder, x), relu(builder, negative(builder, x)))


def leaky_relu(builder: Builder, x: Operand, slope: Any = 0.01) -> Operand:
    """x where it is positive, slope x elsewhere: slope x + (1 - slope) relu(x). The slope may be an array."""
    if not isinstance(x, Tensor):
        return np.where(np.asarray(x) > 0, x, np.asarray(slope) * x)
    slope = np.broadcast_to(np.asarray(slope, dtype=np.float64), x.shape).ravel()
    node = flat(builder, x)
    return whole(builder, builder.affine([(node, slope), (builder.relu(node), 1.0 - slope)], np.zeros(x.size)), x.shape)


def prelu(builder: Builder, x: Operand, slope: Any) -> Operand:
    """The leaky ReLU with one slope for all, or one for each channel (axis 1)."""
    slope = np.asarray(slope, dtype=np.float64)
    if slope.size > 1 and slope.ndim == 1:
        slope = slope.reshape(-1, *([1] * (len(shape_of(x)) - 2)))
    return leaky_relu(builder, x, slope)


def elu(builder: Builder, x: Operand, alpha: float = 1.0, gain: float = 1.0, inner: float = 1.0) -> Operand:
    """gain (relu(x) + alpha (exp(inner min(x, 0)) - 1))."""
    below = scale(builder, relu(builder, negative(builder, x)), -inner)
    bent = scale(builder, function(builder, "exp", below), alpha, -alpha)
    return scale(builder, add(builder, relu(builder, x), bent), gain)


def hard_sigmoid(builder: Builder, x: Operand, slope: float | None = None, middle: float = 0.5) -> Operand:
    """clamp(slope x + middle, 0, 1); without a slope, clamp(x + 3, 0, 6) / 6."""
    if slope is not None:
        return clamp(builder, scale(builder, x, slope, middle), 0.0, 1.0)
    return scale(builder, clamp(builder, add(builder, x, 3.0), 0.0, 6.0), 1.0 / 6.0)


def hard_swish(builder: Builder, x: Operand) -> Operand:
    """x clamp(x + 3, 0, 6) / 6."""
    return multiply(builder, x, hard_sigmoid(builder, x))


def soft_shrink(builder: Builder, x: Operand, lambd: float = 0.5) -> Operand:
    """x - clamp(x, -lambd, lambd)."""
    return add(builder, x, clamp(builder, x, -lambd, lambd), -1.0)


def silu(builder: Builder, x: Operand) -> Operand:
    """x sigmoid(x)."""
    return multiply(builder, x, function(builder, "sigmoid", x))


def gelu(builder: Builder, x: Operand, approximate: str = "none") -> Operand:
    """x times the normal distribution's function; "tanh" is x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    if approximate == "none":
        return function(builder, "gelu", x)
    root = math.sqrt(2.0 / math.pi)
    # (1 + tanh(z)) / 2 = sigmoid(2 z), and 2 z = x (2 root + 2 root 0.044715 x^2).
    inner = multiply(builder, x, scale(builder, multiply(builder, x, x), 2 * root * 0.044715, 2 * root))
    return multiply(builder, x, function(builder, "sigmoid", inner))


def softplus(builder: Builder, x: Operand, beta: float = 1.0) -> Operand:
    """log(1 + exp(beta x)) / beta."""
    return scale(builder, function(builder, "softplus", scale(builder, x, beta)), 1.0 / beta)


def mish(builder: Builder, x: Operand) -> Operand:
    """x tanh(softplus(x))."""
    return multiply(builder, x, function(builder, "tanh", softplus(builder, x)))


def log_sigmoid(builder: Builder, x: Operand) -> Operand:
    """-softplus(-x)."""
    return negative(builder, softplus(builder, negative(builder, x)))


def multiply(builder: Builder, left: Operand, right: Operand) -> Operand:
    """left * right."""
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            return np.asarray(left) * np.asarray(right)
        tensor, factors = (left, right) if isinstance(left, Tensor) else (right, left)
        return scale(builder, tensor, factors)
    shape = np.broadcast_shapes(left.shape, right.shape)
    nodes = [flat(builder, spread(each, shape)) for each in ((left,) if right is left else (left, right))]
    return whole(builder, builder.product(nodes[0], nodes[-1]), shape)


def divide(builder: Builder, left: Operand, right: Operand) -> Operand:
    """left / right."""
    if not isinstance(right, Tensor):
        divisor = np.asarray(right, dtype=np.float64)
        if np.any(divisor == 0.0):
            raise TargetError("a division by the constant 0")
        return scale(builder, left, 1.0 / divisor) if isinstance(left, Tensor) else np.asarray(left) / divisor
    if not isinstance(left, Tensor):
        return scale(builder, function(builder, "reciprocal", right), left)
    shape = np.broadcast_shapes(left.shape, right.shape)
    nodes = [flat(builder, spread(each, shape)) for each in (left, right)]
    return whole(builder, builder.quotient(*nodes), shape)


def power(builder: Builder, x: Operand, exponent: Any) -> Operand:
    """x to a constant power."""
    if isinstance(exponent, Tensor) or np.size(exponent) != 1:
        raise TargetError("a power whose exponent is computed; exponents must be one constant number")
    p = float(np.asarray(exponent).ravel()[0])
    if not isinstance(x, Tensor):
        return np.asarray(x, dtype=np.float64) ** p
    if p == 0.0:
        return np.ones(x.shape)
    if p == 1.0:
        return x
    if p == 2.0:
        return multiply(builder, x, x)
    if p in (-1.0, 0.5):
        return function(builder, "reciprocal" if p < 0 else "sqrt", x)
    return function(builder, "power", x, p)


def extreme(builder: Builder, operands: Sequence[Operand], largest: bool = True) -> Operand:
    """The largest (or smallest) of several operands, number by number."""
    pick: Any = np.maximum if largest else np.minimum
    if not any(isinstance(each, Tensor) for each in operands):
        return reduce(pick, operands)
    constants = [each for each in operands if not isinstance(each, Tensor)]
    tensors: list[Operand] = [each for each in operands if isinstance(each, Tensor)]
    shape = np.broadcast_shapes(*map(shape_of, operands))
    found = spread(tensors[0], shape)
    if len(tensors) > 1:
        nodes = [flat(builder, spread(each, shape)) for each in tensors]
        found = whole(builder, (builder.maximum if largest else builder.minimum)(nodes), shape)
    if constants:
        bound = reduce(pick, constants)
        found = clamp(builder, found, low=bound) if largest else clamp(builder, found, high=bound)
    return found


Unary = Callable[[Builder, Operand], Operand]


def named(name: str) -> Unary:
    """A named function as an operator."""
    return lambda builder, x: function(builder, name, x)


SMOOTH = ("exp", "log", "sqrt", "sin", "cos", "sinh", "cosh", "tan", "tanh", "sigmoid", "erf", "reciprocal")
"""Functions of one number whose names all libraries share."""

UNARY: dict[str, Unary] = {
    **{name: named(name) for name in SMOOTH},
    "relu": relu,
    "abs": absolute,
    "neg": negative,
    "silu": silu,
    "mish": mish,
    "hardswish": hard_swish,
    "square": lambda builder, x: multiply(builder, x, x),
    "rsqrt": lambda builder, x: power(builder, x, -0.5),
    "expm1": lambda builder, x: add(builder, function(builder, "exp", x), -1.0),
    "log1p": lambda builder, x: function(builder, "log", add(builder, x, 1.0)),
    "log2": lambda builder, x: scale(builder, function(builder, "log", x), 1.0 / math.log(2.0)),
    "log10": lambda builder, x: scale(builder, function(builder, "log", x), 1.0 / math.log(10.0)),
    "exp2": lambda builder, x: function(builder, "exp", scale(builder, x, math.log(2.0))),
    "atan": named("arctan"),
    "asin": named("arcsin"),
    "acos": named("arccos"),
    "softsign": lambda builder, x: divide(builder, x, add(builder, absolute(builder, x), 1.0)),
}
"""Operators of one number, by the names that readers know them by."""

JUMPS = "it jumps, and no continuous model computes a jump"
CHOOSES = "it chooses between values by comparing numbers; write the choice with relu, max, min or clamp"
RANDOM = "its result is random; a compiled model computes the same for the same input"
REASONS = {
    **dict.fromkeys(("round", "floor", "ceil", "trunc", "sign", "fmod", "remainder", "mod", "hardshrink"), JUMPS),
    **dict.fromkeys(("threshold", "thresholdedrelu", "celu_jump", "shrink", "hardmax", "onehot"), JUMPS),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne", "where", "greater", "less", "equal"), CHOOSES),
    **dict.fromkeys(("greaterorequal", "lessorequal", "argmax", "argmin", "topk", "sort", "nonzero"), CHOOSES),
    **dict.fromkeys(("if", "loop", "scan", "cond", "while_loop"), "networks are read without branches and loops"),
    **dict.fromkeys(("native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like"), RANDOM),
    **dict.fromkeys(("randomnormal", "randomuniform", "randomnormallike", "randomuniformlike", "multinomial"), RANDOM),
    **dict.fromkeys(("embedding",), "its inputs are indices, and the inputs of a model are real numbers"),
    **dict.fromkeys(("lstm", "gru", "rnn", "rnn_tanh", "rnn_relu"), "recurrent layers are not read"),
    **dict.fromkeys(
        ("treeensembleregressor", "treeensembleclassifier", "treeensemble"),
        "trees are piecewise constant: they jump, and no continuous model computes a jump",
    ),
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit_functional"),
        "batch norm takes the mean and the variance of the batch here, so an output depends on the other rows; use one "
        "that has running statistics, in inference mode",
    ),
}
"""Why some operators are not read, by their names in small letters."""


def unsupported(name: str, where: str, known: Sequence[str]) -> TargetError:
    """What is said about an operator that is not read."""
    reason = REASONS.get(name.lower().split(".")[0])
    told = f": {reason}" if reason else ""
    listed = sorted({each.strip("_") for each in known}, key=str.lower)
    return TargetError(f"the operator {name}{where} is not read{told}. These are: {', '.join(listed)}")
