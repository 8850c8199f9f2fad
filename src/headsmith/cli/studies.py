"""Commands that study: linear regions, signals through depth, claims of the literature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
from headsmith.core.errors import HeadsmithError

if TYPE_CHECKING:
    from headsmith.lab.claims.rows import CheckedClaim, Claim


@click.command("regions", cls=TakesFormulas, short_help="Count and draw the linear regions of a network.")
@click.argument("target", nargs=-1, required=True)
@click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all coordinates, or for one."
)
@click.option("--slice", "slices", multiple=True, help="Two inputs (x0,x3); or origin, u and v, repeated.")
@click.option("--at", multiple=True, metavar="NAME=VALUE", help="Where the other inputs are held (default 0).")
@click.option("--limit", type=int, help="Stop after so many cells, and say so: two million, but none with --count.")
@click.option("--count", "only_count", is_flag=True, help="Count cells and forget them: in bounded memory.")
@click.option("--workers", type=int, help="Processes that share a long count; one for each core.")
@click.option("--soften", is_flag=True, help="Draw how softmax softens them instead, at growing scales: two inputs.")
@output_option("Draw the regions into a .png, .svg or .pdf file.", *PICTURES)
@as_json_option
def regions_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    slices: tuple[str, ...],
    at: tuple[str, ...],
    limit: int | None,
    only_count: bool,
    workers: int | None,
    soften: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Count the linear regions of TARGET on a box: a file with a network of ReLUs (.onnx, .safetensors, .npz), or a
    formula of max, min, relu and abs."""
    from headsmith.cli.inputs import read_target
    from headsmith.lab.regions.command import coordinate_names, count_regions, summary_table
    from headsmith.language.domains import read_domain

    wanted, names = read_target(target)
    box = read_domain(domain, coordinate_names(slices, names))
    if soften and (output is None or slices or len(names) != 2):
        raise click.UsageError("--soften draws a target of two inputs, without a slice, into the file of -o")
    summary, found = count_regions(
        wanted,
        names,
        box,
        slices=slices,
        at=at,
        limit=limit,
        keep=not only_count,
        workers=workers,
        output=output,
        show_progress=not as_json,
    )
    if not as_json:
        print_all(summary_table(summary))
    if output is not None:
        from headsmith.lab.regions.draw import draw_regions, draw_softening

        if soften:
            draw_softening(found.oracle.levels, found.box, output)
        else:
            draw_regions(found, output, title=" ".join(target))
    if as_json:
        print_json(regions=summary)
    elif output is not None:
        print_all(f"drawn into {output}")


@click.command("signal", short_help="How signals and gradients grow through deep transformers.")
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@click.option("--norm", default="layernorm", show_default=True, help="layernorm, derf or dyt.")
@click.option("--alpha", type=float, multiple=True, help="Of derf, erf(alpha x), and dyt; repeatable. Default 1.")
@click.option("--depth", type=int, help="How many blocks. Default 64; 12 with --measure.")
@click.option("--tokens", type=int, help="How many tokens. Default 196; 16 with --measure.")
@click.option("--q0", type=float, default=1.0, show_default=True, help="Mean square of the input.")
@click.option("--p0", type=float, default=0.2, show_default=True, help="The same between two tokens.")
@click.option("--sigma-o", type=float, help="Deviation of W_O, times sqrt(inputs); default as in a ViT-Base.")
@click.option("--sigma-v", type=float, help="Of W_V.")
@click.option("--sigma-1", type=float, help="Of W_1, into the MLP.")
@click.option("--sigma-2", type=float, help="Of W_2, out of the MLP.")
@click.option("--sigma-qk", type=float, help="Of W_Q times that of W_K; none: every token looks at all evenly.")
@click.option("--finite-tokens", is_flag=True, help="Keep terms of order 1/tokens.")
@click.option("--measure", "measured", is_flag=True, help="Measure random transformers, beside the theory.")
@click.option("--width", type=int, default=192, show_default=True, help="With --measure: of the stream.")
@click.option("--networks", type=int, default=8, show_default=True, help="With --measure: how many.")
@click.option("--probes", type=int, default=4, show_default=True, help="With --measure: random directions each.")
@click.option("--samples", type=int, default=64, show_default=True, help="With FILE: how many inputs.")
@click.option("--seed", type=int, default=0, show_default=True)
@output_option("Draw into a .png, .svg or .pdf file.", *PICTURES)
@as_json_option
def signal_command(file: str | None, output: str | None, as_json: bool, **options: Any) -> None:
    """Run the recurrences of the average partial Jacobian norm: q and p of the stream, and J = |dh / dh0|^2 / (n d),
    block by block. With --measure, measure random transformers too; with the FILE of a compiled model, show how much
    its outputs move with its stream, layer by layer: on average, at most as found, and at most as certified."""
    from headsmith.lab.signal.command import run_signal, signal_table

    found, drawn = run_signal(file, options)
    if output is not None:
        found.draw(output)
    if as_json:
        return print_json(file=output, **drawn)
    print_all(signal_table(found))
    if output is not None:
        print_all(f"drawn into {output}")


@click.command("claims", short_help="Check claims of the literature by running them.")
@click.option("--only", multiple=True, metavar="ID", help="Check this claim only; repeatable.")
@click.option("--figures", is_flag=True, help="Show every figure, not only the outcome.")
@output_option("Draw U3, error against heads and tokens, into a .png, .svg or .pdf file.", *PICTURES)
@format_option("markdown", "latex", "json")
@as_json_option
def claims_command(only: tuple[str, ...], figures: bool, output: str | None, form: str, as_json: bool) -> None:
    """Check the claims of the literature by running them. Exit code 1 if one fails.

    A claim that needs a package that is not installed is listed as not checked; it does not fail.
    """
    from headsmith.lab.claims.rows import check, select

    chosen = select([name for text in only for name in text.split(",")])
    if output is not None and "U3" not in [row.id for row in chosen]:
        raise HeadsmithError("-o draws claim U3, which is not among those that are checked: add --only U3")
    rows = list(_with_progress(chosen, check))
    if output is not None:
        from headsmith.lab.claims.universal_plot import draw_universal

        draw_universal(next(row.figure for row in rows if row.id == "U3"), output)
    if as_json or form == "json":
        print_json(claims=rows)
    elif form == "table":
        from headsmith.lab.claims.tables import claims_table, figures_table

        print_all(claims_table(rows), *(figures_table(row) for row in rows if figures))
    else:
        from headsmith.lab.claims.markup import latex, markdown

        click.echo(markdown(rows) if form == "markdown" else latex(rows))
    if any(row.holds is False for row in rows):
        raise click.exceptions.Exit(1)


def _with_progress(
    chosen: Sequence[Claim], check: Callable[[Sequence[Claim]], Iterable[CheckedClaim]]
) -> Iterable[CheckedClaim]:
    """Check claims one at a time; on a terminal, say which one is under way."""
    from rich.console import Console

    console = Console(stderr=True)
    for place, row in enumerate(chosen):
        if console.is_terminal:
            with console.status(f"{place + 1} of {len(chosen)}   {row.id}  {row.claim}"):
                yield from check([row])
        else:
            yield from check([row])
