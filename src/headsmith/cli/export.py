"""`headsmith export`: models for other tools."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command(
    "export", short_help="Write a model for torch, ONNX, Hugging Face, TransformerLens, or as a stock model."
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--to",
    required=True,
    type=click.Choice(["torch", "onnx", "huggingface", "transformerlens", "circuit", "rocq", "llama", "gpt2"]),
    help="The tool; circuit writes what every head does, as JSON; rocq a theorem; llama and gpt2 stock models.",
)
@click.option("-o", "--output", type=click.Path(), required=True, metavar="DIR", help="The folder to write, a new one.")
@click.option("--fused", is_flag=True, help="Closed forms of the heads, which run faster (onnx alone).")
@click.option("--causal/--full", "causal", default=None, help="The mask, for models that run under both.")
@click.option(
    "--vocabulary", type=click.IntRange(0), default=0, help="Words for so many numbers of each variable (stock models)."
)
@click.option("--language-model", is_flag=True, help="Outputs are the first logits of a language model (stock models).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def export_command(
    file: str,
    to: Any,
    output: str,
    fused: bool,
    causal: bool | None,
    vocabulary: int,
    language_model: bool,
    as_json: bool,
) -> None:
    """Write the model in FILE into the folder DIR, as another tool reads it. The model's proof goes with it:
    `headsmith verify DIR` proves the exported weights themselves.

    \b
      headsmith export product.safetensors --to huggingface -o product
      headsmith export product.safetensors --to llama --vocabulary 256 -o llama    (takes "x=0.25 y=-0.5")
      headsmith export sine.safetensors --to rocq -o sine.v
      headsmith verify product
    """
    from headsmith.report.exporting import export

    options: dict[str, Any] = {"fused": fused, "vocabulary": vocabulary, "language_model": language_model}
    folder = export(file, output, to, causal=causal, **options)
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "to": to, "files": names}))
        return
    click.echo(f"written to {folder}: {', '.join(names)}" if names else f"written: {folder}")
    if names:
        click.echo(f"headsmith verify {folder} proves it")
    if to == "rocq":
        theorem = folder / "model.v" if names else folder
        click.echo(f"coqc {theorem} proves the theorem (Rocq with its library Interval); nothing has proved it here")


@click.command("gallery", short_help="Make a gallery of certified stock models, Llamas and GPT-2s.")
@click.argument("names", nargs=-1)
@click.option("-o", "--output", type=click.Path(), required=True, metavar="DIR", help="The folder that holds them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def gallery_command(names: tuple[str, ...], output: str, as_json: bool) -> None:
    """Make stock models in DIR, one folder each, with a card and a proof: products, a maximum, a sorting network, a
    network that reads digits (it needs scikit-learn), sequences; or those that are NAMED alone. Transformers loads
    them without other code. The kernel verifies each one from its folder.

    \b
      headsmith gallery -o stock
      headsmith gallery product sort -o stock
      headsmith verify stock/product
    """
    from headsmith.core.figures import bound
    from headsmith.lab.stock_gallery import make_gallery

    rows = []
    for made in make_gallery(output, names):
        row = {"name": made.name, "computes": made.piece.title, "to": made.piece.to, "folder": str(made.folder)}
        cost = {"layers": made.layers, "heads": made.heads, "weights": made.weights, "max_weight": made.largest_weight}
        rows.append({**row, "error": made.certificate.error, **cost})
        if not as_json:
            click.echo(f"{made.folder}: {made.piece.title}; verified, error {bound(made.certificate.error)}")
    click.echo(json.dumps({"models": rows}) if as_json else f"{output}/README.md lists them")
