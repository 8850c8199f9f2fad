"""The small kernel agrees with the kernel, which shares no line with it, on what is certified and how closely."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.attacks.saved import read, write
from helpers.attacks.two_kernels import changed, unclaimed
from helpers.effort import tried
from helpers.models.two_kernels import a_network, a_program

import headsmith as hs
import headsmith.small_kernel.check as small
from headsmith.cli import commands
from headsmith.core.errors import CertificateError
from headsmith.core.second import second_opinion
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused as LargeRefused
from headsmith.small_kernel.bounds import Refused

MODELS = {
    "network": lambda: a_network(0)(),
    "network in float32": lambda: a_network(2)(),
    "network of several tokens": lambda: a_network(9)(),
    "product": lambda: hs.compile("x*y", (-1, 1), 1e-6),
    "tables and gates": lambda: hs.compile("sin(x) + relu(x - 0.3)*y", (-1, 1), 1e-4),
    "circuits": lambda: hs.compile("1/(2 + x)", (-1, 1), 1e-3, recipe="relu"),
    "two outputs in float32": lambda: hs.compile("x*y, abs(x)", (-1, 1), 1e-2, dtype="float32"),
    "mean": lambda: a_program(7)(),
    "maximum": lambda: a_program(1)(),
    "move": lambda: a_program(6)(),
    "product with a mean": lambda: a_program(8)(),
}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for place, (name, model) in enumerate(MODELS.items()):
        path = folder / f"{place}.safetensors"
        model().save(path)
        found[name] = read(path)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_both_kernels_come_to_nearly_one_bound(name: str, contents: dict[str, Any]) -> None:
    header, tensors = contents[name]
    large, second = proved(header, tensors).error, small.check_contents(header, tensors)
    assert large * (1 - 1e-6) <= second.error <= 1.2 * header["claim"]["error"]
    assert second.claimed == header["claim"]["error"]
    assert set(second.parts) == {"approximation", "softmax", "leak", "rounding"}


def test_networks_in_float64_are_bounded_within_a_hundredth_of_the_claim(contents: dict[str, Any]) -> None:
    header, tensors = contents["network"]
    assert small.check_contents(header, tensors).error <= 1.01 * header["claim"]["error"]


@pytest.mark.again
@pytest.mark.parametrize("name", MODELS)
def test_what_the_small_kernel_certifies_the_kernel_certifies_with_no_larger_bound(
    name: str, contents: dict[str, Any]
) -> None:
    random, counted = np.random.default_rng(len(name)), 0
    for _ in range(tried(150, 10)):
        header, tensors, what = changed(unclaimed(contents[name][0]), contents[name][1], random)
        try:
            second = small.check_contents(header, tensors).error
        except Refused:
            continue
        counted += 1
        try:
            large = proved(header, tensors).error
        except LargeRefused as problem:
            if "cells of a circuit" in str(problem):
                continue  # ends of cells that are off cost the small kernel tightness, not truth
            pytest.fail(f"the small kernel certifies a file that the kernel refuses ({problem}): {what}")
        assert second >= large * (1 - 1e-6), what
    assert counted


OUTSIDE = {
    "formats of 16 bits": lambda: hs.compile("abs(x)", (-1, 1), 0.1, dtype="float16"),
    "another attention": lambda: hs.compile("abs(x)", (-1, 1), 1e-2, attention="hardmax"),
    "blocks": lambda: hs.compile("max(x, y, -x)", (-1, 1), 1e-3, recipe="maxout"),
    "ramps": lambda: hs.compile("relu(x)", (-1, 1), 1e-2, recipe="ramp"),
    "neurons": lambda: hs.compile("x*y", (-1, 1), 1e-2, recipe="swiglu", dtype="float32"),
    "exchanges": lambda: hs.compile_sequence(lambda x: hs.tokens.sort(x[:, 0]), tokens=3, domain=(0, 1)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_is_refused_by_name_and_proved_by_the_large_kernel_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    OUTSIDE[name]().save(path)
    with pytest.raises(Refused, match="outside the small kernel: "):
        small.check(path)
    certificate = hs.verify(path)
    assert certificate.proved_by == ("kernel",)
    assert "large kernel alone (outside the small kernel: " in certificate.second.text


def test_verify_says_who_proved_it(tmp_path: Path) -> None:
    path = tmp_path / "product.safetensors"
    hs.compile("x*y", (-1, 1), 1e-3).save(path)
    certificate = hs.verify(path)
    assert certificate.proved_by == ("kernel", "small kernel")
    shown = CliRunner().invoke(commands, ["verify", str(path), "--json"])
    data = json.loads(shown.output)
    assert data["proved_by"] == ["kernel", "small kernel"]
    assert data["small_kernel"]["error"] == certificate.second.error
    assert "independently, by the small kernel" in CliRunner().invoke(commands, ["verify", str(path)]).output
    alone = subprocess.run([sys.executable, "-m", "headsmith.small_kernel", str(path)], capture_output=True, text=True)
    assert alone.returncode == 0
    assert repr(certificate.second.error) in alone.stdout


def test_two_kernels_that_disagree_are_a_loud_refusal(
    monkeypatch: pytest.MonkeyPatch, contents: dict[str, Any]
) -> None:
    header, tensors = contents["product"]
    own = small.check_contents(header, tensors)
    monkeypatch.setattr(small, "check_contents", lambda *_: replace(own, error=1.3 * own.claimed))
    with pytest.raises(CertificateError, match="two kernels disagree"):
        second_opinion(header, tensors, header["claim"]["parts"]["rounding"])
    # A proof that uses a tightening may be bounded more widely.
    header = {**header, "proof": {**header["proof"], "views": [{"node": 6, "as": 5}]}}
    assert second_opinion(header, tensors, header["claim"]["parts"]["rounding"]).proved_by == ("kernel",)
    assert "does without views" in second_opinion(header, tensors, header["claim"]["parts"]["rounding"]).text

    def refuse(*_: Any) -> None:
        raise Refused("two links meet")

    monkeypatch.setattr(small, "check_contents", refuse)
    with pytest.raises(CertificateError, match="small kernel refuses it: two links meet"):
        second_opinion(header, tensors, header["claim"]["parts"]["rounding"])


def test_a_file_that_is_none_is_refused_in_one_sentence(tmp_path: Path, contents: dict[str, Any]) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"no file")
    with pytest.raises(Refused):
        small.check(path)
    write(path, "{", contents["product"][1])
    done = subprocess.run([sys.executable, "-m", "headsmith.small_kernel", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:15]) == (1, "not certified: ")
