"""Sums, maxima, softmax and matrix products over axes, and the layers that are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.language.graph import Average
from headsmith.readers.operators import clamp, divide, extreme, function, log_sigmoid, multiply, negative, power, relu
from headsmith.readers.tensors import (
    Operand,
    Tensor,
    add,
    check_shape,
    flat,
    joined,
    linear,
    moved,
    scale,
    shape_of,
    whole,
)

MOST_COMPARED = 512
"""A softmax takes the largest of at most so many numbers, each of which is compared with all others."""


def _grouped(x: Tensor, axes: Sequence[int] | None) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Entries (kept, over) of x with the axes that are reduced at the end; the shapes that keep them and drop them."""
    count = len(x.shape)
    over = sorted({axis % count for axis in (range(count) if axes is None or not len(axes) else axes)})
    rest = [axis for axis in range(count) if axis not in over]
    order = np.arange(x.size).reshape(x.shape).transpose(*rest, *over)
    entries = order.reshape(math.prod(x.shape[axis] for axis in rest), -1)
    kept = tuple(1 if axis in over else x.shape[axis] for axis in range(count))
    return entries, kept, tuple(x.shape[axis] for axis in rest)


def total(
    builder: Builder, x: Operand, axes: Sequence[int] | None = None, keep: bool = False, mean: bool = False
) -> Operand:
    """The sum over axes, or the mean."""
    if not isinstance(x, Tensor):
        fold = np.mean if mean else np.sum
        return fold(np.asarray(x), axis=None if axes is None or not len(axes) else tuple(axes), keepdims=keep)
    entries, kept, dropped = _grouped(x, axes)
    weight = 1.0 / entries.shape[1] if mean else 1.0
    found = linear(builder, x, np.arange(len(entries))[:, None], entries, weight, 0.0, (len(entries),))
    return moved(found, lambda array: array.reshape(kept if keep else dropped))


def extreme_over(
    builder: Builder, x: Operand, axes: Sequence[int] | None = None, keep: bool = False, largest: bool = True
) -> Operand:
    """The largest (or smallest) number over axes."""
    if not isinstance(x, Tensor):
        fold = np.max if largest else np.min
        return fold(np.asarray(x), axis=None if axes is None or not len(axes) else tuple(axes), keepdims=keep)
    entries, kept, dropped = _grouped(x, axes)
    places = x.places.ravel()[entries]
    parts = [Tensor(x.node, places[:, k]) for k in range(places.shape[1])]
    found = extreme(builder, parts, largest)
    return moved(found, lambda array: array.reshape(kept if keep else dropped))


def product_over(builder: Builder, x: Operand, axes: Sequence[int] | None = None, keep: bool = False) -> Operand:
    """The product over axes."""
    if not isinstance(x, Tensor):
        return np.prod(np.asarray(x), axis=None if axes is None or not len(axes) else tuple(axes), keepdims=keep)
    entries, kept, dropped = _grouped(x, axes)
    places = x.places.ravel()[entries]
    parts: list[Operand] = [Tensor(x.node, places[:, k]) for k in range(places.shape[1])]
    while len(parts) > 1:
        pairs = [multiply(builder, *parts[k : k + 2]) for k in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[2 * len(pairs) :]
    return moved(parts[0], lambda array: array.reshape(kept if keep else dropped))


def softmax(builder: Builder, x: Operand, axis: int = -1) -> Operand:
    """exp(x_i) / sum exp(x_j), with the largest x subtracted first; of two numbers it is a sigmoid."""
    if not isinstance(x, Tensor):
        weights = np.exp(np.asarray(x) - np.max(x, axis=axis, keepdims=True))
        return weights / weights.sum(axis=axis, keepdims=True)
    axis %= len(x.shape)
    if x.shape[axis] == 1:
        return np.ones(x.shape)
    if builder.attention:
        return _shares(builder, x, axis)
    if x.shape[axis] == 2:
        other = moved(x, lambda places: np.flip(places, axis))
        return function(builder, "sigmoid", add(builder, x, other, -1.0))
    weights = function(builder, "exp", _below(builder, x, axis))
    return divide(builder, weights, _sum_from_one(builder, weights, axis))


def _shares(builder: Builder, x: Tensor, axis: int) -> Tensor:
    """The weights of a softmax, as means of unit vectors."""
    last = moved(x, lambda places: np.moveaxis(places, axis, -1))
    keys = last.shape[-1]
    unit = builder.affine([], np.eye(keys).ravel())
    found = builder.average(flat(builder, last), unit, keys, last.size)
    return moved(whole(builder, found, last.shape), lambda places: np.moveaxis(places, -1, axis))


def _means(builder: Builder, left: Operand, right: Operand) -> Operand | None:
    """weights (..., n, keys) @ values (..., keys, m) as softmax means, where the weights are those of one softmax, each
    row in its own order; None where they are something else."""
    node = builder.nodes[left.node] if isinstance(left, Tensor) else None
    if not isinstance(node, Average) or not isinstance(left, Tensor) or (left.places < 0).any():
        return None
    rows = left.places.reshape(-1, left.shape[-1])
    groups, order = rows // node.keys, rows % node.keys
    if np.any(groups != groups[:, :1]) or not np.array_equal(
        np.sort(order), np.tile(np.arange(node.keys), (len(rows), 1))
    ):
        return None
    (*lead, n, keys), (*other, _, m) = left.shape, shape_of(right)
    outer = np.broadcast_shapes(tuple(lead), tuple(other))
    scores = moved(Tensor(node.scores, left.places), lambda places: np.broadcast_to(places, (*outer, n, keys)))
    values = moved(right, lambda array: np.broadcast_to(array, (*outer, keys, m)))
    shape = check_shape((*outer, n, m), "a product of matrices")
    found = builder.average(flat(builder, scores), flat(builder, values), keys, math.prod(shape))
    return whole(builder, found, shape)


def attention(builder: Builder, query: Operand, key: Operand, value: Operand, mask: Any, factor: float) -> Operand:
    """softmax(factor query key^T + mask) value, for arrays (..., tokens, width). Where the mask is minus infinity (or
    false), nobody looks: queries that see other tokens have a softmax of their own."""
    scores = scale(builder, matmul(builder, query, moved(key, lambda array: np.swapaxes(array, -1, -2))), factor)
    if mask is None:
        return matmul(builder, softmax(builder, scores, -1), value)
    if isinstance(mask, Tensor):
        raise TargetError("the mask of an attention depends on the inputs: masks must be constant")
    mask = np.asarray(mask)
    added = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
    rows = np.unique(np.broadcast_to(added, shape_of(scores)).reshape(-1, *shape_of(scores)[-2:]), axis=0)
    if len(rows) > 1:
        raise TargetError("heads of one attention have different masks; give all of them the same mask")
    found = []
    for place, row in enumerate(rows[0]):
        seen = np.flatnonzero(row > -np.inf)
        one = add(builder, moved(scores, partial(_picked, rows=[place], columns=seen)), row[seen])
        held = moved(value, partial(_picked, rows=seen, columns=slice(None)))
        found.append(matmul(builder, softmax(builder, one, -1), held))
    return joined(builder, found, -2 % len(shape_of(found[0])))


def _picked(array: Any, rows: Any, columns: Any) -> Any:
    return array[..., rows, :][..., columns]


def log_softmax(builder: Builder, x: Operand, axis: int = -1) -> Operand:
    """x_i - log sum exp(x_j)."""
    if not isinstance(x, Tensor):
        return np.log(np.asarray(softmax(builder, x, axis)))
    axis %= len(x.shape)
    if x.shape[axis] == 2:
        other = moved(x, lambda places: np.flip(places, axis))
        return log_sigmoid(builder, add(builder, x, other, -1.0))
    below = _below(builder, x, axis)
    weights = function(builder, "exp", below)
    return add(builder, below, function(builder, "log", _sum_from_one(builder, weights, axis)), -1.0)


def log_sum(builder: Builder, x: Tensor, axis: int, keep: bool = False) -> Operand:
    """log sum exp(x_j)."""
    largest = extreme_over(builder, x, (axis,), keep=True)
    weights = function(builder, "exp", _below(builder, x, axis))
    found = add(builder, largest, function(builder, "log", _sum_from_one(builder, weights, axis)))
    return found if keep else moved(found, lambda array: np.squeeze(array, axis))


def _below(builder: Builder, x: Tensor, axis: int) -> Operand:
    """x_i minus the largest of all: -relu(max over the others of x_j - x_i), which shows that it is never positive."""
    if x.shape[axis] > MOST_COMPARED:
        raise TargetError(
            f"a softmax over {x.shape[axis]} numbers; at most {MOST_COMPARED} are compared with each other"
        )
    others = [moved(x, partial(np.roll, shift=k, axis=axis)) for k in range(1, x.shape[axis])]
    above = extreme(builder, [add(builder, other, x, -1.0) for other in others])
    return negative(builder, relu(builder, above))


def _sum_from_one(builder: Builder, weights: Operand, axis: int) -> Operand:
    """The sum of weights of which one is 1: saying that it is at least 1 keeps it away from 0."""
    return clamp(builder, total(builder, weights, (axis,), keep=True), low=1.0)


# Layers.


def matmul(builder: Builder, left: Operand, right: Operand) -> Operand:
    """The product of matrices (..., n, k) and (..., k, m), or of vectors."""
    if not isinstance(left, Tensor) and not isinstance(right, Tensor):
        return np.matmul(left, right)
    vectors = len(shape_of(left)) == 1, len(shape_of(right)) == 1
    left = moved(left, lambda array: array[None, :]) if vectors[0] else left
    right = moved(right, lambda array: array[:, None]) if vectors[1] else right
    means = None if any(vectors) or shape_of(left)[-1] != shape_of(right)[-2] else _means(builder, left, right)
    if means is not None:
        return means
    (*lead, n, k), (*other, depth, m) = shape_of(left), shape_of(right)
    if k != depth:
        raise TargetError(f"matrices of shapes {shape_of(left)} and {shape_of(right)} cannot be multiplied")
    outer = np.broadcast_shapes(tuple(lead), tuple(other))
    shape = check_shape((*outer, n, m), "a product of matrices")
    check_shape((*shape, k), "a product of matrices")
    wide = (*outer, n, k, m)
    first = moved(left, lambda array: np.broadcast_to(array[..., :, :, None], wide))
    second = moved(right, lambda array: np.broadcast_to(array[..., None, :, :], wide))
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        found = total(builder, multiply(builder, first, second), (len(outer) + 1,))
    else:
        tensor, weights = (left, second) if isinstance(left, Tensor) else (right, first)
        order = np.arange(tensor.size).reshape(tensor.shape)
        entries = order[..., :, :, None] if tensor is left else order[..., None, :, :]
        rows = np.arange(math.prod(shape)).reshape(*outer, n, 1, m)
        found = linear(builder, tensor, rows, np.broadcast_to(entries, wide), weights, 0.0, shape)
    drop = tuple(axis for axis, vector in zip((-2, -1), vectors, strict=True) if vector)
    return moved(found, lambda array: np.squeeze(array, drop)) if drop else found


def dense(builder: Builder, x: Operand, weight: Any, bias: Any = None) -> Operand:
    """x W^T + b, with W (out, in) and x (..., in)."""
    weight = np.asarray(weight, dtype=np.float64)
    bias = np.zeros(len(weight)) if bias is None else np.asarray(bias, dtype=np.float64)
    if not isinstance(x, Tensor):
        return np.asarray(x) @ weight.T + bias
    *lead, width = x.shape
    if width != weight.shape[1]:
        raise TargetError(f"a linear layer with weights {weight.shape} on {width} numbers")
    shape = (*lead, len(weight))
    rows = np.arange(math.prod(shape)).reshape(*shape, 1)
    entries = np.arange(x.size).reshape(*lead, 1, width)
    return linear(builder, x, rows, entries, weight, bias, shape)


def batch_norm(
    builder: Builder, x: Operand, weight: Any, bias: Any, mean: Any, variance: Any, epsilon: float
) -> Operand:
    """weight (x - mean) / sqrt(variance + epsilon) + bias, for each channel (axis 1): an affine map."""
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    gain = 1.0 / np.sqrt(variance + epsilon)
    gain = gain if weight is None else gain * np.asarray(weight, dtype=np.float64)
    shift = -mean * gain + (0.0 if bias is None else np.asarray(bias, dtype=np.float64))
    shape = (-1, *([1] * (len(shape_of(x)) - 2)))
    return scale(builder, x, gain.reshape(shape), shift.reshape(shape))


def normalised(builder: Builder, x: Operand, axes: Sequence[int], epsilon: float) -> Operand:
    """(x - mean) / sqrt(variance + epsilon) over axes: layer norm, and group norm after reshaping."""
    centred = add(builder, x, total(builder, x, axes, keep=True, mean=True), -1.0)
    variance = total(builder, multiply(builder, centred, centred), axes, keep=True, mean=True)
    return multiply(builder, centred, power(builder, add(builder, variance, epsilon), -0.5))


def group_norm(builder: Builder, x: Operand, groups: int, weight: Any, bias: Any, epsilon: float) -> Operand:
    """The channels (axis 1) in groups, each normalised with all of its places."""
    shape = shape_of(x)
    found = normalised(builder, moved(x, lambda a: a.reshape(shape[0], groups, -1)), (2,), epsilon)
    found = moved(found, lambda array: array.reshape(shape))
    ends = (-1, *([1] * (len(shape) - 2)))
    gain = 1.0 if weight is None else np.asarray(weight, dtype=np.float64).reshape(ends)
    return scale(builder, found, gain, 0.0 if bias is None else np.asarray(bias, dtype=np.float64).reshape(ends))


def variance(
    builder: Builder, x: Operand, axes: Sequence[int] | None, keep: bool = False, correction: float = 0.0
) -> Operand:
    """The mean square of what is left after subtracting the mean, times n / (n - correction)."""
    centred = add(builder, x, total(builder, x, axes, keep=True, mean=True), -1.0)
    squares = total(builder, multiply(builder, centred, centred), axes, keep=keep)
    count = math.prod(shape_of(x)) / max(math.prod(shape_of(squares)), 1)
    return scale(builder, squares, 1.0 / (count - correction))
