"""Below what error no head of a shape can be: `hs.lower_bound`.

    bound = hs.lower_bound("1/x", {"x": (0.1, 1)}, reference_tokens=2, affine=False)
    bound.value, bound.kind, bound.save("bound.safetensors"), hs.verify("bound.safetensors")

Bounds of functions of one variable rest on references from which the function differs in alternating directions
(alternation.py); the kernel checks the differences in ball arithmetic (kernel/rules/lower_bound.py, with the theorems),
here as well as in `hs.verify`. One reference is a theorem about all heads; the cells of a cover, one reference for each
stretch of inclines, are a certificate. What nobody can prove is refused: an estimate is no bound.

The product x y of two variables, with a and b half the widths of its ranges:

    one token     an affine function is off by a b or more: the four corners of x y alternate
    two tokens    a table is off by a b / 2 or more, and comes as near to that as one likes: it is a ridge function of
                  y - m x, and on a line of slope m, 0 < m <= 1, x y has half the range (1 + m)^2 / 8 m, 1 - m or more
    more          no bound: products of tanh come as near as one likes, with larger and larger values

Polynomials of degree up to p - 1, and exponentials for p = 2 and more, have the lower bound zero and no other: heads
with small slopes, or a weight that is next to nothing, come as near as one likes. What they cost is a weight.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.program import Call, Linear, Over, Program, Step, Times, program_values
from headsmith.export.file import write_tensors
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import VERSION
from headsmith.kernel.core.sparse import sparse_of
from headsmith.kernel.rules.lower_bound import CONSTANT, HEAD, LIMIT, Bound, check_bound
from headsmith.lab.enough.alternation import (
    Reference,
    constant_reference,
    exchanged,
    grid,
    head_reference,
    limit_reference,
    line_reference,
)
from headsmith.language.builder import program_of
from headsmith.language.graph import Affine, Approximated, Graph, Input, Product
from headsmith.language.stored import program_data
from headsmith.plan.reading import Target, read

SLACK = 1e-7
"""What is claimed is so much less than what was measured; ten times as much where the kernel does not agree."""
SHARE = 0.97
"""A cover proves so much of the smallest error that was seen: more would take more cells."""
MOST_CELLS = 4000
GAPS = 17
"""Inclines at which a cover looks for the smallest error first."""
Kind = Literal["theorem", "certified"]


@dataclass(frozen=True, eq=False)
class LowerBound:
    """Every head of the shape is off by `value` or more somewhere on the domain: `kind` "theorem" needs no more than
    one reference, or none; "certified" has many cells. What leaks from a head to tokens that hold nothing is not
    counted: a compiled model may be below the bound by its part `leak`."""

    value: float
    kind: Kind
    text: str
    reference_tokens: int
    affine: bool
    max_weight: float | None = None
    header: Mapping[str, Any] | None = None
    tensors: Mapping[str, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<LowerBound {below(self.value)}, {self.kind}: {self.text}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `hs.verify` checks. TargetError for a theorem that needs no certificate."""
        if self.header is None:
            raise TargetError(f"there is nothing to check by a computer: {self.text}")
        write_tensors(path, self.header, dict(self.tensors))


def below(value: float) -> str:
    """A lower bound for reading: rounded down to four figures."""
    if value <= 0.0:
        return "0"
    unit = Decimal(10) ** (math.floor(math.log10(value)) - 3)
    return f"{float(Decimal(value).quantize(unit, ROUND_FLOOR)):g}"


def proved_text(proved: Bound) -> str:
    """What a file proves, in words."""
    kind = "affine" if proved.affine else "pure"
    kind += f" (inclines up to {proved.incline:g})" if proved.incline is not None else ""
    place = f"on [{proved.low:g}, {proved.high:g}]"
    return f"no {kind} head of {proved.tokens} tokens has an error below {below(proved.value)} {place}"


def lower_bound(
    target: Target,
    domain: Any = None,
    heads: int = 1,
    reference_tokens: int = 1,
    max_weight: float | None = None,
    affine: bool = True,
) -> LowerBound:
    """A number below which the error of no table head of `target` on `domain` can be, with so many reference tokens.

    A head returns the softmax mean of its tokens' values; `affine` adds any affine function of the input, which the
    residual stream carries. `max_weight` limits the size of its slope, in units of the input: bounds of two tokens and
    more are better for it. Raises TargetError where no bound is known.
    """
    if heads != 1 or reference_tokens < 1:
        raise TargetError(f"lower bounds are about one head with a token or more, not {heads} and {reference_tokens}")
    request = read(target, domain, 1.0, 1, "float64")
    with np.errstate(all="ignore"):
        if request.graph.input.size == 1:
            low, high = float(request.box.low[0]), float(request.box.high[0])
            curve = _Curve(_program(request.graph), low, high, reference_tokens, affine, max_weight)
            return _of_curve(curve)
    halves = (request.box.high - request.box.low) / 2.0
    if request.graph.input.size != 2 or not _is_product(request.graph):
        raise TargetError("lower bounds are known of functions of one variable, and of x*y: this target is another one")
    value = {1: 1.0, 2: 0.5}.get(reference_tokens, 0.0) * float(np.prod(halves))
    known = {
        1: "one token makes an affine function, and the four corners of x*y alternate",
        2: "two tokens make a ridge function, which leaves half the range of a quadratic on a line",
    }
    text = known.get(
        reference_tokens, "heads of three tokens and more come as near to x*y as one likes, with large values"
    )
    return LowerBound(value, "theorem", text, reference_tokens, affine)


def _is_product(graph: Graph) -> bool:
    """Whether a target is x*y, perhaps with identities around it."""
    smooth = [graph.nodes[number] for number in graph.used if isinstance(graph.nodes[number], Approximated)]
    plain = all(
        isinstance(node, Input | Product) or (isinstance(node, Affine) and _is_copy(node))
        for node in (graph.nodes[number] for number in graph.used)
    )
    return plain and len(smooth) == 1 and isinstance(smooth[0], Product) and smooth[0].left != smooth[0].right


def _is_copy(node: Affine) -> bool:
    """Whether an affine node hands on numbers as they are."""
    entries = [sparse_of(term.weights).values for term in node.terms]
    return not node.bias.any() and sum(map(len, entries)) == node.size and all(np.all(each == 1.0) for each in entries)


def _program(graph: Graph) -> Program:
    """A target of one variable as one program: every node a step."""
    steps: list[Step] = []
    places = {0: 0}
    for number in graph.used:
        node = graph.nodes[number]
        if node.size != 1 or not isinstance(node, Input | Affine | Approximated):
            raise TargetError("lower bounds are about one smooth function of one input: this target is another one")
        if isinstance(node, Affine):
            sums = tuple((Fraction(float(each.weights.ravel()[0])), places[each.node]) for each in node.terms)
            steps.append(Linear(sums, Fraction(float(node.bias[0]))))
        elif not isinstance(node, Input):
            inner, arguments = program_of(node)
            steps += _moved(inner, [places[each] for each in arguments], 1 + len(steps))
        places[number] = len(steps)
    return Program(1, tuple(steps))


def _moved(program: Program, arguments: list[int], first: int) -> list[Step]:
    """The steps of a program whose variables are these operands, from the operand `first` on."""

    def at(operand: int) -> int:
        return arguments[operand] if operand < program.variables else first + operand - program.variables

    found: list[Step] = []
    for step in program.steps:
        match step:
            case Linear():
                found.append(Linear(tuple((share, at(operand)) for share, operand in step.terms), step.constant))
            case Call():
                found.append(Call(step.name, at(step.operand), step.parameter))
            case Times():
                found.append(Times(at(step.left), at(step.right)))
            case Over():
                found.append(Over(at(step.numerator), at(step.denominator)))
    return found


# One variable ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Curve:
    """A function of one variable on an interval, and the heads that a bound is about."""

    program: Program
    low: float
    high: float
    tokens: int
    affine: bool
    incline: float | None

    def __call__(self, s: Array) -> Array:
        return np.asarray(program_values(self.program, s), dtype=np.float64)

    @property
    def places(self) -> Array:
        """Where it is looked at."""
        return grid(self.low, self.high)


def _of_curve(curve: _Curve) -> LowerBound:
    """The largest bound that the references prove."""
    if _reached(curve.program, curve.tokens):
        text = "heads of this shape come as near as one likes, with larger and larger values or smaller slopes"
        return LowerBound(0.0, "theorem", text, curve.tokens, curve.affine, curve.incline)
    found: list[LowerBound] = []
    if not curve.affine:
        every = [constant_reference(curve, curve.places, curve.tokens + 1)]
        if curve.tokens == 2:
            every.append(_of_two(curve, 0.0))
        found += [_checked(curve, [max(every, key=lambda each: each.size)], None)]
    else:
        found += [_checked(curve, [line_reference(curve, curve.places, 2 * curve.tokens + 1)], None)]
        if curve.incline is not None and curve.tokens == 2:
            found += [_cover(curve, curve.incline)]
    best = max(found, key=lambda each: each.value)
    if best.value <= 0.0:
        remedy = ": give max_weight" if curve.affine and curve.tokens == 2 and curve.incline is None else ""
        raise TargetError(f"no lower bound is known of heads of {curve.tokens} tokens for this function{remedy}")
    return best


def _of_two(curve: _Curve, incline: float, start: Reference | None = None) -> Reference:
    """The best reference for heads of two tokens and one incline: their limit, a head, a constant."""
    found = [limit_reference(curve, curve.places, incline)]
    if start is not None:
        found.append(exchanged(curve, curve.places, replace(start, line=(incline, start.line[1]))))
    found.append(head_reference(curve, curve.places, incline))
    found.append(constant_reference(curve, curve.places, 3, incline))
    return max(found, key=lambda each: each.size)


def _reached(program: Program, tokens: int) -> bool:
    """Whether heads of so many tokens come as near as one likes: exponentials, and polynomials of small degree."""
    calls = [step for step in program.steps if not isinstance(step, Linear)]
    lines = {place + program.variables for place, step in enumerate(program.steps) if isinstance(step, Linear)} | {0}
    if tokens > 1 and len(calls) == 1 and isinstance(calls[0], Call) and calls[0].name in ("exp", "expm1"):
        after = program.steps[program.steps.index(calls[0]) + 1 :]
        return all(isinstance(step, Linear) and len(step.terms) == 1 for step in after) and calls[0].operand in lines
    degree = _degree(program)
    return degree is not None and degree <= tokens - 1


def _degree(program: Program) -> int | None:
    """The degree of a polynomial, at most; None for what is none."""
    degrees: list[int | None] = [1] * program.variables
    for step in program.steps:
        match step:
            case Linear():
                known = [degrees[operand] for _, operand in step.terms]
                degrees.append(None if None in known else max((each for each in known if each is not None), default=0))
            case Times():
                left, right = degrees[step.left], degrees[step.right]
                degrees.append(None if left is None or right is None else left + right)
            case Call(name="square"):
                inner = degrees[step.operand]
                degrees.append(None if inner is None else 2 * inner)
            case Call(name="power") if step.parameter is not None and step.parameter >= 0 and step.parameter % 1 == 0:
                inner = degrees[step.operand]
                degrees.append(None if inner is None else int(step.parameter) * inner)
            case Call() | Over():
                degrees.append(None)
    return degrees[-1]


def _cover(curve: _Curve, incline: float) -> LowerBound:
    """A reference for each stretch of inclines, so that all together prove nearly the smallest error that was seen.

    A bound for one incline is one for inclines nearby, less their distance times half the width of the domain.
    """
    half = (curve.high - curve.low) / 2.0
    slopes = np.diff(curve(curve.places[::250])) / np.diff(curve.places[::250])
    seen = np.concatenate([np.linspace(-incline, incline, GAPS), slopes, slopes[:-1] / 2.0 + slopes[1:] / 2.0])
    seen = np.clip(seen, -incline, incline)
    known = [_of_two(curve, float(each)) for each in seen]
    smallest = min(each.size for each in known)
    for _ in range(6):
        cells = _cells(curve, incline, SHARE * smallest, half)
        if isinstance(cells, tuple):
            return _checked(curve, cells[0], cells[1], SHARE * smallest)
        smallest = cells
    return LowerBound(0.0, "certified", "no cover was found", curve.tokens, True, incline)


def _cells(curve: _Curve, incline: float, value: float, half: float) -> tuple[list[Reference], list[float]] | float:
    """References and the edges of their cells from -incline to incline; or a smaller error that was met on the way."""
    edges, references = [-incline], list[Reference]()
    width = incline / 8.0
    start: Reference | None = None
    while edges[-1] < incline:
        while True:
            middle = edges[-1] + width / 2.0
            found = _of_two(curve, middle, start)
            spare = (found.size * (1.0 - 10.0 * SLACK) - value) / half
            if spare > 0.5 * width * (1.0 + 1e-9):
                break
            if width < 1e-6 * incline:
                return found.size
            width = min(0.5 * width, max(2.0 * spare, 1e-7 * incline)) if spare > 0.0 else 0.5 * width
        references.append(found)
        start = None if found.limit else found
        edges.append(min(edges[-1] + width, incline))
        width = min(2.0 * width, max(1.9 * spare, width))
        if len(references) > MOST_CELLS:
            return 0.9 * value / SHARE
    return references, edges


def _checked(
    curve: _Curve, references: list[Reference], edges: list[float] | None, value: float | None = None
) -> LowerBound:
    """The bound, once the kernel has agreed: what it does not prove is not claimed."""
    size = min(each.size for each in references) if value is None else value
    kind: Kind = "theorem" if edges is None else "certified"
    text = (
        "one reference from which the function differs in alternating directions"
        if edges is None
        else (f"{len(references)} references, one for each stretch of inclines up to {curve.incline:g}")
    )
    for less in (SLACK, 10.0 * SLACK, 100.0 * SLACK):
        header, tensors = _stored(curve, references, edges, max((1.0 - less) * size, 0.0))
        try:
            proved = check_bound(header, tensors)
        except Refused as refusal:
            text = str(refusal)
            continue
        weight = curve.incline if edges is not None else None
        return LowerBound(proved.value, kind, text, curve.tokens, curve.affine, weight, header, tensors)
    return LowerBound(0.0, kind, text, curve.tokens, curve.affine, curve.incline)


def _stored(
    curve: _Curve, references: list[Reference], edges: list[float] | None, value: float
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The bound as a file has it: what is claimed, and its cells as arrays."""
    free = curve.affine and edges is None
    tokens = 0 if free else max([1, *(len(each.slopes) for each in references)])
    points = max(len(each.points) for each in references)

    def filled(arrays: list[Array], width: int) -> Array:
        return np.array([np.concatenate([each, np.zeros(width - len(each))]) for each in arrays]).reshape(
            len(arrays), width
        )

    rows = [np.append(each.points, np.full(points - len(each.points), curve.high)) for each in references]
    tensors = {
        "lines": np.array([each.line for each in references]),
        "points": np.array(rows),
        "slopes": filled([each.slopes for each in references], tokens),
        "offsets": filled([each.offsets for each in references], tokens),
        "values": filled([each.values for each in references], tokens),
        "kinds": np.array([HEAD if free else _kind(each) for each in references]),
        **({} if edges is None else {"edges": np.array(edges)}),
    }
    claim = {"program": program_data(curve.program), "low": curve.low, "high": curve.high, "tokens": curve.tokens}
    claim |= {"affine": curve.affine, "incline": curve.incline if edges is not None else None, "value": value}
    names = {name: f"bound.{name}" for name in tensors}
    header = {"version": VERSION, "lower_bound": claim, "cells": names}
    return header, {names[name]: each for name, each in tensors.items()}


def _kind(reference: Reference) -> float:
    """How the kernel is told what a reference is: a line or a constant has no tokens."""
    if len(reference.slopes):
        return LIMIT if reference.limit else HEAD
    return CONSTANT
