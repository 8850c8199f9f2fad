"""Plain matrices of softmax attention as a target: what a textbook writes down, and `model.dense()` returns.

    x @ W_E + b_E + W_pos[i]    the row of data token i, which holds the inputs x; W_E is the identity if it is left out
    references                  the rows of constant tokens, which come first; none if they are left out
    layers                      X <- X + sum over heads h of softmax(X W_Q[h] (X W_K[h])^T) X W_V[h] W_O[h]
    X @ W_U + b_U               the outputs, at the data tokens; X itself if W_U is left out

Scores are not divided by anything: a factor such as 1/sqrt(d_head) belongs into W_Q. The matrices of one layer may be
given without a list of layers, and those of one head without the axis of heads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.language.builder import Builder
from headsmith.readers.imported import Imported, input_names
from headsmith.readers.over_axes import dense, matmul, softmax, total
from headsmith.readers.pooled import finished
from headsmith.readers.tensors import Operand, add, flat, joined, moved, shape_of, whole

HEAD = ("W_Q", "W_K", "W_V", "W_O")
KNOWN = {"references", "W_E", "b_E", "W_pos", "layers", "W_U", "b_U", "columns", "last", "attention", *HEAD}


def from_matrices(given: Any, tokens: int = 1, names: Sequence[str] | None = None) -> Imported:
    """Attention by its matrices: a dict with the names above, or what has them as attributes."""
    held = _held(given, KNOWN)
    unknown = sorted(held.keys() - KNOWN)
    if unknown:
        raise TargetError(f"matrices of attention are called {', '.join(sorted(KNOWN))}; there is no {unknown[0]!r}")
    if held.get("attention") not in (None, "softmax"):
        raise TargetError(f"attention of the kind {held['attention']!r}: only softmax is certified as it is given")
    layers: Any = held.get("layers") or [{name: held.get(name) for name in HEAD}]
    matrices = [_heads(layer, place) for place, layer in enumerate(layers)]
    width = matrices[0][0].shape[1]
    embedding = _matrix(held.get("W_E"), np.eye(width), "W_E")
    builder = Builder(input_names(tokens * len(embedding), names), attention=True)
    x = whole(builder, builder.input, (tokens, len(embedding)))
    row = _matrix(held.get("b_E"), np.zeros(width), "b_E")
    places = _matrix(held.get("W_pos"), np.zeros((tokens, width)), "W_pos")[:tokens]
    data = add(builder, dense(builder, x, embedding.T, row), places)
    constant = _matrix(held.get("references"), np.zeros((0, width)), "references")
    stream = joined(builder, [constant, data], 0) if len(constant) else data
    for place, layer in enumerate(matrices):
        # Of the last layer, data tokens alone are read.
        last = place == len(matrices) - 1 and held.get("last") is None
        queries = data_rows(stream, tokens) if last else stream
        stream = add(builder, queries, _written(builder, layer, queries, stream))
    found = data_rows(stream, tokens)
    output = _matrix(held.get("W_U"), np.eye(width), "W_U")
    found = dense(builder, found, output.T, _matrix(held.get("b_U"), np.zeros(output.shape[1]), "b_U"))
    if held.get("last") is not None:
        weights, shift, values = (np.asarray(each, dtype=np.float64) for each in held["last"])
        shares = softmax(builder, add(builder, matmul(builder, data_rows(stream, tokens), weights), shift))
        found = add(builder, found, matmul(builder, shares, values))
    graph = finished(builder.graph(flat(builder, found)))
    heads = sum(len(each[0]) for each in matrices)
    said = f"matrices of attention: {len(matrices)} layers, {heads} heads, {len(constant)} reference tokens"
    lead = (tokens,) if tokens > 1 else ()
    return Imported(graph, said, (*lead, len(embedding)), (*lead, shape_of(found)[-1]))


def data_rows(stream: Operand, tokens: int) -> Operand:
    """The data tokens, which come last."""
    return moved(stream, lambda array: array[-tokens:])


def _held(given: Any, names: Collection[str]) -> dict[str, Any]:
    """The entries of a dict, or the attributes of these names."""
    return {**given} if isinstance(given, Mapping) else {name: getattr(given, name, None) for name in names}


def _heads(layer: Any, place: int) -> list[Array]:
    """W_Q, W_K (heads, d_model, d_head), W_V (heads, d_model, d_value) and W_O (heads, d_value, d_model) of a layer."""
    held = _held(layer, HEAD)
    missing = [name for name in HEAD if held.get(name) is None]
    if missing:
        raise TargetError(f"layer {place} has no {', '.join(missing)}")
    if getattr(layer, "W_down", np.zeros(0)).size:
        raise TargetError(f"layer {place} has neurons: of plain matrices, layers of attention alone are read")
    found = [np.asarray(held[name], dtype=np.float64) for name in HEAD]
    found = [each[None] if each.ndim == 2 else each for each in found]
    query, key, value, output = (each.shape for each in found)
    fits = query == key and query[:2] == value[:2] and output == (query[0], value[2], query[1])
    if not fits:
        shapes = ", ".join(f"{name} {each.shape}" for name, each in zip(HEAD, found, strict=True))
        raise TargetError(f"layer {place}: the shapes {shapes} do not fit")
    return found


def _matrix(given: Any, default: Array, name: str) -> Array:
    found = default if given is None else np.array(given, dtype=np.float64)
    if found.ndim != default.ndim or not np.isfinite(found).all():
        raise TargetError(f"{name} must be an array of finite numbers with {default.ndim} axes, not {found.shape}")
    return found


def _written(builder: Builder, layer: list[Array], queries: Operand, stream: Operand) -> Operand:
    """What all heads of a layer add to these rows."""
    W_Q, W_K, W_V, W_O = layer
    asked, held, value = matmul(builder, queries, W_Q), matmul(builder, stream, W_K), matmul(builder, stream, W_V)
    scores = matmul(builder, asked, moved(held, lambda array: np.swapaxes(array, -1, -2)))
    return total(builder, matmul(builder, matmul(builder, softmax(builder, scores), value), W_O), (0,))
