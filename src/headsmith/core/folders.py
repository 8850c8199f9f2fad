"""Where files go: what is refused before anything is written."""

from __future__ import annotations

import os


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise an OSError that says what is wrong where no file can be written: no such folder, or a folder itself."""
    text = os.fspath(path)
    if not text:
        raise FileNotFoundError("cannot write to a file without a name")
    folder = os.path.dirname(text) or "."
    if os.path.isdir(text):
        raise IsADirectoryError(f"cannot write to {text}: it is a folder; name a file in it")
    if not os.path.exists(folder):
        raise FileNotFoundError(f"cannot write to {text}: the folder {folder} does not exist; create it first")
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"cannot write to {text}: {folder} is not a folder")
