"""How the book is built: `make docs`. Pages about heads and the reference are made from docstrings by make_pages.py."""

from typing import Any

project = "Headsmith"
author = "Headsmith contributors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]
suppress_warnings = ["toc.not_included"]
html_theme = "furo"
html_title = "Headsmith"
html_show_sourcelink = False
html_show_copyright = False
myst_heading_anchors = 3
smartquotes = False  # formulas have primes and dashes of their own
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_static_path = ["book.css"]
html_css_files = ["book.css"]


def setup(app: Any) -> None:
    """Blocks of doctests end in an empty line, which the tests need and readers do not."""

    def tidy(_: Any, name: str, source: list[str]) -> None:
        source[0] = source[0].replace("\n\n```\n", "\n```\n")

    app.connect("source-read", tidy)
