"""Models for other tools: `export` writes a folder, `headsmith verify` proves it (export/folder.py)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from headsmith.export.folder import CIRCUIT, PICTURE, PROOF, refuse_taken, write_folder
from headsmith.export.formats import To, Wanted, circuit_text, contents
from headsmith.export.rocq import rocq_text
from headsmith.files import load, model_of
from headsmith.report.plots import plot
from headsmith.sequence.prompts import prompted


def export(
    model: Any,
    folder: str | os.PathLike[str],
    to: To,
    *,
    fused: bool = False,
    causal: bool | None = None,
    vocabulary: int = 0,
    language_model: bool = False,
) -> Path:
    """Write a model, or the model saved under a path, into a new folder for another tool: "torch", "onnx",
    "huggingface", "transformerlens", "circuit" for circuit.json, "rocq" for a theorem (or a name that ends in .v, for
    that file alone), "llama" or "gpt2" for a stock model. `fused` exports closed forms (onnx alone). `causal` is
    the mask, for models that run under both; the program's own otherwise.
    With a `vocabulary` of so many numbers for each variable, a stock model takes prompts (prompts.py). As a
    `language_model`, its first logits are the outputs, and a tokenizer comes with it, which TransformerLens asks for.

    The folder holds the model's proof as well: `hs.verify(folder)`, or `headsmith verify`, proves the exported weights.
    """
    wanted, path = Wanted(to, fused, causal, vocabulary, language_model), Path(folder)
    refuse_taken(path)
    if to == "rocq" and path.suffix == ".v":
        path.write_text(rocq_text(model_of(model)))
        return path
    with tempfile.TemporaryDirectory() as aside:
        proof = Path(aside) / PROOF
        own = model_of(model)
        (prompted(own) if vocabulary else own).save(proof)
        # All files come from the model as it was saved, so that `verify` can make them again.
        found = load(proof)
        files = contents(found, wanted) | {PROOF: proof.read_bytes(), CIRCUIT: circuit_text(found)}
        if to == "huggingface":
            picture = Path(aside) / PICTURE
            plot(found, picture, effort=500)
            files[PICTURE] = picture.read_bytes()
    write_folder(path, files)
    return path
