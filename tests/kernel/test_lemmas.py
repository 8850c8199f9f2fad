"""The lemmas that Rocq checks are about the constants of the kernel, and the certificate's document names them.

`make lemmas` checks the proofs; nothing here needs Rocq."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LEMMAS = ROOT / "lemmas"


@pytest.fixture(scope="module")
def constants() -> ModuleType:
    """lemmas/constants.py, which is a script."""
    spec = importlib.util.spec_from_file_location("constants", LEMMAS / "constants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def stated() -> dict[str, str]:
    """The name of every theorem, and what it states."""
    text = "\n".join(path.read_text() for path in sorted(LEMMAS.glob("*.v")))
    return dict(re.findall(r"^Theorem (\w+)(.*?)^Proof\.", text, re.MULTILINE | re.DOTALL))


def test_every_literal_of_the_kernel_is_listed(constants: ModuleType) -> None:
    found = list(constants.floats(constants.kernel_sources()))
    assert constants.checked(constants.kernel_sources()) == constants.PROVED
    assert sum(constants.digits(value) > 2 for value, _ in found) >= 10
    used = {value for value, _ in found}
    assert used.issuperset(constants.UNPROVED), "a reason for a literal that is not there"


def test_a_constant_that_changes_in_its_15th_digit_is_found(constants: ModuleType) -> None:
    for name, value in constants.PROVED.items():
        for change in (1e-15, -1e-15):
            sources = constants.kernel_sources()
            changed = {path: text.replace(repr_in(text, value), repr(value + change)) for path, text in sources.items()}
            assert changed != sources, name
            with pytest.raises(constants.UnlistedError, match=re.escape(repr(value + change))):
                constants.checked(changed)


def repr_in(text: str, value: float) -> str:
    """How a source writes a number (0.27846454276107386 is printed with another last digit)."""
    numbers = re.findall(r"\d+\.\d+", text)
    return next((each for each in numbers if float(each) == value), "no such number")


def test_a_literal_that_is_not_listed_is_found(constants: ModuleType) -> None:
    sources = {**constants.kernel_sources(), "more.py": "def rule(x):\n    return 1.234 * x\n"}
    with pytest.raises(constants.UnlistedError, match=r"1\.234 \(more\.py:2\)"):
        constants.checked(sources)
    lost = {path: text.replace("1.001", "1.13") for path, text in constants.kernel_sources().items()}
    with pytest.raises(constants.UnlistedError, match="ELU_GAIN"):
        constants.checked(lost)


def test_work_is_no_constant_of_a_rule(constants: ModuleType) -> None:
    text = "OVERHEAD = 8123.0\nspend(1234.0 * n)\nwork += 123.0\nbound = 12.0\n"
    assert [value for value, _ in constants.floats({"a": text})] == [12.0]


def test_constants_are_written_exactly(constants: ModuleType) -> None:
    text = constants.constants_text(constants.PROVED)
    for name, value in constants.PROVED.items():
        numerator, denominator = re.search(rf"Definition {name} : R := (\d+) / (\d+)\.", text).groups()
        assert int(numerator) / int(denominator) == value
        assert (int(denominator) & (int(denominator) - 1)) == 0


def test_every_constant_is_in_a_theorem(constants: ModuleType) -> None:
    statements = " ".join(stated().values())
    assert [name for name in constants.PROVED if not re.search(rf"\b{name}\b", statements)] == []


def test_nothing_is_assumed() -> None:
    for path in LEMMAS.glob("*.v"):
        text = re.sub(r"\(\*.*?\*\)", "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"\b(Admitted|admit|Axiom|Parameter|Conjecture)\b", text), path.name
        # What a section supposes becomes a premise of its theorems.
        outside = re.sub(r"^Section (\w+)\.$.*?^End \1\.$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\b(Variables?|Hypothes[ie]s|Context)\b", outside), path.name


def test_the_certificate_names_every_theorem_beside_its_rule() -> None:
    document = (ROOT / "docs/certificate.md").read_text()
    beside = " ".join(re.findall(r"^Rocq \(27\): (.*?)\.$", document, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"`(\w+)`", beside)) == set(stated())
    section = document[document.index("## 27. ") : document.index("## 28. ")]
    assert set(re.findall(r"`(\w+_\w+)`", section)) <= set(stated())
