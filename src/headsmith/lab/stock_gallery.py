"""A gallery of stock models: one folder each, which transformers loads without code of ours, with a card and a proof;
and a README.md that lists them. Every folder is verified by the kernel after it was written.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.certificate import Certificate
from headsmith.core.errors import TargetError
from headsmith.core.extras import install
from headsmith.core.figures import bound, number
from headsmith.core.markup import markdown_table
from headsmith.export.folder import PROOF
from headsmith.export.formats import To
from headsmith.export.stock import as_stock
from headsmith.files import load, verify_folder
from headsmith.language.library import sort
from headsmith.language.network import Network
from headsmith.model import Compiled
from headsmith.report.exporting import export
from headsmith.sequence import tokens
from headsmith.sequence.compiled import compile_sequence

DECAY = 0.5
UNSEEN = 1400  # the digits from here on are not trained on


@dataclass(frozen=True)
class Piece:
    """A stock model to make: what it computes, in which architecture, and how; `vocabulary` for prompts."""

    title: str
    to: To
    make: Callable[[], Compiled]
    vocabulary: int = 0


@dataclass(frozen=True)
class Made:
    """A stock model that was made: its folder, what the kernel proves of it, and what it costs."""

    name: str
    piece: Piece
    folder: Path
    certificate: Certificate
    layers: int
    heads: int
    weights: int
    largest_weight: float


def _formula(target: Any, error: float, recipe: str = "auto") -> Callable[[], Compiled]:
    return lambda: compile(target, (-1.0, 1.0), error, dtype="float32", recipe=recipe)


def _sequence(program: Callable[[Any], Any], length: int, error: float, features: int = 1) -> Callable[[], Compiled]:
    options: dict[str, Any] = {"tokens": length, "features": features, "domain": (-1, 1), "dtype": "float32"}
    return lambda: compile_sequence(program, error=error, causal=True, **options)


def sorted_eight(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Eight numbers in ascending order, by a sorting network."""
    return sort([a, b, c, d, e, f, g, h])


def ridge(x: Any) -> Any:
    """Ridge regression of one feature on the examples so far: every token holds an example (x, y) and a query q, and
    predicts w q, where w minimises the mean of (w x - y)^2 plus decay w^2."""
    squares, products = tokens.mean(x[:, 0] * x[:, 0]), tokens.mean(x[:, 0] * x[:, 1])
    return x[:, 2] * products / (squares + DECAY)


def digits_network() -> Network:
    """A network of 16 hidden gates, trained on the first 1,400 of scikit-learn's digits."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.neural_network import MLPClassifier
    except ModuleNotFoundError:
        raise TargetError(f"digits are scikit-learn's: {install('sklearn')}, or name other models") from None
    images, labels = load_digits(return_X_y=True)
    found = MLPClassifier((16,), alpha=1e-2, max_iter=400, tol=0.0, n_iter_no_change=400, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it might be trained for longer
        found.fit(images[:UNSEEN] / 16.0, labels[:UNSEEN])
    return Network([(weights.T, bias) for weights, bias in zip(found.coefs_, found.intercepts_, strict=True)])


PIECES: dict[str, Piece] = {
    "product": Piece("x*y", "llama", _formula("x*y", 1e-5)),
    "product-prompts": Piece('x*y, asked in words: "x=0.25 y=-0.5"', "llama", _formula("x*y", 1e-3), vocabulary=256),
    "product-gpt2": Piece("x*y", "gpt2", _formula("x*y", 1e-5)),
    "three-factors": Piece("x*y*z", "llama", _formula("x*y*z", 1e-3)),
    "three-factors-gpt2": Piece("x*y*z", "gpt2", _formula("x*y*z", 1e-2)),
    "maximum": Piece("max(x, y)*z", "llama", _formula("max(x, y)*z", 1e-3)),
    "maximum-gpt2": Piece("max(x, y)*z", "gpt2", _formula("max(x, y)*z", 5e-2)),
    "sort": Piece("eight numbers, sorted", "llama", _formula(sorted_eight, 1e-3)),
    "product-swiglu": Piece("x*y, by two neurons of the MLP", "llama", _formula("x*y", 1e-6, "swiglu")),
    "three-factors-swiglu": Piece("x*y*z, by four neurons", "llama", _formula("x*y*z", 2e-6, "swiglu")),
    "sort-swiglu": Piece("eight numbers, sorted by 19 neurons", "llama", _formula(sorted_eight, 3e-4, "swiglu")),
    "digits": Piece(
        "a network that reads digits of 8 x 8 pixels, 10 logits",
        "llama",
        lambda: compile(digits_network(), (0, 1), 1e-2, dtype="float32"),
    ),
    "moving-average": Piece(
        "the mean of the last four tokens, at every token",
        "llama",
        _sequence(lambda x: tokens.moving_average(x[:, 0], 4), 16, 1e-5),
    ),
    "moving-average-gpt2": Piece(
        "the mean of the last four tokens, at every token",
        "gpt2",
        _sequence(lambda x: tokens.moving_average(x[:, 0], 4), 16, 1e-5),
    ),
    "ridge": Piece(
        "in context: ridge regression of one feature on the examples so far, at every token",
        "llama",
        _sequence(ridge, 8, 2e-3, features=3),
    ),
}


def make_gallery(folder: str | os.PathLike[str], only: Sequence[str] = ()) -> Iterator[Made]:
    """Make the models of the gallery, or those that are named, each in a folder of its own in a folder, which may be
    there already; and last of all a README.md that lists them. Raises TargetError for a name that is none."""
    path = Path(folder)
    for name in only:
        if name not in PIECES:
            raise TargetError(f"there is no stock model {name!r} in the gallery; choose from {', '.join(PIECES)}")
    path.mkdir(parents=True, exist_ok=True)
    done = []
    for name in only or PIECES:
        done.append(_made(name, path / name))
        yield done[-1]
    (path / "README.md").write_text(index(done), encoding="utf-8")


def _made(name: str, folder: Path) -> Made:
    """One model, in its folder, verified there."""
    piece = PIECES[name]
    export(piece.make(), folder, piece.to, vocabulary=piece.vocabulary)
    stock = as_stock(load(folder / PROOF).contents(), piece.to, piece.vocabulary)
    layers = stock.config["num_hidden_layers" if piece.to == "llama" else "n_layer"]
    heads = stock.config["num_attention_heads" if piece.to == "llama" else "n_head"]
    largest = [
        np.abs(value).max()
        for name, value in stock.tensors.items()
        if "attn" in name or "mlp" in name or "score" in name
    ]
    weights = sum(value.size for value in stock.tensors.values())
    return Made(name, piece, folder, verify_folder(folder), layers, heads, weights, float(max(largest)))


def index(made: Sequence[Made]) -> str:
    """The README.md of a gallery."""
    rows = [
        (
            f"[{each.name}]({each.name}/README.md)",
            each.piece.title,
            {"llama": "Llama", "gpt2": "GPT-2"}[each.piece.to],
            bound(each.certificate.error),
            f"{each.layers} x {each.heads}",
            f"{each.weights:,}",
            number(each.largest_weight),
        )
        for each in made
    ]
    heading = ("model", "computes", "architecture", "proven error", "layers x heads", "numbers", "largest weight")
    return (
        "# Stock models with a proof\n\n"
        "Each folder is a stock model, which transformers loads without any other code. The error is proven for every "
        "input in the domain, in float32; README.md in the folder has the domain, what is assumed of the runtime, and "
        "how the model is called. `headsmith verify FOLDER` proves it again.\n\n" + markdown_table(heading, rows) + "\n"
    )
