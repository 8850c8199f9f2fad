"""`headsmith suite`: transformers with proven circuits, on which methods of interpretability are scored."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headsmith.cli.options import as_json_option, print_all, print_json


@click.group("suite", short_help="Models with proven circuits, to score methods on.")
def suite_command() -> None:
    """Make a suite of transformers whose circuits are proven, look at it, prove it again, and score methods on it."""


@suite_command.command("make", short_help="Write a suite from a seed.")
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--families", default="all", show_default=True, help="Names with commas between them.")
@click.option("--levels", default="0-3", show_default=True, help="One level, or the first and the last: 0-3.")
@click.option("--models", type=click.IntRange(min=1), default=10, show_default=True, help="How many of each family.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@as_json_option
def make_command(folder: str, families: str, levels: str, models: int, seed: int, as_json: bool) -> None:
    """Write a suite into the new FOLDER: ten families, ten models of each, four levels of disguise."""
    from headsmith.lab.suite import making

    first, _, last = levels.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        raise click.BadParameter(f"levels {levels!r}: write 2, or 0-3")
    chosen = [] if families == "all" else [name.strip() for name in families.split(",")]
    every = range(int(first), int(last or first) + 1)
    made = making.make(
        folder,
        seed,
        families=chosen,
        models=models,
        levels=list(every),
        progress=lambda line: click.echo(line, err=as_json),
    )
    if as_json:
        return print_json(folder=folder, seed=seed, folders=[each.name for each in made])
    print_all(f"{len(made)} models in {folder}")


@suite_command.command("verify", short_help="Prove a suite, or one model of it.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@as_json_option
def verify_command(folder: str, as_json: bool) -> None:
    """Prove every model in FOLDER again: its certificate, every label and witness, its data and its seeds. Exit code 1
    and the reason where anything is not so."""
    from headsmith.lab.suite import making

    proved = making.verify(folder, lambda line: click.echo(line, err=as_json))
    if as_json:
        return print_json(folder=folder, verified=True, folders=[each.name for each in proved])
    print_all(f"{len(proved)} models: all proved")


@suite_command.command("show", short_help="What is known of one model.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@as_json_option
def show_command(folder: str, as_json: bool) -> None:
    """The circuit of the model in FOLDER: heads, variables, and every true edge with its proven damage."""
    from headsmith.lab.suite.folder import Folder

    each = Folder(Path(folder))
    if as_json:
        return print_json(**each.told, circuit=each.circuit)
    lines = [repr(each), "", "variables"]
    lines += [f"  {variable['id']} = {variable['python']}" for variable in each.circuit["variables"]]
    lines += ["", "heads"]
    for name, node in each.circuit["nodes"].items():
        if ".h" in name and node["kind"] != "padding":
            told = ", ".join(f"returns {value['text']}" for value in node.get("returns", ()))
            meant = ", ".join(f"{value['variable']} ({value['text']})" for value in node.get("stands_for", ()))
            lines.append(f"  {name:8} {node['kind']:10} {told}{f'; stands for {meant}' if meant else ''}")
    lines += ["", "true edges, and what cutting them does at a witness, proven"]
    for name, edge in each.circuit["edges"].items():
        if edge["label"] == "true":
            damage = edge["damage"]["resample"]
            lines.append(f"  {name:24} {damage['proved']:.4g}  at {damage['share']:.1%} of pairs")
    print_all("\n".join(lines))


@suite_command.command("score", short_help="Score what a method has found.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("prediction", type=click.Path(exists=True, dir_okay=False))
@as_json_option
def score_command(folder: str, prediction: str, as_json: bool) -> None:
    """Score the PREDICTION, a JSON file with scores of edges (as MIB's graphs have them) or columns for variables,
    about the model in FOLDER."""
    from headsmith.lab.suite.scorer import score

    found = score(folder, json.loads(Path(prediction).read_text(encoding="utf-8")))
    if as_json:
        return print_json(folder=folder, **found)
    print_all("\n".join(f"{name:12} {value}" for name, value in found.items()))


@suite_command.command("baselines", short_help="Run the usual methods.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--methods", default="random,weights,patch,eap,eap-ig", show_default=True, help="With commas.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@as_json_option
def baselines_command(folder: str, methods: str, seed: int, as_json: bool) -> None:
    """Run methods on the models in FOLDER: a table by method, family and level. Gradients need the extra torch."""
    from headsmith.lab.suite import making
    from headsmith.lab.suite.baselines import table

    rows = table(making.load(folder), [name.strip() for name in methods.split(",")], seed)
    if as_json:
        return print_json(folder=folder, rows=rows)
    lines = [f"{'method':10} {'family':12} level models  auroc     sd   live     ap    cpr"]
    for row in rows:
        figures = [row[name] for name in ("auroc", "auroc_sd", "live", "ap", "cpr")]
        told = " ".join("     -" if each is None else f"{each:6.3f}" for each in figures)
        lines.append(f"{row['method']:10} {row['family']:12} {row['level']:5} {row['models']:6} {told}")
    print_all("\n".join(lines))
