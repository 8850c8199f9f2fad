"""Make the pages of the book that come from the code: heads with their pictures, claims, records, the reference.

python docs/make_pages.py docs/made [--measure]

With --measure the claims are run and the page has their figures, which takes minutes; without, what each would run.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

import headsmith as hs
from headsmith.cli import commands
from headsmith.core.figures import bound
from headsmith.core.markup import markdown_table, markdown_text
from headsmith.core.prose import Passage, blocks_of
from headsmith.lab.claims.markup import figure_cells
from headsmith.lab.claims.papers import PAPERS
from headsmith.lab.claims.rows import Claim, check, claims

MODELS = {
    "sink": 'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="relu")',
    "table": 'hs.compile("sin(3*x)", {"x": (-1, 1)}, error=1e-2)',
    "gate": 'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3)',
    "boltzmann": 'hs.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-2, recipe="maxout")',
    "ramp": 'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, recipe="ramp")',
    "mean": "hs.compile_sequence(lambda x: hs.tokens.mean(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6)",
    "move": "hs.compile_sequence(lambda x: hs.tokens.shift(x[:, 0]), tokens=8, domain=(-1, 1), error=1e-6)",
    "attend": "hs.in_context.kernel_regression(0.5, features=1, examples=8, error=1e-3)",
    "product": 'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-9, attention="linear")',
    "attentions": 'hs.compile("relu(x)", {"x": (-1, 1)}, error=1e-2, attention="sparsemax")',
}
"""For each kind of head a small model that has one: the line that makes it, which is run as it stands."""

PICTURES = {
    "regions.png": 'regions "max(abs(x) - abs(y), x + y - 1, 0)" --domain -1:1',
    "softened.png": 'regions "max(x, y, -x - y)" --domain -1:1 --soften',
    "product.png": "plot product.safetensors",
    "recipes.png": 'plan "1/x" --domain x=0.5:1 --error 1e-2 --error 1e-3 --error 1e-4',
    "largest.png": 'plot largest.safetensors --head "layer 1 / boltzmann head 0"',
}
"""Pictures of pages that are written by hand, and the commands that draw them; `-o` and the name come last."""

SAVED = {
    "product.safetensors": 'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6)',
    "largest.safetensors": "hs.compile_sequence("
    "lambda x: hs.tokens.max(x[:, 0]), tokens=8, domain=(0, 1), error=1e-6, causal=True)",
}
"""The models that those commands read, and the lines that make them."""

WIDTH = 80
"""Signatures that are longer have a line for each argument."""

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
    (folder / "heads" / "index.md").write_text(heads_index(), encoding="utf-8")
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
    title, told = first_sentence(kind), importlib.import_module(f"headsmith.transformer.heads.{kind}").__doc__ or ""
    derivation = blocks_of(told.removeprefix(f"{title}."))
    model = eval(MODELS[kind], {"hs": hs})
    shown = f">>> model = {MODELS[kind]}\n>>> print(model.explain())\n{model.explain()}"
    hs.plot(model, folder / f"{kind}.png", effort=500)
    return (
        f"# {markdown_text(title)}\n\n"
        + "\n\n".join(block_text(block) for block in derivation)
        + f"\n\n## A model with such a head\n\n```text\n{shown}\n```\n\n"
        + f'What `hs.plot(model, "{kind}.png")` draws of it: the target and the model, their difference beside the '
        + f"certified error, and where the head looks.\n\n![target, error and attention]({kind}.png)\n"
    )


def heads_index() -> str:
    """Every kind of head in a line, and the pages about them."""
    titles = {kind: first_sentence(kind).partition(": ") for kind in MODELS}
    lines = [f"- [{name}]({kind}.md): {markdown_text(told)}" for kind, (name, _, told) in titles.items()]
    pages = "\n".join(f"{name} <{kind}>" for kind, (name, _, _) in titles.items())
    intro = "What each kind computes, its lemma with the derivation, and a small model that has one, drawn."
    listed = "\n".join(lines)
    return f"# The heads, kind by kind\n\n{intro}\n\n{listed}\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def first_sentence(kind: str) -> str:
    """What opens the module of a kind of head."""
    return (importlib.import_module(f"headsmith.transformer.heads.{kind}").__doc__ or "").partition(".")[0]


def block_text(block: Passage) -> str:
    """A block of a docstring in Markdown."""
    if block.display:
        return f"```text\n{block.text}\n```"
    return f"**{block.name}.** {markdown_text(block.text)}" if block.name else markdown_text(block.text)


def claims_page(measure: bool) -> str:
    """Every claim: where it comes from, what is run to check it; with `measure`, what came out."""
    parts = ["# Every claim, and what is run", "What the words mean is told in [the claims](../claims.md)."]
    for paper in PAPERS:
        parts.append(f"## {paper.letter}: {paper.title}\n\n{paper.citation}")
        parts += [claim_text(row, measure) for row in claims() if row.id.startswith(paper.letter)]
    return "\n\n".join(parts) + "\n"


def claim_text(row: Claim, measure: bool) -> str:
    """One claim."""
    told = markdown_text(inspect.getdoc(row.check) or "")
    text = f"### {row.id}\n\n**{markdown_text(row.claim)}**\n\nWhat is run: {told}"
    if row.tag:
        text += f"\n\nWhere it comes from: {TAGS[row.tag]}."
    if not measure:
        return f"{text}\n\n`headsmith claims --only {row.id} --figures` runs it."
    (found,) = check([row])
    names, cells = figure_cells(found)
    parts = [text, f"Ran: {markdown_text(found.ran)}.", f"Outcome: {markdown_text(found.verdict)}."]
    plain = [[re.sub(r"([*_])", r"\\\1", cell) for cell in line] for line in cells]
    return "\n\n".join([*parts, markdown_table(names, plain)] if cells else parts)


def records_page() -> str:
    """What `headsmith records` prints."""
    parts = [
        "# Records",
        "The cheapest models known for each of some targets, at a given error. All are certified: a record is a file "
        "whose proof the kernel has checked, and it is beaten by a file that the kernel certifies at a lower cost.",
    ]
    done = CliRunner().invoke(commands, ["records", "--json"], catch_exceptions=False)
    rows = json.loads(done.output)["records"]
    table = [
        [f"`{row['formula']}`", domain_told(row["domain"]), f"{row['error']:g}", bound(row["certified"])]
        + [f"{number:,}" for number in (row["layers"], row["heads"], row["reference_tokens"] + row["data_tokens"])]
        + [f"{row['parameters']:,}", f"{row['max_weight']:.4g}", row["by"]]
        for row in rows
    ]
    costs = ["layers", "heads", "tokens", "parameters", "largest weight"]
    names = ["target", "domain", "error", "certified", *costs, "by"]
    parts.append(
        "`headsmith records` prints them. Cost is layers, then heads, then tokens (reference and data tokens), then "
        'the largest weight. *auto* is what `recipe="auto"` compiles.'
    )
    return "\n\n".join([*parts, markdown_table(names, table)]) + "\n"


def domain_told(text: str) -> str:
    """A domain with its numbers as short as people write them."""
    return re.sub(r"-?\d+\.\d{6,}", lambda found: f"{float(found.group()):.4g}", text)


def reference() -> str:
    """Every public name with its signature and docstring; of modules and classes, what is in them."""
    parts = ["# Reference\n\nEvery public name of `import headsmith as hs`, in the words of its docstring."]
    things = {name: getattr(hs, name) for name in sorted(hs.__all__, key=str.lower)}
    for group in GROUPS:
        parts.append(f"## {group}")
        for name, thing in things.items():
            if group_of(thing) == group:
                parts.append(f"### {name}\n\n{entry(f'hs.{name}', thing)}")
                parts += [entry(f"hs.{name}.{inner}", getattr(thing, inner)) for inner in inside(thing)]
    return "\n\n".join(parts) + "\n"


GROUPS = ("What to call", "What comes back, and networks", "Modules", "Functions for targets", "Errors")


def group_of(thing: Any) -> str:
    """Under which heading a public name stands."""
    if isinstance(thing, ModuleType):
        return "Modules"
    if inspect.isclass(thing):
        return "Errors" if issubclass(thing, Exception) else "What comes back, and networks"
    made_of_targets = ("headsmith.language.library", "headsmith.language.cpwl", "headsmith.language.maxout")
    return "Functions for targets" if thing.__module__ in made_of_targets else "What to call"


def entry(name: str, thing: Any) -> str:
    """A name, how it is called, and its docstring."""
    told = "\n\n".join(block_text(block) for block in blocks_of(inspect.getdoc(thing) or ""))
    return f"```python\n{name}{signature_of(thing)}\n```\n\n{told}"


def signature_of(thing: Any) -> str:
    """How something is called: in one line, or, where that is long, a line for each argument."""
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    # Annotations are texts, which are shown with quotes; classes among the defaults are not shown as code.
    plain = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature))
    plain = re.sub(r"<class '([\w.]+)'>", r"\1", plain)
    if len(plain) <= WIDTH:
        return plain
    pieces, depth = [""], 0
    inner, _, returned = plain.removeprefix("(").rpartition(")")
    for letter in inner:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += letter
    return "(\n" + "".join(f"    {piece.strip()},\n" for piece in pieces) + f"){returned}"


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
