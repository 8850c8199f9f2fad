"""Commands about how much is enough: the best model within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headsmith.cli.options import (
    DTYPES,
    TakesFormulas,
    as_json_option,
    network_options,
    output_option,
    print_all,
    print_json,
)

if TYPE_CHECKING:
    from headsmith.core.rounding import Dtype

domain_option = click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable."
)


@click.command("best", cls=TakesFormulas, short_help="The most accurate model within limits of its cost.")
@click.argument("target", nargs=-1, required=True)
@domain_option
@click.option("--layers", type=int, help="The most layers.")
@click.option("--heads", type=int, help="The most heads.")
@click.option("--reference-tokens", type=int, help="The most reference tokens.")
@click.option("--parameters", type=int, help="The most parameters.")
@click.option("--d-model", type=int, help="The most columns of the stream.")
@click.option("--d-head", type=int, help="The widest queries and keys.")
@click.option("--max-weight", type=float, help="The largest weight.")
@click.option("--max-score", type=float, help="The largest attention score.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float64", show_default=True, help="What it runs in.")
@click.option("--recipe", default="auto", show_default=True, help="auto, native, relu, ramp or maxout.")
@click.option("--binds", is_flag=True, help="Say which limit to relax: the same search again for each.")
@network_options
@output_option("Where to save the model (.safetensors).")
@as_json_option
def best_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    dtype: Dtype,
    recipe: str,
    binds: bool,
    shape: str | None,
    allow_pickle: bool,
    output: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """The certified model of TARGET with the smallest error that is found within all limits; there must be one.

    Its error is proven; that nothing within the limits is better is not: headsmith lower-bound proves such things.
    """
    from headsmith.cli.inputs import read_shape, read_target
    from headsmith.lab.enough.best import best
    from headsmith.language.domains import read_domain

    wanted, names = read_target(target, read_shape(shape), allow_pickle)
    model = best(wanted, read_domain(domain, names), dtype=dtype, recipe=recipe, **limits)
    if output is not None:
        model.save(output)
    told: dict[str, Any] = {"binds": model.binds, "limits": model.limits} if binds else {}
    if as_json:
        return print_json(file=output, certificate=model.certificate, bill=model.bill, **told)
    from headsmith.report.certificate import certificate_table
    from headsmith.report.tables import bill_table

    print_all(certificate_table(model.certificate), bill_table(model.bill))
    for name, times in told.get("limits", {}).items():
        print_all(f"{name}: one step more makes the error {times:.3g} times smaller")
    if binds:
        print_all("no limit binds" if model.binds is None else f"the limit that binds is {model.binds}")
    print_all(f"saved to {output}" if output is not None else "not saved: give -o FILE to keep the model")


@click.command("lower-bound", cls=TakesFormulas, short_help="An error below which no head of a shape can be.")
@click.argument("target", nargs=-1, required=True)
@domain_option
@click.option("--heads", type=int, default=1, show_default=True, help="How many heads: one is all that is known.")
@click.option("--reference-tokens", type=int, default=1, show_default=True, help="Tokens of the head.")
@click.option("--max-weight", type=float, help="The steepest line that the stream adds to the head.")
@click.option("--affine/--pure", default=True, show_default=True, help="Whether the stream adds a line at all.")
@output_option("Where to save the proof (.safetensors), for headsmith verify.")
@as_json_option
def lower_bound_command(
    target: tuple[str, ...], domain: tuple[str, ...], output: str | None, as_json: bool, **shape: Any
) -> None:
    """A number below which the error of no table head for TARGET can be, whatever its keys and values are: a theorem,
    or a certificate that the kernel has checked. What is not proven is refused."""
    from headsmith.cli.inputs import read_target
    from headsmith.lab.enough.bounds import below, lower_bound
    from headsmith.language.domains import read_domain

    wanted, names = read_target(target)
    found = lower_bound(wanted, read_domain(domain, names), **shape)
    if output is not None:
        found.save(output)
    if as_json:
        told = {name: getattr(found, name) for name in ("value", "kind", "text", "reference_tokens", "affine")}
        return print_json(file=output, **told)
    kind = "affine" if found.affine else "pure"
    print_all(f"no {kind} head of {found.reference_tokens} tokens has an error below {below(found.value)}")
    print_all(f"{found.kind}: {found.text}")
    if output is not None:
        print_all(f"saved to {output}")
