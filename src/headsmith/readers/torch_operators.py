"""The operators of torch that are read, by their ATen names: each a function of the builder and the operator's own
arguments, in ATen's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.readers import operators as op
from headsmith.readers import over_axes as axes
from headsmith.readers import windows
from headsmith.readers.tensors import (
    Operand,
    Tensor,
    add,
    check_shape,
    dropped,
    joined,
    lifted,
    padded,
    scale,
    shape_of,
)
from headsmith.readers.windows import Window, each

MOVES = (
    "view", "reshape", "_unsafe_view", "permute", "t", "transpose", "slice", "select", "squeeze", "unsqueeze", "expand",
    "clone", "alias", "detach", "contiguous", "flatten", "unflatten", "flip", "roll", "unfold", "repeat", "split",
    "split_with_sizes", "chunk", "unbind", "diagonal", "index", "index_select", "gather", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "tril",
    "triu", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "movedim", "narrow", "lift_fresh_copy", "_to_copy", "to", "dropout", "im2col",
)  # fmt: skip
"""Operators that only move numbers, and perhaps put zeros between them: torch itself moves their places."""

KEPT = (
    "prelu", "silu", "softplus", "hardswish", "hardsigmoid", "mish", "log_sigmoid_forward", "softshrink", "celu", "elu",
    "leaky_relu", "hardtanh", "gelu", "relu6", "clamp", "softmax", "linear", "_safe_softmax", "logsumexp", "pad",
    "bilinear", "threshold", "rrelu", "scaled_dot_product_attention",
)  # fmt: skip
"""Operators that are read as they are, although torch could take them apart (into comparisons, for example)."""


PROBED = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "cumsum", "col2im",
)  # fmt: skip
"""Linear operators whose matrix is found by asking torch for the image of every unit vector."""


def _convolution(
    builder: Builder,
    x: Operand,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Operand:
    count = len(np.shape(weight)) - 2
    stride, padding, dilation = each(stride, count), each(padding, count), each(dilation, count)
    window = Window(np.shape(weight)[2:], stride, padding, padding, dilation)
    if transposed:
        extra = each(output_padding, count)
        return windows.transposed_convolution(builder, x, weight, bias, window, groups, extra)
    return windows.convolution(builder, x, weight, bias, window, groups)


def _threshold(builder: Builder, x: Operand, threshold: float, value: float) -> Operand:
    if threshold != value:
        raise TargetError(f"it jumps from {value:g} to {threshold:g} at {threshold:g}; no continuous model does that")
    return op.clamp(builder, x, low=value)


def _pooled(
    builder: Builder,
    x: Operand,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    *rest: Any,
    largest: bool,
    space: int,
) -> Any:
    lead = len(shape_of(x)) - space
    tensor = lifted(x, lead)
    kernel = each(kernel, space)
    stride = each(stride, space) if np.size(stride) else kernel
    padding = each(padding, space)
    if largest:
        dilation, ceil = _filled(rest, 1, False)
        window = Window(kernel, stride, padding, padding, each(dilation, space))
        found = windows.max_pool(builder, tensor, window, bool(ceil))
        return (dropped(found, lead), None)
    ceil, count_padding, divisor = _filled(rest, False, True, None)
    window = Window(kernel, stride, padding, padding, [1] * space)
    found = windows.average_pool(builder, tensor, window, bool(ceil), bool(count_padding), divisor)
    return dropped(found, lead)


def _filled(given: tuple[Any, ...], *defaults: Any) -> tuple[Any, ...]:
    """The arguments that were given, and the defaults of the others."""
    return (*given, *defaults[len(given) :])


def _max_pool(count: int) -> Callable[..., Any]:
    return lambda builder, *given, **named: _pooled(builder, *given, *named.values(), largest=True, space=count)


def _average_pool(count: int) -> Callable[..., Any]:
    return lambda builder, *given, **named: _pooled(builder, *given, *named.values(), largest=False, space=count)


def _adaptive(largest: bool, count: int) -> Callable[..., Any]:
    def pooled(builder: Builder, x: Tensor, sizes: Any) -> Any:
        lead = len(x.shape) - count
        tensor = lifted(x, lead)
        found = windows.adaptive_windows(tensor, each(sizes, count))
        if largest:
            return (dropped(windows.largest(builder, tensor, found), lead), None)
        return dropped(windows.means(builder, tensor, found), lead)

    return pooled


def _attention(
    builder: Builder,
    query: Operand,
    key: Operand,
    value: Operand,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Operand:
    if enable_gqa:
        raise TargetError("attention with fewer keys than queries (enable_gqa) is not read")
    mask = np.tri(shape_of(query)[-2], shape_of(key)[-2], dtype=bool) if is_causal else attn_mask
    factor = 1.0 / math.sqrt(shape_of(query)[-1]) if scale is None else float(scale)
    return axes.attention(builder, query, key, value, mask, factor)


def _padded(builder: Builder, x: Tensor, pad: Sequence[int], value: float = 0.0) -> Operand:
    """Constants around the tensor: `pad` has (before, after) of the last axis, then of the one before, and so on."""
    pairs = [(int(pad[k]), int(pad[k + 1])) for k in range(0, len(pad), 2)][::-1]
    return padded(builder, x, [(0, 0)] * (len(x.shape) - len(pairs)) + pairs, float(value))


MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(
    builder: Builder, x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Operand:
    if mode == "constant":
        return _padded(builder, x, pad, value or 0.0)
    pairs = [(int(pad[k]), int(pad[k + 1])) for k in range(0, len(pad), 2)][::-1]
    room = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs
    check_shape([size + low + high for size, (low, high) in zip(x.shape, room, strict=True)], "padding")
    options: Any = {"mode": MODES[mode]}
    return Tensor(x.node, np.pad(x.places, room, **options))


def _bilinear(builder: Builder, left: Tensor, right: Tensor, weight: Any, bias: Any = None) -> Operand:
    """Output k is the sum of weight[k, i, j] left[i] right[j], plus bias[k]."""
    wide = (*left.shape, right.shape[-1])
    first = Tensor(left.node, np.broadcast_to(left.places[..., :, None], wide))
    second = Tensor(right.node, np.broadcast_to(right.places[..., None, :], wide))
    pairs = op.multiply(builder, first, second)
    outputs = len(weight)
    laid = Tensor(pairs.node, pairs.places.reshape(*left.shape[:-1], -1))
    return axes.dense(builder, laid, np.asarray(weight).reshape(outputs, -1), bias)


def _log_sum(builder: Builder, x: Tensor, dim: Any, keepdim: bool = False) -> Operand:
    (axis,) = _axes(dim) or (0,)
    return axes.log_sum(builder, x, axis, bool(keepdim))


def _add(builder: Builder, left: Operand, right: Operand, alpha: float = 1.0) -> Operand:
    return add(builder, left, right if alpha == 1 else scale(builder, right, float(alpha)))


def _subtract(builder: Builder, left: Operand, right: Operand, alpha: float = 1.0) -> Operand:
    return add(builder, left, right if alpha == 1 else scale(builder, right, float(alpha)), -1.0)


def _divide(builder: Builder, left: Operand, right: Operand, rounding_mode: str | None = None) -> Operand:
    if rounding_mode is not None:
        raise TargetError(
            f'the quotient is rounded ("{rounding_mode}"): it jumps, and no continuous model computes a jump'
        )
    return op.divide(builder, left, right)


def _power(builder: Builder, base: Operand, exponent: Operand) -> Operand:
    if isinstance(exponent, Tensor) and not isinstance(base, Tensor):
        return op.function(builder, "exp", scale(builder, exponent, np.log(np.asarray(base, dtype=np.float64))))
    return op.power(builder, base, exponent)


def _addmm(
    builder: Builder, bias: Operand, left: Operand, right: Operand, beta: float = 1.0, alpha: float = 1.0
) -> Operand:
    constants = not isinstance(right, Tensor) and not isinstance(bias, Tensor) and np.ndim(bias) == 1
    if isinstance(left, Tensor) and constants and beta == alpha == 1.0:
        return axes.dense(builder, left, np.asarray(right).T, bias)
    product = axes.matmul(builder, left, right)
    product = product if alpha == 1 else scale(builder, product, float(alpha))
    return add(builder, product, bias if beta == 1 else scale(builder, bias, float(beta)))


def _axes(dim: Any) -> tuple[int, ...] | None:
    if dim is None:
        return None
    return (int(dim),) if isinstance(dim, int) else tuple(int(axis) for axis in dim)


def _extreme_over(largest: bool, pair: bool) -> Callable[..., Any]:
    def found(builder: Builder, x: Operand, dim: Any = None, keepdim: bool = False) -> Any:
        value = axes.extreme_over(builder, x, _axes(dim), bool(keepdim), largest)
        return (value, None) if pair and dim is not None else value

    return found


def _sum(mean: bool) -> Callable[..., Any]:
    return lambda builder, x, dim=None, keepdim=False, dtype=None: axes.total(
        builder, x, _axes(dim), bool(keepdim), mean
    )


def _variance(builder: Builder, x: Operand, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Operand:
    return axes.variance(builder, x, _axes(dim), bool(keepdim), 1.0 if correction is None else float(correction))


def _layer_norm(
    builder: Builder, x: Operand, shape: Sequence[int], weight: Any, bias: Any, epsilon: float
) -> tuple[Operand, None, None]:
    over = tuple(range(-len(shape), 0))
    found = axes.normalised(builder, x, over, epsilon)
    return scale(builder, found, 1.0 if weight is None else weight, 0.0 if bias is None else bias), None, None


def _own_statistics(
    builder: Builder, x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, epsilon: float
) -> tuple[Operand, None, None]:
    """Each channel normalised with its own mean and variance: instance norm. A batch norm that does this mixes the rows
    of a batch, and is found out when the module's own run is compared."""
    over = tuple(axis for axis in range(len(x.shape)) if axis != 1)
    found = axes.normalised(builder, x, over, epsilon)
    ends = (-1, *([1] * (len(x.shape) - 2)))
    gain = 1.0 if weight is None else np.asarray(weight, dtype=np.float64).reshape(ends)
    return scale(builder, found, gain, 0.0 if bias is None else np.asarray(bias).reshape(ends)), None, None


def _norm(builder: Builder, x: Operand, order: float = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Operand:
    over, keep = _axes(dim), bool(keepdim)
    if order == 1:
        return axes.total(builder, op.absolute(builder, x), over, keep)
    if order == math.inf:
        return axes.extreme_over(builder, op.absolute(builder, x), over, keep)
    if order != 2:
        raise TargetError(f"a norm of order {order}; norms of order 1, 2 and infinity are read")
    return op.function(builder, "sqrt", axes.total(builder, op.multiply(builder, x, x), over, keep))


def _where(builder: Builder, condition: Operand, left: Operand, right: Operand) -> Operand:
    if isinstance(condition, Tensor):
        raise op.unsupported("where", "", [])
    chosen = np.asarray(condition, dtype=np.float64)
    return add(builder, op.multiply(builder, left, chosen), op.multiply(builder, right, 1.0 - chosen))


def _first(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that returns its result and others, which are for training."""
    return lambda *given, **named: (function(*given, **named), None, None)


OPERATORS: dict[str, Callable[..., Any]] = {
    **op.UNARY,
    "convolution": _convolution,
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "adaptive_avg_pool1d": _adaptive(False, 1),
    "_adaptive_avg_pool2d": _adaptive(False, 2),
    "_adaptive_avg_pool3d": _adaptive(False, 3),
    "adaptive_max_pool2d": _adaptive(True, 2),
    "adaptive_max_pool3d": _adaptive(True, 3),
    "_native_batch_norm_legit_no_training": _first(
        lambda builder, x, weight, bias, mean, variance, momentum, epsilon: axes.batch_norm(
            builder, x, weight, bias, mean, variance, epsilon
        )
    ),
    "_native_batch_norm_legit": _own_statistics,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _first(
        lambda builder, x, weight, bias, rows, channels, space, groups, epsilon: axes.group_norm(
            builder, x, groups, weight, bias, epsilon
        )
    ),
    "linear": axes.dense,
    "addmm": _addmm,
    "baddbmm": _addmm,
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot"), axes.matmul),
    "add": _add,
    "sub": _subtract,
    "rsub": lambda builder, left, right, alpha=1.0: _subtract(builder, right, left, alpha),
    "mul": op.multiply,
    "div": _divide,
    "pow": _power,
    "maximum": lambda builder, left, right: op.extreme(builder, [left, right]),
    "minimum": lambda builder, left, right: op.extreme(builder, [left, right], largest=False),
    "clamp": lambda builder, x, min=None, max=None: op.clamp(builder, x, min, max),
    "clamp_min": lambda builder, x, low: op.clamp(builder, x, low=low),
    "clamp_max": lambda builder, x, high: op.clamp(builder, x, high=high),
    "hardtanh": lambda builder, x, low=-1.0, high=1.0: op.clamp(builder, x, low, high),
    "relu6": lambda builder, x: op.clamp(builder, x, 0.0, 6.0),
    "threshold": _threshold,
    "rrelu": lambda builder, x, low=0.125, high=1 / 3, *_: op.leaky_relu(builder, x, (low + high) / 2),
    "leaky_relu": op.leaky_relu,
    "prelu": op.prelu,
    "elu": op.elu,
    "celu": lambda builder, x, alpha=1.0: op.elu(builder, x, alpha, 1.0, 1.0 / alpha),
    "hardsigmoid": op.hard_sigmoid,
    "softshrink": op.soft_shrink,
    "gelu": op.gelu,
    "softplus": lambda builder, x, beta=1.0, threshold=20.0: op.softplus(builder, x, beta),
    "log_sigmoid_forward": _first(op.log_sigmoid),
    "_softmax": lambda builder, x, dim, half=False: axes.softmax(builder, x, dim),
    "softmax": lambda builder, x, dim, dtype=None: axes.softmax(builder, x, dim),
    "_safe_softmax": lambda builder, x, dim, dtype=None: axes.softmax(builder, x, dim),
    "logsumexp": _log_sum,
    "scaled_dot_product_attention": _attention,
    "_log_softmax": lambda builder, x, dim, half=False: axes.log_softmax(builder, x, dim),
    "amax": _extreme_over(True, False),
    "amin": _extreme_over(False, False),
    "max": _extreme_over(True, True),
    "min": _extreme_over(False, True),
    "sum": _sum(False),
    "mean": _sum(True),
    "prod": lambda builder, x, dim=None, keepdim=False: axes.product_over(builder, x, _axes(dim), bool(keepdim)),
    "var": _variance,
    "linalg_vector_norm": _norm,
    "where": _where,
    "full_like": lambda builder, x, value, **_: np.full(x.shape, float(value)),
    "zeros_like": lambda builder, x, **_: np.zeros(x.shape),
    "ones_like": lambda builder, x, **_: np.ones(x.shape),
    "constant_pad_nd": _padded,
    "pad": _pad,
    "bilinear": _bilinear,
    "cat": lambda builder, tensors, dim=0: joined(builder, tensors, int(dim)),
}
