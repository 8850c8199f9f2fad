"""The command that trains: the same architecture, built and proven, and trained."""

from __future__ import annotations

from typing import Any

import click

from headsmith.cli.options import (
    PICTURES,
    TakesFormulas,
    as_json_option,
    format_option,
    output_option,
    print_all,
    print_json,
)


def read_seeds(text: str) -> int | list[int]:
    """A number of seeds, or seeds with commas between them."""
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number of seeds nor a list of them, as in 7,8,9") from None
    return numbers if "," in text else numbers[0]


@click.command("train", cls=TakesFormulas, short_help="Train the architecture that was built, beside what was proven.")
@click.argument("target", nargs=-1)
@click.option("--domain", multiple=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable.")
@click.option("--like", type=click.Path(dir_okay=False), help="A compiled model: its target, domain and shape.")
@click.option("--error", type=float, default=1e-6, show_default=True, help="Without --like: what is compiled.")
@click.option("--seeds", default="5", show_default=True, help="How many seeds; or which: 7,8,9.")
@click.option("--start", "starts", multiple=True, help="random, compiled or perturbed; repeatable. Default: all.")
@click.option("--steps", type=int, default=2000, show_default=True, help="Steps of Adam.")
@click.option("--rate", "rates", type=float, multiple=True, help="Of Adam; repeatable. Default .1, .03 and .01.")
@click.option("--noise", type=float, default=0.1, show_default=True, help="Of perturbed starts, relative.")
@click.option("--dense", is_flag=True, help="Perturbed starts fill the zeros of the weights too.")
@click.option("--journal", type=click.Path(dir_okay=False), help="Remember stages here: the same call goes on.")
@click.option(
    "--save", "folder", type=click.Path(file_okay=False), help="Write rows, settings and the best model here."
)
@output_option("Draw error against steps into a .png, .svg or .pdf file.", *PICTURES)
@format_option("markdown", "latex", "csv")
@as_json_option
def train_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    like: str | None,
    output: str | None,
    form: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train the architecture of a compiled model, the file in --like or what `compile` makes of TARGET: from random
    weights, from the built ones, and from near them. Every row has the largest error that a search finds, the proven
    one where there is one, what became of the certificate, whether it is the same circuit, and the largest weight."""
    from headsmith.cli.inputs import read_target
    from headsmith.lab.training.train import train
    from headsmith.language.domains import read_domain

    wanted: Any = None
    box: Any = None
    if target:
        wanted, names = read_target(target)
        box = read_domain(domain, names) if domain else None
    if like is None and (wanted is None or box is None):
        raise click.UsageError("give a TARGET with its --domain, or --like FILE")
    folder = options.pop("folder")
    chosen = {name: options[name] for name in ("starts", "rates") if options[name]}
    training = train(
        wanted,
        box,
        like=like,
        progress=False if as_json else None,
        journal=options["journal"],
        error=options["error"],
        seeds=read_seeds(options["seeds"]),
        steps=options["steps"],
        noise=options["noise"],
        zeros=not options["dense"],
        **chosen,
    )
    if output is not None:
        training.plot(output)
    if folder is not None:
        training.save(folder)
    if as_json:
        return print_json(file=output, folder=folder, **training.data())
    click.echo(training.table() if form == "table" else getattr(training, form)().rstrip("\n"))
    for text in (output, folder):
        if text is not None:
            print_all(f"written to {text}")
