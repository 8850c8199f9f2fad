"""Commands about how much is enough: the best model within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headsmith.cli.options import (
    DTYPES,
    PICTURES,
    TakesFormulas,
    as_json_option,
    format_option,
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


@click.command("law", cls=TakesFormulas, short_help="How many heads are enough for every error of a range.")
@click.argument("target", nargs=-1, required=True)
@domain_option
@click.option("--recipe", default="relu", show_default=True, help="auto, native, relu, ramp, maxout or swiglu.")
@click.option("--errors", nargs=2, type=float, default=(1e-8, 1e-1), show_default=True, help="Smallest and largest.")
@click.option("--latex", is_flag=True, help="Print the theorem and its proof for a paper.")
@click.option("-o", "--output", type=click.Path(file_okay=False), help="A folder for the models that prove it.")
@as_json_option
def law_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    recipe: str,
    errors: tuple[float, float],
    latex: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """A theorem about every error of a range, proved by finitely many certificates."""
    from headsmith.cli.inputs import read_target
    from headsmith.lab.enough.law import law
    from headsmith.language.domains import read_domain

    wanted, names = read_target(target)
    found = law(wanted, read_domain(domain, names), recipe, errors)
    if output is not None:
        found = found.save(output)
    if as_json:
        steps = [{"error": each.certificate.error, "bill": each.bill} for each in found.models]
        return print_json(folder=output, text=found.text, steps=steps)
    click.echo(found.latex() if latex else found.text)


@click.command("frontier", cls=TakesFormulas, short_help="What each limit buys: the best model for every pair of them.")
@click.argument("target", nargs=-1, required=True)
@domain_option
@click.option("--layers", type=int, multiple=True, help="The most layers; repeatable, as all limits are.")
@click.option("--heads", type=int, multiple=True, help="The most heads.")
@click.option("--reference-tokens", type=int, multiple=True, help="The most reference tokens.")
@click.option("--max-weight", type=float, multiple=True, help="The largest weight.")
@click.option("--recipe", default="auto", show_default=True, help="auto, native, relu, ramp or maxout.")
@format_option("markdown", "latex", "csv")
@output_option("Draw the rows into a .png, .svg or .pdf file.", *PICTURES)
@as_json_option
def frontier_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    recipe: str,
    form: str,
    output: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """The most accurate models of TARGET that are found for every combination of limits, certified, with lower bounds
    where they are known."""
    from headsmith.cli.inputs import read_target
    from headsmith.lab.enough.frontier import frontier
    from headsmith.language.domains import read_domain

    wanted, names = read_target(target)
    given = {name: list(values) for name, values in limits.items() if values}
    rows = frontier(wanted, read_domain(domain, names), recipe=recipe, **given)
    if output is not None:
        rows.draw(output, ", ".join(target))
    if as_json:
        told = ("limits", "error", "bound", "pareto", "bill")
        return print_json(file=output, rows=[{name: getattr(row, name) for name in told} for row in rows])
    click.echo(rows.markdown() if form == "table" else getattr(rows, form)().rstrip("\n"))
