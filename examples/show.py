"""What every example of the gallery shows: the certificate, the bill, and the worst error that a search finds."""

from __future__ import annotations

from rich.console import Console

import headsmith as hs
from headsmith.report.tables import bill_table, certificate_table, found_table


def show(model: hs.Compiled) -> None:
    console = Console(highlight=False)
    console.print(certificate_table(model.certificate), bill_table(model.bill), sep="\n")
    console.print(found_table(hs.falsify(model, effort=1000), model.certificate))
