"""Domains for data: an interval for each column, with a margin."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.errors import DomainError


def domain_of(X: Any, margin: float = 0.1) -> dict[str, tuple[float, float]] | list[tuple[float, float]]:
    """The domain of the rows of `X`: for each column an interval that holds all of its numbers, and on either side
    `margin` times its width more (1 for a column that does not vary, whose width is zero).

    A DataFrame gives intervals by the names of its columns, an array (rows, columns) in their order. Arrays of more
    axes are rows of what the first axis counts.
    """
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    try:
        data = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise DomainError(f"the data is no array of real numbers: {problem}; encode words as numbers first") from None
    if data.ndim < 2 or not len(data):
        raise DomainError(f"the data has shape {data.shape}; give one row for each example, (rows, columns)")
    if not (np.isfinite(margin) and margin >= 0.0):
        raise DomainError(f"margin is {margin!r}; it must be a finite number, not negative")
    rows = data.reshape(len(data), -1)
    if not np.isfinite(rows).all():
        row, column = (int(place) for place in np.argwhere(~np.isfinite(rows))[0])
        raise DomainError(
            f"row {row}, column {column} of the data is {float(rows[row, column])!r}: drop it or fill it in"
        )
    low, high = rows.min(axis=0), rows.max(axis=0)
    wider = margin * np.where(high > low, high - low, 1.0)
    pairs = [(float(a), float(b)) for a, b in zip(low - wider, high + wider, strict=True)]
    return pairs if names is None else dict(zip(names, pairs, strict=True))
