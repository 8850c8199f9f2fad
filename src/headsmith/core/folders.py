"""Where files go: what is refused before anything is written, and files that are written completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


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


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[str]:
    """A file to write in place of `path`, with the same ending: it takes that name once all is written, or is gone."""
    text = os.fspath(path)
    check_folder(text)
    ending = os.path.splitext(text)[1].lower()
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(text) or ".", prefix=".headsmith-", suffix=ending)
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, text)
    except BaseException:
        os.unlink(temporary)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, completely or not at all."""
    with replaced(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        file.write(text)


def umask() -> int:
    """The permissions that the user withholds from new files."""
    current = os.umask(0)
    os.umask(current)
    return current
