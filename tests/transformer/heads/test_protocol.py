"""A head kind is one file: a kind that only this test knows runs as its matrices do, is counted, stored and told, and
nobody else had to hear of it but the list of kinds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers.theorems import banks as models

from headsmith.core.arrays import Array
from headsmith.core.errors import FileFormatError
from headsmith.transformer.dimensions import dimensions
from headsmith.transformer.heads.bank import KEY, HeadBank, Words, keep
from headsmith.transformer.heads.kinds import KINDS
from headsmith.transformer.heads.running import Attention
from headsmith.transformer.heads.stream import DATA, Feature, Link, On, Read, Terms
from headsmith.transformer.heads.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class TiltedBank(HeadBank):
    """One head that returns the mean over data tokens of what it reads, times a factor for each output."""

    kind: ClassVar[str] = "tilted"
    called: ClassVar[str] = "tilted mean"
    arrays: ClassVar[tuple[str, ...]] = ("factor",)
    folded_arrays: ClassVar[tuple[str, ...]] = ("factor",)
    numbers: ClassVar[tuple[str, ...]] = ("gain", "keep_gain")
    mixes: ClassVar[bool] = True

    factor: Array
    gain: float
    keep_gain: float

    def needs_sink(self, model: Surroundings, later: bool) -> bool:
        return model.grid_tokens > 0

    def evaluated(self, attention: Attention) -> Any:
        values = attention.reads(self) * self.factor.astype(attention.dtype)
        silent = 0.0 if attention.hard else attention.references * np.exp(attention.dtype.type(-self.gain))
        total = np.cumsum(values, axis=1) if attention.causal else values.sum(axis=1, keepdims=True)
        shares = 1.0 / (attention.seen() + attention.dtype.type(silent))
        return np.broadcast_to(total * shares[:, None], values.shape)

    def features(self, model: Surroundings) -> tuple[Feature, ...]:
        gain = Feature("gain", (On(DATA, self.gain / KEY),), (On(DATA, KEY),))
        return (gain, *keep(model, self.keep_gain))

    def value(self, model: Surroundings) -> Terms:
        return (Read(scale=self.factor),)

    @property
    def stands_for(self) -> str:
        return "tilted mean over tokens"

    def told(self, head: int, model: Surroundings, words: Words) -> list[str]:
        return [f"returns {self.factor[0]:g} times the mean of {words.read(0)}"]


def bank() -> TiltedBank:
    read, write = (Link("x", [[1.0, -0.5], [0.0, 2.0]]),), (Link("out", np.eye(2)),)
    return TiltedBank([-1, -1], [0, 1], read, write, [3.0, -0.25], 48.0, 60.0)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "tilted", TiltedBank)


@pytest.mark.parametrize("how", models.SURROUNDINGS)
@pytest.mark.parametrize("causal", [False, True])
def test_it_runs_as_its_matrices_do(how: str, causal: bool, rng: Any) -> None:
    model = models.surround(bank(), how, 5, "float64")
    models.agrees_with_textbook(model, 4, causal, rng)
    models.attention_is_real(model, 4, causal, rng)


@pytest.mark.parametrize("how", models.SURROUNDINGS)
def test_it_is_counted(how: str) -> None:
    model = models.surround(bank(), how, 5, "float64")
    models.bill_counts_the_matrices(model)
    (row,) = (each for each in dimensions(model).layers if each.kind == "tilted")
    assert row.stands_for == "tilted mean over tokens"


def test_it_is_stored(listed: None, tmp_path: Path, rng: Any) -> None:
    models.file_brings_it_back(models.surround(bank(), "table", 5, "float64"), tmp_path / "tilted.safetensors", rng)


def test_a_kind_that_is_not_listed_is_refused(tmp_path: Path, rng: Any) -> None:
    with pytest.raises(FileFormatError, match="unknown bank kind 'tilted'"):
        models.file_brings_it_back(models.surround(bank(), "alone", 5, "float64"), tmp_path / "other", rng)


def test_it_is_told() -> None:
    class Read:
        def read(self, row: int) -> str:
            return f"form {row}"

    assert bank().told(0, models.surround(bank(), "alone", 5, "float64"), Read()) == [
        "returns 3 times the mean of form 0"
    ]
