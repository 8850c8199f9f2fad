"""Documents as tests: Python blocks are doctests, console blocks are run command by command."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path


def blocks_of(document: Path) -> list[tuple[str, str]]:
    """The blocks that are run, in order: ("python" or "console", text)."""
    return re.findall(r"^```(python|console)\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)


def run_document(document: Path) -> None:
    """Run all blocks of a document, one after the other, in the folder where one is."""
    names: dict[str, object] = {}
    for kind, block in blocks_of(document):
        if kind == "console":
            run_console(block)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, document.name, str(document), 0)
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=report.append, clear_globs=False)
        assert runner.failures == 0, "".join(report)
        names = test.globs


def run_console(block: str) -> None:
    """Run each `$ command`; the lines below it are its output, where ... stands for anything."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program in ("headsmith", "python")
        run = [sys.executable, *(("-m", "headsmith") if program == "headsmith" else ()), *arguments]
        done = subprocess.run(run, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("...")]
        shown = " ".join(done.stdout.split())
        assert re.fullmatch(r"\s*" + r"\s*.*\s*".join(pieces) + r"\s*", shown, re.DOTALL), f"{command}\n{done.stdout}"
