"""What every example of the gallery shows: the certificate, the bill, and the worst error that a search finds."""

from __future__ import annotations

from rich.console import Console

import headsmith as hs
from headsmith.report.falsify import falsify
from headsmith.report.sequences import falsify_sequence
from headsmith.report.tables import bill_table, certificate_table, found_table
from headsmith.sequence.compiled import CompiledSequence


def show(model: hs.Compiled) -> None:
    console = Console(highlight=False)
    console.print(certificate_table(model.certificate), bill_table(model.bill), sep="\n")
    search = falsify_sequence if isinstance(model, CompiledSequence) else falsify
    found = search(model, effort=1000)  # type: ignore[operator]
    console.print(found_table(found, model.certificate))
