"""Whatever README.md shows is run: Python blocks as doctests, console blocks command by command."""

import re
from pathlib import Path

import pytest
from helpers.documents import blocks_of, run_document

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.usefixtures("coarse_pictures")
def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [kind for kind, _ in blocks_of(README)].count("python") >= 2
    run_document(README)


def test_the_readme_speaks_of_the_project_alone() -> None:
    text = README.read_text()
    assert not re.search(r"/(?:home|root|work)/|issue|#\d", text)
