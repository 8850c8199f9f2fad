"""`headsmith records`: the cheapest certified models known, and how to beat one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from headsmith.cli.options import output_option
from headsmith.core.errors import HeadsmithError

if TYPE_CHECKING:
    from headsmith.lab.records.records import Record

COLUMNS = ("target", "domain", "error", "layers", "heads", "tokens", "parameters", "largest weight", "by")


@click.command("records", short_help="The cheapest certified models known; beat one.")
@click.option("--submit", type=click.Path(dir_okay=False), metavar="FILE", help="A saved model to compare with them.")
@click.option("--regenerate", is_flag=True, help="Compile every target again; what is cheaper becomes the record.")
@click.option("--only", default="", metavar="TEXT", help="Only targets whose formula holds this text.")
@click.option("--table", type=click.Path(dir_okay=False), help="A table of records other than that of this release.")
@output_option("Write the table, with what improved, as .csv.", ".csv")
@click.option("--format", "form", type=click.Choice(["table", "markdown", "latex", "csv"]), default="table")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def records_command(
    submit: str | None,
    regenerate: bool,
    only: str,
    table: str | None,
    output: str | None,
    form: str,
    as_json: bool,
) -> None:
    """The cheapest certified models known of forty targets, at errors 1e-2, 1e-4 and 1e-6: fewest layers, then heads,
    then tokens, then the smallest largest weight.

    --submit FILE proves a saved model of one of these targets by the kernel, and says whether it beats the record; the
    exit code is 1 if it beats none. With -o, the table that it improves is written.
    """
    from headsmith.core.folders import write_text
    from headsmith.lab.records.records import record_text, records, regenerated, shape, submitted
    from headsmith.report.data import as_data

    known = records(_text(table) if table is not None else None)
    told: dict[str, Any] = {}
    if submit is not None:
        found = submitted(submit, known, os.path.basename(submit))
        beaten = {(each.entry, each.error): each for each in found.beats}
        known = tuple(beaten.get((each.entry, each.error), each) for each in known)
        told = {"submitted": submit, "beats": list(found.beats), "certificate": found.certificate}
        for mine, before, better in found.compared:
            standing = "no record yet" if before is None else f"the record is {shape(before)}"
            outcome = "beats the record" if better else "does not beat the record"
            if not as_json:
                click.echo(f"{mine.formula} at {mine.error:g}: {outcome}: {shape(mine)}; {standing}")
    if regenerate:
        known = regenerated(known, lambda line: click.echo(line, err=True), only)
    shown = [each for each in known if only in each.formula]
    if output is not None:
        write_text(output, record_text(known))
    if as_json:
        click.echo(json.dumps(as_data({**told, "records": shown})))
    elif submit is None:
        _show(shown, form)
    if submit is not None and not told["beats"]:
        raise click.exceptions.Exit(1)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as problem:
        raise HeadsmithError(f"{path}: no table of records ({problem})") from None


def _show(shown: list[Record], form: str) -> None:
    from headsmith.core.figures import number
    from headsmith.core.markup import PREAMBLE, latex_table, markdown_table
    from headsmith.lab.records.records import record_text

    cells = [
        (
            each.formula,
            each.domain,
            f"{each.error:g}",
            number(each.layers),
            number(each.heads),
            number(each.reference_tokens + each.data_tokens),
            number(each.parameters),
            number(each.max_weight),
            each.by,
        )
        for each in shown
    ]
    caption = "The cheapest certified models known: layers, then heads, then tokens, then the largest weight."
    if form == "csv":
        return click.echo(record_text(shown).rstrip("\n"))
    if form == "markdown":
        return click.echo(markdown_table(COLUMNS, cells))
    if form == "latex":
        return click.echo(f"{PREAMBLE}\n{latex_table(COLUMNS, cells, caption)}")
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title="Records", caption=f"{caption} Tokens are reference and data tokens.", box=SIMPLE_HEAD)
    for name in COLUMNS:
        drawn.add_column(name, justify="left" if name in ("target", "domain", "by") else "right", overflow="fold")
    for before, line in zip([None, *cells], cells, strict=False):
        same = before is not None and before[:2] == line[:2]
        drawn.add_row(*("", "", *line[2:]) if same else line)
    return Console().print(drawn)
