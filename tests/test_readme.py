"""Whatever README.md shows is run: Python blocks as doctests, console blocks command by command."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```(python|console)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def run_console(block: str) -> None:
    """Run each `$ command`; the lines below it are its output, where ... stands for anything."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "headsmith"
        done = subprocess.run([sys.executable, "-m", "headsmith", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        pieces = [re.escape(" ".join(piece.split())) for piece in expected.split("...")]
        shown = " ".join(done.stdout.split())
        assert re.fullmatch(r"\s*" + r"\s*.*\s*".join(pieces) + r"\s*", shown, re.DOTALL), f"{command}\n{done.stdout}"


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    assert [kind for kind, _ in BLOCKS].count("python") >= 2
    for kind, block in BLOCKS:
        if kind == "console":
            run_console(block)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, "README", str(README), 0)
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=report.append, clear_globs=False)
        assert runner.failures == 0, "".join(report)
        names = test.globs


def test_the_readme_speaks_of_the_project_alone() -> None:
    text = README.read_text()
    assert not re.search(r"/(?:home|root|work)/|issue|#\d", text)
