"""Certificates, bills and findings as tables that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from headsmith.certify.certificate import Certificate
from headsmith.plan import Row
from headsmith.report.claims import Checked
from headsmith.report.falsify import Found
from headsmith.transformer.bill import Bill

NEGLIGIBLE = 1e-300

MEANING = {
    "approximation": "tables and circuits against the target",
    "softmax": "a head of finite scale against its gate",
    "leak": "attention that reaches other tokens",
    "rounding": "floating point, in any order of summation",
}


def number(value: float | int, digits: int = 4) -> str:
    """A figure for reading: integers in groups of three, others with a few digits, nearest."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}" if value == 0.0 or abs(value) >= NEGLIGIBLE else "< 1e-300"


def bound(value: float, digits: int = 4) -> str:
    """A bound for reading: rounded up, so that what is printed is proven too."""
    if 0.0 < value < NEGLIGIBLE:
        return "< 1e-300"
    return f"{float(Decimal(value).normalize(Context(prec=digits, rounding=ROUND_CEILING))):.{digits}g}"


def certificate_table(certificate: Certificate) -> Table:
    """The proven error, its parts, and the statement in one sentence."""
    table = _table("Certificate", caption=statement(certificate))
    table.add_row("error", bound(certificate.error), "proven, everywhere on the domain", style="bold")
    for name, value in certificate.parts.items():
        table.add_row(f"  {name}", bound(value), MEANING.get(name, ""))
    if len(certificate.outputs) > 1:
        smallest, largest = min(certificate.outputs), max(certificate.outputs)
        table.add_row("each output", f"{bound(smallest)} to {bound(largest)}", f"{len(certificate.outputs)} outputs")
    return table


def statement(certificate: Certificate) -> str:
    """What the certificate says, in one sentence."""
    tokens = "" if certificate.tokens == 1 else f", with up to {number(certificate.tokens)} data tokens in a sequence"
    return (
        f"For every input in the domain and every output, |model - target| <= {bound(certificate.error)} "
        f"when run in {certificate.dtype}{tokens}."
    )


def bill_table(bill: Bill) -> Table:
    """What the model costs."""
    table = _table("Bill")
    table.add_row("layers", number(bill.layers), "attention layers, no feed-forward block")
    table.add_row("heads", number(bill.heads), per_layer(bill.heads_per_layer))
    table.add_row("reference tokens", number(bill.reference_tokens), "a constant prefix")
    table.add_row("d_model", number(bill.d_model), "columns of the residual stream")
    table.add_row("d_head", number(bill.d_head), "width of queries and keys")
    table.add_row("parameters", number(bill.parameters), "with every matrix written out")
    table.add_row("nonzeros", number(bill.nonzeros), "of these, not zero")
    table.add_row("max_weight", number(bill.max_weight), "largest absolute weight")
    table.add_row("max_score", bound(bill.max_score), "no attention score exceeds it")
    return table


def per_layer(heads: Sequence[int]) -> str:
    """The heads of each layer, abbreviated."""
    if not heads:
        return "the target is affine on this domain"
    if len(set(heads)) == 1:
        return f"{number(heads[0])} in each layer"
    shown = ", ".join(number(count) for count in heads[:8])
    return f"by layer: {shown}{', ...' if len(heads) > 8 else ''}"


def found_table(found: Found, certificate: Certificate) -> Table:
    """The falsifier's figure beside the bound."""
    table = _table("Falsifier")
    table.add_row("worst error found", number(found.error), f"an estimate, from {number(found.evaluations)} inputs")
    table.add_row("certified error", bound(certificate.error), "a bound")
    table.add_row("tightness", number(found.tightness, 3), "found / certified")
    return table


def plan_table(rows: Sequence[Row]) -> Table:
    """The rows of a plan, error by error, the cheapest first; narrow enough for a terminal of 80 columns."""
    caption = (
        "ratio: layers x heads of the published route (relu) over the row's\n"
        "*: no row of the same error is as good in all four columns and better in one"
    )
    table = Table(title="Plan", caption=caption, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    for name in ("error", "certified", "recipe", "layers", "heads", "tokens", "weights", "ratio"):
        left = name == "recipe"
        table.add_column(name, justify="left" if left else "right", no_wrap=not left, min_width=14 if left else None)
    table.add_column("")
    before: float | None = None
    for row in rows:
        if before is not None and row.error != before:
            table.add_section()
        bill = row.bill
        table.add_row(
            "" if row.error == before else number(row.error),
            bound(row.certified, 3),
            f"{row.recipe}: {row.variant}",
            number(bill.layers),
            number(bill.heads),
            number(bill.reference_tokens),
            number(bill.max_weight, 3),
            "" if row.ratio is None else f"{row.ratio:,.{0 if row.ratio >= 100 else 1}f}",
            "*" if row.pareto else "",
        )
        before = row.error
    return table


def claims_table(rows: Sequence[Checked]) -> Table:
    """One row for each claim: what was claimed, what was run, what came out."""
    table = Table(title="Claims", title_justify="left", show_lines=True)
    for name in ("id", "claim", "ran", "outcome"):
        table.add_column(name, no_wrap=name == "id", ratio=None if name == "id" else 1)
    for row in rows:
        style = "green" if row.holds else "red"
        table.add_row(row.id, row.claim, row.ran, f"[{style}]{row.verdict}[/{style}]")
    return table


def figures_table(row: Checked) -> Table:
    """The figures of one claim, in full."""
    rows: list[dict[str, Any]] = row.figure.get("rows", [])
    plain = {name: value for name, value in row.figure.items() if name != "rows"}
    caption = ", ".join(f"{word(name)} {figure_text(value)}" for name, value in plain.items())
    table = Table(title=f"{row.id}  {row.claim}", caption=caption, title_justify="left", caption_justify="left")
    names = list(dict.fromkeys(name for entry in rows for name in entry))
    for name in names:
        words = any(isinstance(entry.get(name), str) for entry in rows)
        table.add_column(word(name), justify="left" if words else "right")
    for entry in rows:
        table.add_row(*(figure_text(entry.get(name, "")) for name in names))
    return table


def word(name: str) -> str:
    """A figure's name for reading."""
    return name.replace("_", " ")


def figure_text(value: Any) -> str:
    """A figure for reading, whatever it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else "" if value is None else str(value)


def _table(title: str, caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", show_header=False)
    table.add_column("name", no_wrap=True)
    table.add_column("figure", justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    return table
