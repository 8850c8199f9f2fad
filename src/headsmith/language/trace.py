"""Tracing: a Python function runs once on stand-ins for numbers that write down what is done to them.

    graph_of(lambda x, y: x * y + np.sin(x), ["x", "y"])

A stand-in (`Traced`) has no value, so a function that branches on one cannot be traced: it is told so, with the line.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.language.expression import Recorder, Value, build, combine, constant, scale
from headsmith.language.graph import Graph
from headsmith.language.unknown import JUMPS, explained


class Traced:
    """A stand-in for a number: an expression in the making."""

    __slots__ = ("recorder", "value")

    def __init__(self, recorder: Recorder, value: Value) -> None:
        self.recorder = recorder
        self.value = value

    def _binary(self, other: Any, operation: Callable[[Value, Value], Value], swapped: bool = False) -> Any:
        right = self._lift(other)
        if right is None:
            return NotImplemented
        left, right = (right, self.value) if swapped else (self.value, right)
        return Traced(self.recorder, operation(left, right))

    def _lift(self, other: Any) -> Value | None:
        if isinstance(other, Traced):
            if other.recorder is not self.recorder:
                raise TargetError("two traced values from different functions meet in one expression")
            return other.value
        if isinstance(other, int | float | np.integer | np.floating | np.bool_ | Fraction):
            return constant(other if isinstance(other, int | Fraction) else float(other))
        if isinstance(other, Decimal) and other.is_finite():
            return constant(Fraction(other))
        if isinstance(other, complex | np.complexfloating):
            raise TargetError(f"a complex number meets a traced value{where()}: values are real")
        return None

    def __add__(self, other: Any) -> Any:
        return self._binary(other, lambda a, b: combine(a, Fraction(1), b))

    def __sub__(self, other: Any) -> Any:
        return self._binary(other, lambda a, b: combine(a, Fraction(-1), b))

    def __rsub__(self, other: Any) -> Any:
        return self._binary(other, lambda a, b: combine(a, Fraction(-1), b), swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary(other, self.recorder.multiply)

    def __truediv__(self, other: Any) -> Any:
        return self._binary(other, self.recorder.divide)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary(other, self.recorder.divide, swapped=True)

    def __pow__(self, other: Any) -> Any:
        return self._binary(other, self.recorder.power)

    def __rpow__(self, other: Any) -> Any:
        return self._binary(other, self.recorder.power, swapped=True)

    __radd__, __rmul__ = __add__, __mul__

    def hypotenuse(self, other: Any) -> Any:
        """sqrt(self^2 + other^2)."""
        return self._binary(other, self.recorder.hypotenuse)

    def __neg__(self) -> Traced:
        return Traced(self.recorder, scale(Fraction(-1), self.value))

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return Traced(self.recorder, self.recorder.absolute(self.value))

    def function(self, name: str, parameter: float | None = None) -> Traced:
        """A named function of this value."""
        return Traced(self.recorder, self.recorder.function(name, self.value, parameter))

    def relu(self) -> Traced:
        """max(self, 0)."""
        return Traced(self.recorder, self.recorder.relu(self.value))

    def clip(self, low: Any = None, high: Any = None, **_: Any) -> Traced:
        """min(max(self, low), high); None leaves a side open."""
        if low is None or high is None:
            result = self if low is None else extremum([self, low], True)
            return result if high is None else extremum([result, high], False)
        first, second = self._lift(low), self._lift(high)
        if first is None or second is None:
            raise TargetError(f"clip needs numbers or traced values as its ends; got {low!r} and {high!r}")
        return Traced(self.recorder, self.recorder.clip(self.value, first, second))

    def conjugate(self) -> Traced:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        operation = UFUNCS.get(ufunc.__name__)
        if operation is None:
            raise TargetError(_refusal(ufunc.__name__))
        if method != "__call__" or options:
            raise TargetError(f"numpy's {ufunc.__name__} cannot be traced with options or as .{method}{where()}")
        if any(np.iscomplexobj(item) for item in inputs if isinstance(item, np.number)):
            raise TargetError(f"a complex number meets a traced value{where()}: values are real")
        return everywhere(operation, [float(item) if isinstance(item, np.number) else item for item in inputs])

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        operation = ARRAY_FUNCTIONS.get(function.__name__)
        if operation is None:
            raise TargetError(_refusal(function.__name__))
        return operation(*inputs, **options)

    # What would need a number.
    def _branch(self, other: Any = None) -> NoReturn:
        raise TargetError(
            f"the function branches on a traced value{where()}: a transformer computes one formula for all inputs. "
            f"Use hs.maximum, hs.minimum, hs.relu, hs.clip, hs.sort, abs, or hs.step(x, gap) instead of comparing"
        )

    def _number(self, *_: Any) -> NoReturn:
        raise TargetError(
            f"the function asks a traced value for a plain number{where()}: use headsmith's or numpy's functions "
            f"(hs.exp, np.exp) instead of the math module, and no float(), int(), round(), range(), // or %"
        )

    def _jump(self, *_: Any) -> NoReturn:
        raise TargetError(f"the function rounds a traced value or takes a remainder{where()}: {JUMPS}")

    def _sequence(self, *_: Any) -> NoReturn:
        raise TargetError(f"the function iterates over a traced value or indexes it{where()}: each input is one number")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = _branch
    __float__ = __int__ = __index__ = __complex__ = _number
    __round__ = __floor__ = __ceil__ = __trunc__ = floor = ceil = trunc = rint = _jump
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _jump
    __iter__ = _sequence
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<traced value of {len(self.value.terms)} terms>"


def _refusal(name: str) -> str:
    """Why a function of numpy cannot be traced, and what to do."""
    reason = explained(name, (*UFUNCS, *ARRAY_FUNCTIONS)) if name != "sign" else ": write hs.sign(x, gap)"
    if reason:
        return f"numpy's {name} cannot be traced{where()}{reason}"
    single = ", ".join(sorted(each for each in UFUNCS if each not in ARITHMETIC))
    return (
        f"numpy's {name} cannot be traced{where()}. Of numpy's functions of one number these can: {single}; arrays of "
        f"traced values have @, sum and mean; hs.<tab> lists headsmith's own functions"
    )


def where() -> str:
    """The line of the user's code that is running."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("headsmith", "numpy"):
        frame = frame.f_back  # type: ignore[assignment]
    return f" at line {frame.f_lineno} of {frame.f_code.co_filename}" if frame is not None else ""


def recorder_of(values: Sequence[Any]) -> Recorder | None:
    """The recorder of the first traced value, if there is one."""
    return next((value.recorder for value in values if isinstance(value, Traced)), None)


def extremum(values: Sequence[Any], largest: bool) -> Any:
    """The largest or the smallest of traced values and numbers."""
    recorder = recorder_of(values)
    if recorder is None:
        return max(values) if largest else min(values)
    first = next(value for value in values if isinstance(value, Traced))
    lifted = [lift for value in values if (lift := first._lift(value)) is not None]
    if len(lifted) < len(values):
        raise TargetError(f"maximum and minimum take numbers and traced values; got {values!r}")
    return Traced(recorder, recorder.extremum(lifted, largest))


def _holds_numbers(item: Any) -> bool:
    """Whether this is a vector or a matrix of plain numbers."""
    return isinstance(item, np.ndarray | list | tuple) and np.ndim(item) > 0 and np.asarray(item).dtype != object


def everywhere(operation: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """The operation on scalars, or element by element on arrays. A value of the tokens is no scalar for an array."""
    if not any(isinstance(item, np.ndarray | list | tuple) for item in inputs):
        return operation(*inputs)
    recorder = recorder_of(inputs)
    if recorder is not None and recorder.is_sequence and any(_holds_numbers(item) for item in inputs):
        raise TargetError(
            f"an array of numbers meets a value of the tokens{where()}: write hs.tokens.constants(x, [...]) for one "
            "number for each token, and x * [...] or x @ matrix for one number for each feature"
        )
    arrays = np.broadcast_arrays(*(np.asarray(item, dtype=object) for item in inputs))
    result = np.empty(arrays[0].shape, dtype=object)
    for index in np.ndindex(result.shape):
        result[index] = operation(*(array[index] for array in arrays))
    return result


def _named(name: str) -> Callable[[Any], Any]:
    return lambda x: x.function(name)


NUMPY_NAMES = (
    *("exp", "log", "sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"),
    *("square", "reciprocal"),
)
ARITHMETIC = ("add", "subtract", "multiply", "divide", "power", "float_power", "negative", "positive")
UFUNCS: dict[str, Callable[..., Any]] = {
    **{name: _named(name) for name in NUMPY_NAMES},
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "power": lambda x, y: x**y,
    "float_power": lambda x, y: x**y,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "absolute": abs,
    "fabs": abs,
    "expm1": lambda x: x.function("exp") - 1,
    "log1p": lambda x: (x + 1).function("log"),
    "log2": lambda x: x.function("log") / float(np.log(2.0)),
    "log10": lambda x: x.function("log") / float(np.log(10.0)),
    "exp2": lambda x: 2**x,
    "hypot": lambda x, y: (x * x + y * y) ** 0.5,
    "maximum": lambda x, y: extremum([x, y], True),
    "minimum": lambda x, y: extremum([x, y], False),
    "fmax": lambda x, y: extremum([x, y], True),
    "fmin": lambda x, y: extremum([x, y], False),
}
OF_ONE_VALUE = (*NUMPY_NAMES, "expm1", "log1p", "log2", "log10", "exp2", "fabs")
for _name in OF_ONE_VALUE:
    # What numpy calls on the elements of object arrays.
    setattr(Traced, _name, UFUNCS[_name])


def _interpolated(x: Any, xp: Any, fp: Any) -> Any:
    from headsmith.language.library import piecewise_linear

    return piecewise_linear(xp, fp, x.clip(float(xp[0]), float(xp[-1])))


def _polynomial(coefficients: Any, x: Any) -> Any:
    total: Any = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def _stacked(values: Any) -> Any:
    return np.array(list(values), dtype=object)


ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "clip": lambda x, low=None, high=None, **options: x.clip(options.get("a_min", low), options.get("a_max", high)),
    "dot": lambda x, y: x * y,
    "sum": lambda x: x,
    "prod": lambda x: x,
    "mean": lambda x: x,
    "interp": _interpolated,
    "polyval": _polynomial,
    "stack": _stacked,
    "hstack": _stacked,
}


def trace(function: Callable[..., Any], names: Sequence[str] | None = None) -> tuple[Traced, ...]:
    """Run `function` on one traced value for each name; its results, one for each output."""
    recorder = Recorder()
    names = names_of(function) if names is None else names
    values = {name: Traced(recorder, recorder.variable(name)) for name in names}
    positional, by_name = _passed(function, values)
    try:
        result = function(*positional, **by_name)
    except TypeError as problem:
        text = str(problem).replace("'Traced' object", "a stand-in for a number").replace("Traced", "stand-in")
        raise TargetError(f"the function cannot be traced with the inputs {', '.join(names)}: {text}") from problem
    except AttributeError as problem:
        if not isinstance(problem.obj, Traced):
            raise
        raise TargetError(
            f"the function asks a traced value for .{problem.name}: each input is one number, which has operators, "
            f"numpy's functions (np.exp) and headsmith's own (hs.exp)"
        ) from problem
    return outputs_of(result, recorder)


def _passed(function: Callable[..., Any], values: dict[str, Traced]) -> tuple[list[Traced], dict[str, Traced]]:
    """The values as the function takes them: by its own names where these are the domain's, else in their order."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return list(values.values()), {}
    named = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    required = [name for name, p in named.items() if p.default is p.empty]
    if set(required) <= set(values) <= set(named):
        first = [name for name, p in named.items() if p.kind is p.POSITIONAL_ONLY and name in values]
        return [values[name] for name in first], {name: values[name] for name in values if name not in first}
    shared = [name for name in values if name in named]
    if shared and len(named) == len(parameters):
        raise TargetError(
            f"the function has the inputs {', '.join(named)}, and the domain has {', '.join(values)}: give an interval "
            f"for each input of the function, by its name"
        )
    return list(values.values()), {}


def names_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's inputs."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as problem:
        raise TargetError(f"the inputs of {function!r} are not known; give a domain with names") from problem
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    names = tuple(p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) or not names:
        raise TargetError("the function does not name its inputs; give a domain with names, or write lambda x, y: ...")
    return names


def outputs_of(result: Any, recorder: Recorder) -> tuple[Traced, ...]:
    """What a function returned as a flat tuple of traced values."""
    if isinstance(result, Traced):
        return (result,)
    if isinstance(result, int | float | np.integer | np.floating):
        return (Traced(recorder, constant(float(result))),)
    if isinstance(result, np.ndarray | list | tuple) and len(result):
        return tuple(output for item in result for output in outputs_of(item, recorder))
    raise TargetError(
        f"the function returned {result!r}; it must return a number, or a list, tuple or array of numbers"
    )


def graph_of(target: Any, names: Sequence[str] | None = None) -> Graph:
    """The source graph of a Python function, or of traced values; one output for each value."""
    if callable(target) and not isinstance(target, Traced):
        names = names_of(target) if names is None else names
        outputs = trace(target, names)
    else:
        outputs = (target,) if isinstance(target, Traced) else tuple(target)
        if not outputs or not all(isinstance(output, Traced) for output in outputs):
            raise TargetError(f"cannot make a graph of {target!r}; give a function or traced values")
    recorder = outputs[0].recorder
    variables = [operation.name for operation in recorder.operations if operation.kind == "variable"]
    return build(recorder, [output.value for output in outputs], variables if names is None else names)
