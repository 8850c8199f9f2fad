"""Programs over sequences and learners to choose from: they are Python functions, which a page must not send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headsmith.core.errors import TargetError
from headsmith.core.progress import Report
from headsmith.model import Compiled
from headsmith.sequence import in_context, tokens
from headsmith.sequence.compiled import compile_sequence


@dataclass(frozen=True)
class Field:
    """A number to choose: its name, its value at first, and the interval that it must lie in."""

    name: str
    first: float
    low: float
    high: float
    whole: bool = True


@dataclass(frozen=True)
class Example:
    """A model to choose. `python` makes it, with the fields' values filled in; `make` is the same as a function."""

    title: str
    python: str
    make: Callable[..., Compiled]
    fields: tuple[Field, ...]


ERROR = Field("error", 1e-4, 1e-12, 1.0, whole=False)
FEATURES, EXAMPLES = Field("features", 1, 1, 4), Field("examples", 12, 2, 32)


def _tokens(first: int, high: int = 64) -> Field:
    return Field("tokens", first, 2, high)


def _program(function: str, traced: Callable[[Any], Any], causal: bool = False) -> tuple[str, Callable[..., Compiled]]:
    """A program over sequences: its lines, and what they do."""
    mask = ", causal=True" if causal else ""
    lines = f"model = hs.compile_sequence({function}, tokens={{tokens}}, domain=(-1, 1), error={{error}}{mask})"

    def make(*, progress: Report, **given: Any) -> Compiled:
        return compile_sequence(traced, domain=(-1, 1), causal=causal, progress=progress, **given)

    return lines, make


def _learner(
    title: str,
    call: str,
    make: Callable[..., Compiled],
    fields: tuple[Field, ...],
    features: Field = FEATURES,
    examples: Field = EXAMPLES,
) -> Example:
    """A learner in context: `call` is how it begins in Python, `fields` are the numbers that it alone has."""
    lines = f"model = hs.in_context.{call}, features={{features}}, examples={{examples}}, error={{error}})"
    error = Field("error", 1e-3, 1e-9, 1.0, whole=False)
    return Example(f"Learn in context: {title}", lines, make, (*fields, features, examples, error))


GALLERY: dict[str, Example] = {
    "centred": Example(
        "Each token less the mean of all",
        *_program("lambda x: x[:, 0] - hs.tokens.mean(x[:, 0])", lambda x: x[:, 0] - tokens.mean(x[:, 0])),
        (_tokens(16), ERROR),
    ),
    "maximum": Example(
        "The largest token so far (causal)",
        *_program("lambda x: hs.tokens.max(x[:, 0])", lambda x: tokens.max(x[:, 0]), causal=True),
        (_tokens(12), ERROR),
    ),
    "sort": Example(
        "Sort the tokens",
        *_program("lambda x: hs.tokens.sort(x[:, 0])", lambda x: tokens.sort(x[:, 0])),
        (_tokens(8, 16), ERROR),
    ),
    "smooth": Example(
        "Mean of the last four tokens (causal)",
        *_program(
            "lambda x: hs.tokens.moving_average(x[:, 0], 4)", lambda x: tokens.moving_average(x[:, 0], 4), causal=True
        ),
        (_tokens(24), ERROR),
    ),
    "ridge": _learner(
        "ridge regression by gradient descent",
        "ridge({decay}, steps={steps}",
        lambda *, decay, **given: in_context.ridge(decay, **given),
        (Field("decay", 0.1, 0.001, 10.0, whole=False), Field("steps", 4, 1, 12)),
    ),
    "newton": _learner(
        "ridge regression by Newton's iteration",
        "newton({decay}, doublings={doublings}",
        lambda *, decay, **given: in_context.newton(decay, **given),
        (Field("decay", 0.1, 0.001, 10.0, whole=False), Field("doublings", 4, 1, 8)),
        features=Field("features", 1, 1, 3),
    ),
    "lasso": _learner(
        "the lasso by proximal steps",
        "lasso({alpha}, steps={steps}",
        lambda *, alpha, **given: in_context.lasso(alpha, **given),
        (Field("alpha", 0.05, 0.0001, 10.0, whole=False), Field("steps", 4, 1, 12)),
        features=Field("features", 2, 1, 4),
    ),
    "logistic": _learner(
        "logistic regression by gradient descent",
        "logistic(decay={decay}, steps={steps}",
        lambda **given: in_context.logistic(**given),
        (Field("decay", 0.05, 0.001, 10.0, whole=False), Field("steps", 6, 1, 12)),
        features=Field("features", 2, 1, 4),
    ),
    "neighbours": _learner(
        "kernel regression in two layers",
        "kernel_regression({bandwidth}",
        lambda *, bandwidth, **given: in_context.kernel_regression(bandwidth, **given),
        (Field("bandwidth", 0.25, 0.05, 5.0, whole=False),),
        examples=Field("examples", 16, 2, 64),
    ),
}


def listed() -> list[dict[str, Any]]:
    """The gallery for a page to show."""
    return [
        {"name": name, "title": each.title, "fields": [field.__dict__ for field in each.fields]}
        for name, each in GALLERY.items()
    ]


def chosen(name: Any, given: Any, progress: Report) -> tuple[Compiled, str, str]:
    """The model of an example with these numbers, the lines that make it, and its title."""
    example = GALLERY.get(name) if isinstance(name, str) else None
    if example is None or not isinstance(given, Mapping):
        raise TargetError(f"there is no such example; choose one of {', '.join(GALLERY)}")
    values = {field.name: _value(field, given.get(field.name, field.first)) for field in example.fields}
    lines = f"import headsmith as hs\n\n{example.python.format(**values)}\nmodel.save('model.safetensors')\n"
    return example.make(**values, progress=progress), lines, example.title


def _value(field: Field, given: Any) -> Any:
    fits = isinstance(given, int | float) and not isinstance(given, bool) and field.low <= given <= field.high
    if not fits or (field.whole and given != int(given)):
        kind = "a whole number" if field.whole else "a number"
        raise TargetError(f"{field.name} is {str(given)[:40]}; it must be {kind} from {field.low:g} to {field.high:g}")
    return int(given) if field.whole else float(given)
