"""The constants of the kernels' rules, as names that the theorems are about.

The numbers are read from the source of the kernels: every float literal of more than two digits there must be in one of
the two lists below, and every number of the first list must be in the source. So a theorem speaks of the double that
the kernel computes with, exactly, as a fraction.

    python lemmas/constants.py        prints Constants.v
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = (ROOT / "src/headsmith/kernel", ROOT / "src/headsmith/small_kernel")

PROVED: Mapping[str, float] = {
    "SINK": 0.27846454276107386,  # a gate is below the ReLU by at most this, over its scale
    "ELU": 0.16,  # the same under elu+1 attention
    "ELU_GAIN": 1.001,  # how much larger the power of a finite gain may be computed
    "SIGMOIDS": 3.01,  # what silent tokens add and round, under sigmoid attention
    "EXP_FACTOR": 2.02,  # an error of exp, as a change of its argument
    "EXP_SHIFT": 8.08,  # the same, of 4 units in the last place: the small kernel's number
    "ERF_SLOPE": 1.13,  # the slope of erf
    "FEW_GAMMA": 0.125,  # rule F of 12.1 holds up to so much rounding,
    "FEW_SILENT": 0.0625,  # and so much weight of silent tokens
}
"""Constants that theorems are about, by their names in Rocq."""

UNPROVED: Mapping[float, str] = {
    10.1: "GPT-2's norm (24) has no theorem yet",
    256.0: "what silu loses at the ends of the format (12.10) has no theorem yet",
    708.0: "where numpy's exp begins to underflow: below it the bound is that of a larger number",
    134217729.0: "2^27 + 1 splits a double; the sums of its parts are exact (Dekker)",
    65504.0: "the largest number of float16",
    3.4028234663852886e38: "the largest number of float32",
    1.7976931348623157e308: "the largest number of float64",
    1.0001: "which cells of rule Sampled are halved: no bound depends on it",
    1024.0: "the largest exponent that a file may ask for",
    128.0: "what a call of j0 or j1 costs, in units of work",
}
"""Literals that no theorem is about, and why."""

HEAD = """(** The constants of the kernel's rules: the doubles of its source. Written by lemmas/constants.py. *)

From Coq Require Import Reals.
Open Scope R_scope.

"""


class UnlistedError(Exception):
    """A literal of a kernel is in neither list, or a listed one is in no kernel."""


class _Floats(ast.NodeVisitor):
    """Collects float literals and their lines, but for units of work: what is spent, and the variables for it."""

    def __init__(self) -> None:
        self.found: list[tuple[float, int]] = []

    def visit_Call(self, node: ast.Call) -> None:
        if not (isinstance(node.func, ast.Name) and node.func.id == "spend"):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if not names & {"work", "OVERHEAD"}:
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not (isinstance(node.target, ast.Name) and node.target.id == "work"):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, float):
            self.found.append((node.value, node.lineno))


def floats(sources: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """Every float literal of source texts (by name), and where it is."""
    for name, text in sources.items():
        finder = _Floats()
        finder.visit(ast.parse(text))
        yield from ((value, f"{name}:{line}") for value, line in finder.found)


def checked(sources: Mapping[str, str]) -> Mapping[str, float]:
    """The proved constants, once every literal of the sources was found in one of the lists."""
    found = list(floats(sources))
    listed = {*PROVED.values(), *UNPROVED}
    strangers = [f"{value!r} ({place})" for value, place in found if digits(value) > 2 and value not in listed]
    if strangers:
        raise UnlistedError(f"neither a theorem nor a reason for {', '.join(strangers)}: see lemmas/constants.py")
    used = {value for value, _ in found}
    lost = [f"{name} = {value!r}" for name, value in PROVED.items() if value not in used]
    if lost:
        raise UnlistedError(f"{', '.join(lost)}: no kernel has this number, so its theorems are about nothing")
    return PROVED


def digits(value: float) -> int:
    """How many digits a literal has, leading and closing zeros aside."""
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


def kernel_sources() -> dict[str, str]:
    """The source of the kernels that there are, by path."""
    paths = [path for folder in KERNELS if folder.exists() for path in sorted(folder.rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def constants_text(constants: Mapping[str, float]) -> str:
    """Constants.v: each number as the fraction that the double is."""
    exact = {name: Fraction(value) for name, value in constants.items()}
    lines = [f"Definition {name} : R := {each.numerator} / {each.denominator}." for name, each in exact.items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(constants_text(checked(kernel_sources())), end="")
