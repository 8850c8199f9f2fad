"""Formats of 16 bits: numbers are held in bfloat16 or float16, and computed with in float32.

The theorem: however what is held is rounded, by at most h of itself each time, and whatever float32 adds to that, the
outputs are within the bound. The attack: the dense matrices with every one of these roundings pushed the worst way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.core.rounding import held
from headsmith.kernel.core.arithmetic import BFLOAT16, FLOAT16, FLOAT32, PRECISIONS, Precision
from headsmith.kernel.core.check import checked, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.model import _Reader
from headsmith.kernel.core.reading import read
from headsmith.lab.attack.file_attack import worst_ratio
from headsmith.lab.attack.rounding_oracle import plain_run

T = hs.tokens
HALVES = ("bfloat16", "float16")


def smallest(make: Callable[[float], Any]) -> Any:
    """A model of about the smallest error that its format allows, which compiles when it is asked for."""
    with pytest.raises(hs.UnreachableError) as refused:
        make(1e-7)
    return make(refused.value.smallest)


def sequence(program: Any, dtype: str, tokens: int = 4, **options: Any) -> Any:
    return smallest(
        lambda e: hs.compile_sequence(program, tokens=tokens, domain=(-1, 1), error=e, dtype=dtype, **options)
    )


def deep_network() -> hs.Network:
    """Five layers of gates that all cross zero: in float16, registers serve again and are cleared in between."""
    rng, widths = np.random.default_rng(0), (2, 10, 10, 10, 10, 10, 1)
    return hs.Network([(1.2 * rng.standard_normal((n, m)) / np.sqrt(m), np.zeros(n)) for m, n in pairwise(widths)])


MODELS: dict[str, Callable[[str], Any]] = {
    "affine": lambda dtype: smallest(lambda e: hs.compile("x - 3*y + 0.7", (-1, 1), e, dtype=dtype)),
    "gates": lambda dtype: smallest(lambda e: hs.compile(random_network([3, 6, 6, 2]), (-1, 1), e, dtype=dtype)),
    "deep": lambda dtype: hs.compile(deep_network(), (-1, 1), 5.0, dtype=dtype),
    "table": lambda dtype: hs.compile("sin(x) + y", (-1, 1), 16 * PRECISIONS[dtype].held, dtype=dtype, tokens=3),
    "product": lambda dtype: hs.compile("x*y", (-1, 1), 96 * PRECISIONS[dtype].held, dtype=dtype),
    "mean and largest": lambda dtype: sequence(lambda x: T.max(x) - T.mean(x), dtype),
    "so far": lambda dtype: sequence(lambda x: T.max(x) + x, dtype, causal=True),
    "moved": lambda dtype: sequence(lambda x: T.shift(x, -1) + 0.3 * x, dtype),
    "attention": lambda dtype: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0]), dtype),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", MODELS)
def test_no_rounding_is_worse_than_the_bound(name: str, dtype: str, tmp_path: Any) -> None:
    model, path = MODELS[name](dtype), tmp_path / "model.safetensors"
    model.save(path)
    header, tensors = read(path)
    found = proved(header, tensors)
    assert found.dtype == dtype
    assert any(dtype in each and "float32" in each for each in found.assumes)
    attack = worst_ratio(header, tensors, found.outputs, found.masks, np.random.default_rng(0), count=60, steps=3)
    assert (0.01 if name == "deep" else 0.1) < attack.ratio <= 1.0
    if (name, dtype) == ("deep", "float16"):
        assert any(bank.cleared for layer in model.transformer.layers for bank in layer.banks)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", HALVES)
def test_the_runner_rounds_what_is_held(dtype: str) -> None:
    """Outputs are numbers of the format. So is all that the textbook's run holds; the two differ by a few units."""
    model = MODELS["gates"](dtype)
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (200, 3))
    ran = model(points)
    assert ran.dtype == np.float32
    assert np.array_equal(ran, held(ran, dtype))
    textbook = plain_run(model.dense(), points[:, None], dtype, False)[:, 0]
    assert np.abs(ran - textbook).max() <= 4.0 * PRECISIONS[dtype].held * np.abs(ran).max()
    assert not np.array_equal(ran, hs.compile(random_network([3, 6, 6, 2]), (-1, 1), 1e-2, dtype="float32")(points))


def test_numbers_of_the_formats() -> None:
    """Rounded as torch and numpy round them; the kernel knows which numbers these are."""
    rng = np.random.default_rng(2)
    numbers = np.concatenate([rng.standard_normal(3000) * 2.0 ** rng.integers(-20, 14, 3000), [0.0, -0.0]])
    ties = held(numbers, "bfloat16") * (1.0 + 2.0**-8)
    for values in (numbers.astype(np.float32), ties):
        wanted = torch.tensor(values).to(torch.bfloat16).float().numpy()
        assert np.array_equal(held(values, "bfloat16"), wanted)
    assert np.array_equal(held(numbers, "float16"), numbers.astype(np.float16).astype(np.float32))
    assert np.array_equal(held(np.array([1e5, 1e39]), "float16"), [np.inf, np.inf])

    def known(values: Any, precision: Precision) -> bool:
        try:
            _Reader({}, precision, {}, set())._of_format(np.asarray(values, dtype=np.float64))
        except Refused:
            return False
        return True

    for precision in (BFLOAT16, FLOAT16, FLOAT32):
        stored = held(numbers, precision.name).astype(np.float64)
        assert known(stored, precision)
        for number in stored[np.abs(stored) > 2.0**-12][:200]:
            assert not known([number * (1.0 + (precision.held / 2.0 or 2.0**-26))], precision)
    assert known([2.0**-24, 3.0 * 2.0**-24, 65504.0], FLOAT16)
    assert not any(known([each], FLOAT16) for each in (2.0**-25, 65536.0, 1.0 + 2.0**-11))
    assert not any(known([each], BFLOAT16) for each in (1.0 + 2.0**-8, 2.0**-140, np.inf))


def test_other_numbers_and_other_formats_are_refused(tmp_path: Any) -> None:
    """One weight that is no bfloat16; a claim of another format; a bound of float32 for fewer bits."""
    model, path = MODELS["product"]("bfloat16"), tmp_path / "model.safetensors"
    model.save(path)
    header, tensors = read(path)
    checked(header, tensors)
    name = next(name for name, each in tensors.items() if name.startswith("embedding") and each.any())
    with pytest.raises(Refused, match="no bfloat16"):
        checked(header, {**tensors, name: tensors[name] * np.float32(1.0 + 2.0**-9)})
    other = {**header, "transformer": {**header["transformer"], "dtype": "float32"}}
    with pytest.raises(Refused, match="dtype"):
        checked(other, tensors)
    single = tmp_path / "single.safetensors"
    hs.compile("relu(x)", (-1, 1), 1e-3, dtype="float32").save(single)
    header, tensors = read(single)
    half = {**header, "transformer": {**header["transformer"], "dtype": "float16"}}
    with pytest.raises(Refused, match=r"no float16|can be proved"):
        checked({**half, "claim": {**half["claim"], "dtype": "float16"}}, tensors)


@pytest.mark.parametrize("scale", [5.0625, 4.0])
def test_weights_times_scales_are_rounded_one_by_one(scale: float, tmp_path: Any) -> None:
    """A gate reads z and besides 100.5 - 3 33.5, which is zero. Times 5.0625 the two weights are 508 and 170 in
    bfloat16, and the query is 2 less than it should be: a gate that stops 0.25, if nobody counts that."""
    path = tmp_path / "model.safetensors"
    hs.compile("relu(x)", (-0.25, 0.25), 0.02, dtype="bfloat16").save(path)
    header, tensors = read(path)
    transformer = header["transformer"]
    bank = transformer["layers"][0][0]
    more = [{"register": "data", "first": 0, "weights": "more"}, {"register": "three", "first": 0, "weights": "less"}]
    forged = {
        **transformer,
        "registers": [*transformer["registers"], {"name": "three", "size": 1}],
        "initial": {**transformer["initial"], "three": "three"},
        "layers": [[{**bank, "read": [*bank["read"], *more]}]],
    }
    numbers = {"three": [3.0], "more": [[100.5]], "less": [[-33.5]]}
    numbers |= {bank["query_scale"]: [scale], bank["key_scale"]: [64.0]}
    tensors |= {name: np.array(each, dtype=np.float32) for name, each in numbers.items()}
    found = proved({**header, "transformer": forged}, tensors)
    rng = np.random.default_rng(0)
    attack = worst_ratio({**header, "transformer": forged}, tensors, found.outputs, found.masks, rng, count=60)
    assert attack.ratio <= 1.0
    assert (found.error < 0.01) == (scale == 4.0)
