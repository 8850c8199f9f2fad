"""The self-test: a short run finds nothing, and it would find something if there were anything to be found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.effort import cases

import headsmith as hs
from headsmith.cli.selftest import selftest_command
from headsmith.core import precise
from headsmith.kernel.core.check import Certificate, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.lab.attack import selftest
from headsmith.lab.attack.file_attack import saved, worst_ratio
from headsmith.lab.attack.rounding_oracle import Tape, plain_run, worst_run
from headsmith.lab.attack.target_oracle import Digits, Wide, target_values


def test_a_short_run_finds_nothing() -> None:
    """Ten seconds, all classes; `headsmith selftest` goes on for as long as one likes."""
    lines: list[str] = []
    result = selftest.run_selftest(1.0 / 6.0, 1, lines.append)
    assert not result.failures, lines
    assert all(tally.compiled + tally.unreachable > 0 for tally in result.tallies.values())
    assert sum(tally.attacked for tally in result.tallies.values()) > 20
    assert sum(tally.refused for tally in result.tallies.values()) > 20
    assert lines[-1] == "nothing failed"


def test_what_is_tiny_moves_a_sum_by_no_more_than_that() -> None:
    """Rounding to nearest: 1 + 2^-40 is at most 2^-40 off, not u; 1 + 1/3 is off by u of it."""
    tape = Tape("float32", signs=dict.fromkeys(range(5), 1.0))
    one, tiny, third = (tape.constant(np.float32([each])) for each in (1.0, 2.0**-40, 1.0 / 3.0))
    assert tape.values[tape.add(one, tiny)] == 1.0 + 2.0**-39
    exact = 1.0 + float(np.float32(1.0 / 3.0))
    assert tape.values[tape.add(one, third)] == exact * (1.0 + 2.0**-24)


def _halved(header: Any, tensors: Any) -> Certificate:
    found = proved(header, tensors)
    return replace(found, error=found.error / 50.0, outputs=tuple(each / 50.0 for each in found.outputs))


def _careless(header: Any, tensors: Any) -> Certificate:
    try:
        return proved(header, tensors)
    except Refused as problem:
        raise KeyError("domain") from problem


@pytest.mark.parametrize(("kernel", "word"), [(_halved, "times the bound"), (_careless, "KeyError")])
def test_a_kernel_that_is_wrong_is_found_out(kernel: Any, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "proved", kernel)
    monkeypatch.setattr(selftest, "CLASSES", {"networks": selftest.CLASSES["networks"]})
    result = selftest.run_selftest(1.0 / 60.0, 1, lambda line: None)
    assert result.smallest is not None
    assert word in str(result.smallest)
    assert result.smallest.size == min(failure.size for failure in result.failures)


def test_the_command(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "CLASSES", {"networks": selftest.CLASSES["networks"]})
    done = CliRunner().invoke(selftest_command, ["--minutes", "0.01", "--seed", "2", "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["smallest"] is None
    assert found["classes"]["networks"]["compiled"] > 0
    monkeypatch.setattr(selftest, "proved", _halved)
    kept = tmp_path / "smallest.safetensors"
    done = CliRunner().invoke(selftest_command, ["--minutes", "0.01", "--seed", "2", "--keep", str(kept)])
    assert done.exit_code == 1
    assert "smallest failing case, seed 2" in done.output
    header, tensors = read(kept)
    proved(header, tensors)


# The oracles ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """A model in float32 that reads sums of several numbers."""
    rng = np.random.default_rng(4)
    layers = [(rng.normal(size=(5, 4)), rng.normal(size=5)), (rng.normal(size=(1, 5)), rng.normal(size=1))]
    model = hs.compile(hs.Network(layers), (-1, 1), error=1e-2, dtype="float32")
    path = tmp_path_factory.mktemp("single") / "model.safetensors"
    model.save(path)
    return model, *read(path)


def test_both_evaluations_of_the_target_agree(single: tuple[Any, Any, Any]) -> None:
    _, header, tensors = single
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 1, 4))
    wide = target_values(header["source"], tensors, points, Wide())
    with precise.many_digits():
        digits = [target_values(header["source"], tensors, point, Digits()) for point in points]
    assert np.abs(wide - np.array(digits).astype(np.float64)).max() < 1e-15


def test_the_worst_rounding_is_worse_than_any_other_and_within_the_bound(single: tuple[Any, Any, Any]) -> None:
    """Rounding as it happens lies between the two ends that are pushed, and those within the certified part."""
    model, header, tensors = single
    rounding, written = proved(header, tensors).parts["rounding"], model.dense()
    shares = []
    for point in np.random.default_rng(0).uniform(-1.0, 1.0, (20, 1, 4)):
        plain = float(plain_run(written, point[None], "float32", False)[0, 0, 0])
        low, high = (float(worst_run(written, point, "float32", False, 0, 0, up)[0, 0]) for up in (False, True))
        assert low <= plain <= high
        shares.append((high - low) / 2.0 / rounding)
    assert 0.02 < max(shares) <= 1.0


def test_the_attack_finds_most_of_the_error(single: tuple[Any, Any, Any], tmp_path: Path) -> None:
    """Nearly all of it where the bound is sharp, as for a product; never more than the bound."""
    path = tmp_path / "product.safetensors"
    hs.compile("x*y", (-1, 1), error=1e-4).save(path)
    ratios = []
    for header, tensors in (read(path), single[1:]):
        found = proved(header, tensors)
        rng = np.random.default_rng(0)
        ratios.append(worst_ratio(header, tensors, found.outputs, found.masks, rng, count=200, steps=6).ratio)
    assert 0.9 < ratios[0] <= 1.0
    assert 0.05 < ratios[1] <= 1.0


T = hs.tokens
OTHERS: dict[str, Callable[[], Any]] = {
    "elu+1": lambda: hs.compile("abs(x) + relu(y)", (-1, 1), 1e-2, attention="elu+1", dtype="float32"),
    "linear": lambda: hs.compile("x*y + x*x*y", (-1, 1), 1e-4, attention="linear", dtype="float32"),
    "relu": lambda: hs.compile("abs(x) + relu(y)", (-1, 1), 1e-2, attention="relu", dtype="float32"),
    "sigmoid": lambda: hs.compile("abs(x) + relu(y)", (-1, 1), 1e-2, attention="sigmoid", tokens=3, dtype="float32"),
    "sparsemax": lambda: hs.compile("max(x, y)", (-1, 1), 1e-2, attention="sparsemax", dtype="float32"),
    "hardmax": lambda: hs.compile_sequence(T.mean, tokens=3, domain=(-1, 1), error=1e-2, attention="hardmax"),
    "sigmoid in 16 bits": lambda: hs.compile("abs(x)", (-1, 1), 0.3, attention="sigmoid", dtype="bfloat16"),
    "relu in 16 bits": lambda: hs.compile("abs(x)", (-1, 1), 0.3, attention="relu", dtype="bfloat16"),
}


@pytest.mark.parametrize("name", cases(OTHERS, OTHERS.keys() - {"elu+1", "relu", "sparsemax"}))
def test_roundings_are_pushed_under_every_attention(name: str) -> None:
    """As rounding happens lies between the ends that are pushed, and all of it within the bound."""
    model, rng = OTHERS[name](), np.random.default_rng(1)
    header, tensors = saved(model)
    proof = proved(header, tensors)
    assert worst_ratio(header, tensors, proof.outputs, proof.masks, rng, count=12, steps=1).ratio <= 1.0
    dense, causal = model.dense(), "full" not in proof.masks
    x = rng.uniform(-1.0, 1.0, (model.transformer.tokens, model.transformer.inputs))
    plain = plain_run(dense, x[None], model.transformer.dtype, causal)[0, 0, 0]
    low, high = (worst_run(dense, x, model.transformer.dtype, causal, 0, 0, up)[0, 0] for up in (False, True))
    assert low <= plain <= high
    assert low < high
