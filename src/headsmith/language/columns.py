"""The argument of a sequence program: a table (tokens, features) of which only the features are known while tracing.

    x[:, 0]             a traced value: at every token, its feature 0
    x[3, 0]             feature 0 of token 3, at every token
    2 * x + 1, x @ W    token by token, on all features at once
    x.mean(axis=0)      over the tokens;  x.sum(axis=1) over the features of each token

How many tokens there are is not known (a program runs on sequences of any length up to its own), so tokens can be
neither iterated over nor sliced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.trace import UFUNCS, Traced, where

Over = Callable[[str, Traced, Any], Traced]
"""What pools a traced value over the tokens ("mean", "sum", "max", "min", "sort"), or fetches it ("at")."""


class Columns:
    """Stands for a table (tokens, features): one traced value a feature."""

    __slots__ = ("over", "values")

    def __init__(self, values: Iterable[Any], over: Over) -> None:
        self.values: tuple[Any, ...] = tuple(values)
        self.over = over

    @property
    def features(self) -> int:
        """How many columns there are."""
        return len(self.values)

    def feature(self, index: int) -> Any:
        """Column `index`, the same as self[:, index]."""
        if not -self.features <= index < self.features:
            raise TargetError(f"there is no feature {index}: the tokens have {self.features}{where()}")
        return self.values[index]

    def mapped(self, operation: Callable[[Any], Any]) -> Columns:
        """The operation on every column."""
        return Columns(map(operation, self.values), self.over)

    def __getitem__(self, key: Any) -> Any:
        if not (isinstance(key, tuple) and len(key) == 2):
            raise TargetError(
                f"x[{key!r}] is a choice of tokens{where()}: write x[:, j] for feature j, x[i, j] for feature j of "
                f"token i, and hs.tokens.shift for neighbours"
            )
        token, feature = key
        if any(isinstance(each, bool | np.bool_) for each in (token, feature)):
            raise TargetError(f"tokens and features are chosen by their numbers, not {key!r}{where()}")
        chosen = self.feature(int(feature)) if isinstance(feature, int | np.integer) else self._some(feature)
        if isinstance(token, slice) and token == slice(None):
            return chosen
        if not isinstance(token, int | np.integer):
            raise TargetError(f"tokens can be taken all or one at a time, not {token!r}{where()}")
        fetched = [self.over("at", value, int(token)) for value in _as_tuple(chosen)]
        return Columns(fetched, self.over) if isinstance(chosen, Columns) else fetched[0]

    def _some(self, feature: Any) -> Columns:
        if not isinstance(feature, slice) and np.asarray(feature).dtype.kind not in "iu":
            raise TargetError(f"features are chosen by their numbers, not {feature!r}{where()}")
        numbers = range(self.features)[feature] if isinstance(feature, slice) else [int(index) for index in feature]
        return Columns((self.feature(index) for index in numbers), self.over)

    def __add__(self, other: Any) -> Columns:
        return combined(operator.add, self, other)

    def __radd__(self, other: Any) -> Columns:
        return combined(operator.add, other, self)

    def __sub__(self, other: Any) -> Columns:
        return combined(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Columns:
        return combined(operator.sub, other, self)

    def __mul__(self, other: Any) -> Columns:
        return combined(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Columns:
        return combined(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Columns:
        return combined(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Columns:
        return combined(operator.truediv, other, self)

    def __pow__(self, other: Any) -> Columns:
        return combined(operator.pow, self, other)

    def __rpow__(self, other: Any) -> Columns:
        return combined(operator.pow, other, self)

    def __neg__(self) -> Columns:
        return self.mapped(operator.neg)

    def __pos__(self) -> Columns:
        return self

    def __abs__(self) -> Columns:
        return self.mapped(operator.abs)

    def __matmul__(self, other: Any) -> Any:
        matrix = np.asarray(other)
        if matrix.ndim not in (1, 2) or len(matrix) != self.features or matrix.dtype.kind not in "biuf":
            raise TargetError(
                f"{self.features} features cannot be multiplied with {matrix.dtype} {matrix.shape}{where()}"
            )
        columns = matrix.reshape(self.features, -1).T
        found = [sum(float(w) * value for w, value in zip(row, self.values, strict=True)) for row in columns]
        return found[0] if matrix.ndim == 1 else Columns(found, self.over)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        operation = UFUNCS.get(ufunc.__name__)
        if ufunc is np.matmul and isinstance(inputs[0], Columns):
            return inputs[0] @ inputs[1]
        if method != "__call__" or operation is None or options:
            self._refuse(f"numpy's {ufunc.__name__}")
        return combined(operation, *inputs)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        names = {"amax": "max", "amin": "min"}
        name = names.get(function.__name__, function.__name__)
        if name not in ("sum", "mean", "max", "min", "sort", "cumsum", "clip") or inputs[0] is not self:
            self._refuse(f"numpy's {function.__name__}")
        return getattr(self, name)(*inputs[1:], **options)

    def _refuse(self, what: str) -> NoReturn:
        raise TargetError(
            f"{what} cannot be traced on a sequence{where()}; use arithmetic, headsmith's functions (hs.exp, "
            f"hs.maximum), and hs.tokens for what looks at other tokens"
        )

    # Over the tokens (axis 0) or over the features of each token (axis 1).
    def sum(self, axis: int | None = None) -> Any:
        """The sum over an axis."""
        return self._reduced("sum", axis, lambda left, right: left + right)

    def mean(self, axis: int | None = None) -> Any:
        """The mean over an axis."""
        if axis in (1, -1):
            return self.sum(1) / self.features
        return self._reduced("mean", axis, None)

    def max(self, axis: int | None = None) -> Any:
        """The largest over an axis."""
        return self._reduced("max", axis, UFUNCS["maximum"])

    def min(self, axis: int | None = None) -> Any:
        """The smallest over an axis."""
        return self._reduced("min", axis, UFUNCS["minimum"])

    def sort(self, axis: int | None = None) -> Any:
        """In rising order over the tokens."""
        return self._reduced("sort", axis, None)

    def cumsum(self, axis: int | None = None) -> Any:
        """The sums over the tokens so far."""
        return self._reduced("cumulative_sum", axis, None)

    def clip(self, low: Any = None, high: Any = None) -> Columns:
        """Every entry moved into [low, high]."""
        return self.mapped(lambda value: value.clip(low, high))

    def _reduced(self, name: str, axis: int | None, pair: Callable[[Any, Any], Any] | None) -> Any:
        if axis == 0:
            return self.mapped(lambda value: self.over(name, value, None))
        if axis in (1, -1) and pair is not None:
            total = self.values[0]
            for value in self.values[1:]:
                total = pair(total, value)
            return total
        raise TargetError(f"{name} needs axis=0, over the tokens, or axis=1, over the features{where()}")

    def _compare(self, other: Any) -> NoReturn:
        self._refuse("comparing")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compare
    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        self._refuse("a condition")

    def __iter__(self) -> NoReturn:
        self._refuse("iterating over tokens")

    def __len__(self) -> NoReturn:
        self._refuse("the number of tokens")

    def __repr__(self) -> str:
        return f"<traced sequence of {self.features} features>"


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value.values if isinstance(value, Columns) else (value,)


def combined(operation: Callable[..., Any], *inputs: Any) -> Columns:
    """The operation column by column: tables, traced values, numbers, and vectors of one number a feature."""
    tables = [item for item in inputs if isinstance(item, Columns)]
    features = max(table.features for table in tables)
    spread = []
    for item in inputs:
        values: Any = item.values if isinstance(item, Columns) else item
        if isinstance(values, list | tuple | np.ndarray) and np.ndim(values):
            if len(values) not in (1, features) or np.ndim(values) != 1:
                raise TargetError(f"{len(values)} values cannot be combined with {features} features{where()}")
            spread.append([_plain(value) for value in values] * (features if len(values) == 1 else 1))
        else:
            spread.append([_plain(values)] * features)
    return Columns((operation(*row) for row in zip(*spread, strict=True)), tables[0].over)


def _plain(value: Any) -> Any:
    if isinstance(value, complex | np.complexfloating) or (isinstance(value, np.ndarray) and np.iscomplexobj(value)):
        raise TargetError(f"the complex number {value!r} meets a value of the tokens{where()}: values are real")
    return float(value) if isinstance(value, np.number | np.ndarray) else value
