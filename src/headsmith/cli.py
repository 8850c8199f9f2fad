"""The command line: parse, call, print. Whatever is heavy is imported inside the command that needs it.

Every command takes --json and then prints one JSON object on standard output and nothing else, with the names of the
Python interface. An error is one message on standard error (or {"error": {"kind", "message"}}): exit code 1, or 2 if
the command itself was misspelt.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headsmith import __version__
from headsmith.cli_export import export_command
from headsmith.cli_records import records_command
from headsmith.cli_selftest import selftest_command
from headsmith.cli_studio import page_command, studio_command
from headsmith.core.errors import HeadsmithError

if TYPE_CHECKING:
    from headsmith.core.rounding import Dtype
    from headsmith.report.claims import Checked, Claim

Command = TypeVar("Command", bound=Callable[..., Any])


def _writable(path: str) -> None:
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
        _writable(path)
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


def network_options(command: Command) -> Command:
    """What is to be said about a file with a network."""
    pickles = "Load a pickle (.pt, .pkl): it may run any code."
    command = click.option("--allow-pickle", is_flag=True, help=pickles)(command)
    shape = "Of one input of the network, where its file does not say it: 1,8,8."
    return click.option("--shape", metavar="SIZES", help=shape)(command)


class _TakesFormulas(click.Command):
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


@commands.command("compile", cls=_TakesFormulas, short_help="Compile a formula or a network into a transformer.")
@click.argument("target", nargs=-1, required=True)
@click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all inputs, or for one; repeatable."
)
@click.option("--error", type=float, default=1e-6, show_default=True, help="The error that must be proven.")
@click.option("--recipe", default="auto", show_default=True, help="auto, native, relu, ramp or maxout.")
@click.option("--tokens", type=int, default=1, show_default=True, help="Data tokens in one sequence, at most.")
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="What the model runs in.",
)
@click.option("--max-layers", type=int, help="Spend more heads to need no more layers than this.")
@click.option("--cost", multiple=True, metavar="NAME=WEIGHT", help="Weigh layers, heads, ...; repeatable.")
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
    max_layers: int | None,
    cost: tuple[str, ...],
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
    from headsmith.compile import compile
    from headsmith.report.inputs import network_data, read_costs, read_domain, read_shape, read_target

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
    )
    if output is not None:
        compiled.save(output)
    network = network_data(wanted)
    if as_json:
        return _print_json(file=output, certificate=compiled.certificate, bill=compiled.bill, **network)
    from headsmith.report.certificate import certificate_table
    from headsmith.report.tables import bill_table

    if network:
        _print(repr(wanted)[1:-1])
    _print(certificate_table(compiled.certificate), bill_table(compiled.bill))
    _print(f"saved to {output}" if output is not None else "not saved: give -o FILE to keep the model")


@commands.command("plan", cls=_TakesFormulas, short_help="Compare what a target costs, recipe by recipe.")
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
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="What the model runs in.",
)
@click.option("--cost", multiple=True, metavar="NAME=WEIGHT", help="Weigh layers, heads, ...; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Show rows that others beat, too.")
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
    shape: str | None,
    allow_pickle: bool,
    form: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Certify TARGET at several errors with every recipe, and show which of the models nothing beats.

    --format latex, markdown or csv prints the rows for a paper or a spreadsheet.
    """
    from headsmith.plan import Plan, plan
    from headsmith.report.inputs import read_costs, read_domain, read_shape, read_target

    wanted, names = read_target(target, read_shape(shape), allow_pickle)
    intervals, weights = read_domain(domain, names), read_costs(cost)
    rows = plan(wanted, intervals, errors or (1e-2, 1e-4, 1e-6), tokens=tokens, dtype=dtype, cost=weights)
    shown = Plan(row for row in rows if everything or row.pareto or row.recipe == "relu")
    if form == "table" and not as_json:
        from headsmith.report.tables import plan_table

        _print(plan_table(shown))
    elif not as_json:
        click.echo(getattr(shown, form)().rstrip("\n"))
    if output is not None:
        from headsmith.report.plan_plot import draw_plan

        draw_plan(rows, output, ", ".join(target))
    if as_json:
        _print_json(file=output, rows=[plan_data(row) for row in rows])
    elif output is not None:
        click.echo(f"drawn into {output}", err=form != "table")


def plan_data(row: Any) -> dict[str, Any]:
    """A row of a plan, without its model."""
    names = ("recipe", "variant", "error", "certified", "pareto", "ratio", "bill")
    return {name: getattr(row, name) for name in names}


@commands.command("run", short_help="Run a model on one input or on a table.")
@file_argument
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="One input; repeat for each.")
@click.option("--csv", "table", type=click.Path(dir_okay=False), help="A table of inputs, one row each.")
@output_option("Write the outputs to this .csv file.", ".csv")
@click.option("--causal", is_flag=True, help="Run under a causal mask.")
@click.option("--outside", is_flag=True, help="Run inputs outside the domain too: no certificate.")
@as_json_option
def run_command(
    file: str,
    inputs: tuple[str, ...],
    table: str | None,
    output: str | None,
    causal: bool,
    outside: bool,
    as_json: bool,
) -> None:
    """Run the model in FILE on one input, or on the rows of a .csv file.

    A model of several tokens takes the rows as sequences, as many rows in each as it has tokens.
    """
    from headsmith.files import load
    from headsmith.report import inputs as reading

    if (table is None) == (not inputs):
        raise click.UsageError("give the inputs with --input NAME=VALUE, or a table of them with --csv FILE")
    model = load(file)
    names = reading.input_names(model)
    rows, places = reading.read_rows(table, names) if table is not None else (reading.read_point(inputs, names), [])
    if not outside:
        reading.refuse_outside(model, rows, places)
    promised = not reading.outside_rows(model, rows).any()
    outputs = reading.run_rows(model, rows, causal=causal)
    if output is not None:
        reading.write_rows(output, outputs)
    divided = reading.sequences_text(model, rows)
    notes = [text for text in (divided, None if promised else OUTSIDE) if text is not None]
    if as_json:
        shown = (rows, outputs) if table is not None else (rows[0], outputs[0])
        certificate = model.certificate if promised else None
        extra = {"note": "; ".join(notes)} if notes else {}
        return _print_json(names=names, inputs=shown[0], outputs=shown[1], certificate=certificate, **extra)
    for text in notes:
        click.echo(f"headsmith: {text}", err=True)
    if output is not None:
        return _print(f"{len(outputs)} row{'' if len(outputs) == 1 else 's'} to {output}")
    if table is not None:
        return reading.write_rows(None, outputs)
    for index, value in enumerate(outputs[0].tolist()):
        click.echo(f"y{index} = {value!r}")


OUTSIDE = "some inputs lie outside the domain: nothing is promised of these outputs"


@commands.command("verify", short_help="Prove the certificate again from the weights.")
@click.argument("file", type=click.Path())
@click.option(
    "--trusted",
    type=click.Path(dir_okay=False),
    metavar="LISTING",
    help="Write the lines of the kernel that ran for this file: all that one has to read to trust it.",
)
@as_json_option
def verify_command(file: str, trusted: str | None, as_json: bool) -> None:
    """Prove the certificate of FILE again, from its weights. Exit code 1 and the reason if that fails. FILE may be a
    folder that `headsmith export` wrote: then everything in it must be what was proven, bit for bit."""
    from headsmith.verify import verify

    if trusted:
        _writable(trusted)
    certificate, lines = verify(file), None
    if trusted:
        from headsmith.core.folders import write_text
        from headsmith.report.trusted import listing, ran_for

        ran = ran_for(file)
        lines = {name: len(each) for name, each in ran.items()}
        write_text(trusted, listing(ran))
    if as_json:
        counted = {} if lines is None else {"trusted": {"listing": trusted, "lines": lines}}
        return _print_json(file=file, verified=True, certificate=certificate, **counted)
    from headsmith.report.certificate import certificate_table

    told = "verified: proved from the stored weights, by the kernel alone"
    if os.path.isdir(file):
        told = "verified: the proof in the folder holds, and everything beside it is the proven model, bit for bit"
    assumed = [f"assumed, and not proved: {each}" for each in certificate.assumes]
    if lines is not None:
        told += f"\n{sum(lines.values()):,} lines of the kernel ran for it, in {len(lines)} modules: {trusted} has them"
    _print(certificate_table(certificate), *assumed, told)


@commands.command("falsify", short_help="Search for the worst input.")
@file_argument
@click.option("--effort", type=click.IntRange(8), default=4000, show_default=True, help="How many inputs to try.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed tries other random inputs.")
@as_json_option
def falsify_command(file: str, effort: int, seed: int, as_json: bool) -> None:
    """Search for the input where the model in FILE errs most, and show it beside the certified error."""
    from headsmith.files import load
    from headsmith.report.falsify import falsify

    model = load(file)
    found = falsify(model, effort=effort, seed=seed)
    if as_json:
        _print_json(found=found, certificate=model.certificate)
    else:
        from headsmith.report.inputs import assumption
        from headsmith.report.tables import found_table

        _print(found_table(found, model.certificate))
        if assumption(model):
            _print("the target was sampled: the error is that of the worst function that is as stated")
    if found.refutes:
        click.echo(f"headsmith: refuted: an input errs by {found.ratio:.6g} times what is certified", err=True)
        raise click.exceptions.Exit(1)


@commands.command("bill", short_help="Show what a model costs.")
@file_argument
@click.option("--dimensions", "shapes", is_flag=True, help="The shapes of all matrices, layer by layer.")
@format_option("markdown", "latex", "csv")
@as_json_option
def bill_command(file: str, shapes: bool, form: str, as_json: bool) -> None:
    """Show what the model in FILE costs; with --dimensions, the shapes of W_Q, W_K, W_V and W_O in every layer.
    --format latex, markdown or csv prints it for a paper or a spreadsheet."""
    from headsmith.files import load

    model = load(file)
    if as_json:
        return _print_json(file=file, bill=model.bill, dimensions=model.dimensions)
    if form != "table":
        return click.echo(getattr(model.dimensions if shapes else model.bill, form)().rstrip("\n"))
    from headsmith.report.tables import bill_table, dimensions_table

    _print(dimensions_table(model.dimensions) if shapes else bill_table(model.bill))


@commands.command("explain", short_help="Tell a model in words, head by head.")
@file_argument
@click.option("--heads", type=click.IntRange(0), default=12, show_default=True, help="Heads to tell one by one.")
@output_option("Write it as an .html page, with certificate and bill.", ".html", ".htm")
@as_json_option
def explain_command(file: str, heads: int, output: str | None, as_json: bool) -> None:
    """Tell the model in FILE in words: its tokens, what it holds at first, layer by layer and head by head, what it
    returns. --heads limits how many heads of each kind and layer are told one by one; -o writes a page, which has the
    matrices of small models too."""
    from headsmith.files import load

    model = load(file)
    if output is not None:
        from headsmith.core.folders import write_text
        from headsmith.report.told import told

        write_text(output, told(model, heads))
        return _print_json(file=file, page=output) if as_json else click.echo(f"written to {output}")
    text = model.explain(heads)
    if as_json:
        return _print_json(file=file, text=text)
    click.echo(text)


@commands.command("plot", short_help="Draw errors and attention.")
@file_argument
@output_option("A .png, .svg or .pdf file.", *PICTURES, required=True)
@click.option("--outputs", metavar="N,N,...", help="Which outputs, counted from 0 (default: the one that errs most).")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed tries other random inputs.")
@as_json_option
def plot_command(file: str, output: str, outputs: str | None, seed: int, as_json: bool) -> None:
    """Draw the error over the domain, and the attention pattern of one input."""
    from headsmith.files import load
    from headsmith.report.inputs import read_numbers
    from headsmith.report.plots import plot

    model = load(file)
    found = plot(model, output, outputs=read_numbers(outputs), seed=seed)
    if as_json:
        return _print_json(file=output, found=found, certificate=model.certificate)
    _print(f"drawn into {output}")


@commands.command("regions", cls=_TakesFormulas, short_help="Count and draw the linear regions of a network.")
@click.argument("target", nargs=-1, required=True)
@click.option(
    "--domain", multiple=True, required=True, metavar="[NAME=]LOW:HIGH", help="For all coordinates, or for one."
)
@click.option("--slice", "slices", multiple=True, help="Two inputs (x0,x3); or origin, u and v, repeated.")
@click.option("--at", multiple=True, metavar="NAME=VALUE", help="Where the other inputs are held (default 0).")
@click.option("--limit", type=int, default=1_000_000, show_default=True, help="Stop after so many cells, and say so.")
@output_option("Draw the regions into a .png, .svg or .pdf file.", *PICTURES)
@as_json_option
def regions_command(
    target: tuple[str, ...],
    domain: tuple[str, ...],
    slices: tuple[str, ...],
    at: tuple[str, ...],
    limit: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Count the linear regions of TARGET on a box: a file with a network of ReLUs (.onnx, .safetensors, .npz), or a
    formula of max, min, relu and abs."""
    from headsmith.regions.command import coordinate_names, count_regions, summary_table
    from headsmith.report.inputs import read_domain, read_target

    wanted, names = read_target(target)
    box = read_domain(domain, coordinate_names(slices, names))
    summary, found = count_regions(
        wanted, names, box, slices=slices, at=at, limit=limit, output=output, show_progress=not as_json
    )
    if not as_json:
        _print(summary_table(summary))
    if output is not None:
        from headsmith.regions.draw import draw_regions

        draw_regions(found, output, title=" ".join(target))
    if as_json:
        _print_json(regions=summary)
    elif output is not None:
        _print(f"drawn into {output}")


@commands.command("signal", short_help="How signals and gradients grow through deep transformers.")
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
    from headsmith.report.signal import run_signal, signal_table

    found, drawn = run_signal(file, options)
    if output is not None:
        found.draw(output)
    if as_json:
        return _print_json(file=output, **drawn)
    _print(signal_table(found))
    if output is not None:
        _print(f"drawn into {output}")


@commands.command("claims", short_help="Check claims of the literature by running them.")
@click.option("--only", multiple=True, metavar="ID", help="Check this claim only; repeatable.")
@click.option("--figures", is_flag=True, help="Show every figure, not only the outcome.")
@format_option("markdown", "latex", "json")
@as_json_option
def claims_command(only: tuple[str, ...], figures: bool, form: str, as_json: bool) -> None:
    """Check the claims of the literature by running them. Exit code 1 if one fails.

    A claim that needs a package that is not installed is listed as not checked; it does not fail.
    """
    from headsmith.report.claims import check, select

    chosen = select([name for text in only for name in text.split(",")])
    rows = list(_with_progress(chosen, check))
    if as_json or form == "json":
        _print_json(claims=rows)
    elif form == "table":
        from headsmith.report.tables import claims_table, figures_table

        _print(claims_table(rows), *(figures_table(row) for row in rows if figures))
    else:
        from headsmith.report.markup import latex, markdown

        click.echo(markdown(rows) if form == "markdown" else latex(rows))
    if any(row.holds is False for row in rows):
        raise click.exceptions.Exit(1)


def _with_progress(chosen: Sequence[Claim], check: Callable[[Sequence[Claim]], Iterable[Checked]]) -> Iterable[Checked]:
    """Check claims one at a time; on a terminal, say which one is under way."""
    from rich.console import Console

    console = Console(stderr=True)
    for place, row in enumerate(chosen):
        if console.is_terminal:
            with console.status(f"{place + 1} of {len(chosen)}   {row.id}  {row.claim}"):
                yield from check([row])
        else:
            yield from check([row])


NARROWEST = 76
"""How many columns tables have at least."""


def _print(*items: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    # Tables would drop columns where they do not fit: let a narrow terminal wrap their lines instead.
    console.width = max(console.width, NARROWEST)
    for item in items:
        console.print(item, soft_wrap=isinstance(item, str))


def _print_json(**items: Any) -> None:
    import json

    from headsmith.report.data import as_data

    click.echo(json.dumps(as_data(items)))


commands.add_command(export_command)
commands.add_command(records_command)
commands.add_command(selftest_command)
commands.add_command(page_command)
commands.add_command(studio_command)


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
    sys.exit(code if isinstance(code, int) else 0)


def _message(problem: Exception) -> str:
    return problem.format_message() if isinstance(problem, click.ClickException) else str(problem)


def _fail(given: Sequence[str], kind: str, message: str, extra: dict[str, Any], code: int, hint: str = "") -> int:
    if "--json" in given:
        _print_json(error={"kind": kind, "message": message, **extra})
    else:
        click.echo(f"headsmith: {message}{hint}", err=True)
    return code
