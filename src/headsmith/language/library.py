"""Functions for formulas: of traced values they write down expressions, of numbers and arrays they compute.

Everything here is made of what the graph knows (affine, relu, maximum, minimum, product, quotient, named functions),
with as few gates as are known: a comparator of a sorting network is a maximum and a minimum of the same two values,
which share one gate.
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.functions import FUNCTIONS
from headsmith.language.columns import Columns, combined
from headsmith.language.trace import Traced, everywhere, extremum


def is_traced(values: Any) -> bool:
    """Whether a traced value is among (nested) values."""
    if isinstance(values, Traced | Columns):
        return True
    if isinstance(values, np.ndarray):
        return values.dtype == object and builtins.any(is_traced(item) for item in values.flat)
    return isinstance(values, list | tuple) and builtins.any(is_traced(item) for item in values)


def elementwise(operation: Callable[[Any], Any], x: Any) -> Any:
    if isinstance(x, Traced):
        return operation(x)
    if isinstance(x, Columns):
        return x.mapped(operation)
    array = np.asarray(x, dtype=object)
    result = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        result[index] = operation(array[index])
    return result


def apply(name: str, x: Any, parameter: float | None = None) -> Any:
    """A named function (see core.functions) of a traced value, a number or an array."""
    if isinstance(x, Traced):
        return x.function(name, parameter)
    if is_traced(x):
        return elementwise(lambda item: apply(name, item, parameter), x)
    result = FUNCTIONS[name].value(x, parameter)
    return float(result) if np.ndim(result) == 0 else result


def exp(x: Any) -> Any:
    """e to the x."""
    return apply("exp", x)


def log(x: Any) -> Any:
    """The natural logarithm; x > 0."""
    return apply("log", x)


def sqrt(x: Any) -> Any:
    """The square root; x >= 0."""
    return apply("sqrt", x)


def sin(x: Any) -> Any:
    """The sine of x in radians."""
    return apply("sin", x)


def cos(x: Any) -> Any:
    """The cosine of x in radians."""
    return apply("cos", x)


def tan(x: Any) -> Any:
    """The tangent of x in radians; x between two of its poles pi/2 + n*pi."""
    return apply("tan", x)


def arcsin(x: Any) -> Any:
    """The angle in [-pi/2, pi/2] whose sine is x; x from -1 to 1."""
    return apply("arcsin", x)


def arccos(x: Any) -> Any:
    """The angle in [0, pi] whose cosine is x; x from -1 to 1."""
    return apply("arccos", x)


def arctan(x: Any) -> Any:
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    return apply("arctan", x)


def sinh(x: Any) -> Any:
    """The hyperbolic sine."""
    return apply("sinh", x)


def cosh(x: Any) -> Any:
    """The hyperbolic cosine."""
    return apply("cosh", x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return apply("tanh", x)


def j0(x: Any) -> Any:
    """The Bessel function of the first kind of order 0."""
    return apply("j0", x)


def j1(x: Any) -> Any:
    """The Bessel function of the first kind of order 1."""
    return apply("j1", x)


def expm1(x: Any) -> Any:
    """exp(x) - 1."""
    return elementwise(lambda item: exp(item) - 1, x) if is_traced(x) else np.expm1(x)


def log1p(x: Any) -> Any:
    """log(1 + x); x > -1."""
    return elementwise(lambda item: log(1 + item), x) if is_traced(x) else np.log1p(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return apply("sigmoid", x)


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return apply("softplus", x)


def gelu(x: Any) -> Any:
    """x times the normal distribution function at x."""
    return apply("gelu", x)


def erf(x: Any) -> Any:
    """The error function."""
    return apply("erf", x)


def gaussian(x: Any) -> Any:
    """exp(-x**2 / 2)."""
    return apply("gaussian", x)


def relu(x: Any) -> Any:
    """max(x, 0)."""
    return elementwise(lambda item: maximum(item, 0.0), x) if is_traced(x) else np.maximum(x, 0.0)


def absolute(x: Any) -> Any:
    """|x|; exported as hs.abs."""
    return elementwise(builtins.abs, x) if is_traced(x) else np.abs(x)


def clip(x: Any, low: Any, high: Any) -> Any:
    """x moved into [low, high]."""
    if not is_traced([x, low, high]):
        return np.clip(x, low, high)
    if isinstance(x, list | tuple | np.ndarray | Columns):
        return elementwise(lambda item: clip(item, low, high), x)
    return x.clip(low, high) if isinstance(x, Traced) else minimum(maximum(x, low), high)


def sign(x: Any, gap: Any = None) -> Any:
    """-1 below -gap, 1 above gap, and the straight line between them: clip(x / gap, -1, 1)."""
    return clip(x * (1 / Fraction(_gap("sign", gap))) if is_traced(x) else np.asarray(x) / _gap("sign", gap), -1.0, 1.0)


def step(x: Any, gap: Any = None) -> Any:
    """0 below -gap, 1 above gap, and the straight line between them: clip((x / gap + 1) / 2, 0, 1)."""
    return (sign(x, _gap("step", gap)) + 1.0) / 2.0


def _gap(name: str, gap: Any) -> float:
    if isinstance(gap, Traced) and gap.value.is_constant:
        gap = float(gap.value.constant)
    if gap is None:
        raise TargetError(
            f"{name}(x) jumps at 0, and no continuous model computes a jump: write {name}(x, gap), for example "
            f"{name}(x, 0.01), which is the straight line from -gap to gap and {name}(x) elsewhere"
        )
    is_number = isinstance(gap, int | float | Fraction | np.integer | np.floating)
    if not is_number or not 0.0 < float(gap) < np.inf:
        raise TargetError(f"the gap of {name}(x, gap) is a positive number; got {gap!r}")
    return float(gap)


def maximum(*values: Any) -> Any:
    """The largest of any number of values, or of the members of one list."""
    return _extremum(values, True)


def minimum(*values: Any) -> Any:
    """The smallest of any number of values, or of the members of one list."""
    return _extremum(values, False)


def _extremum(values: tuple[Any, ...], largest: bool) -> Any:
    members = list(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple | np.ndarray) else list(values)
    if not members:
        raise TargetError("the maximum or minimum of no values")
    if not is_traced(members):
        return (np.maximum if largest else np.minimum).reduce(np.broadcast_arrays(*members))
    if builtins.any(isinstance(member, Columns) for member in members):
        return combined(lambda *items: extremum(items, largest), *members)
    return everywhere(lambda *items: extremum(items, largest), members)


def median(*values: Any) -> Any:
    """The middle one of several values, or the mean of the middle two: 3 gates for three, a sort for more."""
    if not values:
        raise TargetError("median needs at least one value")
    if len(values) == 3:
        a, b, c = values
        return maximum(minimum(a, b), minimum(maximum(a, b), c))
    ordered, middle = sort(list(values)), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def sort(values: Any) -> Any:
    """The values in rising order, by Batcher's odd-even merge sort: 63 gates for 16 values."""
    members = _members(values)
    for first, second in comparators(len(members)):
        _compare(members, first, second)
    return _like(values, members)


def comparators(count: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort (Knuth 5.2.2, algorithm M) as pairs of places, in order, for any count."""
    pairs = []
    size = 1 << builtins.max(count - 1, 0).bit_length()
    p = size // 2
    while p:
        q, r, distance = size // 2, 0, p
        while distance:
            pairs += [(i, i + distance) for i in range(count - distance) if i & p == r]
            distance, q, r = q - p, q // 2, p
        p //= 2
    return pairs


def _compare(members: list[Any], first: int, second: int) -> None:
    low, high = members[first], members[second]
    members[first], members[second] = minimum(low, high), maximum(low, high)


def top_k(values: Any, k: int) -> Any:
    """The k largest values, largest first: blocks of k are sorted, and merged in pairs that keep the upper halves."""
    members = _members(values)
    if not 1 <= k <= len(members):
        raise TargetError(f"top_k asks for {k} of {len(members)} values")
    blocks = [list(sort(members[start : start + k])) for start in range(0, len(members), k)]
    blocks.sort(key=len, reverse=True)
    while len(blocks) > 1:
        pairs = list(zip(blocks[::2], blocks[1::2], strict=False))
        blocks = [_merge_top(first, second) for first, second in pairs] + blocks[2 * len(pairs) :]
    return _like(values, blocks[0][::-1])


def _merge_top(first: list[Any], second: list[Any]) -> list[Any]:
    """The len(first) largest of two rising lists, rising: a bitonic list of maxima, then a bitonic merge."""
    count, short = len(first), len(second)
    # The i-th smallest of `first` meets the i-th largest of `second`, while there is one.
    members = [maximum(first[i], second[short - 1 - i]) if i < short else first[i] for i in range(count)]
    if count & (count - 1) or short != count:
        return list(sort(members))
    distance = count // 2
    while distance:
        for i in range(count):
            if not i & distance:
                _compare(members, i, i + distance)
        distance //= 2
    return members


def _members(values: Any) -> list[Any]:
    members = list(values)
    if not members:
        raise TargetError("a list of no values")
    return members


def _like(values: Any, members: list[Any]) -> Any:
    """An array of numbers for numbers, a list for traced values."""
    return members if is_traced(list(values)) else np.array(members, dtype=np.float64)


def norm(values: Any, order: float = 2) -> Any:
    """The 1-, 2- or infinity-norm of a vector."""
    members = _members(values)
    if order == 1:
        return sum(absolute(member) for member in members)
    if order == 2:
        return _tree(_hypotenuse, members) if len(members) > 1 else absolute(members[0])
    if order == np.inf:
        # max(|a|, |b|) = (|a + b| + |a - b|) / 2: two gates and not three.
        pairs = zip(members[::2], members[1::2], strict=False)
        halves = [(absolute(a + b) + absolute(a - b)) / 2.0 for a, b in pairs]
        return maximum(*halves, *map(absolute, members[2 * len(halves) :]))
    raise TargetError(f"norm of order {order!r}; choose 1, 2 or infinity")


def _hypotenuse(left: Any, right: Any) -> Any:
    if isinstance(left, Traced):
        return left.hypotenuse(right)
    return right.hypotenuse(left) if isinstance(right, Traced) else np.hypot(left, right)


def _tree(operation: Callable[[Any, Any], Any], members: Sequence[Any]) -> Any:
    """The operation over all members, in a balanced tree."""
    while len(members) > 1:
        pairs = [operation(left, right) for left, right in zip(members[::2], members[1::2], strict=False)]
        members = [*pairs, *members[2 * len(pairs) :]]
    return members[0]


def softmax(values: Any) -> Any:
    """exp(z_i) / sum exp(z_j), with the largest z subtracted first."""
    members = _members(values)
    if len(members) == 2:
        first = sigmoid(members[0] - members[1])
        return _like(values, [first, 1.0 - first])
    largest = maximum(*members)
    weights = [exp(member - largest) for member in members]
    # One of the weights is 1, so the sum is at least 1: saying so keeps the denominator away from 0.
    total = maximum(sum(weights), 1.0)
    return _like(values, [weight / total for weight in weights])


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """The sum of coefficients[i] * x**i."""
    return sum(c * x**i if i else c for i, c in enumerate(coefficients))


def rational(numerator: Sequence[float], denominator: Sequence[float], x: Any) -> Any:
    """One polynomial over another, coefficients of rising powers."""
    return polynomial(numerator, x) / polynomial(denominator, x)


def matmul(left: Any, right: Any) -> Any:
    """The product of two matrices, or of a matrix and a vector."""
    traced = is_traced(left) or is_traced(right)
    first, second = (np.asarray(side, dtype=object if traced else np.float64) for side in (left, right))
    if 0 in (first.ndim, second.ndim) or first.shape[-1] != second.shape[0]:
        raise TargetError(f"matrices of shapes {first.shape} and {second.shape} cannot be multiplied")
    return first @ second


def inverse(matrix: Any, steps: int, smallest: float = 0.5) -> Any:
    """Newton-Schulz: X <- X (2 I - A X), from X = 2 / (1 + smallest) I.

    For symmetric A with eigenvalues in [smallest, 1] the error after `steps` is at most r**(2**steps) / smallest with
    r = (1 - smallest) / (1 + smallest).
    """
    array = np.asarray(matrix, dtype=object if is_traced(matrix) else np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise TargetError(f"the inverse of a matrix of shape {array.shape}; it must be square")
    identity = np.eye(len(array)).astype(array.dtype)
    guess = (2.0 / (1.0 + smallest)) * identity
    for _ in range(steps):
        guess = guess @ (2.0 * identity - array @ guess)
    return guess


def b_spline(degree: int, x: Any) -> Any:
    """The cardinal B-spline of degree 2 on [0, 3] or 3 on [0, 4], exactly zero outside; 3 gates and its powers."""
    middle = (degree + 1) / 2
    y = relu(middle - absolute(x - middle))
    w = relu(y - 1.0)
    v = y - w
    if degree == 2:
        return v * v / 2.0 + w - w * w
    if degree == 3:
        return v**3 / 6.0 + w / 2.0 + w * w / 2.0 - w**3 / 2.0
    raise TargetError(f"b_spline of degree {degree!r}; choose 2 or 3")


def piecewise_linear(knots: Sequence[float], values: Sequence[float], x: Any) -> Any:
    """The piecewise linear function through (knots, values), continued linearly: a gate for each inner knot."""
    places, heights = np.asarray(knots, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if places.ndim != 1 or len(places) < 2 or places.shape != heights.shape or not (np.diff(places) > 0.0).all():
        raise TargetError("piecewise_linear needs two or more rising knots and as many values")
    if not is_traced(x):
        slopes = np.diff(heights) / np.diff(places)
        piece = np.clip(np.searchsorted(places, x, side="right") - 1, 0, len(slopes) - 1)
        return heights[piece] + slopes[piece] * (np.asarray(x) - places[piece])
    corners = [(Fraction(float(place)), Fraction(float(height))) for place, height in zip(places, heights, strict=True)]
    exact = [(c[1] - a[1]) / (c[0] - a[0]) for a, c in itertools.pairwise(corners)]
    total = corners[0][1] + exact[0] * (x - corners[0][0])
    for (place, _), (before, after) in zip(corners[1:-1], itertools.pairwise(exact), strict=True):
        total = total + (after - before) * relu(x - place)
    return total


abs = absolute
