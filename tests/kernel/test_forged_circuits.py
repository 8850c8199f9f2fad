"""Circuits that nobody's compiler writes, laid out by hand: whatever the kernel certifies of them must hold.

First the smallest circuits that were once certified with far too small a bound. Then rewritten circuits: runs in which
every head is off by as much as its own rule allows, the worst way, stay within the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.effort import tried

from headsmith.kernel.core import slopes
from headsmith.kernel.core.arithmetic import Interval
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.lab.attack.adversary import worst_share
from headsmith.lab.attack.drafts import FileDraft
from headsmith.lab.attack.file_attack import worst_ratio
from headsmith.lab.attack.forged_seeds import SEEDS, Sketch
from headsmith.lab.attack.forging import contents, laid_out
from headsmith.lab.attack.rewrites import rewritten


def power_as_output(rng: Any) -> FileDraft:
    """Q_1 = Q_0 Q_0, Q_0 = 1 - mean(x^2) / 2, returned as it is: the norm of a power that nobody reads is its own, and
    not that of no readers, which is zero."""
    sketch = Sketch(rng, 1, 1)
    x = sketch.noisy(0)
    both = (sketch.scaled((x, 1.0)) for _ in range(2))
    matrix = sketch.scaled((sketch.pool(sketch.product(*both, 0.25)), -0.5), bias=1.0)
    both = (sketch.sum([(matrix, np.ones((1, 1)))]) for _ in range(2))
    square = sketch.sum([(sketch.product(*both, 0.25), np.ones((1, 1)))])
    sketch.draft.powers += [matrix, square]
    return sketch.done(square)


def step_as_output(rng: Any) -> FileDraft:
    """A step of gradient descent, returned as it is: an error that all tokens share moves it by as much."""
    sketch = Sketch(rng, 2, 2)
    x, y = (sketch.sum([(0, np.eye(2)[[place]])]) for place in (0, 1))
    y = sketch.noisy(y)
    w = sketch.scaled((sketch.pool(sketch.product(sketch.scaled((y, 1.0)), x, 0.5)), 0.25))
    residual = sketch.sum([(sketch.product(w, x, 0.5), np.ones((1, 1))), (y, -np.ones((1, 1)))])
    after = sketch.scaled((w, 1.0), (sketch.pool(sketch.product(residual, x, 0.5)), -0.25))
    sketch.draft.steps.append(after)
    return sketch.done(after)


@pytest.mark.parametrize("made", [power_as_output, step_as_output])
def test_what_is_certified_holds(made: Any) -> None:
    rng = np.random.default_rng(0)
    header, tensors = contents(made(rng))
    found = proved(header, tensors)
    worst = worst_ratio(header, tensors, found.outputs, found.masks, rng)
    assert 0.0 < worst.ratio <= 1.0


@pytest.mark.again
@pytest.mark.parametrize("name", SEEDS)
def test_rewritten_circuits(name: str) -> None:
    """Sketches and a few rewrites of each: heads that are off the worst way stay within the bound. Most rewrites of a
    circuit are refused; some sketch of every kind is not."""
    accepted = 0
    for number in range(tried(2, 2)):
        rng = np.random.default_rng([number, 5])
        sketch = SEEDS[name](rng)
        for draft in (sketch, rewritten(sketch, rng)):
            change = laid_out(draft)
            if change is None:
                continue
            try:
                found = proved(change.header, change.tensors)
            except Refused:
                continue
            accepted += 1
            assert worst_share(change.header, change.tensors, found.outputs, rng).ratio <= 1.0, draft.label
    assert accepted > 0


def test_a_rule_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates of slope 1/2 at most: errors that pass two of them would count for a quarter."""
    whole = slopes._gate_slopes
    monkeypatch.setattr(slopes, "_gate_slopes", lambda *given: Interval(whole(*given).low, 0.5 * whole(*given).high))
    rng = np.random.default_rng(0)
    sketch = Sketch(rng, 1, 1)
    header, tensors = contents(sketch.done(sketch.gate(sketch.gate(0, 16.0), 1e6)))
    share = worst_share(header, tensors, proved(header, tensors).outputs, rng)
    assert share.ratio > 1.9
