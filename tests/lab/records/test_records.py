"""Records are certified, only improve, and are beaten by files that the kernel accepts, and by no others."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands
from headsmith.core.errors import CertificateError, HeadsmithError
from headsmith.lab.records.records import (
    Record,
    better,
    compiled_record,
    record_text,
    records,
    regenerated,
    submitted,
    target_digest,
)
from headsmith.lab.records.targets import ENTRIES, ERRORS, Entry

PRODUCT = Entry("x*y", "x=-1:1 y=-1:1")


def record(entry: Entry, error: float) -> Record:
    (found,) = (each for each in records() if (each.entry, each.error) == (entry, error))
    return found


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "product.safetensors"
    hs.compile("x*y", PRODUCT.box, 1e-6).save(path)
    return path


def test_there_are_forty_targets_and_three_errors() -> None:
    table = records()
    assert len(ENTRIES) == len({target_digest(entry) + entry.domain for entry in ENTRIES}) == 40
    assert [(each.entry, each.error) for each in table] == [(entry, error) for entry in ENTRIES for error in ERRORS]
    assert all(0.0 < each.certified <= each.error for each in table)
    assert records(record_text(table)) == table


def test_a_product_at_1e_6_takes_two_tokens() -> None:
    found = record(PRODUCT, 1e-6)
    assert found.cost == (1, 1, 3, 32.0)
    assert (found.reference_tokens, found.parameters) == (2, 63)


@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in ENTRIES
        if entry.formula in ("x*y", "relu(x)", "max(x, y)", "sigmoid(x)", "x*y*z", "median(x, y, z)")
    ],
    ids=lambda entry: entry.formula,
)
def test_the_compiler_is_not_worse_than_its_records(entry: Entry) -> None:
    for error in ERRORS:
        assert not better(record(entry, error), compiled_record(entry, error))


def test_a_record_only_improves() -> None:
    kept = record(PRODUCT, 1e-6)
    worse, cheaper = replace(kept, reference_tokens=3), replace(kept, reference_tokens=1)
    told: list[str] = []
    table = regenerated([worse], told.append, only="x*y")
    assert next(each for each in table if each.entry == PRODUCT and each.error == 1e-6).reference_tokens == 2
    assert any("reference tokens 2" in line and "before" in line for line in told)
    table = regenerated([cheaper], only="x*y")
    assert cheaper in table


def test_the_order_of_costs() -> None:
    kept = record(PRODUCT, 1e-6)
    assert better(kept, None)
    assert not better(kept, kept)
    assert better(replace(kept, heads=0, max_weight=1e9), kept)
    assert better(replace(kept, max_weight=0.99 * kept.max_weight), kept)
    assert not better(replace(kept, max_weight=0.9999 * kept.max_weight), kept)
    assert not better(replace(kept, layers=2, heads=0), kept)


def test_a_file_is_compared_with_every_record_that_it_is_accurate_enough_for(product: Path) -> None:
    found = submitted(product, records())
    assert [mine.error for mine, _, _ in found.compared] == [1e-2, 1e-4, 1e-6]
    assert found.beats == ()
    worse = [replace(each, reference_tokens=5) for each in records()]
    assert [each.error for each in submitted(product, worse).beats] == [1e-2, 1e-4, 1e-6]


def test_a_file_of_another_target_or_domain_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    hs.compile("x + relu(x)", {"x": (-1, 1)}, 1e-2).save(path)
    with pytest.raises(HeadsmithError, match="no record of the target"):
        submitted(path, records())
    hs.compile("relu(x)", {"x": (-0.5, 0.5)}, 1e-2).save(path)
    with pytest.raises(HeadsmithError, match="the file is about x in"):
        submitted(path, records())
    hs.compile("relu(x)", {"x": (-1, 1)}, 1e-2, attention="relu").save(path)
    with pytest.raises(HeadsmithError, match="records are those of softmax attention"):
        submitted(path, records())


def test_the_kernel_decides(product: Path, tmp_path: Path) -> None:
    data = bytearray(product.read_bytes())
    data[-8:] = b"\x00" * 6 + b"\xf8?"
    path = tmp_path / "forged.safetensors"
    path.write_bytes(bytes(data))
    with pytest.raises((CertificateError, HeadsmithError)):
        submitted(path, [])


def test_the_command(product: Path, tmp_path: Path) -> None:
    run = CliRunner()
    shown = run.invoke(commands, ["records", "--only", "x*y"])
    assert shown.exit_code == 0
    assert "63" in shown.output
    beaten = run.invoke(commands, ["records", "--submit", str(product)])
    assert beaten.exit_code == 1
    assert "does not beat the record" in beaten.output
    table, out = tmp_path / "old.csv", tmp_path / "new.csv"
    table.write_text(record_text([replace(each, reference_tokens=9) for each in records()]))
    won = run.invoke(commands, ["records", "--submit", str(product), "--table", str(table), "-o", str(out)])
    assert won.exit_code == 0, won.output
    assert "beats the record" in won.output
    new = records(out.read_text())
    assert [each.by for each in new if each.by != "auto"] == [product.name] * 3


def test_where_the_table_goes_is_checked_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headsmith.lab.records.records.regenerated", lambda *_: pytest.fail("compiled first"))
    for path in (tmp_path / "nowhere" / "records.csv", tmp_path / "records.txt"):
        found = CliRunner().invoke(commands, ["records", "--regenerate", "-o", str(path)])
        assert found.exit_code in (1, 2)
        assert not path.exists()
