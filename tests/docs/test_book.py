"""Every block of the book runs, and the book is built without a warning."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.documents import blocks_of, run_document
from helpers.effort import CAMPAIGN, cases

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.glob("*.md") if blocks_of(path))
LONG = ("stock", "recipes", "readers")
"""Pages that take five seconds and more; what they show is tested elsewhere, too."""


def test_the_first_pages_have_blocks() -> None:
    assert {"first-hour", "max-by-hand", "one-head-multiplies"} <= {page.stem for page in PAGES}


@pytest.mark.usefixtures("coarse_pictures")
@pytest.mark.parametrize("name", cases((page.stem for page in PAGES), LONG))
def test_a_page_of_the_book_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(DOCS / f"{name}.md")


def test_pictures_are_drawn_by_the_commands_beside_them() -> None:
    """Every picture of a page is in the list of make_pages.py, and its command is told on the same page."""
    pages = {page: page.read_text() for page in DOCS.glob("*.md")}
    shown = {(page, name) for page, text in pages.items() for name in re.findall(r"\(made/pictures/(.*?)\)", text)}
    drawn = dict(
        re.findall(r"""^    "([\w.]+\.png)": ['"](.*)['"],$""", (DOCS / "make_pages.py").read_text(), re.MULTILINE)
    )
    assert {name for _, name in shown} == drawn.keys()
    for page, name in shown:
        assert f"$ headsmith {drawn[name]} -o {name}\n" in pages[page]


def blank(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n")


@pytest.mark.again
@pytest.mark.usefixtures("coarse_pictures")
def test_the_book_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages about heads are made from the code, with their pictures; no link of the book leads nowhere. In `make test`
    the pictures are blank: pages run the commands that draw them, and tests/report/test_plots.py draws every kind of
    head."""
    source = tmp_path / "docs"
    source.mkdir()
    for path in (*DOCS.glob("*.md"), *(DOCS / name for name in ("conf.py", "book.css", "make_pages.py"))):
        (source / path.name).write_bytes(path.read_bytes())
    (tmp_path / "CONTRIBUTING.md").write_bytes((DOCS.parent / "CONTRIBUTING.md").read_bytes())
    spec = importlib.util.spec_from_file_location("make_pages", source / "make_pages.py")
    assert spec is not None
    assert spec.loader is not None
    make_pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_pages)
    if not CAMPAIGN:
        monkeypatch.setattr(make_pages.hs, "plot", lambda _, path, **options: blank(path))
        drawn = [source / "made" / "pictures" / name for name in make_pages.PICTURES]
        monkeypatch.setattr(make_pages, "draw_pictures", lambda _: [blank(path) for path in drawn])
    make_pages.main(source / "made", measure=False)
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", source, tmp_path / "book"]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "book" / "made" / "heads" / "boltzmann.html").read_text()
    assert "Boltzmann lemma" in text
    assert "hs.compile(" in text
    for page, words in (
        ("made/claims", "Transformer Approximations from ReLUs"),
        ("made/records", "certified"),
        ("contribute", "make test"),
    ):
        assert words in (tmp_path / "book" / f"{page}.html").read_text()
    assert "hs.in_context.ridge(" in (tmp_path / "book" / "made" / "reference.html").read_text()
