"""Commands about a saved model: run, verify, falsify, bill, explain, plot."""

from __future__ import annotations

import os

import click

from headsmith.cli.options import (
    PICTURES,
    as_json_option,
    file_argument,
    format_option,
    output_option,
    print_all,
    print_json,
    writable,
)


@click.command("run", short_help="Run a model on one input or on a table.")
@file_argument
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="One input; repeat for each.")
@click.option(
    "--csv", "table", type=click.Path(dir_okay=False), help="A table of inputs, one row each; - for standard input."
)
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
    from headsmith.cli import inputs as reading
    from headsmith.files import load

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
        return print_json(names=names, inputs=shown[0], outputs=shown[1], certificate=certificate, **extra)
    for text in notes:
        click.echo(f"headsmith: {text}", err=True)
    if output is not None:
        return print_all(f"{len(outputs)} row{'' if len(outputs) == 1 else 's'} to {output}")
    if table is not None:
        return reading.write_rows(None, outputs)
    for index, value in enumerate(outputs[0].tolist()):
        click.echo(f"y{index} = {value!r}")


OUTSIDE = "some inputs lie outside the domain: nothing is promised of these outputs"


@click.command("verify", short_help="Prove the certificate again from the weights.")
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
        writable(trusted)
    certificate, lines = verify(file), None
    if trusted:
        from headsmith.core.folders import write_text
        from headsmith.report.trusted import listing, ran_for

        ran = ran_for(file)
        lines = {name: len(each) for name, each in ran.items()}
        write_text(trusted, listing(ran))
    if not as_json and hasattr(certificate, "cells") and hasattr(certificate, "incline"):
        from headsmith.lab.enough.bounds import proved_text

        return print_all(f"verified: {proved_text(certificate)}")
    if as_json:
        counted = {} if lines is None else {"trusted": {"listing": trusted, "lines": lines}}
        second = getattr(certificate, "second", None)
        who = {"proved_by": second.proved_by, "small_kernel": second} if second else {}
        return print_json(file=file, verified=True, certificate=certificate, **who, **counted)
    if getattr(certificate, "text", None):
        return print_all(str(certificate))
    from headsmith.report.certificate import certificate_table

    second = getattr(certificate, "second", None)
    told = f"verified: {second.text if second else 'proved from the stored weights, by the kernel alone'}"
    if os.path.isdir(file):
        told = "verified: the proof in the folder holds, and everything beside it is the proven model, bit for bit"
    assumed = [f"assumed, and not proved: {each}" for each in certificate.assumes]
    if lines is not None:
        told += f"\n{sum(lines.values()):,} lines of the kernel ran for it, in {len(lines)} modules: {trusted} has them"
    print_all(certificate_table(certificate), *assumed, told)


@click.command("falsify", short_help="Search for the worst input.")
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
        print_json(found=found, certificate=model.certificate)
    else:
        from headsmith.cli.inputs import assumption
        from headsmith.report.tables import found_table

        print_all(found_table(found, model.certificate))
        if assumption(model):
            print_all("the target was sampled: the error is that of the worst function that is as stated")
    if found.refutes:
        click.echo(f"headsmith: refuted: an input errs by {found.ratio:.6g} times what is certified", err=True)
        raise click.exceptions.Exit(1)


@click.command("bill", short_help="Show what a model costs.")
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
        return print_json(file=file, bill=model.bill, dimensions=model.dimensions)
    if form != "table":
        return click.echo(getattr(model.dimensions if shapes else model.bill, form)().rstrip("\n"))
    from headsmith.report.tables import bill_table, dimensions_table

    print_all(dimensions_table(model.dimensions) if shapes else bill_table(model.bill))


@click.command("explain", short_help="Tell a model in words, head by head.")
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
        return print_json(file=file, page=output) if as_json else click.echo(f"written to {output}")
    text = model.explain(heads)
    if as_json:
        return print_json(file=file, text=text)
    click.echo(text)


@click.command("plot", short_help="Draw errors and attention.")
@file_argument
@output_option("A .png, .svg or .pdf file.", *PICTURES, required=True)
@click.option("--outputs", metavar="N,N,...", help="Which outputs, counted from 0 (default: the one that errs most).")
@click.option("--head", metavar="NAME", help='Draw where this head looks instead, as "layer 1 / move head 0".')
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed tries other random inputs.")
@as_json_option
def plot_command(file: str, output: str, outputs: str | None, head: str | None, seed: int, as_json: bool) -> None:
    """Draw the error over the domain, and the attention pattern of one input; or the pattern of one head, at the worst
    input that was found."""
    from headsmith.cli.inputs import read_numbers
    from headsmith.files import load
    from headsmith.report.pattern import plot_head
    from headsmith.report.plots import plot

    model = load(file)
    if head is None:
        found = plot(model, output, outputs=read_numbers(outputs), seed=seed)
    else:
        found = plot_head(model, head, output, seed=seed)
    if as_json:
        return print_json(file=output, found=found, certificate=model.certificate)
    print_all(f"drawn into {output}")
