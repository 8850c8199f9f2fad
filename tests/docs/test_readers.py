"""What docs/readers.md shows is run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "readers.md"


def test_the_examples_of_readers_run() -> None:
    pytest.importorskip("torch")
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, names, "readers", str(DOCUMENT), 0)
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=report.append, clear_globs=False)
        assert runner.failures == 0, "".join(report)
        names = test.globs
