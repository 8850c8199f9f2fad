"""`make lemmas`: the theorems of this folder, checked by Rocq, about the constants that are in the kernel's source.

    python lemmas/check.py              Constants.v from the source, every file, and changed constants, which must fail
    python lemmas/check.py FILE.v ...   other files, one after the other: models (headsmith export --to rocq)

It ends with 1 where a literal of the kernel is not listed, where coqc refuses a file, or where coqc takes a constant
that is wrong in its 15th digit; and with 2 where coqc is not installed: then nothing was checked.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from constants import UnlistedError, checked, constants_text, kernel_sources

HERE = Path(__file__).resolve().parent
FILES = ("Basics", "Rounding", "Softmax", "Gates", "Tables", "Kinds", "Float")
"""In the order in which they read each other."""
CHANGED = ("SINK", 1e-15, "Softmax")
"""The constant that is tight, a change in its 15th digit, and the file that must not be accepted with it."""


def main(models: Sequence[str]) -> int:
    """Check all that is asked for; what to exit with."""
    if shutil.which("coqc") is None:
        print("nothing was checked: coqc is not installed (Debian: apt-get install coq libcoq-interval)")
        return 2
    try:
        constants = dict(checked(kernel_sources()))
    except UnlistedError as problem:
        print(problem)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if models:
            return 0 if all(accepted(folder, Path(each).read_text(), Path(each).name) for each in models) else 1
        fine = accepted(folder, constants_text(constants), "Constants.v")
        fine = fine and all(accepted(folder, (HERE / f"{each}.v").read_text(), f"{each}.v") for each in FILES)
        return 0 if fine and refuses_changes(folder, constants) else 1


def accepted(folder: Path, text: str, name: str, quiet: bool = False) -> bool:
    """Whether coqc accepts a file, in a folder where those that it reads were compiled."""
    path, start = folder / name, time.perf_counter()
    path.write_text(text)
    command = ["coqc", "-q", "-w", "none", "-Q", ".", "Headsmith", name]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not quiet:
        print(
            f"{name}: {'checked' if run.returncode == 0 else 'REFUSED'}, {time.perf_counter() - start:.1f} s",
            flush=True,
        )
        print("" if run.returncode == 0 else run.stderr, end="")
    return run.returncode == 0


def refuses_changes(folder: Path, constants: dict[str, float]) -> bool:
    """Whether the theorems fail about a constant that is smaller, or larger, in its 15th digit."""
    name, change, file = CHANGED
    text, fine = (HERE / f"{file}.v").read_text(), True
    for value in (constants[name] - change, constants[name] + change):
        ready = accepted(folder, constants_text({**constants, name: value}), "Constants.v", quiet=True)
        ready = ready and accepted(folder, (HERE / "Basics.v").read_text(), "Basics.v", quiet=True)
        refused = ready and not accepted(folder, text, f"{file}.v", quiet=True)
        fine = fine and refused
        print(f"{name} = {value!r}: {'refused, as it must be' if refused else 'ACCEPTED, which is wrong'}", flush=True)
    return fine


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
