"""Records: the cheapest certified models known of forty targets, at three errors each.

A model is cheaper than another by the compiler's own order: fewer layers, then fewer heads, then fewer tokens, then
a smaller largest weight. The table is `records.csv` beside this module. A record may only improve:

    records()                       the table
    regenerated(table, report)      every target compiled again; what is cheaper replaces what was there
    submitted(path, table)          a file against the record of its target: the kernel checks the file, and nothing
                                    that the file says of itself is believed

A file is about a target if the digest that the kernel prints of the file's target is that of the record's formula.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from headsmith.compile import compile
from headsmith.core.certificate import Certificate
from headsmith.core.errors import HeadsmithError
from headsmith.core.markup import csv_text
from headsmith.files import load
from headsmith.kernel.core.reading import digest
from headsmith.lab.records.targets import ENTRIES, ERRORS, Entry
from headsmith.language.stored import graph_data
from headsmith.model import Compiled
from headsmith.plan.reading import read
from headsmith.verify import verified_file

TABLE = "records.csv"
COMPILED = "auto"
"""Whose the records are that the compiler makes by itself."""
ALIKE = 1e-3
"""Largest weights that differ by less than this part are the same: another machine adds up in another order."""


@dataclass(frozen=True)
class Record:
    """The cheapest model known of a formula on a domain at an error, and whose it is."""

    formula: str
    domain: str
    error: float
    certified: float
    layers: int
    heads: int
    reference_tokens: int
    data_tokens: int
    parameters: int
    max_weight: float
    by: str = COMPILED

    @property
    def entry(self) -> Entry:
        """Its target."""
        return Entry(self.formula, self.domain)

    @property
    def cost(self) -> tuple[float, ...]:
        """What it costs, the most important first."""
        return self.layers, self.heads, self.reference_tokens + self.data_tokens, self.max_weight


@dataclass(frozen=True)
class Submission:
    """What became of a file: for each record of its target that it is accurate enough for, the model as a record, what
    the record is (None where there is none yet), and whether it beats that."""

    certificate: Certificate
    compared: tuple[tuple[Record, Record | None, bool], ...]

    @property
    def beats(self) -> tuple[Record, ...]:
        """The records that the file sets."""
        return tuple(mine for mine, _, better in self.compared if better)


def records(text: str | None = None) -> tuple[Record, ...]:
    """The table: that of this release, or what a csv text holds."""
    text = files(__package__).joinpath(TABLE).read_text() if text is None else text
    kinds = {each.name: {"float": float, "int": int}.get(str(each.type), str) for each in fields(Record)}
    rows = csv.DictReader(io.StringIO(text))
    return tuple(Record(**{name: kinds[name](value) for name, value in row.items()}) for row in rows)


def record_text(table: Iterable[Record]) -> str:
    """The table as csv, in the order of the targets."""
    places = {(entry, error): place for place, (entry, error) in enumerate(_asked())}
    known = [each for each in table if (each.entry, each.error) in places]
    ordered = sorted(known, key=lambda each: places[each.entry, each.error])
    return csv_text([each.name for each in fields(Record)], [astuple(each) for each in ordered])


def _asked() -> list[tuple[Entry, float]]:
    return [(entry, error) for entry in ENTRIES for error in ERRORS]


def record_of(entry: Entry, error: float, model: Compiled, by: str = COMPILED) -> Record:
    """A model as a record. Its bill is counted from its weights."""
    bill, certified = model.bill, model.certificate.error
    sizes = (bill.layers, bill.heads, bill.reference_tokens, bill.data_tokens, bill.parameters, bill.max_weight)
    return Record(entry.formula, entry.domain, error, certified, *sizes, by)


def better(mine: Record, other: Record | None) -> bool:
    """Whether a record beats another, by more than what adding up in another order makes."""
    if other is None:
        return True
    if mine.cost[:3] != other.cost[:3]:
        return mine.cost[:3] < other.cost[:3]
    return mine.max_weight < (1.0 - ALIKE) * other.max_weight


def compiled_record(entry: Entry, error: float) -> Record:
    """What the compiler makes of a target by itself."""
    return record_of(entry, error, compile(entry.formula, entry.box, error, progress=False))


def regenerated(
    table: Sequence[Record], report: Callable[[str], None] = lambda _: None, only: str = ""
) -> tuple[Record, ...]:
    """The table after every target (whose formula holds the text `only`) is compiled again; `report` is told what has
    changed."""
    known = {(each.entry, each.error): each for each in table}
    for entry, error in _asked():
        if only not in entry.formula:
            continue
        before = known.get((entry, error))
        try:
            mine = compiled_record(entry, error)
        except HeadsmithError as problem:
            report(f"{entry.formula} at {error:g}: {problem}")
            continue
        if better(mine, before):
            known[entry, error] = mine
            report(f"{entry.formula} at {error:g}: {_change(mine, before)}")
    return tuple(known.values())


def _change(mine: Record, before: Record | None) -> str:
    if before is None:
        return f"a first record, {shape(mine)}"
    return f"{shape(mine)}; before, {shape(before)}"


def shape(record: Record) -> str:
    """What a record costs, in words."""
    return (
        f"layers {record.layers}, heads {record.heads}, reference tokens {record.reference_tokens}, data tokens "
        f"{record.data_tokens}, largest weight {record.max_weight:.4g}"
    )


def submitted(path: str | os.PathLike[str], table: Sequence[Record], by: str = "submitted") -> Submission:
    """Check a file by the kernel, and compare it with the records of its target. Raises CertificateError where the
    kernel refuses the file, HeadsmithError where no record has this target."""
    proved = verified_file(path)
    entry = _target_of(proved)
    model = load(path)
    kind = model.transformer.attention
    if kind != "softmax":
        raise HeadsmithError(f"records are those of softmax attention; this model has {kind} attention")
    _refuse_smaller(entry, proved)
    known = {(each.entry, each.error): each for each in table}
    compared = []
    for error in ERRORS:
        if proved.error <= error:
            mine = replace(record_of(entry, error, model, by), certified=proved.error)
            before = known.get((entry, error))
            compared.append((mine, before, better(mine, before)))
    if not compared:
        raise HeadsmithError(f"{entry.formula}: proven within {proved.error:.3g}; records start at {max(ERRORS):g}")
    return Submission(proved, tuple(compared))


def _target_of(proved: Certificate) -> Entry:
    for entry in ENTRIES:
        if target_digest(entry) == proved.target and _covers(entry, proved):
            return entry
    same = [entry for entry in ENTRIES if target_digest(entry) == proved.target]
    if same:
        return same[0]
    raise HeadsmithError(
        "there is no record of the target of this file; compile one of these: "
        + ", ".join(f'"{entry.formula}"' for entry in ENTRIES)
    )


def _covers(entry: Entry, proved: Certificate) -> bool:
    wanted = entry.box
    return all(low <= wanted[name][0] and wanted[name][1] <= high for name, low, high in proved.domain)


def _refuse_smaller(entry: Entry, proved: Certificate) -> None:
    for name, low, high in proved.domain:
        wanted = entry.box[name]
        if not (low <= wanted[0] and wanted[1] <= high):
            raise HeadsmithError(
                f"{entry.formula}: the file is about {name} in [{low:g}, {high:g}], the record about "
                f"[{wanted[0]:g}, {wanted[1]:g}]: compile for at least that domain"
            )


@lru_cache(maxsize=64)
def target_digest(entry: Entry) -> str:
    """The digest of a target, as the kernel finds it in files."""
    tensors: dict[str, Any] = {}
    stored = graph_data(read(entry.formula, entry.box, ERRORS[0], 1, "float64").graph, tensors)
    return digest(stored, tensors)
