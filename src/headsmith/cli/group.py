"""The command line: parse, call, print. Whatever is heavy is imported inside the command that needs it.

Every command takes --json and then prints one JSON object on standard output and nothing else, with the names of the
Python interface. An error is one message on standard error (or {"error": {"kind", "message"}}): exit code 1, or 2 if
the command itself was misspelt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from headsmith import __version__
from headsmith.cli.certify import certify_command
from headsmith.cli.enough import best_command, frontier_command, law_command, lower_bound_command
from headsmith.cli.export import export_command, gallery_command
from headsmith.cli.models import (
    bill_command,
    explain_command,
    falsify_command,
    plot_command,
    run_command,
    verify_command,
)
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
from headsmith.cli.records import records_command
from headsmith.cli.selftest import selftest_command
from headsmith.cli.studies import claims_command, regions_command, signal_command
from headsmith.cli.studio import page_command, studio_command
from headsmith.cli.suite import suite_command
from headsmith.cli.training import train_command
from headsmith.core.errors import HeadsmithError

if TYPE_CHECKING:
    from headsmith.core.rounding import Dtype
    from headsmith.transformer.heads.attentions import AttentionKind, MaskKind


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="headsmith")
def commands() -> None:
    """Compile formulas and ReLU networks into softmax transformers, with a proof of the error and a bill of the
    cost.

    \b
    To begin:
      headsmith compile "x*y" --domain -1:1 --error 1e-6 -o product.safetensors
      headsmith run product.safetensors --input x=0.3 --input y=-0.7
      headsmith explain product.safetensors
      headsmith plan "1/x" --domain x=0.1:1 --error 1e-2 --error 1e-4
    """


@commands.command("compile", cls=TakesFormulas, short_help="Compile a formula or a network into a transformer.")
@click.argument("target", nargs=-1, required=True)
@click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable."
)
@click.option("--error", type=float, default=1e-6, show_default=True, help="The error that must be proven.")
@click.option("--recipe", default="auto", show_default=True, help="auto, native, relu, ramp, maxout or swiglu.")
@click.option("--tokens", type=int, default=1, show_default=True, help="Data tokens in one sequence, at most.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float64",
    show_default=True,
    help="What the model runs in.",
)
@click.option(
    "--attention",
    default="softmax",
    show_default=True,
    help="softmax, hardmax, sparsemax, sigmoid, relu, linear, elu+1.",
)
@click.option("--mask", help="A mask that the model must run under: full, causal or self+prefix.")
@click.option("--max-layers", type=int, help="Spend more heads to need no more layers than this.")
@click.option("--cost", multiple=True, metavar="NAME=WEIGHT", help="Weigh layers, heads, ...; repeatable.")
@click.option(
    "--approximates",
    multiple=True,
    metavar="FORMULA",
    help="What the network was made for: the proof is about that. One for each output.",
)
@network_options
@output_option("Where to save the model (.safetensors).")
@as_json_option
def compile_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    error: float,
    recipe: str,
    tokens: int,
    dtype: Dtype,
    attention: AttentionKind,
    mask: MaskKind | None,
    max_layers: int | None,
    cost: tuple[str, ...],
    approximates: tuple[str, ...],
    shape: str | None,
    allow_pickle: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Compile TARGET into a transformer: a formula ("x*y + sin(z)"), several (one output each), or a network: an .onnx
    file, or weights alone with ReLUs between the layers, as .safetensors (0.weight, 0.bias, 2.weight, ...) or .npz
    (W0, b0, W1, b1, ...).

    Formulas know + - * / **, the constants pi and e, and these functions: abs, arccos, arcsin, arctan, clip, cos, cosh,
    erf, exp, expm1, gaussian, gelu, hypot, j0, j1, log, log1p, max, median, min, norm, pow, relu, sigmoid, sign, sin,
    sinh, softplus, sqrt, step, tan, tanh.
    """
    from headsmith.cli.inputs import network_data, read_costs, read_shape, read_target
    from headsmith.compile import compile
    from headsmith.language.domains import read_domain

    wanted, names = read_target(target, read_shape(shape), allow_pickle)
    intervals = read_domain(domain, names)
    compiled = compile(
        wanted,
        intervals,
        error,
        recipe=recipe,
        tokens=tokens,
        dtype=dtype,
        max_layers=max_layers,
        cost=read_costs(cost),
        approximates=list(approximates) or None,
        attention=attention,
        mask=mask,
    )
    if output is not None:
        compiled.save(output)
    network = network_data(wanted)
    if as_json:
        return print_json(file=output, certificate=compiled.certificate, bill=compiled.bill, **network)
    from headsmith.report.certificate import certificate_table
    from headsmith.report.tables import bill_table

    if network:
        print_all(repr(wanted)[1:-1])
    print_all(certificate_table(compiled.certificate), bill_table(compiled.bill))
    print_all(f"saved to {output}" if output is not None else "not saved: give -o FILE to keep the model")


@commands.command("plan", cls=TakesFormulas, short_help="Compare what a target costs, recipe by recipe.")
@click.argument("target", nargs=-1, required=True)
@click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable."
)
@click.option(
    "--error",
    "errors",
    type=float,
    multiple=True,
    help="An error to prove; repeatable (default: 1e-2, 1e-4, 1e-6).",
)
@click.option("--tokens", type=int, default=1, show_default=True, help="Data tokens in one sequence, at most.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float64",
    show_default=True,
    help="What the model runs in.",
)
@click.option("--cost", multiple=True, metavar="NAME=WEIGHT", help="Weigh layers, heads, ...; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Show rows that others beat, too.")
@click.option("--swiglu", is_flag=True, help="Also with neurons of SwiGLU blocks for products and gates.")
@click.option("--against", type=click.Choice(["ffn"]), help="Compare attention with feed-forward networks instead.")
@network_options
@format_option("markdown", "latex", "csv")
@output_option("Draw the rows into a .png, .svg or .pdf file.", *PICTURES)
@as_json_option
def plan_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    errors: tuple[float, ...],
    tokens: int,
    dtype: Dtype,
    cost: tuple[str, ...],
    everything: bool,
    swiglu: bool,
    against: Literal["ffn"] | None,
    shape: str | None,
    allow_pickle: bool,
    form: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Certify TARGET at several errors with every recipe, and show which of the models nothing beats.

    --format latex, markdown or csv prints the rows for a paper or a spreadsheet.
    """
    from headsmith.cli.inputs import read_costs, read_shape, read_target
    from headsmith.language.domains import read_domain
    from headsmith.plan.rows import Plan, plan

    wanted, names = read_target(target, read_shape(shape), allow_pickle)
    intervals, weights = read_domain(domain, names), read_costs(cost)
    if against is not None:
        sides = plan(
            wanted, intervals, errors or (1e-2, 1e-4, 1e-6), tokens=tokens, dtype=dtype, cost=weights, against=against
        )
        if as_json:
            return print_json(rows=[side_data(side) for side in sides])
        return click.echo(repr(sides) if form == "table" else getattr(sides, form)().rstrip("\n"))
    asked = errors or (1e-2, 1e-4, 1e-6)
    rows = plan(wanted, intervals, asked, tokens=tokens, dtype=dtype, cost=weights, swiglu=swiglu)
    shown = Plan(row for row in rows if everything or row.pareto or row.recipe == "relu")
    if form == "table" and not as_json:
        from headsmith.report.tables import plan_table

        print_all(plan_table(shown))
    elif not as_json:
        click.echo(getattr(shown, form)().rstrip("\n"))
    if output is not None:
        from headsmith.report.plan_plot import draw_plan

        draw_plan(rows, output, ", ".join(target))
    if as_json:
        print_json(file=output, rows=[plan_data(row) for row in rows])
    elif output is not None:
        click.echo(f"drawn into {output}", err=form != "table")


def side_data(side: Any) -> dict[str, Any]:
    """A way to a target, without its model."""
    return {name: getattr(side, name) for name in ("way", "error", "certified", "work", "least")}


def plan_data(row: Any) -> dict[str, Any]:
    """A row of a plan, without its model."""
    names = ("recipe", "variant", "error", "certified", "pareto", "ratio", "bill")
    return {name: getattr(row, name) for name in names}


for _command in (
    run_command,
    verify_command,
    falsify_command,
    bill_command,
    explain_command,
    plot_command,
    regions_command,
    signal_command,
    claims_command,
    export_command,
    gallery_command,
    records_command,
    selftest_command,
    page_command,
    studio_command,
    suite_command,
    train_command,
    certify_command,
    best_command,
    lower_bound_command,
    law_command,
    frontier_command,
):
    commands.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit; whatever goes wrong on purpose becomes one message."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = commands.main(given, prog_name="headsmith", standalone_mode=False)
    except click.UsageError as problem:
        hint = "" if problem.ctx is None else f"\n{problem.ctx.get_usage()}"
        code = _fail(given, "UsageError", problem.format_message(), {}, 2, hint)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (HeadsmithError, OSError, click.ClickException) as problem:
        extra = {name: getattr(problem, name) for name in ("part", "smallest") if hasattr(problem, name)}
        code = _fail(given, type(problem).__name__, _message(problem), extra, 1)
    except MemoryError as problem:
        code = _fail(given, "MemoryError", f"there is not enough memory for this: {problem}", {}, 1)
    sys.exit(code if isinstance(code, int) else 0)


def _message(problem: Exception) -> str:
    return problem.format_message() if isinstance(problem, click.ClickException) else str(problem)


def _fail(given: Sequence[str], kind: str, message: str, extra: dict[str, Any], code: int, hint: str = "") -> int:
    if "--json" in given:
        print_json(error={"kind": kind, "message": message, **extra})
    else:
        click.echo(f"headsmith: {message}{hint}", err=True)
    return code
