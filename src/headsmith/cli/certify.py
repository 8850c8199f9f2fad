"""The command that certifies what somebody brings: a module, matrices or a compiled model, against a formula."""

from __future__ import annotations

from typing import Any

import click

from headsmith.cli.options import TakesFormulas, as_json_option, output_option, print_all, print_json


@click.command("certify", cls=TakesFormulas, short_help="Prove how far a given attention module is from a formula.")
@click.argument("module", type=click.Path(exists=True))
@click.argument("target", nargs=-1, required=True)
@click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable."
)
@click.option("--ratio", type=float, default=1.5, show_default=True, help="Stop at so many times the error found.")
@click.option("--within", type=float, help="Prove or disprove this error instead.")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), help="What the module runs in.")
@click.option("--order", type=int, help="The degree of the polynomials; by default a few are tried.")
@click.option("--output-at", "outputs", type=int, multiple=True, help="Which outputs count; repeatable. Default: all.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds; then what was reached is told.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False), help="Draw the error and the cells (.png, ...).")
@output_option("Write the claim, the weights and the proof to this .safetensors file.")
@as_json_option
def certify_command(
    module: str,
    target: tuple[str, ...],
    domain: tuple[str, ...],
    outputs: tuple[int, ...],
    picture: str | None,
    output: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Prove how far MODULE is from the formula TARGET, everywhere on a domain.

    MODULE is a file: a torch module of torch's own layers as torch.save writes it (.pt), a program of torch.export
    (.pt2), a compiled model (.safetensors), or the matrices of attention (.npz with W_Q, W_K, W_V, W_O, ...). The
    answer is proven, disproved or open; exit code 1 if an error that was asked for with --within is not proven.
    """
    from headsmith.certify import certify
    from headsmith.cli.inputs import read_target
    from headsmith.language.domains import read_domain
    from headsmith.readers.given import read_given_file

    wanted, names = read_target(target)
    intervals = read_domain(domain, names)
    order: Any = options.pop("order") or "auto"
    certified = certify(
        read_given_file(module), wanted, intervals, output=list(outputs) or None, order=order,
        progress=False if as_json else None, **options,
    )  # fmt: skip
    if output is not None:
        certified.save(output)
    if picture is not None:
        certified.plot(picture)
    if as_json:
        print_json(file=output, **certified.figures)
    else:
        print_all(str(certified), *certified.notes)
    if options["within"] is not None and certified.verdict != "proven":
        raise click.exceptions.Exit(1)
