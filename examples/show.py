"""What every example of the gallery shows: the certificate, the bill, and the worst error that a search finds."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from rich.console import Console

import headsmith as hs
from headsmith.report.certificate import certificate_table
from headsmith.report.tables import bill_table, found_table


def show(model: hs.Compiled) -> None:
    console = Console(highlight=False)
    console.print(certificate_table(model.certificate), bill_table(model.bill), sep="\n")
    console.print(found_table(hs.falsify(model, effort=1000), model.certificate))


def scikit_learn(*names: str) -> list[Any]:
    """Things of scikit-learn by name, as in "linear_model.Ridge"; without scikit-learn the example ends with advice."""
    try:
        return [getattr(importlib.import_module(f"sklearn.{name.split('.')[0]}"), name.split(".")[1]) for name in names]
    except ModuleNotFoundError:
        sys.exit('this example compares with scikit-learn: pip install "headsmith[sklearn]"')
