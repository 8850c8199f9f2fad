"""Rule Clear: a head that takes away what it reads leaves what its own lemma allows for, and nothing more is believed.

The model of all files below holds x in a register and relu(x) in another. Then the first register is cleared, and what
is written there next is read out, beside the other: relu(x) + relu(x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.attacks import saved
from helpers.attacks.forged import Forged
from helpers.models.networks import random_network

import headsmith as hs
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.reading import read
from headsmith.lab.attack.file_attack import worst_ratio
from headsmith.lower import reuse

LINE = np.concatenate([np.linspace(-1.0, 1.0, 201), np.linspace(-1e-3, 1e-3, 201)])[:, None, None]


class Cleared(Forged):
    """The file, with parts of the head that clears to be chosen."""

    def __init__(self, tokens: int = 1, dtype: str = "float64", gain: float = 60.0, kind: str = "mean") -> None:
        super().__init__(1, -1.0, 1.0, tokens=tokens, dtype=dtype)
        gate = self.relu(self.circuit, 0)
        double = self.scaled(self.circuit, (gate, 2.0))
        self.outputs(self.scaled(self.source, (self.relu(self.source, 0), 2.0)), double)
        self.embed("x")
        self.register("g")
        self.kind, self.gain, self.extra = kind, gain, dict[str, Any]()
        write = [self.link("g", [[1.0]]), self.link("x", [[1.0]])]
        self.gates([self.link("x", [[1.0]])], write, [gate], [0], 2.0**12)
        self.model["readout"] = [self.link("g", [[1.0]]), self.link("x", [[1.0]])]

    def beside(self, read: list[Any], write: list[Any], node: int = -1) -> None:
        """One more bank in the last layer."""
        bank = {"kind": self.kind, "read": read, "write": write, "gain": self.gain, "keep_gain": 800.0, **self.extra}
        self.model["layers"][-1].append(bank)
        count = sum(len(self.tensors[link["weights"]]) for link in read)
        role = {"node": self.keep([node] * count, np.int64), "component": self.keep([0] * count, np.int64)}
        self.proof["roles"][-1].append(role)

    def clear(self, read: float = 1.0, write: float = -1.0, source: str = "x") -> None:
        self.beside([self.link(source, [read])], [self.link("x", [write])])


def plain() -> Cleared:
    file = Cleared()
    file.clear()
    return file


def in_single_precision() -> Cleared:
    file = Cleared(dtype="float32")
    file.clear()
    return file


def by_a_move() -> Cleared:
    file = Cleared(tokens=4, kind="move")
    codes = 1.0 - 2.0 * (np.arange(4)[:, None] >> np.arange(2) & 1)
    file.register("own", size=3)
    file.model["positional"] = {"own": file.keep(np.hstack([codes, np.zeros((4, 1))]))}
    file.extra = {"address": "own"}
    file.clear()
    return file


def with_a_constant() -> Cleared:
    """The head writes 1/4 as well, which is taken away again when all is read."""
    file = Cleared()
    file.beside(
        [file.link("x", [1.0]), file.link("data", [[0.5]], 1)], [file.link("x", [-1.0]), file.link("x", [[0.5]], 1)]
    )
    file.model["readout_bias"] = file.keep([-0.25])
    return file


@pytest.mark.parametrize("make", [plain, in_single_precision, by_a_move, with_a_constant])
def test_what_is_cleared_is_gone(make: Callable[[], Cleared]) -> None:
    file = make()
    certificate = file.check()
    tokens = certificate.tokens
    sequences = np.random.default_rng(0).choice(LINE[:, 0], (500, tokens)) if tokens > 1 else LINE
    assert certificate.error < 3.0 * 2.0 * 0.2785 / 2.0**12
    assert 0.1 < file.furthest(certificate, sequences) <= 1.0


def never_cleared() -> Cleared:
    return Cleared()


def almost_all() -> Cleared:
    file = Cleared()
    file.clear(write=-1.0 + 2.0**-20)
    return file


def read_twice() -> Cleared:
    file = Cleared()
    file.beside([file.link("x", [2.0])], [file.link("x", [-1.0])])
    file.proof["roles"][-1][-1] = {"node": file.keep([-1], np.int64), "component": file.keep([0], np.int64)}
    return file


def cleared_twice() -> Cleared:
    file = Cleared()
    file.beside([file.link("x", [1.0]), file.link("x", [1.0], 1)], [file.link("x", [-1.0]), file.link("x", [-1.0], 1)])
    return file


def another_register() -> Cleared:
    file = Cleared()
    file.clear(source="g")
    return file


def a_flat_head() -> Cleared:
    file = Cleared(gain=0.0)
    file.clear()
    return file


def a_soft_head() -> Cleared:
    file = Cleared(gain=12.0)
    file.clear()
    return file


def cleared_before_it_is_read() -> Cleared:
    """The layer that clears comes first, and the gate reads what is left."""
    file = Cleared()
    file.clear()
    file.model["layers"] = [[file.model["layers"][0][1]], [file.model["layers"][0][0]]]
    file.proof["roles"] = [[file.proof["roles"][0][1]], [file.proof["roles"][0][0]]]
    return file


@pytest.mark.parametrize(
    "make",
    [
        never_cleared,
        almost_all,
        read_twice,
        cleared_twice,
        another_register,
        a_flat_head,
        a_soft_head,
        cleared_before_it_is_read,
    ],
)
def test_what_is_not_cleared_is_in_the_bound(make: Callable[[], Cleared]) -> None:
    file = make()
    certificate = file.check()
    assert file.furthest(certificate, LINE) <= 1.0


def test_heads_that_look_at_others_do_not_stand_for_what_they_read() -> None:
    for file in (Cleared(tokens=4), by_a_move()):
        if file.kind == "mean":
            file.clear()
        else:
            file.tensors[file.model["positional"]["own"]][[0, 1]] = file.tensors[file.model["positional"]["own"]][
                [1, 0]
            ]
        with pytest.raises(Refused, match="looks at other tokens"):
            file.check()


def test_only_one_bank_of_a_layer_clears() -> None:
    file = plain()
    file.clear()
    with pytest.raises(Refused, match="two banks"):
        file.check()


def test_a_gate_stands_for_a_node() -> None:
    file = plain()
    file.proof["roles"][0][0]["node"] = file.keep([-1], np.int64)
    with pytest.raises(Refused):
        file.check()


def test_clearing_over_and_over_adds_up_and_no_more() -> None:
    """The same register, nine times: what drifts into the sink and what is left do not double."""
    errors = [
        hs.compile(random_network([6, *[10] * depth, 1], weight=0.4), (-1, 1), 1e-3).certificate for depth in (4, 9)
    ]
    assert errors[1].parts["rounding"] < 20.0 * errors[0].parts["rounding"]
    assert errors[1].parts["leak"] < 1e-9


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_bounds_hold_under_the_worst_rounding(dtype: Any, tokens: int, tmp_path: Any) -> None:
    model = hs.compile(random_network([3, *[9] * 5, 2], 7, weight=1.2), (-1, 1), 1e-2, dtype=dtype, tokens=tokens)
    assert any(bank.cleared for layer in model.transformer.layers for bank in layer.banks)
    model.save(tmp_path / "deep.safetensors")
    claim, random = model.certificate, np.random.default_rng(0)
    found = worst_ratio(*read(tmp_path / "deep.safetensors"), claim.outputs, claim.masks, random, count=8, steps=1)
    assert found.ratio <= 1.0


def test_heads_that_share_the_outputs_have_equal_shares(monkeypatch, tmp_path) -> None:
    """Heads of the same scores return what one head would: how many there are changes no bound. Uneven shares are
    refused, and the weights that target and model share are in the file once."""
    monkeypatch.setattr(reuse, "MOST_PADDED", 1)
    model, path = hs.compile(random_network([16, *[16] * 3, 2]), (-1, 1), 1e-2), tmp_path / "model"
    model.save(path)
    header, tensors = saved.read(path)
    shared = [bank for layer in header["transformer"]["layers"] for bank in layer if bank.get("split", 1) > 1]
    assert shared
    assert sum(tensor.shape == (16, 16) for tensor in tensors.values()) == 3
    for split, accepted in ((1, True), (5, False), (0, False), (1 << 20, False), (2.0, False)):
        for bank in shared:
            bank["split"] = split
        saved.write(path, header, tensors)
        if accepted:
            assert hs.verify(path).error == model.certificate.error
        else:
            with pytest.raises(hs.HeadsmithError):
                hs.verify(path)
