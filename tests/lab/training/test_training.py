"""hs.train: the same architecture, built and trained. Small sizes; the claims T1 to T3 run the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headsmith as hs
from headsmith.core.errors import FileFormatError
from headsmith.lab.training import points as training_points
from headsmith.lab.training import stages
from headsmith.lab.training.cases import case_of
from headsmith.lab.training.result import verdict_of

QUICK = {"seeds": 2, "steps": 60, "iterations": 6}


@pytest.fixture(autouse=True, scope="module")
def coarse() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_points, "GRID", {1: 501, 2: 41, 3: 9})  # sizes that take no time
        patch.setattr(stages, "KEPT_STEPS", 40)
        patch.setattr(training_points, "BESIDE", 400)
        patch.setattr(training_points, "SCATTERED", 400)
        yield


@pytest.fixture(scope="module")
def model() -> Any:
    return hs.compile("relu(x)", (-1, 1), error=1e-2)


@pytest.fixture(scope="module")
def trained(model: Any) -> Any:
    return hs.train(like=model, **QUICK)


def test_rows_say_what_became_of_the_certificate(model: Any, trained: Any) -> None:
    assert [run.start for run in trained.runs] == ["random"] * 2 + ["compiled"] * 4 + ["perturbed"] * 2
    for run in trained.runs:
        assert run.verdict == verdict_of(run.reached, model.certificate.error)
        assert run.certified is None or run.found <= run.certified
        points = np.linspace(-1.0, 1.0, 501)[:, None]
        off = np.abs(trained.module(run)(torch.tensor(points)).detach().numpy() - np.maximum(points, 0.0))
        assert off.max() <= run.found * (1.0 + 1e-9)
        assert run.max_weight == pytest.approx(np.abs(run.weights).max())
    kept = next(run for run in trained.runs if run.start == "compiled" and run.method.startswith("LM"))
    assert kept.verdict in ("kept", "improved")
    assert kept.circuit == "same"


def test_verdicts_are_those_of_the_shares() -> None:
    found = [verdict_of(share * 1e-3, 1e-3) for share in (0.5, 0.96, 1.04, 1.06, 1.99, 2.01, np.inf)]
    assert found == ["improved", "kept", "kept", "loosened", "loosened", "lost", "lost"]


def test_a_rerun_has_equal_bits(model: Any, trained: Any) -> None:
    again = hs.train(like=model, **QUICK)
    assert [run.digest for run in again.runs] == [run.digest for run in trained.runs]
    assert [run.found for run in again.runs] == [run.found for run in trained.runs]
    other = hs.train(like=model, **QUICK | {"seeds": [5, 6], "starts": "random"})
    assert not {run.digest for run in other.runs} & {run.digest for run in trained.runs}


def test_a_journal_goes_on_where_a_run_stopped(model: Any, trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    hs.train(like=model, **QUICK, starts="random", journal=path)  # other settings: found by nobody else
    told: list[str] = []

    def stop(text: str, share: float) -> None:
        told.append(text)
        if text.startswith("compiled"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hs.train(like=model, **QUICK, journal=path, progress=stop)
    before = path.read_bytes()
    assert before.count(b"\n") == 4
    path.write_bytes(before + b'{"key": "half a li')
    told.clear()
    found = hs.train(like=model, **QUICK, journal=path, progress=lambda text, share: told.append(text))
    assert [run.digest for run in found.runs] == [run.digest for run in trained.runs]
    assert told
    assert not any(text.startswith("random") for text in told)
    assert path.read_bytes().startswith(before)
    told.clear()
    hs.train(like=model, **QUICK, journal=path, progress=lambda text, share: told.append(text))
    assert not told
    path.write_text("not a journal\n")
    with pytest.raises(FileFormatError, match="line 1"):
        hs.train(like=model, **QUICK, journal=path)


def test_progress_says_how_long_the_rest_takes(model: Any) -> None:
    told: list[tuple[str, float]] = []
    hs.train(like=model, **QUICK, progress=lambda text, share: told.append((text, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    assert any("s left" in text for text, _ in told)


def test_a_trained_model_never_carries_the_old_certificate(trained: Any, tmp_path: Path) -> None:
    assert not hasattr(trained.best, "certificate")
    trained.save(tmp_path)
    with pytest.raises(hs.HeadsmithError):
        hs.verify(tmp_path)
    from headsmith.run.torch_model import load

    x = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)[:, None]
    assert torch.equal(load(str(tmp_path))(x), trained.best(x))
    data = json.loads((tmp_path / "training.json").read_text())
    assert data["settings"]["seeds"] == [0, 1]
    assert [each["digest"] for each in data["runs"]] == [run.digest for run in trained.runs]


def test_tables_and_the_picture(trained: Any, tmp_path: Path) -> None:
    for text in (trained.table(), trained.markdown(), trained.latex()):
        assert "improved" in text or "kept" in text or "lost" in text
    assert len(trained.csv().splitlines()) == 1 + len(trained.runs)
    assert "predicted before training" in trained.table()
    trained.plot(tmp_path / "training.png")
    assert (tmp_path / "training.png").stat().st_size > 10_000


def test_the_start_with_rate_zero_is_not_called_trained(model: Any) -> None:
    """A trainer that does nothing must show: rate zero and no iterations leave random weights, which are lost."""
    found = hs.train(like=model, seeds=2, steps=5, rates=0.0, iterations=0, starts="random")
    assert all(run.verdict == "lost" and run.found > 0.1 for run in found.runs)


def test_another_shape_starts_at_random(model: Any) -> None:
    found = hs.train(like=model, **QUICK, shape={"layers": 2, "heads": 2, "tokens": 2})
    assert [run.start for run in found.runs] == ["random", "random"]
    assert [run.distance for run in found.runs] == [None, None]
    assert found.kick is None
    assert len(found.best.layers) == 2
    with pytest.raises(hs.TargetError, match="start at random"):
        hs.train(like=model, shape={"heads": 2}, starts="compiled")


def test_sequences_are_trained_too() -> None:
    mean = hs.compile_sequence(lambda x: x.mean(axis=0), tokens=4, features=1, domain=(-1, 1), error=1e-6)
    found = hs.train(like=mean, seeds=2, steps=150, iterations=20, starts="random")
    assert found.median <= 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds is"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"starts": "middle"}, "choose among"),
        ({"steps": 0}, "steps is 0"),
        ({"rates": [-0.1]}, "rates is"),
        ({"iterations": -1}, "iterations is"),
        ({"noise": float("nan")}, "noise is"),
        ({"depth": 2}, "no option depth"),
        ({"shape": {"width": 3}}, "shape is"),
    ],
)
def test_what_is_refused(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hs.TargetError, match=message):
        hs.train(like=model, **options)


def test_kinds_that_are_refused(model: Any) -> None:
    with pytest.raises(hs.TargetError, match="and not of the target"):
        case_of("x**2", (-1, 1), model, 1e-2, None)
    assert case_of("relu(x)", (-1, 1), model, 1e-2, None).target == "relu(x)"
    with pytest.raises(hs.TargetError, match="nothing to train"):
        hs.train()
    with pytest.raises(hs.TargetError, match="float64 alone"):
        hs.train(like=hs.compile("relu(x)", (-1, 1), error=1e-2, dtype="float32"))
    with pytest.raises(hs.TargetError, match="no attention"):
        hs.train("2*x", (-1, 1))
