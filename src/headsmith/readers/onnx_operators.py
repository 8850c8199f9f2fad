"""The operators of ONNX that are read, by their names: each a function of the reader's `Call` and its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.graph import Function
from headsmith.readers import operators as op
from headsmith.readers import over_axes as axes
from headsmith.readers import windows
from headsmith.readers.onnx_call import OnnxCall, Reader, constant, whole_numbers
from headsmith.readers.onnx_shapes import SHAPES
from headsmith.readers.tensors import Operand, Tensor, add, joined, moved, scale, shape_of
from headsmith.readers.windows import Window

# Windows.


def _window(call: OnnxCall, kernel: Sequence[int], size: Sequence[int]) -> Window:
    """How a window slides over axes of these sizes."""
    count = len(kernel)
    stride, dilation = call.get("strides") or [1] * count, call.get("dilations") or [1] * count
    pads = call.get("pads") or [0] * (2 * count)
    before, after = list(pads[:count]), list(pads[count:])
    how = call.get("auto_pad", "NOTSET")
    if how in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(count):
            reach = dilation[axis] * (kernel[axis] - 1) + 1
            total = max((-(-size[axis] // stride[axis]) - 1) * stride[axis] + reach - size[axis], 0)
            small, large = total // 2, total - total // 2
            before[axis], after[axis] = (small, large) if how == "SAME_UPPER" else (large, small)
    elif how == "VALID":
        before, after = [0] * count, [0] * count
    return Window(kernel, stride, before, after, dilation)


def _convolution(call: OnnxCall, x: Operand, weight: Operand, bias: Operand = None) -> Operand:
    weight = constant(weight, "the weights")
    window = _window(call, weight.shape[2:], shape_of(x)[2:])
    bias = None if bias is None else constant(bias, "the bias")
    return windows.convolution(call.builder, x, weight, bias, window, int(call.get("group", 1)))


def _transposed_convolution(call: OnnxCall, x: Operand, weight: Operand, bias: Operand = None) -> Operand:
    weight = constant(weight, "the weights")
    if call.get("output_shape") or call.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise TargetError("its output_shape or auto_pad is not read; give pads and output_padding")
    window = _window(call, weight.shape[2:], shape_of(x)[2:])
    bias = None if bias is None else constant(bias, "the bias")
    groups, extra = int(call.get("group", 1)), call.get("output_padding") or [0] * len(window.kernel)
    return windows.transposed_convolution(call.builder, x, weight, bias, window, groups, extra)


def _max_pool(call: OnnxCall, x: Operand) -> Operand:
    window = _window(call, call.get("kernel_shape"), shape_of(x)[2:])
    return windows.max_pool(call.builder, x, window, bool(call.get("ceil_mode", 0)))


def _average_pool(call: OnnxCall, x: Operand) -> Operand:
    window = _window(call, call.get("kernel_shape"), shape_of(x)[2:])
    if any(each != 1 for each in window.dilation):
        raise TargetError("average pooling with dilations is not read")
    counts = bool(call.get("count_include_pad", 0))
    return windows.average_pool(call.builder, x, window, bool(call.get("ceil_mode", 0)), counts)


def _global(reduce: Reader) -> Reader:
    return lambda call, x: reduce(call, x, tuple(range(2, len(shape_of(x)))))


# Arithmetic.


def _several(pick: Callable[[Builder, Sequence[Operand]], Operand]) -> Reader:
    return lambda call, *operands: pick(call.builder, operands)


def _sum(builder: Builder, operands: Sequence[Operand]) -> Operand:
    found = operands[0]
    for each in operands[1:]:
        found = add(builder, found, each)
    return found


def _gemm(call: OnnxCall, left: Operand, right: Operand, bias: Operand = None) -> Operand:
    left = moved(left, np.transpose) if call.get("transA", 0) else left
    right = moved(right, np.transpose) if call.get("transB", 0) else right
    alpha, beta = float(call.get("alpha", 1.0)), float(call.get("beta", 1.0))
    plain = alpha == beta == 1.0 and isinstance(left, Tensor) and not isinstance(right, Tensor)
    if plain and (bias is None or (not isinstance(bias, Tensor) and np.ndim(bias) == 1)):
        return axes.dense(call.builder, left, np.asarray(right).T, bias)
    found = axes.matmul(call.builder, left, right)
    found = found if alpha == 1.0 else scale(call.builder, found, alpha)
    if bias is None:
        return found
    return add(call.builder, found, bias if beta == 1.0 else op.multiply(call.builder, bias, np.float64(beta)))


def _clip(call: OnnxCall, x: Operand, low: Operand = None, high: Operand = None) -> Operand:
    first = call.get("min") if low is None else float(constant(low, "the lower end").ravel()[0])
    last = call.get("max") if high is None else float(constant(high, "the upper end").ravel()[0])
    return op.clamp(call.builder, x, first, last)


def _softmax(pick: Callable[[Builder, Operand, int], Operand]) -> Reader:
    def found(call: OnnxCall, x: Operand) -> Operand:
        if call.opset >= 13:
            return pick(call.builder, x, int(call.get("axis", -1)))
        # Before version 13, all axes from this one on are one.
        shape, axis = shape_of(x), int(call.get("axis", 1))
        lead = math.prod(shape[:axis])
        result = pick(call.builder, moved(x, lambda array: array.reshape(lead, -1)), -1)
        return moved(result, lambda array: array.reshape(shape))

    return found


def _batch_norm(call: OnnxCall, x: Operand, *given: Operand) -> Operand:
    if call.get("training_mode", 0):
        raise TargetError("batch norm in training mode depends on the other rows of a batch; export in inference mode")
    weight, bias, mean, variance = (constant(each, "a parameter") for each in given)
    epsilon = float(call.get("epsilon", 1e-5))
    return axes.batch_norm(call.builder, x, weight, bias, mean, variance, epsilon)


def _layer_norm(call: OnnxCall, x: Operand, weight: Operand, bias: Operand = None) -> Operand:
    count = len(shape_of(x))
    over = tuple(range(int(call.get("axis", -1)) % count, count))
    found = axes.normalised(call.builder, x, over, float(call.get("epsilon", 1e-5)))
    return scale(
        call.builder, found, constant(weight, "the scale"), 0.0 if bias is None else constant(bias, "the bias")
    )


def _instance_norm(call: OnnxCall, x: Operand, weight: Operand, bias: Operand) -> Operand:
    groups, epsilon = shape_of(x)[1], float(call.get("epsilon", 1e-5))
    parts = constant(weight, "the scale"), constant(bias, "the bias")
    return axes.group_norm(call.builder, x, groups, *parts, epsilon)


def _group_norm(call: OnnxCall, x: Operand, weight: Operand, bias: Operand) -> Operand:
    parts = constant(weight, "the scale"), constant(bias, "the bias")
    return axes.group_norm(call.builder, x, int(call.get("num_groups")), *parts, float(call.get("epsilon", 1e-5)))


def _over(reduce: Callable[..., Operand], **options: Any) -> Reader:
    def found(call: OnnxCall, x: Operand, over: Operand = None) -> Operand:
        chosen = call.get("axes") if over is None else whole_numbers(over, "the axes")
        if not chosen and call.get("noop_with_empty_axes", 0):
            return x
        return reduce(call.builder, x, tuple(chosen) if chosen else None, bool(call.get("keepdims", 1)), **options)

    return found


def _length(builder: Builder, x: Operand, over: Any, keep: bool) -> Operand:
    return op.function(builder, "sqrt", axes.total(builder, op.multiply(builder, x, x), over, keep))


@dataclass(frozen=True)
class Comparison:
    """x > bound, which only a softplus may ask."""

    x: Tensor
    bound: float


def _greater(call: OnnxCall, left: Operand, right: Operand) -> Any:
    if not isinstance(left, Tensor) and not isinstance(right, Tensor):
        return np.asarray(left) > np.asarray(right)
    if isinstance(left, Tensor) and not isinstance(right, Tensor) and np.size(right) == 1:
        return Comparison(left, float(np.asarray(right).ravel()[0]))
    raise TargetError(op.CHOOSES)


def _mod(call: OnnxCall, left: Operand, right: Operand) -> Any:
    if isinstance(left, Tensor) or isinstance(right, Tensor) or not np.all(right):
        raise TargetError(f"a remainder of numbers that are computed, or by 0: {op.JUMPS}")
    return (np.fmod if call.get("fmod", 0) else np.mod)(left, right)


def _where(call: OnnxCall, condition: Operand, left: Operand, right: Operand) -> Operand:
    if isinstance(condition, Comparison) and isinstance(left, Tensor) and isinstance(right, Tensor):
        # torch writes softplus as x above 20, and log(1 + exp(x)) below: the latter is the function that is meant.
        node = call.builder.nodes[right.node]
        soft = isinstance(node, Function) and node.name == "softplus" and node.argument == left.node
        if soft and condition.bound >= 20.0 and condition.x.node == left.node:
            return right
    if isinstance(condition, Tensor | Comparison):
        raise TargetError(op.CHOOSES)
    chosen = np.asarray(condition, dtype=np.float64)
    if not isinstance(left, Tensor) and not isinstance(right, Tensor):
        return np.where(np.asarray(condition), left, right)
    return add(call.builder, op.multiply(call.builder, left, chosen), op.multiply(call.builder, right, 1.0 - chosen))


def _elementwise(function: Callable[..., Operand], *names: tuple[str, float]) -> Reader:
    """An operator of one number with attributes, in this order, with their defaults."""
    return lambda call, x: function(call.builder, x, *(float(call.get(name, default)) for name, default in names))


# Those of scikit-learn's exporter (ai.onnx.ml).


def _scaler(call: OnnxCall, x: Operand) -> Operand:
    factors, offset = np.asarray(call.get("scale"), dtype=np.float64), np.asarray(call.get("offset"), dtype=np.float64)
    return scale(call.builder, x, factors, -offset * factors)


def _linear_regressor(call: OnnxCall, x: Operand) -> Operand:
    targets = int(call.get("targets", 1))
    weights = np.asarray(call.get("coefficients"), dtype=np.float64).reshape(targets, -1)
    bias = call.get("intercepts")
    return _transformed(call, axes.dense(call.builder, x, weights, None if bias is None else np.asarray(bias)))


def _linear_classifier(call: OnnxCall, x: Operand) -> tuple[Operand, Operand]:
    """The scores of all classes; the labels are their largest, which jumps."""
    bias = np.asarray(call.get("intercepts"), dtype=np.float64)
    weights = np.asarray(call.get("coefficients"), dtype=np.float64).reshape(len(bias), -1)
    return None, _transformed(call, axes.dense(call.builder, x, weights, bias))


def _transformed(call: OnnxCall, scores: Operand) -> Operand:
    how = call.get("post_transform", "NONE")
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return op.function(call.builder, "sigmoid", scores)
    if how == "SOFTMAX":
        return axes.softmax(call.builder, scores)
    raise TargetError(f"the post_transform {how} is not read; NONE, LOGISTIC and SOFTMAX are")


def _normalizer(call: OnnxCall, x: Operand) -> Operand:
    how, last = call.get("norm", "MAX"), (len(shape_of(x)) - 1,)
    sizes = op.absolute(call.builder, x)
    if how == "L2":
        size = _length(call.builder, x, last, True)
    else:
        size = (axes.total if how == "L1" else axes.extreme_over)(call.builder, sizes, last, True)
    return op.divide(call.builder, x, size)


def _identity(call: OnnxCall, x: Operand, *_: Operand) -> Operand:
    return x


UNARY = {
    **{
        name.capitalize(): function
        for name, function in op.UNARY.items()
        if name not in ("silu", "hardswish", "square")
    },
    "HardSwish": op.hard_swish,
    "Swish": op.silu,
}
OPERATORS: dict[str, Reader] = {
    **{name: (lambda call, x, f=function: f(call.builder, x)) for name, function in UNARY.items()},
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global(lambda call, x, over: axes.total(call.builder, x, over, keep=True, mean=True)),
    "GlobalMaxPool": _global(lambda call, x, over: axes.extreme_over(call.builder, x, over, keep=True)),
    "Gemm": _gemm,
    "MatMul": lambda call, left, right: axes.matmul(call.builder, left, right),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "Add": lambda call, left, right: add(call.builder, left, right),
    "Sub": lambda call, left, right: add(call.builder, left, right, -1.0),
    "Mul": lambda call, left, right: op.multiply(call.builder, left, right),
    "Div": lambda call, left, right: _quotient(call, left, right),
    "Pow": lambda call, base, exponent: op.power(call.builder, base, exponent),
    "Sum": _several(_sum),
    "Mean": _several(lambda builder, each: scale(builder, _sum(builder, each), 1.0 / len(each))),
    "Max": _several(op.extreme),
    "Min": _several(lambda builder, each: op.extreme(builder, each, largest=False)),
    "Clip": _clip,
    "LeakyRelu": _elementwise(op.leaky_relu, ("alpha", 0.01)),
    "PRelu": lambda call, x, slope: op.leaky_relu(call.builder, x, constant(slope, "the slope")),
    "Elu": _elementwise(op.elu, ("alpha", 1.0)),
    "Selu": _elementwise(op.elu, ("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    "Celu": lambda call, x: op.elu(call.builder, x, call.get("alpha", 1.0), 1.0, 1.0 / call.get("alpha", 1.0)),
    "HardSigmoid": _elementwise(op.hard_sigmoid, ("alpha", 0.2), ("beta", 0.5)),
    "Gelu": lambda call, x: op.gelu(call.builder, x, call.get("approximate", "none")),
    "Softplus": lambda call, x: op.softplus(call.builder, x),
    "Softmax": _softmax(axes.softmax),
    "LogSoftmax": _softmax(axes.log_softmax),
    "ReduceSum": _over(axes.total),
    "ReduceMean": _over(axes.total, mean=True),
    "ReduceMax": _over(axes.extreme_over),
    "ReduceMin": _over(axes.extreme_over, largest=False),
    "ReduceProd": _over(axes.product_over),
    "ReduceL1": _over(lambda builder, x, over, keep: axes.total(builder, op.absolute(builder, x), over, keep)),
    "ReduceL2": _over(_length),
    "ReduceSumSquare": _over(
        lambda builder, x, over, keep: axes.total(builder, op.multiply(builder, x, x), over, keep)
    ),
    **SHAPES,
    "Greater": _greater,
    "Mod": _mod,
    "Where": _where,
    "Identity": _identity,
    "Dropout": _identity,
    "Scaler": _scaler,
    "LinearRegressor": _linear_regressor,
    "LinearClassifier": _linear_classifier,
    "Normalizer": _normalizer,
    "ArrayFeatureExtractor": lambda call, x, indices: moved(
        x, partial(np.take, indices=constant(indices, "the indices").ravel().astype(np.int64), axis=-1)
    ),
    "FeatureVectorizer": lambda call, *operands: joined(call.builder, operands, -1),
    "ZipMap": _identity,
}


def _quotient(call: OnnxCall, left: Operand, right: Operand) -> Operand:
    """A quotient; of whole numbers, as in computations of shapes, it is one, too."""
    numbers = [each for each in (left, right) if not isinstance(each, Tensor)]
    if len(numbers) == 2 and all(np.asarray(each).dtype.kind in "iu" for each in numbers):
        return np.asarray(left) // np.asarray(right)
    return op.divide(call.builder, left, right)
