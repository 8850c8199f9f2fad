"""Make the pages of the book that come from the code: one for each kind of head, with a picture, and the reference.

python docs/make_pages.py docs/made
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import headsmith as hs

MODELS: dict[str, tuple[str, Callable[[], hs.Compiled]]] = {
    "sink": (
        'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="relu")',
        lambda: hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="relu"),
    ),
    "table": (
        'hs.compile("sin(3*x)", {"x": (-1, 1)}, error=1e-2)',
        lambda: hs.compile("sin(3*x)", {"x": (-1, 1)}, error=1e-2),
    ),
    "gate": (
        'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3)',
        lambda: hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3),
    ),
    "boltzmann": (
        'hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-2, recipe="maxout")',
        lambda: hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-2, recipe="maxout"),
    ),
    "ramp": (
        'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="ramp")',
        lambda: hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="ramp"),
    ),
    "mean": (
        "hs.compile_sequence(lambda x: hs.tokens.mean(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6)",
        lambda: hs.compile_sequence(lambda x: hs.tokens.mean(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6),
    ),
    "move": (
        "hs.compile_sequence(lambda x: hs.tokens.shift(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6)",
        lambda: hs.compile_sequence(lambda x: hs.tokens.shift(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6),
    ),
    "attend": (
        "hs.in_context.kernel_regression(0.5, features=1, examples=8, error=1e-3)",
        lambda: hs.in_context.kernel_regression(0.5, features=1, examples=8, error=1e-3),
    ),
}
"""For each kind of head a small model that has one: the line that makes it, and the same as a function."""


def main(folder: Path) -> None:
    """Write all pages."""
    (folder / "heads").mkdir(parents=True, exist_ok=True)
    for kind in MODELS:
        (folder / "heads" / f"{kind}.md").write_text(head_page(kind, folder / "heads"), encoding="utf-8")
    listed = "\n".join(MODELS)
    index = f"# The heads, kind by kind\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    (folder / "heads" / "index.md").write_text(index, encoding="utf-8")
    (folder / "reference.md").write_text(reference(), encoding="utf-8")


def head_page(kind: str, folder: Path) -> str:
    """What a kind of head computes and why, in the words of its module; a model that has one, in words and drawn."""
    title, _, derivation = (importlib.import_module(f"headsmith.heads.{kind}").__doc__ or "").strip().partition("\n")
    line, make = MODELS[kind]
    model = make()
    told = model.explain()
    hs.plot(model, folder / f"{kind}.png", effort=500)
    return (
        f"# {title.rstrip('.')}\n\n```text\n{derivation.strip()}\n```\n\n"
        f"## A model with such a head\n\n```text\n>>> model = {line}\n>>> print(model.explain())\n{told}\n```\n\n"
        f"![target, error and attention]({kind}.png)\n"
    )


def reference() -> str:
    """Every public name with its signature and docstring."""
    parts = ["# Reference\n\nEvery public name of `import headsmith as hs`, in the words of its docstring.\n"]
    for name in sorted(hs.__all__, key=str.lower):
        thing = getattr(hs, name)
        text = inspect.getdoc(thing) or ""
        try:
            signature = str(inspect.signature(thing)) if callable(thing) else ""
        except (TypeError, ValueError):
            signature = ""
        parts.append(f"## {name}\n\n```text\nhs.{name}{signature}\n\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
