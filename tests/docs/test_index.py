"""The documents speak of what is there."""

from __future__ import annotations

import re
from pathlib import Path

import headsmith.kernel
from headsmith.kernel.core import functions, heads, model, proof, table, weighed
from headsmith.kernel.core.check import PARTS

DOCS = Path(__file__).parents[2] / "docs"
CERTIFICATE, INDEX = (DOCS / name for name in ("certificate.md", "README.md"))


def test_every_module_of_the_kernel_is_in_the_index() -> None:
    """Whoever adds a rule says where it is written down."""
    kernel = Path(headsmith.kernel.__file__).parent
    modules = {path.relative_to(kernel).as_posix() for path in kernel.rglob("[a-z]*.py")} - {"core/errors.py"}
    assert len(modules) > 30
    assert modules <= set(re.findall(r"`(\w+/\w+\.py)`", INDEX.read_text()))


def test_every_section_that_is_named_is_there() -> None:
    """Sections are numbered from 1 without a gap, and nothing points past the last one."""
    text = CERTIFICATE.read_text()
    sections = [int(number) for number in re.findall(r"^## (\d+)\.", text, re.MULTILINE)]
    assert sections == list(range(1, len(sections) + 1))
    named = re.findall(r"[Ss]ections? (\d+)", text + INDEX.read_text())
    assert {int(number) for number in named} <= set(sections)


def test_names_of_the_format_are_in_the_document() -> None:
    """Every kind of bank with its arrays and gains, every function, every field of a proof and of a claim."""
    text = CERTIFICATE.read_text()
    names = {*model.SHAPES, *PARTS, *heads.RULES, *(gain for gains in model.GAINS.values() for gain in gains)}
    names |= {name for arrays in model.SHAPES.values() for name in arrays}
    names |= {*proof.Proof.__dataclass_fields__, "roles", "masks", "exp_ulps", "max_score", "outputs", "error"}
    assert not [name for name in sorted(names) if f"`{name}`" not in text]
    assert not [name for name in functions.FUNCTIONS if not re.search(rf"\b{name}\b", text)]


def test_numbers_of_the_document_are_those_of_the_code() -> None:
    """Orders of Taylor polynomials, bits and numbers of cells."""
    text = CERTIFICATE.read_text()
    assert f"{table.ORDERS[1]} for one variable, {table.ORDERS[2]} for two" in text
    assert f"balls of {table.BITS} + min(4 S, {table.MOST_BITS - table.BITS}) bits" in text
    cells, grid = weighed.CELLS[1], weighed.CELLS[2]
    assert f"cut each argument into {cells} cells ({grid} x {grid} for two)" in text
    assert f"with Arb at {functions.BITS} bits" in text
    assert f"min({heads.RAMP_CELLS} G," in text
