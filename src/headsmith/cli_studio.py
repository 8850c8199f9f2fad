"""`headsmith page` and `headsmith studio`: models to look at in a browser."""

from __future__ import annotations

import json

import click


@click.command("page", short_help="Write a model as a page that runs it in a browser.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="The .html file to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def page_command(file: str, output: str, as_json: bool) -> None:
    """Write the model in FILE as one self-contained page: its certificate, its bill, every head, and the model itself,
    which runs in the browser. The page works from disk and loads nothing. The certificate is proven again first."""
    from headsmith.studio.page import write_page

    size = write_page(file, output)
    click.echo(json.dumps({"file": output, "bytes": size}) if as_json else f"written to {output}, {size:,} bytes")
