"""A second count of what a model costs: from the matrices that a textbook transformer stores, one by one.

Bills are counted from banks of heads. A row of claims prints a bill, and holds only if this count says the same: so a
figure that is wrong, wherever it went wrong, makes the row fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.model import Compiled
from headsmith.report.falsify import Found, errors_at
from headsmith.transformer.dense import DenseTransformer

CLOSE = 1e-6
"""How far two counts of a real number may be apart, of its size."""


def audit(model: Compiled, found: Found | None = None) -> dict[str, Any]:
    """Figures of the bill, counted from every matrix written out; what the kernel proved; and
    how far the model is from its target at the worst input that was found. The names are those of
    the bill."""
    written = model.dense()
    matrices = list(_matrices(written))
    flags = int(np.count_nonzero(written.references) + np.count_nonzero(written.W_pos))
    heads = [len(layer.W_Q) for layer in written.layers]
    return {
        "layers": len(written.layers),
        "heads": sum(heads),
        "reference_tokens": len(written.references),
        "data_tokens": len(written.W_pos),
        "d_model": written.d_model,
        "d_head": max((layer.W_Q.shape[2] for layer in written.layers), default=0),
        "parameters": _entries(written) + flags,
        "nonzeros": sum(int(np.count_nonzero(matrix)) for matrix in matrices) + flags,
        "max_weight": max(float(np.abs(matrix).max(initial=0.0)) for matrix in (written.references, *matrices)),
        "certified": model.certificate.error,
        **model.certificate.parts,
        **({} if found is None else {"found": float(errors_at(model, found.input).max())}),
    }


def _matrices(written: DenseTransformer) -> Iterator[Array]:
    yield from (written.W_E, written.b_E, written.W_U, written.b_U, *(written.last or ()))
    for layer in written.layers:
        yield from (layer.W_Q, layer.W_K, layer.W_V, layer.W_O)


def _entries(written: DenseTransformer) -> int:
    """Entries of all matrices. Heads of one layer are stored as wide as the widest: what a head does not use of that
    is not counted. A model that ends in a softmax has that instead of W_U."""
    ends = (written.W_U,) if written.last is None else written.last
    count = sum(matrix.size for matrix in (written.W_E, written.b_E, written.b_U, *ends))
    for layer in written.layers:
        for head in range(len(layer.W_Q)):
            features = _used(layer.W_Q[head], layer.W_K[head])
            values = _used(layer.W_V[head], layer.W_O[head].T)
            count += 2 * written.d_model * (features + values)
    return int(count)


def _used(left: Array, right: Array) -> int:
    """How many columns of two matrices are not all zero in both, up to the last such column."""
    used = np.flatnonzero(np.any(left != 0.0, axis=0) | np.any(right != 0.0, axis=0))
    return int(used[-1]) + 1 if len(used) else 0


def differences(printed: Mapping[str, Any], counted: Mapping[str, Any]) -> list[str]:
    """Where a row differs from the second count: one sentence for each figure that both have."""
    return [
        f"{name} is printed as {printed[name]}, and counted as {value}"
        for name, value in counted.items()
        if name in printed and not same(printed[name], value)
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two figures are the same: whole numbers exactly, others to CLOSE."""
    if isinstance(one, float) or isinstance(other, float):
        return bool(one == other or abs(one - other) <= CLOSE * max(abs(one), abs(other)))
    return bool(one == other)
