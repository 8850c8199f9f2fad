"""The operators of ONNX that change shapes, by their names: they move numbers and compute nothing."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.readers.onnx_call import OnnxCall, Reader, constant, whole_numbers
from headsmith.readers.tensors import Operand, Tensor, check_shape, joined, moved, padded, shape_of, spread


def _reshape(call: OnnxCall, x: Operand, shape: Operand) -> Operand:
    wanted = whole_numbers(shape, "the shape")
    if not call.get("allowzero", 0):
        wanted = [shape_of(x)[place] if size == 0 else size for place, size in enumerate(wanted)]
    return moved(x, lambda array: array.reshape(wanted))


def _flatten(call: OnnxCall, x: Operand) -> Operand:
    axis = int(call.get("axis", 1))
    lead = math.prod(shape_of(x)[: axis if axis >= 0 else len(shape_of(x)) + axis])
    return moved(x, lambda array: array.reshape(lead, -1))


def _transpose(call: OnnxCall, x: Operand) -> Operand:
    return moved(x, lambda array: np.transpose(array, call.get("perm")))


def _squeeze(call: OnnxCall, x: Operand, over: Operand = None) -> Operand:
    found = call.get("axes") if over is None else whole_numbers(over, "the axes")
    return moved(x, lambda array: np.squeeze(array, None if found is None else tuple(found)))


def _unsqueeze(call: OnnxCall, x: Operand, over: Operand = None) -> Operand:
    found = call.get("axes") if over is None else whole_numbers(over, "the axes")
    return moved(x, lambda array: np.expand_dims(array, tuple(found)))


def _slice(
    call: OnnxCall,
    x: Operand,
    starts: Operand = None,
    ends: Operand = None,
    over: Operand = None,
    steps: Operand = None,
) -> Operand:
    first = call.get("starts") if starts is None else whole_numbers(starts, "where a slice starts")
    last = call.get("ends") if ends is None else whole_numbers(ends, "where a slice ends")
    chosen = call.get("axes") if over is None else whole_numbers(over, "the axes")
    strides = [1] * len(first) if steps is None else whole_numbers(steps, "the steps")
    cut: list[Any] = [slice(None)] * len(shape_of(x))
    for axis, low, high, step in zip(chosen or range(len(first)), first, last, strides, strict=True):
        # Going backwards, an end before the first number means all of them.
        cut[axis] = slice(low, None if step < 0 and high < -shape_of(x)[axis] else high, step)
    return moved(x, lambda array: array[tuple(cut)])


def _split(call: OnnxCall, x: Operand, sizes: Operand = None) -> tuple[Operand, ...]:
    axis = int(call.get("axis", 0))
    parts = call.get("split") if sizes is None else whole_numbers(sizes, "the sizes")
    if parts is None:
        count = int(call.get("num_outputs", call.outputs))
        size = -(-shape_of(x)[axis] // count)
        ends = [size * (place + 1) for place in range(count - 1)]
    else:
        ends = np.cumsum(parts)[:-1].tolist()
    starts, stops = [0, *ends], [*ends, shape_of(x)[axis]]
    places = [np.arange(low, high) for low, high in zip(starts, stops, strict=True)]
    return tuple(moved(x, partial(np.take, indices=each, axis=axis)) for each in places)


def _expand(call: OnnxCall, x: Operand, shape: Operand) -> Operand:
    return spread(x, np.broadcast_shapes(shape_of(x), tuple(check_shape(whole_numbers(shape, "the shape")))))


def _tile(call: OnnxCall, x: Operand, times: Operand) -> Operand:
    counts = whole_numbers(times, "how often")
    check_shape([size * count for size, count in zip(shape_of(x), counts, strict=True)], "a tiled tensor")
    return moved(x, lambda array: np.tile(array, counts))


def _gather(call: OnnxCall, x: Operand, indices: Operand) -> Operand:
    found, axis = constant(indices, "the indices").astype(np.int64), int(call.get("axis", 0))
    check_shape((*found.shape, math.prod(shape_of(x)) // max(shape_of(x)[axis], 1)))
    return moved(x, lambda array: np.take(array, found, axis))


def _pad(call: OnnxCall, x: Operand, pads: Operand = None, value: Operand = None, over: Operand = None) -> Operand:
    found = call.get("pads") if pads is None else whole_numbers(pads, "the padding")
    chosen = list(range(len(shape_of(x)))) if over is None else whole_numbers(over, "the axes")
    pairs = [(0, 0)] * len(shape_of(x))
    for place, axis in enumerate(chosen):
        pairs[axis] = (found[place], found[place + len(chosen)])
    mode = call.get("mode", "constant")
    if mode == "constant":
        number = call.get("value", 0.0) if value is None else float(constant(value, "the number").ravel()[0])
        return padded(call.builder, x, pairs, number)
    names = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    check_shape([size + low + high for size, (low, high) in zip(shape_of(x), pairs, strict=True)], "padding")
    options: Any = {"mode": names[mode]}
    return moved(x, lambda array: np.pad(array, pairs, **options))


def _shape(call: OnnxCall, x: Operand) -> Operand:
    return np.array(shape_of(x)[call.get("start", 0) : call.get("end", None)], dtype=np.int64)


def _filled(call: OnnxCall, shape: Operand) -> Operand:
    value = call.get("value")
    number = np.zeros(1, dtype=np.float32) if value is None else np.asarray(value)
    return np.full(check_shape(whole_numbers(shape, "the shape")), number.ravel()[0])


def _range(call: OnnxCall, start: Operand, limit: Operand, step: Operand) -> Operand:
    ends = [constant(each, "a range").ravel()[0] for each in (start, limit, step)]
    check_shape((max(math.ceil((ends[1] - ends[0]) / ends[2]), 0),), "a range")
    return np.arange(*ends)


def _resize(
    call: OnnxCall, x: Operand, region: Operand = None, scales: Operand = None, sizes: Operand = None
) -> Operand:
    if call.get("mode", "nearest") != "nearest" or call.get("coordinate_transformation_mode", "half_pixel") not in (
        *("half_pixel", "asymmetric"),
    ):
        raise TargetError('only mode "nearest" is read')
    shape = shape_of(x)
    if sizes is not None and 0 not in shape_of(sizes):
        wanted = whole_numbers(sizes, "the sizes")
        factors = [new / old for new, old in zip(wanted, shape, strict=True)]
    else:
        factors = constant(scales, "the scales").astype(float).ravel().tolist()
        wanted = [math.floor(size * factor) for size, factor in zip(shape, factors, strict=True)]
    check_shape(wanted, "a resized tensor")
    if any(factor != int(factor) for factor in factors):
        raise TargetError(f"it scales by {factors}; only whole factors are read")
    found = x
    for axis, factor in enumerate(factors):
        found = moved(found, partial(np.repeat, repeats=int(factor), axis=axis))
    return found


def _depth_to_space(call: OnnxCall, x: Operand) -> Operand:
    n, c, h, w = shape_of(x)
    b = int(call.get("blocksize"))
    if call.get("mode", "DCR") == "DCR":
        return moved(
            x, lambda a: a.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, -1, h * b, w * b)
        )
    return moved(
        x, lambda a: a.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * b, w * b)
    )


def _cast(call: OnnxCall, x: Operand) -> Operand:
    floats = (1, 10, 11, 16)
    if isinstance(x, Tensor):
        if call.get("to") not in floats:
            raise TargetError("a number that depends on the input becomes a whole number: that jumps")
        return x
    return np.asarray(x, dtype=np.float64 if call.get("to") in floats else np.int64)


SHAPES: dict[str, Reader] = {
    "Concat": lambda call, *operands: joined(call.builder, operands, int(call.get("axis"))),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Gather": _gather,
    "Pad": _pad,
    "Resize": _resize,
    "DepthToSpace": _depth_to_space,
    "Shape": _shape,
    "Size": lambda call, x: np.array(math.prod(shape_of(x)), dtype=np.int64),
    "ConstantOfShape": _filled,
    "Range": _range,
    "Cast": _cast,
    "CastLike": lambda call, x, _: x,
}
