"""Tensors while a network is read: arrays of any shape whose numbers are components of nodes of a source graph.

    Tensor(node, places)     entry i is component places[i] of the node, or zero where places[i] is -1
    numpy array              numbers that do not depend on the input: weights, shapes

What only moves numbers (reshape, transpose, slice, pad with zeros) moves places: `moved`. What is linear writes one
Affine node that reads the places where they are: `linear`. Nothing is rounded on the way: weights enter the graph as
the doubles that they are, and are never multiplied with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import LARGE, THIN, Weights
from headsmith.core.errors import TargetError
from headsmith.core.sparse import SparseArray, sparse_array
from headsmith.language.builder import Builder
from headsmith.language.graph import Affine, arguments

MOST_ENTRIES = 1 << 27
"""So many numbers one matrix may have: a gigabyte."""
MOST_NUMBERS = 1 << 24
"""So many numbers one tensor may have."""
MOST_ALTOGETHER = 1 << 26
"""So many numbers all tensors of a file may have, weights apart."""
MOST_COMPONENTS = 1 << 20
"""So many numbers that depend on the input one tensor may have."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """Numbers that depend on the input, each a component of `node`; -1 stands for zero."""

    node: int
    places: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.places.shape)

    @property
    def size(self) -> int:
        return int(self.places.size)


Operand = Tensor | Any
"""A tensor, or a numpy array of constants."""


def whole(builder: Builder, node: int, shape: Sequence[int] | None = None) -> Tensor:
    """All components of a node, in this shape."""
    size = builder.size(node)
    if size > MOST_COMPONENTS:
        raise TargetError(
            f"{size} numbers that depend on the input: a tensor has at most {MOST_COMPONENTS} of them. Use a smaller "
            f"image, or shorter sequences"
        )
    return Tensor(node, np.arange(size).reshape((size,) if shape is None else tuple(shape)))


def check_shape(shape: Sequence[int], what: str = "a tensor") -> tuple[int, ...]:
    """The shape, unless it is absurd."""
    sizes = tuple(int(each) for each in shape)
    if any(each < 0 for each in sizes) or math.prod(sizes) > MOST_NUMBERS:
        raise TargetError(f"{what} of shape {sizes}: a tensor has at most {MOST_NUMBERS} numbers")
    return sizes


def moved(operand: Operand, move: Callable[[Any], Any]) -> Operand:
    """The operand with its numbers in other places: `move` is any function of arrays that computes nothing."""
    return Tensor(operand.node, move(operand.places)) if isinstance(operand, Tensor) else move(operand)


def shape_of(operand: Operand) -> tuple[int, ...]:
    """The shape of a tensor or of an array."""
    return operand.shape if isinstance(operand, Tensor) else tuple(np.shape(operand))


def spread(operand: Operand, shape: Sequence[int]) -> Operand:
    """The operand broadcast to a shape."""
    sizes = check_shape(shape)
    return moved(operand, lambda array: np.broadcast_to(array, sizes))


def is_whole(builder: Builder, tensor: Tensor) -> bool:
    """Whether the tensor is its node, component by component."""
    return tensor.size == builder.size(tensor.node) and bool(
        np.array_equal(tensor.places.ravel(), np.arange(tensor.size))
    )


def flat(builder: Builder, operand: Operand) -> int:
    """A node whose components are the operand's numbers, in order."""
    if not isinstance(operand, Tensor):
        return builder.affine([], np.asarray(operand, dtype=np.float64).ravel())
    if is_whole(builder, operand):
        return operand.node
    return builder.affine([reading(builder, operand)], np.zeros(operand.size))


Read = tuple[int, Weights]
"""A summand of an affine node: a node and its weights."""


def reading(builder: Builder, tensor: Tensor, scale: Any = 1.0) -> Read:
    """The summand with which an Affine node reads the tensor, each number times its `scale`."""
    factors = np.broadcast_to(np.asarray(scale, dtype=np.float64), tensor.shape).ravel()
    if is_whole(builder, tensor):
        return tensor.node, np.array(factors)
    places = tensor.places.ravel()
    rows = np.flatnonzero(places >= 0)
    return _matrix(builder, tensor.node, len(places), rows, places[rows], factors[rows])


def _matrix(builder: Builder, node: int, height: int, rows: Any, columns: Any, values: Any) -> Read:
    """The matrix of this height that multiplies a node, from its entries; written out unless it is large and mostly
    zeros."""
    size = height * builder.size(node)
    if size >= LARGE and len(values) * THIN <= size:
        order = np.lexsort((columns, rows))
        found = SparseArray((height, builder.size(node)), rows[order], columns[order], values[order])
        return node, found.kept(found.values != 0.0)
    if size > MOST_ENTRIES:
        raise TargetError(
            f"a linear map from {builder.size(node)} numbers to {height} is a matrix of {size / 1e6:.0f} million "
            f"entries, and at most {MOST_ENTRIES / 1e6:.0f} million are taken: use fewer numbers"
        )
    weights = np.zeros((height, builder.size(node)))
    weights[rows, columns] = values
    return node, weights


def linear(
    builder: Builder, tensor: Tensor, rows: Any, entries: Any, weights: Any, bias: Any, shape: Sequence[int]
) -> Tensor:
    """The tensor of this shape whose number r is bias[r] plus the sum of weights[i] tensor[entries[i]] over all i with
    rows[i] = r; an entry is -1 where there is nothing to read. All are arrays that broadcast to one shape.
    """
    rows, entries, weights = np.broadcast_arrays(rows, entries, np.asarray(weights, dtype=np.float64))
    flat_places = tensor.places.ravel()
    known = flat_places[flat_places >= 0]
    if len(np.unique(known)) < len(known):
        # One component read twice by one row would be a sum of weights, which is rounded: give each its own.
        return linear(builder, whole(builder, flat(builder, tensor)), rows, entries, weights, bias, shape)
    places = np.where(entries >= 0, flat_places[np.maximum(entries, 0)], -1) if tensor.size else entries
    there = places >= 0
    read = _matrix(builder, tensor.node, math.prod(shape), rows[there], places[there], weights[there])
    bias = np.broadcast_to(np.asarray(bias, dtype=np.float64), tuple(shape)).ravel()
    return whole(builder, builder.affine(_through(builder, read), bias), shape)


def _through(builder: Builder, read: Read) -> list[Read]:
    """The terms of matrix @ node. Where the node only lays other nodes end to end, these are read themselves."""
    number, matrix = read
    node = builder.nodes[number]
    if not (isinstance(node, Affine) and len(arguments(node)) > 1 and not node.bias.any()):
        return [read]
    picks = [sparse_array(term.weights) for term in node.terms]
    once = all(np.all(each.values == 1.0) and each.T.most <= 1 for each in picks)
    if not once or not np.all(sum(each.counts for each in picks) <= 1):
        return [read]
    # Every entry of the product is one entry of the matrix, or zero: nothing is rounded.
    return [(term.node, matrix @ each) for term, each in zip(node.terms, picks, strict=True)]


def joined(builder: Builder, operands: Sequence[Operand], axis: int) -> Operand:
    """Operands one after another along an axis."""
    if not any(isinstance(each, Tensor) for each in operands):
        return np.concatenate([np.asarray(each) for each in operands], axis=axis)
    operands = [each for each in operands if shape_of(each) != (0,)]
    nodes = {each.node for each in operands if isinstance(each, Tensor)}
    if len(nodes) == 1 and all(isinstance(each, Tensor) for each in operands):
        return Tensor(operands[0].node, np.concatenate([each.places for each in operands], axis=axis))
    # Where each number of the result comes from: a place in all operands laid end to end.
    starts = np.cumsum([0, *(math.prod(shape_of(each)) for each in operands)])
    laid = [
        np.arange(start, start + math.prod(shape_of(each))).reshape(shape_of(each))
        for start, each in zip(starts, operands, strict=False)
    ]
    order = np.concatenate(laid, axis=axis)
    check_shape(order.shape)
    bias, terms = np.zeros(order.size), list[Read]()
    for start, each in zip(starts, operands, strict=False):
        size = math.prod(shape_of(each))
        local = np.where((order >= start) & (order < start + size), order - start, -1).ravel()
        if isinstance(each, Tensor):
            places = np.where(local >= 0, each.places.ravel()[np.maximum(local, 0)], -1)
            terms.append(reading(builder, Tensor(each.node, places)))
        else:
            bias[local >= 0] = np.asarray(each, dtype=np.float64).ravel()[local[local >= 0]]
    return whole(builder, builder.affine(_merged(terms), bias), order.shape)


def _merged(terms: Sequence[Read]) -> list[Read]:
    """Terms that read one node as one term. Only for weights whose sums are exact: small whole numbers."""
    found: dict[int, Weights] = {}
    for node, weights in terms:
        if node not in found:
            found[node] = weights
        else:
            wide = max(found[node].ndim, weights.ndim)
            first, second = (sparse_array(each) if each.ndim < wide else each for each in (found[node], weights))
            found[node] = first + second
    return [*found.items()]


def add(builder: Builder, left: Operand, right: Operand, sign: float = 1.0) -> Operand:
    """left + right, or left - right with sign -1."""
    if not isinstance(left, Tensor) and not isinstance(right, Tensor):
        return np.asarray(left) + np.asarray(right) * (np.asarray(sign).astype(np.asarray(right).dtype))
    shape = np.broadcast_shapes(shape_of(left), shape_of(right))
    left, right = spread(left, shape), spread(right, shape)
    bias, terms = np.zeros(shape), list[Read]()
    for operand, factor in ((left, 1.0), (right, sign)):
        if isinstance(operand, Tensor):
            terms.append(reading(builder, operand, factor))
        else:
            bias = bias + factor * np.asarray(operand, dtype=np.float64)
    if not bias.any() and len(terms) == 1 and _copies(terms[0]):
        return left if isinstance(left, Tensor) else right
    return whole(builder, builder.affine(_merged(terms), bias.ravel()), shape)


def _copies(read: Read) -> bool:
    """Whether what is read is the node, as it is."""
    return read[1].ndim == 1 and bool(np.all(read[1] == 1.0))


def scale(builder: Builder, tensor: Operand, factors: Any, shift: Any = 0.0) -> Operand:
    """factors * tensor + shift."""
    if not isinstance(tensor, Tensor):
        return np.asarray(tensor) * np.asarray(factors) + np.asarray(shift)
    shape = np.broadcast_shapes(tensor.shape, np.shape(factors), np.shape(shift))
    tensor = spread(tensor, shape)
    bias = np.broadcast_to(np.asarray(shift, dtype=np.float64), shape).ravel()
    read = reading(builder, tensor, np.broadcast_to(np.asarray(factors, dtype=np.float64), shape))
    if not bias.any() and _copies(read):
        return tensor
    return whole(builder, builder.affine([read], bias), shape)


def padded(builder: Builder, operand: Operand, pairs: Sequence[tuple[int, int]], value: float = 0.0) -> Operand:
    """The operand with (before, after) more numbers along each axis, all `value`; negative counts cut."""
    shape = shape_of(operand)
    check_shape([size + low + high for size, (low, high) in zip(shape, pairs, strict=True)], "padding")
    cut = tuple(slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(shape, pairs, strict=True))
    room = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if not isinstance(operand, Tensor):
        return np.pad(operand[cut], room, constant_values=value)
    found = Tensor(operand.node, np.pad(operand.places[cut], room, constant_values=-1))
    if value == 0.0:
        return found
    inside = np.pad(np.zeros(operand.places[cut].shape), room, constant_values=value)
    return add(builder, found, inside)


def lifted(tensor: Tensor, lead: int) -> Tensor:
    """The tensor with two leading axes, (batch, channels, ...), where it has `lead` of them."""
    if lead == 2:
        return tensor
    return Tensor(tensor.node, tensor.places.reshape(1, *([1] * (1 - lead)), *tensor.shape))


def dropped(tensor: Tensor, lead: int) -> Tensor:
    """The tensor with `lead` leading axes of the two that it has."""
    return tensor if lead == 2 else Tensor(tensor.node, tensor.places.reshape(tensor.shape[2 - lead :]))
