"""What `headsmith signal` does: read the options, run or measure, and show a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from headsmith.core.errors import TargetError
from headsmith.core.figures import bound, number
from headsmith.files import load
from headsmith.lab.signal.estimate import Measured
from headsmith.lab.signal.gain import Gains
from headsmith.lab.signal.measure import measure
from headsmith.lab.signal.theory import Propagation, apjn

THEORY = ("depth", "tokens", "q0", "p0", "sigma_o", "sigma_v", "sigma_1", "sigma_2", "sigma_qk", "finite_tokens")
ROWS = 17
"""How many blocks a table shows, evenly spread."""


def run_signal(file: str | None, options: Mapping[str, Any]) -> tuple[Propagation | Measured | Gains, dict[str, Any]]:
    """The result for these options of the command line, and its figures by name."""
    if file is not None:
        if options["measured"]:
            raise TargetError("--measure is about random transformers: give no file")
        found = measure(load(file), samples=options["samples"], seed=options["seed"])
        return found, {"model": file, **_fields(found)}
    alphas = options["alpha"] or (1.0,)
    chosen = {name: options[name] for name in THEORY if options[name] is not None}
    if not options["measured"]:
        alpha = alphas[0] if len(alphas) == 1 else alphas
        theory = apjn(options["norm"], alpha=alpha, **chosen)
        return theory, propagation_data(theory)
    if len(alphas) > 1:
        raise TargetError("measure one alpha at a time")
    network = {name: options[name] for name in ("width", "networks", "probes", "seed")}
    measured = measure(norm=options["norm"], alpha=alphas[0], **chosen, **network)
    assert isinstance(measured, Measured)
    data = {**_fields(measured), "theory": propagation_data(measured.theory)}
    return measured, {**data.pop("settings").__dict__, **data}


def propagation_data(found: Propagation) -> dict[str, Any]:
    """The settings and all arrays, under the names of the Python interface; blocks first."""
    alpha = found.alphas[0] if found.q.ndim == 1 else found.alphas
    arrays = ("q", "p", "correlation", "J", "J_to_output", "log_J", "log_J_to_output")
    return {**found.settings.__dict__, "alpha": alpha, **{name: getattr(found, name) for name in arrays}}


def _fields(found: Any) -> dict[str, Any]:
    return dict(found.__dict__)


def signal_table(found: Propagation | Measured | Gains) -> Table:
    """The figures for reading: some of the blocks, or all layers."""
    if isinstance(found, Gains):
        return _gains_table(found)
    theory = found.theory if isinstance(found, Measured) else found
    settings = theory.settings
    caption = (
        f"{settings.tokens} tokens. J at block k is |dh^k / dh^0|^2 / (n d): 1 at the input, last the whole depth."
    )
    table = Table(title=f"Signal propagation, {settings.norm}", title_justify="left", caption=caption)
    table.add_column("block", justify="right")
    several = theory.q.ndim == 2
    for place, alpha in enumerate(theory.alphas):
        for name in ("q", "p", "J"):
            table.add_column(f"{name}, α {alpha:g}" if several else name, justify="right")
        if isinstance(found, Measured) and place == 0:
            table.add_column("J measured", justify="right")
            table.add_column("standard error", justify="right")
    for block in np.unique(np.linspace(0, settings.depth, min(ROWS, settings.depth + 1)).round().astype(int)):
        arrays = (theory.q[block], theory.p[block], theory.J[block])
        cells = [number(float(value), 6) for row in zip(*map(np.atleast_1d, arrays), strict=True) for value in row]
        if isinstance(found, Measured):
            cells += [number(float(found.J[block]), 5), number(float(found.J_standard_error[block]), 2)]
        table.add_row(str(block), *cells)
    return table


def _gains_table(found: Gains) -> Table:
    caption = (
        f"|d outputs / d stream|^2 / outputs. Average and largest: estimates from {found.samples} inputs of the "
        "domain. Certified: no input of the domain exceeds it."
    )
    table = Table(title="Gains", title_justify="left", caption=caption)
    for name in ("stream", "average", "standard error", "largest found", "certified"):
        table.add_column(name, justify="left" if name == "stream" else "right")
    for place in range(found.layers + 1):
        estimates = (found.average[place], found.standard_error[place], found.largest_found[place])
        certified = "" if found.certified is None else bound(float(found.certified[place]))
        where = f"after layer {place}" if place else "before the first layer"
        table.add_row(where, *(number(float(value)) for value in estimates), certified)
    return table
