"""Figures and their files. matplotlib is an extra, imported only when something is drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headsmith.core.errors import HeadsmithError
from headsmith.core.extras import install
from headsmith.core.folders import check_folder, replaced

ENDINGS = (".png", ".svg", ".pdf")
"""What figures are written as."""


def figure_class() -> Any:
    """matplotlib's figures, or an error that says how to get them."""
    try:
        import matplotlib.figure as matplotlib_figure
    except ImportError:
        raise HeadsmithError(f"drawing needs matplotlib: {install('plot')}") from None
    return matplotlib_figure.Figure


def checked_picture(output: str | os.PathLike[str]) -> Path:
    """Where a picture goes; HeadsmithError, before anything is computed, if it cannot be drawn or cannot go there."""
    path = Path(output)
    if path.suffix.lower() not in ENDINGS:
        raise HeadsmithError(f"{path}: draw into a .png, .svg or .pdf file")
    check_folder(path)
    figure_class()
    return path


def save_figure(figure: Any, path: Path) -> None:
    """Write the figure, completely or not at all."""
    checked_picture(path)
    with replaced(path) as temporary:
        figure.savefig(temporary)
