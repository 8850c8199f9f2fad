"""Make the pages of the book that come from the code: heads with their pictures, claims, records, the reference.

python docs/make_pages.py docs/made [--measure]

With --measure the claims are run and the page has their figures, which takes minutes; without, what each would run.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands
from headsmith.core.prose import Block, blocks_of
from headsmith.report.claims import Claim, check, claims
from headsmith.report.markup import markdown
from headsmith.report.papers import PAPERS

MODELS = {
    "sink": 'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="relu")',
    "table": 'hs.compile("sin(3*x)", {"x": (-1, 1)}, error=1e-2)',
    "gate": 'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3)',
    "boltzmann": 'hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-2, recipe="maxout")',
    "ramp": 'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="ramp")',
    "mean": "hs.compile_sequence(lambda x: hs.tokens.mean(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6)",
    "move": "hs.compile_sequence(lambda x: hs.tokens.shift(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6)",
    "attend": "hs.in_context.kernel_regression(0.5, features=1, examples=8, error=1e-3)",
}
"""For each kind of head a small model that has one: the line that makes it, which is run as it stands."""

PICTURES = {
    "regions.png": 'regions "max(abs(x) - abs(y), x + y - 1, 0)" --domain -1:1',
    "softened.png": 'regions "max(x, y, -x - y)" --domain -1:1 --soften',
    "product.png": "plot product.safetensors",
    "recipes.png": 'plan "1/x" --domain x=0.5:1 --error 1e-2 --error 1e-3 --error 1e-4',
    "centred.png": 'plot centred.safetensors --head "layer 1 / mean head 0"',
}
"""Pictures of pages that are written by hand, and the commands that draw them; `-o` and the name come last."""

SAVED = {
    "product.safetensors": 'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6)',
    "centred.safetensors": "hs.compile_sequence("
    "lambda x: x - hs.tokens.mean(x), tokens=16, domain=(-1, 1), error=1e-9)",
}
"""The models that those commands read, and the lines that make them."""

TAGS = {
    "abstract": "stated in the paper's abstract",
    "review": "stated in a review of the paper",
    "recalled": "recalled from a paper that was not at hand",
    "ours": "a claim of ours about a construction of ours",
}


def main(folder: Path, measure: bool) -> None:
    """Write all pages."""
    (folder / "heads").mkdir(parents=True, exist_ok=True)
    for kind in MODELS:
        (folder / "heads" / f"{kind}.md").write_text(head_page(kind, folder / "heads"), encoding="utf-8")
    listed = "\n".join(MODELS)
    index = f"# The heads, kind by kind\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    (folder / "heads" / "index.md").write_text(index, encoding="utf-8")
    draw_pictures(folder)
    for name, text in (
        ("claims", claims_page(measure)),
        ("records", records_page()),
        ("reference", reference()),
    ):
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def draw_pictures(folder: Path) -> None:
    """Run the commands that draw, each as it is told on its page."""
    place = folder / "pictures"
    place.mkdir(exist_ok=True)
    with contextlib.chdir(place):
        for name, line in SAVED.items():
            eval(line, {"hs": hs}).save(name)
        for name, line in PICTURES.items():
            CliRunner().invoke(commands, [*shlex.split(line), "-o", name], catch_exceptions=False)


def head_page(kind: str, folder: Path) -> str:
    """What a kind of head computes and why, in the words of its module; a model that has one, in words and drawn."""
    title, *derivation = blocks_of(importlib.import_module(f"headsmith.heads.{kind}").__doc__ or "")
    model = eval(MODELS[kind], {"hs": hs})
    shown = f">>> model = {MODELS[kind]}\n>>> print(model.explain())\n{model.explain()}"
    hs.plot(model, folder / f"{kind}.png", effort=500)
    return (
        f"# {escaped(title.text.rstrip('.'))}\n\n"
        + "\n\n".join(block_text(block) for block in derivation)
        + f"\n\n## A model with such a head\n\n```text\n{shown}\n```\n\n"
        + f'What `hs.plot(model, "{kind}.png")` draws of it: the target and the model, their difference beside the '
        + f"certified error, and where the head looks.\n\n![target, error and attention]({kind}.png)\n"
    )


def block_text(block: Block) -> str:
    """A block of a docstring in Markdown."""
    if block.display:
        return f"```text\n{block.text}\n```"
    return f"**{block.name}.** {escaped(block.text)}" if block.name else escaped(block.text)


def escaped(text: str) -> str:
    """Plain text in Markdown: nothing in it is markup, but words between backticks stay code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_{}\[\]<>|^~$#])", r"\\\1", part) for part in parts)


def claims_page(measure: bool) -> str:
    """Every claim: where it comes from, what is run to check it; with `measure`, what came out."""
    parts = ["# Every claim, and what is run", "What the words mean is told in [the claims](../claims.md)."]
    for paper in PAPERS:
        parts.append(f"## {paper.letter}: {paper.title}\n\n{paper.citation}")
        parts += [claim_text(row, measure) for row in claims() if row.id.startswith(paper.letter)]
    return "\n\n".join(parts) + "\n"


def claim_text(row: Claim, measure: bool) -> str:
    """One claim."""
    text = f"### {row.id}\n\n**{row.claim}**\n\nWhat is run: {inspect.getdoc(row.check) or ''}"
    if row.tag:
        text += f"\n\nWhere it comes from: {TAGS[row.tag]}."
    if not measure:
        return f"{text}\n\n`headsmith claims --only {row.id} --figures` runs it."
    # The markup has a heading of its own, which would be one too many here.
    figures = [line for line in markdown(list(check([row]))).splitlines() if not line.startswith("#")]
    return text + "\n\n" + "\n".join(figures)


def records_page() -> str:
    """What `headsmith records` prints."""
    parts = [
        "# Records",
        "The cheapest models known for each of some targets, at a given error. All are certified: a record is a file "
        "whose proof the kernel has checked, and it is beaten by a file that the kernel certifies at a lower cost.",
    ]
    if "records" in commands.commands:
        done = CliRunner().invoke(commands, ["records"], catch_exceptions=False)
        parts.append(f"```text\n$ headsmith records\n{done.output.rstrip()}\n```")
    else:
        parts.append("This release has no table of records yet.")
    return "\n\n".join(parts) + "\n"


def reference() -> str:
    """Every public name with its signature and docstring; of modules and classes, what is in them."""
    parts = ["# Reference\n\nEvery public name of `import headsmith as hs`, in the words of its docstring.\n"]
    for name in sorted(hs.__all__, key=str.lower):
        thing = getattr(hs, name)
        parts.append(f"## {name}\n\n{entry(f'hs.{name}', thing)}")
        parts += [entry(f"hs.{name}.{inner}", getattr(thing, inner)) for inner in inside(thing)]
    return "\n".join(parts)


def entry(name: str, thing: Any) -> str:
    """A name, how it is called, and its docstring."""
    try:
        signature = str(inspect.signature(thing)) if callable(thing) else ""
    except (TypeError, ValueError):
        signature = ""
    return f"```text\n{name}{signature}\n\n{inspect.getdoc(thing) or ''}\n```\n"


def inside(thing: Any) -> list[str]:
    """The public names of a module; the public methods and properties of a class of ours that say what they do."""
    if isinstance(thing, ModuleType):
        return [name for name in sorted(thing.__all__) if callable(getattr(thing, name))]
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return []
    return [
        name
        for name, value in inspect.getmembers(thing)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)) and value.__doc__
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--measure" in sys.argv[2:])
