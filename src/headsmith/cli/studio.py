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

    size, cannot = write_page(file, output)
    if as_json:
        click.echo(json.dumps({"file": output, "bytes": size} | ({"cannot": cannot} if cannot else {})))
        return
    click.echo(f"written to {output}, {size:,} bytes")
    if cannot:
        click.echo(f"it has the certificate and the bill, and does not run the model: {cannot}")


@click.command("studio", short_help="Open a page that compiles and shows models.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any that is free."
)
@click.option("--seconds", type=click.FloatRange(1), default=120, show_default=True, help="What one job may take.")
@click.option("--memory", type=click.FloatRange(1), default=6, show_default=True, help="The same, in GiB.")
@click.option("--browser/--no-browser", default=True, help="Whether to open a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one JSON object.")
def studio_command(port: int, seconds: float, memory: float, browser: bool, as_json: bool) -> None:
    """Open a page on this machine: type a formula, or drop a model or a network, and see the transformer being made.

    The page is reached from this machine alone. Ctrl-C ends it.
    """
    from headsmith.core.errors import HeadsmithError
    from headsmith.core.extras import install

    try:
        from headsmith.studio.jobs import Limits
        from headsmith.studio.server import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise HeadsmithError(f"the studio needs starlette and uvicorn: {install('web')}") from None

    def ready(address: str) -> None:
        click.echo(json.dumps({"address": address}) if as_json else f"the studio is at {address} (Ctrl-C ends it)")
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(port, Limits(seconds=seconds, memory=int(memory * 2**30)), ready)
