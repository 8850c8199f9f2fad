"""What a studio leaves behind when it ends: nothing, however it ends.

Ctrl-C, SIGTERM    the server ends what it has begun; its folder, with all that was uploaded, is removed, and its
                   processes are ended
SIGKILL            nobody can tidy up at once: processes see that their studio is gone, and end; the next studio
                   removes the folder, whose name says whose it was
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

PREFIX = "headsmith-studio-"
PAUSE = 0.5
"""Seconds between two looks at whether the studio is still there."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for a studio's files, removed in the end; those of studios that are gone are removed first."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = re.fullmatch(rf"{PREFIX}(\d+)-\w+", path.name)
        if owner is not None and _gone(int(owner[1])):
            rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _gone(process: int) -> bool:
    """Whether no process has this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """Ends with Ctrl-C, and with SIGTERM in the same way: what is around it is left as it should be."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_with(studio: int) -> None:
    """End this process as soon as that of its studio, which started it, is gone; a thread looks for that."""

    def watch() -> None:
        while os.getppid() == studio:
            time.sleep(PAUSE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
