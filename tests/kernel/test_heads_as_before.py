"""What heads commit by the kernel's rules is no more than by those of `headsmith.certify`, for the same models.

While both stand. Most figures are the same to a thousandth; where the kernel's lemmas are sharper (rounding of sums
over many silent tokens, of what a gate reads, of sigmoids, of spreads; what spills beside a product's grid) they are
smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from networks import random_network

import headsmith as hs
from headsmith.certify.kernel import _Kernel
from headsmith.heads.gate import GateBank
from headsmith.heads.table import TableBank
from headsmith.kernel.arithmetic import Interval, Upper
from headsmith.kernel.heads import local_errors
from headsmith.kernel.model import Model, read_model
from headsmith.kernel.reading import read
from headsmith.kernel.softmax import Local, Reads
from headsmith.source.graph import Relu

FIELDS = ("below", "above", "rounding", "reach", "max_score", "committed")
SHARPER = {
    "sink": {"rounding": 0.02},
    "table": {"rounding": 0.1, "committed": 0.1},
    "gate": {"rounding": 0.85, "committed": 0.85},
    "mean": {"rounding": 0.05, "committed": 0.05},
    "boltzmann": {"rounding": 0.45},
    "move": {"rounding": 0.05, "committed": 0.05},
    "attend": {"rounding": 0.7, "committed": 0.7},
}
"""The least ratios of new to old, where they are not 0.9."""

SQUARE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}

FORMULAS: dict[str, Callable[[float, dict[str, Any]], hs.Compiled]] = {
    "network": lambda e, more: hs.compile(random_network([3, 8, 8, 2]), (-1, 1), e, **more),
    "wide network": lambda e, more: hs.compile(random_network([3, 64, 64, 2]), (-1, 1), 10 * e, **more),
    "product": lambda e, more: hs.compile("x*y", SQUARE, e, **more),
    "reciprocal": lambda e, more: hs.compile("1/x", {"x": (0.1, 1.0)}, 10 * e, **more),
    "sine": lambda e, more: hs.compile("sin(x)", {"x": (-3.0, 3.0)}, e, **more),
    "several kinds": lambda e, more: hs.compile("max(sin(x)*y, x) + relu(x - y)", SQUARE, 30 * e, **more),
    "ramps": lambda e, more: hs.compile("relu(x) + relu(y - 0.3)", SQUARE, 0.04, recipe="ramp", **more),
}

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: hs.relu(x - hs.tokens.mean(x)),
    "mean of gates": lambda x: x - hs.tokens.mean(hs.relu(x)),
    "largest": lambda x: hs.tokens.max(x) - x,
    "largest sine": lambda x: hs.tokens.max(hs.sin(x)) - x,
    "shift": lambda x: hs.relu(hs.tokens.shift(x, 1)),
    "attend": lambda x: hs.tokens.attend(hs.sin(x), x, hs.relu(x)),
}

DTYPES = (("float64", 1e-4), ("float32", 1e-2))


def as_the_kernel_reads_it(model: hs.Compiled, folder: Any) -> Model:
    path = folder / "model.safetensors"
    model.save(path)
    header, tensors = read(path)
    stored = header["transformer"]
    return read_model(stored, tensors, [[dict(bank) for bank in layer] for layer in stored["layers"]])


def both(model: hs.Compiled, folder: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Local]]:
    """For each bank its kind, what `certify` finds that it commits, and what the kernel finds."""
    kernel = as_the_kernel_reads_it(model, folder)
    banks = iter([bank for layer in kernel.layers for bank in layer])
    found: list[tuple[str, Any, Local]] = []
    heard: list[Any] = []
    local, reads = _Kernel._local, _Kernel._reads

    def listening(self: Any, bank: Any) -> Any:
        heard.append(reads(self, bank))
        return heard[-1]

    def compared(self: Any, bank: Any) -> Any:
        old = local(self, bank)
        known, accounts, more = heard[-1], self.accounts, ()
        gates = isinstance(self.circuit.nodes[int(bank.node[0])], Relu)
        if isinstance(bank, TableBank | GateBank) and not gates:
            more = (Upper(self._proven_slopes(bank, bank.node, np.zeros(bank.outputs))[0]),)
        bounds = (known.deviation, known.arriving, known.stored, known.read)
        bounds += (accounts.read_magnitude(bank.read, bank.readers), accounts.read_drift(bank.read, bank.readers))
        mine = Reads(Interval(known.exact.low, known.exact.high), *map(Upper, bounds))
        found.append((bank.kind, old, local_errors(kernel, next(banks), mine, *more)))
        return old

    with monkeypatch.context() as patched:
        patched.setattr(_Kernel, "_reads", listening)
        patched.setattr(_Kernel, "_local", compared)
        hs.verify(model)
    assert next(banks, None) is None
    return found


def assert_no_worse(model: hs.Compiled, folder: Any, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    kinds = set()
    for kind, old, new in both(model, folder, monkeypatch):
        kinds.add(kind)
        zeros = np.zeros_like(old.softmax)
        before = {"below": old.softmax, "above": zeros if old.above is None else old.above}
        for name in FIELDS:
            was = np.asarray(before.get(name, getattr(old, name, None)), dtype=np.float64)
            now = getattr(new, name)
            now = now.value if isinstance(now, Upper) else np.asarray(now)
            assert now.shape == was.shape
            counts = np.maximum(was, now) > 1e-290  # the old kernel adds a few smallest normal numbers to everything
            # One simple lemma bounds all leaks: larger ones, but not by a millionth of the certified error.
            slack = 1e-6 * model.certificate.error
            assert np.all(now[counts] <= 1.02 * was[counts] + slack), (kind, name)
            least = SHARPER[kind].get(name, 0.9)
            assert np.all(now[counts] >= least * was[counts]), (kind, name, np.min(now[counts] / was[counts]))
    return kinds


@pytest.mark.parametrize(("dtype", "error"), DTYPES)
@pytest.mark.parametrize("tokens", [1, 64])
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_and_networks(
    name: str, tokens: int, dtype: str, error: float, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FORMULAS[name](error, {"tokens": tokens, "dtype": dtype})
    assert assert_no_worse(model, tmp_path, monkeypatch)


@pytest.mark.parametrize(("dtype", "error"), DTYPES)
@pytest.mark.parametrize("tokens", [2, 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(
    name: str, tokens: int, dtype: str, error: float, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: dict[str, Any] = {"tokens": tokens, "features": 1, "domain": (-1, 1), "error": error, "dtype": dtype}
    model = hs.compile_sequence(PROGRAMS[name], **more)
    assert assert_no_worse(model, tmp_path, monkeypatch) & {"mean", "boltzmann", "move", "attend"}


@pytest.mark.parametrize(("dtype", "error"), DTYPES)
def test_one_token_a_piece_and_sorting(
    dtype: str, error: float, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = hs.compile("max(x, y, 0.3)", SQUARE, error, recipe="maxout", dtype=dtype)
    assert assert_no_worse(pieces, tmp_path, monkeypatch) == {"boltzmann"}
    more: dict[str, Any] = {"tokens": 4, "features": 1, "domain": (-1, 1), "error": error, "dtype": dtype}
    assert assert_no_worse(hs.compile_sequence(hs.tokens.sort, **more), tmp_path, monkeypatch) == {"move", "sink"}
