"""Functions of the user's own: formulas and Python functions where possible, else programs on Arb's power series.

    bump = hs.function("bump", "exp(-1/(1 - x**2))")          a formula of one variable
    wave = hs.function("wave", lambda x: np.sin(x) * x)        what can be traced is a formula too
    airy = hs.function("airy", lambda x: x.airy_ai())          what Arb has on power series, and formulas do not

A formula is put in where the function is called, so a saved model holds it, and needs nothing else. A program on series
is known by its name alone. It can be evaluated, but not compiled: no file could hold what a proof needs of it.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

import numpy as np

from headsmith.core import own_check
from headsmith.core.errors import TargetError
from headsmith.core.functions import EVERYWHERE, FUNCTIONS, Domain, user_function
from headsmith.language import formula
from headsmith.language.evaluation import evaluate
from headsmith.language.expression import Operation, Recorder, Value
from headsmith.language.library import apply, elementwise, is_traced
from headsmith.language.trace import Traced, graph_of, trace

PLACES = (-7.3, -2.7, -1.3, -0.4, -0.15, 0.1, 0.3, 0.55, 0.8, 1.7, 2.9, 8.1)
"""Where a program is compared with what else is said of it, if nobody says where it is defined."""
LIKENESS = 1e-9

Definition = str | Callable[[Any], Any]


@dataclass(frozen=True)
class Own:
    """What is known of a function of the user's own: for a formula, all that it does; for a program, its code."""

    meaning: tuple[Any, ...]


_DEFINED: dict[str, Own] = {}


def function(
    name: str,
    definition: Definition,
    value: Callable[[Any], Any] | None = None,
    domain: Sequence[float] | None = None,
) -> Callable[[Any], Any]:
    """Make a function of one variable known by its name, in formulas too, and return it.

    `definition` is a formula of one variable, a Python function that can be traced, or a function that takes and
    returns a flint arb_series (for example `lambda x: x.airy_ai()`). Derivatives are derived from it. For a program on
    series, `value` may give the same function in numpy, for speed, and `domain` the interval on which it is defined.
    What is said twice is compared at once, at a few points.
    """
    _check_name(name)
    traced = _traced(name, definition)
    if traced is None:
        assert callable(definition)
        return _by_program(name, definition, value, domain)
    recorder, output = traced
    meaning = Own((tuple(recorder.operations), output.value))
    _check_new(name, meaning)
    graph = graph_of((output,), _variable(recorder))

    def called(x: Any) -> Any:
        if isinstance(x, Traced):
            return _replayed(recorder.operations, output.value, x)
        if is_traced(x):
            return elementwise(called, x)
        found = evaluate(graph, np.asarray(x, dtype=np.float64)[..., None])[..., 0]
        return float(found) if np.ndim(found) == 0 else found

    if value is not None:
        _check_values(name, called, value, _places(_domain(name, domain)))
    _DEFINED[name] = meaning
    formula.CALLS[name] = formula.ParsedCall(called)
    return called


# Names --------------------------------------------------------------------------------------------------------------


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise TargetError(
            f"{name!r} cannot be the name of a function: formulas must be able to write it, with letters, digits and "
            f"_, and it is no word of Python"
        )
    taken = name in formula.CONSTANTS or name in formula.CALLS or name in FUNCTIONS
    if taken and name not in _DEFINED:
        what = "constant" if name in formula.CONSTANTS else "function"
        raise TargetError(f"there is already a {what} named {name!r} in formulas; choose another name")


def _check_new(name: str, meaning: Own) -> None:
    """The same definition may be given again, as a notebook does; another one may not."""
    if name in _DEFINED and _DEFINED[name] != meaning:
        raise TargetError(
            f"there is already a function named {name!r}, defined otherwise in this process; choose another name"
        )


# Formulas -----------------------------------------------------------------------------------------------------------


def _traced(name: str, definition: Definition) -> tuple[Recorder, Traced] | None:
    """What the definition does to one number, or None where it is a program on series."""
    if isinstance(definition, str):
        variables, outputs = formula.parse(definition)
        if len(variables) != 1 or len(outputs) != 1:
            raise TargetError(
                f"{name} must be a function of one variable with one output; {definition!r} has the variables "
                f"{', '.join(variables) or 'none'} and {len(outputs)} outputs"
            )
        return outputs[0].recorder, outputs[0]
    if not callable(definition):
        raise TargetError(
            f"{name} needs a formula of one variable, such as 'exp(-x**2)', or a function; got {definition!r}"
        )
    try:
        outputs = trace(definition, ["x"])
    except Exception as refusal:
        problem = own_check.problem_of(definition)
        if problem is None:
            return None
        reason = f"{refusal}" if isinstance(refusal, TargetError) else f"{type(refusal).__name__}: {refusal}"
        raise TargetError(
            f"{name} can neither be traced ({reason}) nor run on Arb's power series ({problem}). Write it with "
            f"operators, numpy's functions or headsmith's own, as a formula in text, or with methods of flint's "
            f"arb_series"
        ) from refusal
    if len(outputs) != 1:
        raise TargetError(f"{name} must return one number; it returned {len(outputs)}")
    return outputs[0].recorder, outputs[0]


def _variable(recorder: Recorder) -> list[str]:
    return [operation.name for operation in recorder.operations if operation.kind == "variable"]


def _replayed(operations: Sequence[Operation], output: Value, x: Traced) -> Traced:
    """The recorded operations done again, to `x`."""
    done: list[Traced] = []

    def read(value: Value) -> Traced:
        total: Any = x * 0 + value.constant
        for atom, coefficient in value.terms:
            total = total + done[atom] * coefficient
        return total  # type: ignore[no-any-return]

    for operation in operations:
        done.append(x if operation.kind == "variable" else _again(operation, [read(v) for v in operation.arguments]))
    return read(output)


def _again(operation: Operation, arguments: list[Traced]) -> Traced:
    recorder, values = arguments[0].recorder, [argument.value for argument in arguments]
    match operation.kind:
        case "relu":
            found = recorder.relu(values[0])
        case "maximum" | "minimum":
            found = recorder.extremum(values, operation.kind == "maximum")
        case "product":
            found = recorder.multiply(values[0], values[1])
        case "quotient":
            found = recorder.divide(values[0], values[1])
        case "hypotenuse":
            found = recorder.hypotenuse(values[0], values[1])
        case "function":
            found = recorder.function(operation.name, values[0], operation.parameter)
        case _:
            raise AssertionError(operation.kind)
    return Traced(recorder, found)


# Programs on series -------------------------------------------------------------------------------------------------


def _by_program(
    name: str, evaluator: Callable[[Any], Any], value: Callable[[Any], Any] | None, domain: Sequence[float] | None
) -> Callable[[Any], Any]:
    code = getattr(evaluator, "__code__", evaluator)
    meaning = Own((code, getattr(value, "__code__", value), tuple(domain or ())))
    _check_new(name, meaning)
    if name not in _DEFINED:
        where = _domain(name, domain)
        places = _places(where)
        _check_derivatives(name, evaluator, places)
        if value is not None:
            _check_values(name, partial(own_check.value_of, evaluator), value, places)
        user_function(name, evaluator, value, where)
        _DEFINED[name] = meaning
    return lambda x: apply(name, x)


def _domain(name: str, domain: Sequence[float] | None) -> Domain:
    if domain is None:
        return EVERYWHERE
    try:
        low, high = map(float, domain)
    except (TypeError, ValueError):
        raise TargetError(f"the domain of {name} is an interval (low, high); got {domain!r}") from None
    if not low < high:
        raise TargetError(f"the domain of {name} is an interval (low, high) with low < high; got ({low:g}, {high:g})")
    return Domain(low, high, isfinite(low), isfinite(high), needs=f"numbers from {low:g} to {high:g}")


def _places(domain: Domain) -> list[float]:
    low, high = domain.low, domain.high
    if low > -inf and high < inf:
        return [low + (high - low) * share for share in (0.03, 0.11, 0.24, 0.37, 0.5, 0.61, 0.78, 0.97)]
    if low > -inf:
        return [low + abs(place) for place in PLACES]
    return [high - abs(place) for place in PLACES] if high < inf else list(PLACES)


def _check_derivatives(name: str, evaluator: Callable[[Any], Any], places: Sequence[float]) -> None:
    """The program's own derivatives, against differences of its values."""
    seen = 0
    for place in places:
        for order, (told, found) in enumerate(own_check.derivatives(evaluator, place), start=1):
            seen += 1
            if abs(told - found) > 1e-5 * (1.0 + abs(found)):
                raise TargetError(
                    f"{name}: the derivative of order {order} that the program gives at {place:g} is {told:.6g}, but "
                    f"its values there change by {found:.6g}: the coefficients do not belong to one function"
                )
    if not seen:
        raise TargetError(
            f"{name} has no finite value at any of {', '.join(f'{place:g}' for place in places)}: say where it is "
            f"defined, with domain=(low, high)"
        )


def _check_values(
    name: str, exact: Callable[[float], float], value: Callable[[Any], Any], places: Sequence[float]
) -> None:
    """`value` is the same function: compared at the places where the definition is finite."""
    wanted = {place: number for place in places if isfinite(number := exact(place))}
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(value(np.array(list(wanted))), dtype=np.float64)
    except Exception as problem:
        raise TargetError(
            f"{name}: `value` must take and return a numpy array; it raised {type(problem).__name__}: {problem}"
        ) from problem
    if found.shape != (len(wanted),):
        raise TargetError(f"{name}: `value` of {len(wanted)} numbers has the shape {found.shape}; give one for each")
    for (place, number), got in zip(wanted.items(), found.tolist(), strict=True):
        if not abs(got - number) <= LIKENESS * (1.0 + abs(number)):
            raise TargetError(
                f"{name}: at {place:g} `value` gives {got:.10g}, and the definition gives {number:.10g}. They must be "
                f"the same function: `value` is not the derivative, which is derived"
            )
