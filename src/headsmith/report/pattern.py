"""The attention pattern of one head, by its name: who looks at whom on one sequence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.pictures import checked_picture, figure_class, save_figure
from headsmith.files import model_of
from headsmith.inside.intermediates import PATTERN, without_meaning
from headsmith.model import Compiled
from headsmith.report.falsify import Found, falsify

LABELS = 40
"""Up to this many tokens each is named."""


def plot_pattern(compiled: Compiled, array: Any, name: str, path: str | os.PathLike[str], **options: Any) -> Array:
    """Draw where the head `name` ("layer 1 / move head 0") looks on one sequence, into a .png, .svg or .pdf; return
    its weights (query token, key token). `options` are those of `run`."""
    checked_picture(path)
    found = compiled.run(array, cache=True, **options)[1]
    names = [key.removesuffix(f" / {PATTERN}") for key in found if key.endswith(PATTERN)]
    asked = without_meaning(name.removesuffix(f" / {PATTERN}"))
    head = next((full for full in names if without_meaning(full) == asked), None)
    if head is None:
        raise DomainError(f"there is no head named {asked!r}; there are {', '.join(names[:8]) or 'no heads'}, ...")
    weights: Array = found[f"{head} / {PATTERN}"]
    save_figure(_draw(weights, head, compiled.transformer.reference_tokens), Path(path))
    return weights


def plot_head(model: Any, name: str, path: str | os.PathLike[str], *, effort: int = 500, seed: int = 0) -> Found:
    """Draw where a head looks at the worst input that a search of `effort` runs finds; return that input."""
    checked_picture(path)
    drawn = model_of(model)
    found = falsify(drawn, effort=effort, seed=seed)
    # A model that maps token by token is at its worst at one token: the sequence is that token alone.
    several = drawn.transformer.tokens > 1 and not drawn.blocks
    plot_pattern(drawn, np.atleast_2d(found.input) if several else found.input, name, path)
    return found


def _draw(weights: Array, head: str, references: int) -> Any:
    """Query tokens down, key tokens across; a line parts reference tokens from data tokens."""
    size = len(weights)
    side = min(max(4.0, 1.6 + 0.28 * size), 11.0)
    figure = figure_class()(figsize=(side + 1.2, side), layout="constrained", dpi=120)
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    if references:
        for line in (axes.axhline, axes.axvline):
            line(references - 0.5, color="#d94801", linewidth=0.8)
    names = [f"ref {i}" for i in range(references)] + [f"token {i}" for i in range(size - references)]
    places = np.arange(0, size, -(-size // LABELS))
    axes.set_xticks(places, [names[i] for i in places], rotation=90, fontsize=8)
    axes.set_yticks(places, [names[i] for i in places], fontsize=8)
    axes.set_xlabel("looked at")
    axes.set_ylabel("looking")
    axes.set_title(head, fontsize=11)
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.7)
    return figure
