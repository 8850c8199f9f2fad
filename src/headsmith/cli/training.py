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

PROTOCOLS = ("arithmetic", "law", "precision-ls", "precision-ls-square", "garg")
BUDGET = 1000
"""Steps of protocols."""


def read_seeds(text: str) -> int | list[int]:
    """A number of seeds, or seeds with commas between them."""
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number of seeds nor a list of them, as in 7,8,9") from None
    return numbers if "," in text else numbers[0]


def read_sweep(text: str) -> tuple[Any, range]:
    """AXIS=FROM:TO."""
    axis, _, ends = text.partition("=")
    first, _, last = ends.partition(":")
    if axis not in ("tokens", "heads", "layers") or not (
        first.isdigit() and last.isdigit() and int(last) >= int(first)
    ):
        raise click.BadParameter(f"cannot read the sweep {text!r}; write tokens=1:8, heads=1:4 or layers=1:5")
    return axis, range(int(first), int(last) + 1)


@click.command("train", cls=TakesFormulas, short_help="Train the architecture that was built, beside what was proven.")
@click.argument("target", nargs=-1)
@click.option("--domain", multiple=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable.")
@click.option("--like", type=click.Path(dir_okay=False), help="A compiled model: its target, domain and shape.")
@click.option("--error", type=float, default=1e-6, show_default=True, help="Without --like: what is compiled.")
@click.option("--seeds", default="5", show_default=True, help="How many seeds; or which: 7,8,9.")
@click.option("--start", "starts", multiple=True, help="random, compiled or perturbed; repeatable. Default: all.")
@click.option("--steps", type=click.IntRange(1), help=f"Steps of Adam. Default 2000, of protocols {BUDGET}.")
@click.option("--rate", "rates", type=float, multiple=True, help="Of Adam; repeatable. Default .1, .03 and .01.")
@click.option("--noise", type=float, default=0.1, show_default=True, help="Of perturbed starts, relative.")
@click.option("--dense", is_flag=True, help="Perturbed starts fill the zeros of the weights too.")
@click.option("--journal", type=click.Path(dir_okay=False), help="Remember stages here: the same call goes on.")
@click.option("--sweep", metavar="AXIS=FROM:TO", help="Error against size: tokens=1:8, heads=1:4 or layers=1:5.")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="A study of its own, with its caveats.")
@click.option(
    "--save", "folder", type=click.Path(file_okay=False), help="Write rows, settings and the best model here."
)
@output_option("Draw into a .png, .svg or .pdf file.", *PICTURES)
@format_option("markdown", "latex", "csv")
@as_json_option
def train_command(target: tuple[str, ...], domain: tuple[str, ...], like: str | None, **options: Any) -> None:
    """Train the architecture of a compiled model, the file in --like or what `compile` makes of TARGET: from random
    weights, from the built weights, and from near them. Every row has the largest error that a search finds, the proven
    one where there is one, what became of the certificate, whether it is the same circuit, and the largest weight.

    --sweep prints error against size. --protocol arithmetic says why small models err at arithmetic (TARGET may then be
    some of x*y, 1/x, max, sort); law follows error and weight of x^2; precision-ls and garg train published protocols
    within the budget of --steps, beside what is built."""
    if options["protocol"]:
        if like is not None or domain:
            raise click.UsageError("--protocol has targets and domains of its own: leave out --like and --domain")
        return show(_protocol(target, options), options)
    wanted, box = _target(target, domain, like)
    chosen = {name: options[name] for name in ("starts", "rates", "steps") if options[name]}
    chosen["seeds"] = read_seeds(options["seeds"])
    if options["sweep"]:
        from headsmith.lab.training.sweep import sweep_of

        axis, sizes = read_sweep(options["sweep"])
        chosen.pop("starts", None)
        return show(sweep_of(wanted, box, like, axis, sizes, _quiet(options), **chosen), options)
    from headsmith.lab.training.train import train

    chosen |= {"noise": options["noise"], "zeros": not options["dense"], "error": options["error"]}
    found = train(wanted, box, like=like, progress=_quiet(options), journal=options["journal"], **chosen)
    if options["folder"] is not None:
        found.save(options["folder"])
    show(found, options)


def _target(target: tuple[str, ...], domain: tuple[str, ...], like: str | None) -> tuple[Any, Any]:
    """The target and its domain, or nothing where --like says them."""
    from headsmith.cli.inputs import read_target
    from headsmith.language.domains import read_domain

    if not target and like is not None:
        return None, None
    if not target or (like is None and not domain):
        raise click.UsageError("give a TARGET with its --domain, or --like FILE")
    wanted, names = read_target(target)
    return wanted, read_domain(domain, names) if domain else None


def _quiet(options: dict[str, Any]) -> bool | None:
    """Whether progress is shown: on a terminal, but not beside JSON."""
    return False if options["as_json"] else None


def _protocol(target: tuple[str, ...], options: dict[str, Any]) -> Any:
    """A study of its own."""
    steps, name = options["steps"] or BUDGET, options["protocol"]
    if name == "arithmetic":
        from headsmith.lab.training.arithmetic import TARGETS, arithmetic

        return arithmetic(target or tuple(TARGETS), steps=steps, progress=_quiet(options))
    if target:
        raise click.UsageError(f"--protocol {name} has a target of its own: leave out {target[0]}")
    if name == "law":
        from headsmith.lab.training.laws import Effort, train_tables

        return train_tables("x**2", (-1.0, 1.0), 2, effort=Effort(steps=steps))
    if options["output"] is not None:
        raise click.UsageError(f"--protocol {name} prints a table and has no picture: leave out -o")
    from headsmith.lab.training.protocols import protocol

    return protocol(name, steps=steps, progress=_quiet(options))


def show(found: Any, options: dict[str, Any]) -> None:
    """Print what came out, and draw it where a file is named."""
    form, output, folder = options["form"], options["output"], options["folder"]
    if not hasattr(found, form):
        raise click.UsageError(f"what this prints has no form {form}: leave out --format")
    if output is not None:
        found.plot(output)
    if options["as_json"]:
        return print_json(file=output, folder=folder, **found.data())
    click.echo(getattr(found, form)().rstrip("\n"))
    for text in (output, folder):
        if text is not None:
            print_all(f"written to {text}")
