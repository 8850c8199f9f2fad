"""Docstrings are cut into paragraphs and displays."""

import importlib
import pkgutil

import pytest

from headsmith.core.prose import blocks_of
from headsmith.transformer.heads import __path__ as heads


def test_paragraphs_flow_and_displays_keep_their_lines() -> None:
    text, columns = "One idea,\nin two lines.", "    query   x\n    key     y"
    lemma, proof = "Leak lemma.  At most\n    a little.", "    It goes\n    on."
    first, display, named, more = blocks_of("\n\n".join([text, columns, lemma, proof]))
    assert first.text == "One idea, in two lines."
    assert (display.text, display.display) == ("query   x\nkey     y", True)
    assert (named.name, named.text) == ("Leak lemma", "At most a little.")
    assert (more.text, more.display) == ("It goes on.", False)
    assert blocks_of(">>> 1 + 1\n2")[0].display


@pytest.mark.parametrize("module", [each.name for each in pkgutil.iter_modules(heads)])
def test_no_word_of_a_lemma_is_lost(module: str) -> None:
    told = importlib.import_module(f"headsmith.transformer.heads.{module}").__doc__ or ""
    shown = " ".join(f"{block.name}. {block.text}" if block.name else block.text for block in blocks_of(told))
    assert shown.split() == told.split()
