"""Pictures of sequence models: one sequence, token by token, and where the heads look on it. It is the worst one that a
search found, or a random one where that is very short.

inputs      the features of every token
outputs     target and transformer at every token; for a sampled callable the band of all functions as stated
error       transformer - target inside the certified band
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.figures import bound
from headsmith.inside.intermediates import without_meaning
from headsmith.report.attention import HeadPattern, draw_patterns, draw_text, head_patterns, spread
from headsmith.report.envelopes import envelopes
from headsmith.report.found import Found
from headsmith.report.shares import PANELS
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.universal import Universal

SHOWN = 6
"""How many features are shown."""

ENOUGH = 4
"""A sequence of so many tokens is worth a picture, if it is the worst one."""

DOTS = 48
"""Up to so many tokens each is a dot."""

SHORT = 24
"""Where a program takes shorter sequences, patterns are shown on as many tokens at most."""


def draw_sequence_model(
    left: Any,
    right: Any,
    model: CompiledSequence | Universal,
    found: Found,
    random: np.random.Generator,
    outputs: Sequence[int],
) -> None:
    """The left half: inputs, outputs and errors on one sequence; the right half: its attention patterns."""
    sequence, title = _shown(model, found, random)
    _draw_tokens(left, model, sequence, title, outputs)
    if isinstance(model, Universal) and not model.bill.heads:
        draw_text(right, "no heads:\none softmax looks the answer up")
    elif isinstance(model, Universal):
        draw_patterns(right, _sampled_patterns(model, sequence), model.transformer.reference_tokens, model.bill.heads)
    elif not model.transformer.layers:
        draw_text(right, "no heads:\nthe program is affine, token by token")
    else:
        shown = head_patterns(model, sequence[: _length(model, len(sequence))], PANELS, causal=model.masked)
        draw_patterns(right, shown, model.transformer.reference_tokens, model.bill.heads)


def _shown(model: CompiledSequence | Universal, found: Found, random: np.random.Generator) -> tuple[Array, str]:
    """The sequence that is drawn, and what it is."""
    if isinstance(model, Universal) or len(found.input) >= min(ENOUGH, model.lengths[-1]):
        return found.input, "the worst sequence found"
    shape = (_length(model, model.lengths[-1]), model.box.size)
    sequence = np.clip(random.uniform(model.box.low, model.box.high, shape), model.box.low, model.box.high)
    return np.asarray(
        sequence
    ), f"a random sequence (the worst one found has {len(found.input)} of {model.tokens} tokens)"


def _length(model: CompiledSequence, most: int) -> int:
    """The longest length that the program takes and a picture can show; `most` if it takes none so short."""
    return max((each for each in model.lengths if each <= min(SHORT, most)), default=most)


def _on(model: CompiledSequence | Universal, sequence: Array) -> tuple[Array, Array, Array]:
    """What the target may be at every token, lowest and highest, and what the model returns: (m, outputs) each."""
    run = model(sequence)
    if isinstance(model, Universal):
        lower, upper = envelopes(model, sequence[None])
        return lower[0], upper[0], run
    target = model.target(sequence, np.longdouble)
    return target, target, run


def _draw_tokens(
    figure: Any, model: CompiledSequence | Universal, sequence: Array, title: str, outputs: Sequence[int]
) -> None:
    from matplotlib.ticker import MaxNLocator

    lower, upper, run = _on(model, sequence)
    places, sampled = np.arange(len(run)), isinstance(model, Universal)
    many = len(outputs) > 1
    first, second, third = figure.subplots(3, 1, sharex=True, height_ratios=(0.6, 1.0, 1.0))
    dots = "o" if len(run) <= DOTS else ""
    for feature in range(min(sequence.shape[1], SHOWN)):
        first.plot(places, sequence[:, feature], dots + "-", markersize=3, linewidth=0.8, label=_name(model, feature))
    first.legend(**_LEGEND)
    first.set_title(title if sequence.shape[1] <= SHOWN else f"{title}, {SHOWN} of {sequence.shape[1]} features")
    for place, output in enumerate(outputs):
        colour, which = f"C{place}", f", output {output}" if many else ""
        certified = model.certificate.outputs[output]
        low, high, got = (each[:, output].astype(float) for each in (lower, upper, run))
        if sampled:
            second.fill_between(places, low, high, color=colour, alpha=0.3, label=f"all f as stated{which}")
            second.plot(places, low, "_", places, high, "_", color=colour, alpha=0.6)
        else:
            second.plot(places, low, "s-", markersize=7, linewidth=4, color=colour, alpha=0.35, label=f"target{which}")
        second.plot(places, got, ".-", linewidth=0.9, color=colour, label=f"transformer{which}")
        third.axhline(certified, color=colour if many else "#444444", linewidth=0.8, linestyle="--")
        third.axhline(-certified, color=colour if many else "#444444", linewidth=0.8, linestyle="--")
        for end in (lower, upper) if sampled else (lower,):
            difference = (run[:, output] - end[:, output]).astype(float)
            third.plot(places, difference, dots + "-", markersize=3, linewidth=0.9, color=colour)
    largest = max(model.certificate.outputs[output] for output in outputs)
    third.set_ylim(-1.3 * largest or -1.0, 1.3 * largest or 1.0)
    third.set_title(
        f"transformer − {'the lowest and the highest f' if sampled else 'target'}; certified: {bound(largest)}"
    )
    third.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3), useMathText=True)
    second.set_title("the transformer among all functions as stated" if sampled else "target and transformer")
    second.legend(**_LEGEND)
    third.set_xlabel("token")
    third.xaxis.set_major_locator(MaxNLocator(integer=True))
    third.set_xlim(-0.5, len(run) - 0.5)
    for axes in (first, second, third):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2, linewidth=0.6)


_LEGEND: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "fontsize": 8, "frameon": False}


def _name(model: CompiledSequence | Universal, feature: int) -> str:
    return f"x[:, {feature}]" if isinstance(model, Universal) else model.box.names[feature]


def _sampled_patterns(model: Universal, sequence: Array) -> list[HeadPattern]:
    """The patterns of a sampled callable's model, at most as many as there are panels."""
    found = model.run(sequence, cache=True)[1]
    names = [name for name in found if name.endswith("/ pattern") and name.startswith("layer")]
    heads = []
    for name in names:
        layer, head, _ = without_meaning(name).split(" / ")
        kind, _, number = head.rpartition(" head ")
        text = f"gathers token {number}" if kind == "move" else "looks up the answer"
        heads.append(HeadPattern(int(layer.removeprefix("layer ")) - 1, int(number), text, found[name]))
    return [heads[index] for index in spread(len(heads), PANELS)]
