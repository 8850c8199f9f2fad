"""Make the pages of the book that come from the code: heads with their pictures, claims, records, the reference.

python docs/make_pages.py docs/made [--measure]

With --measure the claims are run and the page has their figures, which takes minutes; without, what each would run.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands
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
    for name, text in (
        ("claims", claims_page(measure)),
        ("records", records_page()),
        ("reference", reference()),
    ):
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def head_page(kind: str, folder: Path) -> str:
    """What a kind of head computes and why, in the words of its module; a model that has one, in words and drawn."""
    title, _, derivation = (importlib.import_module(f"headsmith.heads.{kind}").__doc__ or "").strip().partition("\n")
    model = eval(MODELS[kind], {"hs": hs})
    shown = f">>> model = {MODELS[kind]}\n>>> print(model.explain())\n{model.explain()}"
    hs.plot(model, folder / f"{kind}.png", effort=500)
    return (
        f"# {title.rstrip('.')}\n\n```text\n{derivation.strip()}\n```\n\n"
        f"## A model with such a head\n\n```text\n{shown}\n```\n\n"
        f"![target, error and attention]({kind}.png)\n"
    )


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
