"""Compiled models, laid out in another way: what the kernel still certifies of them is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.attacks.layouts import rewritten
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.lab.attack.file_attack import CannotRunError, saved, worst_ratio

T = hs.tokens


def sequence(program: Callable[[Any], Any], **options: Any) -> Any:
    return hs.compile_sequence(program, tokens=3, domain=(-1, 1), error=1e-2, **options)


MODELS: dict[str, Callable[[], Any]] = {
    "product": lambda: hs.compile("x*y + relu(x)", (-1, 1), 1e-3),
    "tokens": lambda: hs.compile("x*y", (-1, 1), 1e-3, tokens=3, dtype="float32"),
    "network": lambda: hs.compile(random_network([2, 4, 4, 1], weight=0.7), (-1, 1), 1e-2),
    "mean": lambda: sequence(lambda x: hs.relu(x - T.mean(x))),
    "shift": lambda: sequence(lambda x: T.shift(x, 1) * x),
    "sort": lambda: sequence(T.sort),
    "attend": lambda: sequence(lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0])),
    "ridge": lambda: hs.in_context.ridge(0.5, 1, 1, 3, error=1e-2),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_laid_out_in_another_way_is_refused_or_its_bound_holds(name: str) -> None:
    rng, (header, tensors) = np.random.default_rng(7), saved(MODELS[name]())
    held = 0
    for _ in range(12):
        file = rewritten(header, tensors, rng)
        try:
            found = proved(file.header, file.tensors)
            worst = worst_ratio(file.header, file.tensors, found.outputs, found.masks, rng, count=24, steps=1)
        except (Refused, CannotRunError):
            continue
        assert worst.ratio <= 1.0
        held += 1
    assert held >= 4
