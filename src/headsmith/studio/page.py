"""One self-contained file with a model in it: the same scripts as the studio's, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import json
import os
import re
from importlib.resources import files
from typing import Any

from headsmith.core.errors import HeadsmithError
from headsmith.core.folders import check_folder, write_text
from headsmith.files import load
from headsmith.studio.view import view_or_summary
from headsmith.verify import verify

SCRIPTS = (
    "model.js",
    "target.js",
    "draw.js",
    "inputs.js",
    "heads.js",
    "domain.js",
    "fit.js",
    "regions.js",
    "cards.js",
    "show.js",
)
"""What shows a model, in the order in which it is read: by saved pages and by the studio."""


def asset(name: str) -> str:
    """The text of a file that is shipped with this package."""
    return files("headsmith.studio").joinpath("assets", name).read_text(encoding="utf-8")


def page_html(view: dict[str, Any]) -> str:
    """The page of a model that is given as JSON."""
    scripts = "\n".join(f"<script>\n{asset(name)}</script>" for name in (*SCRIPTS, "page.js"))
    parts = {
        "TITLE": html.escape(f"{view['title']} as a transformer"),
        "STYLE": asset("style.css"),
        "VIEW": json_text(view).replace("<", "\\u003c"),
        "SCRIPTS": scripts,
    }
    return re.sub(r"\b(TITLE|STYLE|VIEW|SCRIPTS)\b", lambda found: parts[found.group()], asset("page.html"))


def json_text(value: Any) -> str:
    """JSON without spaces; numbers that are not finite are refused."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def write_page(model_path: str, output: str) -> tuple[int, str]:
    """Verify the model in a file and write its page; returns how many bytes that has, and what it cannot show."""
    if not output.lower().endswith((".html", ".htm")):
        raise HeadsmithError(f"{output}: a page is an .html file")
    check_folder(output)
    model = load(model_path)
    verify(model_path)
    name = os.path.basename(model_path)
    lines = f"import headsmith as hs\n\nmodel = hs.load({name!r})\n"
    found = view_or_summary(model, python=lines, verified=True, file=model_path)
    text = page_html(found)
    write_text(output, text)
    return len(text.encode()), found.get("cannot", "")
