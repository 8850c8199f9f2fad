"""Claim U3 as a picture: the error of two layers of attention against heads and against tokens, with its lemma, and the
certified errors of the compiled model. matplotlib is imported only when a picture is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headsmith.core.pictures import figure_class, save_figure
from headsmith.lab.claims.universal import LENGTHS
from headsmith.lab.claims.universal_shape import FEATURES, HIDDEN, TOKENS

FOUND, PROVEN, CERTIFIED = "#08519c", "#d94801", "#238b45"


def draw_universal(figure: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw the figures of U3 into `path` (.png, .svg or .pdf), completely or not at all."""
    ramps = [row for row in figure["rows"] if "lemma" in row]
    picture = figure_class()(figsize=(14.0, 4.6), layout="constrained", dpi=120)
    picture.suptitle(f"Y = A relu(W vec(X) + b), tokens of {FEATURES} numbers, {HIDDEN} ReLUs: two layers of attention")
    tokens, heads, asked = picture.subplots(1, 3)
    _draw(
        tokens, ramps[: len(LENGTHS)], "tokens", f"tokens n (1 head a gate): (n-1)^{figure['exponent_in_tokens']:.2f}"
    )
    _draw(
        heads,
        ramps[len(LENGTHS) :],
        "heads_each",
        f"heads a gate, H ({TOKENS} tokens): H^{figure['exponent_in_heads']:.2f}",
    )
    shape = [row for row in figure["rows"] if "asked" in row]
    for name, colour, label in (("certified", CERTIFIED, "certified"), ("found", FOUND, "found by a search")):
        asked.plot([row["asked"] for row in shape], [row[name] for row in shape], "o-", color=colour, label=label)
    _finish(asked, "asked error, one gate a head", f"compiled: {shape[0]['layers']} layers, {shape[0]['heads']} heads")
    save_figure(picture, Path(path))


def _draw(axes: Any, rows: list[dict[str, Any]], against: str, label: str) -> None:
    sizes = [row[against] for row in rows]
    axes.plot(sizes, [row["lemma"] for row in rows], "s--", color=PROVEN, label="lemma")
    axes.plot(sizes, [row["measured"] for row in rows], "o-", color=FOUND, label="found by a search")
    _finish(axes, label, "interpolation over the tokens themselves")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()


def _finish(axes: Any, label: str, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=label, ylabel="largest error")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
