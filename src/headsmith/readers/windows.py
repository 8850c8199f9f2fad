"""Convolutions and pooling, unrolled: every number of the result is a linear form, or the maximum, of the few numbers
in its window. Arrays are (batch, channels, ...), with one to three axes of space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.readers.tensors import Operand, Tensor, check_shape, flat, linear, whole

Sizes = Sequence[int]


@dataclass(frozen=True)
class Window:
    """How a window slides over an array, axis by axis of space: it holds `kernel` numbers that are `dilation` places
    apart, moves on by `stride`, and the array is padded by `before` and `after` (negative padding cuts)."""

    kernel: Sizes
    stride: Sizes
    before: Sizes
    after: Sizes
    dilation: Sizes

    @property
    def reach(self) -> list[int]:
        """How many places a window covers, from its first number to its last."""
        return [step * (size - 1) + 1 for step, size in zip(self.dilation, self.kernel, strict=True)]


def each(value: int | Sizes, count: int) -> tuple[int, ...]:
    """One number for each axis of space: a single one stands for all."""
    numbers = (int(value),) if isinstance(value, int | np.integer) else tuple(int(number) for number in value)
    return numbers * count if len(numbers) == 1 else numbers


def convolution(builder: Builder, x: Operand, weight: Any, bias: Any, window: Window, groups: int = 1) -> Tensor:
    """A convolution with weights (out, in / groups, kernel ...) on (batch, in, ...), padded with zeros."""
    tensor = _tensor(builder, x)
    weight = np.asarray(weight, dtype=np.float64)
    batch, channels, *space = tensor.shape
    outputs, per_group, *kernel = weight.shape
    if channels != per_group * groups or outputs % groups:
        raise TargetError(f"a convolution with weights {weight.shape} and {groups} groups on {channels} channels")
    places = np.arange(tensor.size).reshape(tensor.shape)
    found = windows(places, window)
    out_space = found.shape[2 : 2 + len(space)]
    shape = check_shape((batch, outputs, *out_space), "a convolution")
    rows = np.arange(math.prod(shape)).reshape(batch, groups, outputs // groups, 1, *out_space, 1)
    entries = found.reshape(batch, groups, 1, per_group, *out_space, math.prod(kernel))
    weights = weight.reshape(1, groups, outputs // groups, per_group, *([1] * len(out_space)), math.prod(kernel))
    constants = 0.0 if bias is None else np.asarray(bias, dtype=np.float64).reshape(1, -1, *([1] * len(space)))
    return linear(builder, tensor, rows, entries, weights, constants, shape)


def transposed_convolution(
    builder: Builder,
    x: Operand,
    weight: Any,
    bias: Any,
    window: Window,
    groups: int = 1,
    extra: Sizes | None = None,
) -> Tensor:
    """The transposed convolution with weights (in, out / groups, kernel ...): a plain one of the numbers set apart by
    zeros, with every kernel turned around. `extra` numbers are added at the end of each axis."""
    tensor = _tensor(builder, x)
    weight = np.asarray(weight, dtype=np.float64)
    inputs, per_group, *kernel = weight.shape
    batch, channels, *space = tensor.shape
    if channels != inputs or inputs % groups:
        raise TargetError(f"a transposed convolution with weights {weight.shape} on {channels} channels")
    if min(window.stride) < 1:
        raise TargetError(f"strides {tuple(window.stride)} of a transposed convolution")
    apart = [(size - 1) * step + 1 for size, step in zip(space, window.stride, strict=True)]
    places = np.full(check_shape((batch, channels, *apart)), -1)
    places[(slice(None), slice(None), *(slice(None, None, step) for step in window.stride))] = tensor.places
    turned = weight.reshape(groups, inputs // groups, per_group, *kernel).swapaxes(1, 2)
    turned = turned.reshape(groups * per_group, inputs // groups, *kernel)
    turned = turned[(slice(None), slice(None), *([slice(None, None, -1)] * len(kernel)))]
    added = extra or [0] * len(space)
    before = [reach - 1 - pad for reach, pad in zip(window.reach, window.before, strict=True)]
    after = [reach - 1 - pad + more for reach, pad, more in zip(window.reach, window.after, added, strict=True)]
    plain = replace(window, stride=[1] * len(space), before=before, after=after)
    return convolution(builder, Tensor(tensor.node, places), turned, bias, plain, groups)


def windows(places: Any, window: Window) -> Any:
    """The places in each window: (batch, channels, ..., window), -1 where a window reaches beyond the array."""
    kernel, stride, dilation = window.kernel, window.stride, window.dilation
    if min(*kernel, *stride, *dilation) < 1:
        raise TargetError(f"a window of {tuple(kernel)}, strides {tuple(stride)}, dilations {tuple(dilation)}")
    sides = [*zip(window.before, window.after, strict=True)]
    padding = [(0, 0), (0, 0), *((max(low, 0), max(high, 0)) for low, high in sides)]
    check_shape([size + low + high for size, (low, high) in zip(places.shape, padding, strict=True)], "padding")
    padded = np.pad(places, padding, constant_values=-1)
    # Negative padding cuts.
    cut = [slice(max(-low, 0), padded.shape[2 + axis] - max(-high, 0)) for axis, (low, high) in enumerate(sides)]
    padded = padded[(slice(None), slice(None), *cut)]
    reach, space = window.reach, padded.shape[2:]
    if any(wide > size for wide, size in zip(reach, space, strict=True)):
        raise TargetError(f"a window of {tuple(reach)} numbers does not fit into {tuple(space)}")
    axes = tuple(range(2, 2 + len(kernel)))
    found = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=axes)
    steps = [slice(None, None, step) for step in stride]
    inside = [slice(None, None, step) for step in dilation]
    found = found[(slice(None), slice(None), *steps, *inside)]
    check_shape(found.shape, "all windows together")
    return found.reshape(*found.shape[: 2 + len(kernel)], math.prod(kernel))


def ceiling(space: Sizes, window: Window) -> list[int]:
    """How much more padding lets the last window start inside the array or its padding before, as ceil_mode asks."""
    more = []
    sides = zip(space, window.reach, window.stride, window.before, window.after, strict=True)
    for size, reach, step, low, high in sides:
        left = size + low + high - reach
        count = -(-left // step) + 1
        if (count - 1) * step >= size + low:
            count -= 1
        more.append(max((count - 1) * step - left, 0))
    return more


def max_pool(builder: Builder, x: Operand, window: Window, ceil: bool = False) -> Tensor:
    """The largest number of each window; what lies beyond the array does not count."""
    tensor = _tensor(builder, x)
    more = ceiling(tensor.shape[2:], window) if ceil else [0] * len(window.kernel)
    return largest(builder, tensor, windows(_order(tensor), _padded_more(window, more)))


def average_pool(
    builder: Builder,
    x: Operand,
    window: Window,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Tensor:
    """The mean of each window; zeros beyond the array count if `count_padding`, or `divisor` says by what to divide."""
    tensor = _tensor(builder, x)
    zeros = [0] * len(window.kernel)
    more = ceiling(tensor.shape[2:], window) if ceil else zeros
    found = windows(_order(tensor), _padded_more(window, more))
    if divisor is not None:
        counts = np.full(found.shape[:-1], divisor)
    elif count_padding:
        # What ceil_mode adds at the end never counts.
        sides = zip(window.before, window.after, strict=True)
        inside = np.pad(np.zeros(tensor.shape, dtype=int), [(0, 0), (0, 0), *sides])
        counts = (windows(inside, replace(window, before=zeros, after=more)) >= 0).sum(axis=-1)
    else:
        counts = (found >= 0).sum(axis=-1)
    return means(builder, tensor, found, counts)


def _padded_more(window: Window, more: Sizes) -> Window:
    """The window of an array with `more` padding at its end."""
    return replace(window, after=[pad + extra for pad, extra in zip(window.after, more, strict=True)])


def adaptive_windows(tensor: Tensor, sizes: Sequence[int | None]) -> Any:
    """The windows that cut each axis of space into so many (nearly) equal parts, as adaptive pooling does."""
    order = _order(tensor)
    space = tensor.shape[2:]
    found = order[..., None]
    for axis, (size, wanted) in enumerate(zip(space, sizes, strict=True)):
        count = size if wanted is None else int(wanted)
        starts = [place * size // count for place in range(count)]
        ends = [-(-(place + 1) * size // count) for place in range(count)]
        wide = max(end - start for start, end in zip(starts, ends, strict=True))
        index = np.array(
            [
                [start + k if start + k < end else -1 for k in range(wide)]
                for start, end in zip(starts, ends, strict=True)
            ]
        )
        taken = np.take(found, np.maximum(index, 0), axis=2 + axis)
        shape = [1] * taken.ndim
        shape[2 + axis], shape[3 + axis] = index.shape
        taken = np.where(index.reshape(shape) >= 0, taken, -1)
        taken = np.moveaxis(taken, 3 + axis, -1)
        found = taken.reshape(*taken.shape[:-2], -1)
    return found


def largest(builder: Builder, tensor: Tensor, found: Any) -> Tensor:
    """The maximum over the entries in each window (..., window)."""
    valid = found >= 0
    if not valid.any(axis=-1).all():
        raise TargetError("a window of max-pooling lies beyond the array")
    first = np.take_along_axis(found, np.argmax(valid, axis=-1)[..., None], axis=-1)
    filled = np.where(valid, found, first)
    if (tensor.places < 0).any():
        tensor = whole(builder, flat(builder, tensor), tensor.shape)
    places = tensor.places.ravel()[filled]
    nodes = [flat(builder, Tensor(tensor.node, places[..., k])) for k in range(places.shape[-1])]
    node = nodes[0] if len(nodes) == 1 else builder.maximum(nodes)
    return whole(builder, node, found.shape[:-1])


def means(builder: Builder, tensor: Tensor, found: Any, counts: Any = None) -> Tensor:
    """The mean over the entries in each window (..., window), divided by `counts` where they are given."""
    if counts is None:
        counts = (found >= 0).sum(axis=-1)
    shape = found.shape[:-1]
    rows = np.arange(math.prod(shape)).reshape(*shape, 1)
    return linear(builder, tensor, rows, found, 1.0 / np.asarray(counts)[..., None], 0.0, shape)


def _order(tensor: Tensor) -> Any:
    return np.arange(tensor.size).reshape(tensor.shape)


def _tensor(builder: Builder, x: Operand) -> Tensor:
    if isinstance(x, Tensor):
        return x
    array = np.asarray(x, dtype=np.float64)
    return whole(builder, flat(builder, array), array.shape)
