"""What commands have in common: options, arguments that are formulas, printing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from headsmith.core.errors import HeadsmithError

DTYPES = ("float64", "float32", "bfloat16", "float16")
"""The formats of models, by name: those of core/rounding.py, which would load numpy for --help."""

Command = TypeVar("Command", bound=Callable[..., Any])


def writable(path: str) -> None:
    """Refuse an output file that cannot be written, before any work is done."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise click.BadParameter(f"{path}: the folder {folder} does not exist; create it first")
    if os.path.isdir(path):
        raise click.BadParameter(f"{path}: is a folder; name a file in it")
    if not os.access(folder, os.W_OK):
        raise click.BadParameter(f"{path}: the folder cannot be written to")


def output_option(text: str, *endings: str, required: bool = False) -> Callable[[Command], Command]:
    """-o FILE, which must end in one of `endings`, if there are any; a model may end in anything that is not something
    else. Whether it can be written is found out before any work is done; so is whether pictures can be drawn at all."""

    def checked(_context: click.Context, _parameter: click.Parameter, path: str | None) -> str | None:
        if path is None:
            return None
        if not endings and path.lower().endswith(OTHERS):
            raise HeadsmithError(f"{path}: a model is saved as a .safetensors file")
        if endings and not path.lower().endswith(endings):
            raise HeadsmithError(f"{path}: the file must end in {' or '.join(endings)}")
        writable(path)
        if endings == PICTURES:
            from headsmith.core.pictures import checked_picture

            checked_picture(path)
        return path

    return click.option("-o", "--output", type=click.Path(), required=required, callback=checked, help=text)


def format_option(*forms: str) -> Callable[[Command], Command]:
    """--format, of which `table` is the default."""
    kind = click.Choice(["table", *forms])
    text = "csv has numbers in full; latex needs booktabs." if "csv" in forms else "All but table have every figure."
    return click.option("--format", "form", type=kind, default="table", show_default=True, help=text)


PICTURES = (".png", ".svg", ".pdf")
OTHERS = (*PICTURES, ".csv", ".json", ".npz", ".npy", ".onnx", ".pt", ".py", ".txt", ".tex", ".md")
"""Endings that no model has."""


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
file_argument = click.argument("file", type=click.Path(dir_okay=False))


def network_options(command: Command) -> Command:
    """What is to be said about a file with a network."""
    pickles = "Load a pickle (.pt, .pkl): it may run any code."
    command = click.option("--allow-pickle", is_flag=True, help=pickles)(command)
    shape = "Of one input of the network, where its file does not say it: 1,8,8."
    return click.option("--shape", metavar="SIZES", help=shape)(command)


class TakesFormulas(click.Command):
    """A command whose arguments may start with a minus sign, as -x*y does."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        valued = {name for each in self.params if not getattr(each, "is_flag", False) for name in each.opts}
        before = ["", *arguments]
        shielded = [
            f" {text}" if _MINUS.match(text) and previous not in valued else text
            for previous, text in zip(before, arguments, strict=False)
        ]
        return super().parse_args(context, shielded)


_MINUS = re.compile(r"-(?!-|o|h$|$)")
"""How a formula that starts with a minus sign differs from the options -o, -h and --any."""


NARROWEST = 76
"""How many columns tables have at least."""


def print_all(*items: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    # Tables would drop columns where they do not fit: let a narrow terminal wrap their lines instead.
    console.width = max(console.width, NARROWEST)
    for item in items:
        console.print(item, soft_wrap=isinstance(item, str))


def print_json(**items: Any) -> None:
    import json

    from headsmith.report.data import as_data

    click.echo(json.dumps(as_data(items)))
