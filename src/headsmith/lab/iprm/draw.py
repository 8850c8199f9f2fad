"""Where the slots look, step by step: the compiled module above, a trained one below."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError
from headsmith.core.pictures import checked_picture, figure_class, save_figure
from headsmith.lab.iprm.layout import checked_scene
from headsmith.lab.iprm.model import Reasoner
from headsmith.lab.iprm.practice import one_example
from headsmith.lab.iprm.questions import parse
from headsmith.lab.iprm.schedule import schedule
from headsmith.lab.iprm.trained import HEADS, Trained

Panel = tuple[str, Array, list[str]]
"""A title, shares (who looks, at what), and names of what is looked at."""
LONGEST = 22


def draw(model: Reasoner, question: str, scene: Any, output: str | os.PathLike[str], trained: Trained | None) -> None:
    """Draw the attention of every step: each row is a slot, and adds up to one."""
    path = checked_picture(output)
    if trained is not None and trained.module != model.module:
        raise DomainError(
            "the trained module has other sizes or words than the compiled one: train that by its train()"
        )
    rows = {"compiled": _compiled(model, question, scene)}
    if trained is not None:
        rows[f"trained, mean of {HEADS} heads"] = _trained(trained, model, question, scene)
    wide = max(len(panels) for panels in rows.values())
    figure = figure_class()(figsize=(2.4 * wide + 0.6, 2.9 * len(rows) + 0.7), layout="constrained", dpi=120)
    axes = figure.subplots(len(rows), wide, squeeze=False)
    for line, (kind, panels) in zip(axes, rows.items(), strict=True):
        for axis, (title, shares, names) in zip(line, panels, strict=True):
            image = axis.imshow(shares, vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto")
            axis.set_title(f"{kind}\n{title}", fontsize=8)
            axis.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
            who = ["answer"] if title == "output: pooling" else [f"slot {slot + 1}" for slot in range(len(shares))]
            axis.set_yticks(range(len(shares)), who, fontsize=6)
    figure.colorbar(image, ax=axes, shrink=0.6, label="share of attention")
    figure.suptitle(question, fontsize=10)
    save_figure(figure, path)


def _names(model: Reasoner, question: str, scene: Any) -> dict[str, list[str]]:
    """What can be looked at, by attention; null first."""
    module = model.module
    seats = schedule([parse(question, module.vocabulary)], module.slots, module.steps, module.window)
    things = [" ".join(thing.values()) for thing in checked_scene(module, scene)]
    aged = [f", age {age}" if module.window else "" for age in range(module.ages)]
    memory = [f"slot {slot + 1}{age}" for age in aged for slot in range(module.slots)]
    asked = [operation.text for operation in seats]
    return {
        "formation": ["null", *(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..." for text in asked)],
        "composition": ["null", *memory],
        "execution": ["null", *things],
    }


def _compiled(model: Reasoner, question: str, scene: Any) -> list[Panel]:
    module, names = model.module, _names(model, question, scene)
    found = model.attention(question, scene)
    slots = range(1, 1 + module.slots)
    memory = range(1, 1 + module.slots * module.ages)
    operations = range(memory.stop, memory.stop + len(names["formation"]) - 1)
    objects = range(operations.stop, operations.stop + len(names["execution"]) - 1)
    panels: list[Panel] = []

    def add(title: str, shares: Array, places: Sequence[int], kind: str) -> None:
        panels.append((title, shares[np.ix_(list(slots), [0, *places])], names[kind]))

    for number, step in enumerate(found[:-1], start=1):
        add(f"step {number}: formation", step["formation"], operations, "formation")
        parts = [shares for name, shares in step.items() if name.startswith("composition")]
        if parts:
            # An operation that takes a part looks away from null: show that one.
            first = np.stack(parts)[np.argmin([each[:, 0] for each in parts], axis=0), np.arange(len(parts[0]))]
            add(f"step {number}: composition", first, memory, "composition")
        kind = "execution" if "execution" in step else "counting"
        add(f"step {number}: {kind}", step[kind], objects, "execution")
    if found[-1]:
        panels.append(("output: pooling", found[-1]["pooling"][:1, [0, *memory]], names["composition"]))
    return panels


def _trained(trained: Trained, model: Reasoner, question: str, scene: Any) -> list[Panel]:
    names, counting = _names(model, question, scene), model.module.vocabulary.held == ()
    found = trained.attention(one_example(trained.module, question, scene))
    composed = bool(model.module.composition and model.module.vocabulary.parts)
    panels: list[Panel] = []
    for number, step in enumerate(found[:-1], start=1):
        for kind, shares in step.items():
            if kind == "composition" and (number == 1 or not composed):
                continue
            title = "counting" if counting and kind == "execution" else kind
            panels.append((f"step {number}: {title}", _padded(shares[0], len(names[kind])), names[kind]))
    if model.module.vocabulary.counts:
        pooling = _padded(found[-1]["pooling"][0], len(names["composition"]))
        panels.append(("output: pooling", pooling, names["composition"]))
    return panels


def _padded(shares: Array, size: int) -> Array:
    """As many columns as there are names: operations that a question does not have are left out, results that are not
    there yet get nothing."""
    return np.pad(shares[:, :size], ((0, 0), (0, max(size - shares.shape[1], 0))))
