"""Documents as tests: Python blocks are doctests, console blocks are run command by command."""

from __future__ import annotations

import doctest
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from headsmith.cli import main


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
        code, output, complaints = headsmith(arguments) if program == "headsmith" else python(arguments)
        assert code == 0, f"{command}\n{complaints}"
        pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("...")]
        shown = " ".join(output.split())
        assert re.fullmatch(r"\s*" + r"\s*.*\s*".join(pieces) + r"\s*", shown, re.DOTALL), f"{command}\n{output}"


def headsmith(arguments: list[str]) -> tuple[int, str, str]:
    """What the command returns and prints; in this process, which has imported everything already."""
    output, complaints = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(complaints):
        try:
            main(arguments)
        except SystemExit as done:
            return int(done.code or 0), output.getvalue(), complaints.getvalue()
    raise AssertionError("a command exits")


def python(arguments: list[str]) -> tuple[int, str, str]:
    """What Python returns and prints, in a process of its own."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr
