"""Whoever waits is told what is being done, from the first moment; nobody else is."""

from __future__ import annotations

import pytest

import headsmith as hs
from headsmith.core.progress import shown

SQUARE = {"x": (-1, 1), "y": (-1, 1)}


def test_a_function_is_told_every_step() -> None:
    told: list[tuple[str, float]] = []
    hs.compile("exp(-x*x)*y", SQUARE, 5e-2, progress=lambda text, done: told.append((text, done)))
    texts = [text for text, _ in told]
    assert texts[0].startswith("reading the target")
    assert any("table heads" in text for text in texts)
    assert all(text and 0.0 <= done <= 1.0 for text, done in told)


def test_refusals_say_that_they_look_for_the_smallest_error() -> None:
    texts: list[str] = []
    with pytest.raises(hs.UnreachableError):
        hs.compile("x*y", SQUARE, 1e-16, progress=lambda text, done: texts.append(text))
    assert "looking for the smallest error that can be met" in texts


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with shown(None) as report:
        assert report is None  # the tests' standard error is no terminal
    with shown(False) as report:
        assert report is None
    monkeypatch.setattr("headsmith.core.progress.PATIENCE", 0.0)
    with shown(True) as report:
        assert report is not None
        report("proving table heads", 0.5)
    hs.compile("x*y", SQUARE, 1e-3)
    assert capsys.readouterr().out == ""
