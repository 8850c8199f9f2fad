"""What a model looks like at the prompt and in a notebook: two lines of text, or certificate, bill and heads side by
side."""

from __future__ import annotations

from headsmith.core.figures import bound, number
from headsmith.core.intervals import Box
from headsmith.core.markup import card, table
from headsmith.inside.meanings import Meanings, Model
from headsmith.language.describe import outputs_text
from headsmith.transformer.bill import Bill

INTERVALS = 3
"""Domains of more inputs are told by their number."""

HEADS = 24
"""How many heads a notebook shows."""


def short(kind: str, model: Model) -> str:
    """A model in two lines."""
    return (
        f"<{kind} {outputs_text(model.wanted)} on {box_text(model.box)}\n"
        f" error <= {bound(model.certificate.error)}, {bill_text(model.bill)}, {model.certificate.dtype}>"
    )


def html(kind: str, model: Model) -> str:
    """A model for a notebook: certificate, bill and heads."""
    return card(
        f"{kind}: {outputs_text(model.wanted)} on {box_text(model.box)}",
        model.certificate._repr_html_(),
        model.bill._repr_html_(),
        _heads(model),
    )


def box_text(box: Box) -> str:
    """A domain in a few words."""
    ends = list(zip(box.low.tolist(), box.high.tolist(), strict=True))
    if len(set(ends)) == 1 and box.size > 1:
        return f"[{ends[0][0]:g}, {ends[0][1]:g}]^{box.size}"
    if box.size > INTERVALS:
        return f"a box of {number(box.size)} intervals"
    return ", ".join(f"{name}: [{low:g}, {high:g}]" for name, (low, high) in zip(box.names, ends, strict=True))


def bill_text(bill: Bill) -> str:
    """A bill in a few words."""
    return f"layers {number(bill.layers)}, heads {number(bill.heads)}, reference tokens {number(bill.reference_tokens)}"


def _heads(model: Model) -> str:
    """The first heads and what they compute. Texts of thousands of heads are not made to show a few."""
    if not model.bill.heads:
        return table("Heads", [["none: an affine map is enough"]])
    rows = []
    for place, texts in enumerate(Meanings(model).heads):
        rows += [(str(place + 1), text) for text in texts]
        if len(rows) > HEADS:
            break
    left = model.bill.heads - HEADS
    note = f"and {number(left)} more" if left > 0 else ""
    return table("Heads", rows[:HEADS], ("layer", "computes"), (), note)
