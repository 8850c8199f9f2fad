"""The falsifier: looks for the input where a model is furthest from its target. Its figure is an estimate.

A certificate says that no input is worse than the bound; the falsifier tries to prove it wrong, and so shows how tight
it is. What it tries depends on the kind of model:

    token by token                  points, corners, kinks, ascent          report/points.py
    a program over sequences        sequences of every kind, ascent         report/sequences.py
    a callable that was sampled     sequences; the target is every function
                                    that is as stated                       report/envelopes.py
"""

from __future__ import annotations

import os

from headsmith.core.errors import TargetError
from headsmith.files import Model, model_of
from headsmith.report.envelopes import falsify_sampled
from headsmith.report.found import Found
from headsmith.report.points import errors_at, falsify_points
from headsmith.report.sequences import falsify_sequence
from headsmith.sequence.approximate import Approximation
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.universal import Universal

__all__ = ["Found", "errors_at", "falsify"]

LEAST = 8
"""Fewer inputs are no search."""


def falsify(model: Model | Approximation | str | os.PathLike[str], *, effort: int = 4000, seed: int = 0) -> Found:
    """Search for the input where a model, or the model saved under a path, errs most, with about `effort` runs.

    The result says how far the model is from its target there (`error`), for which `input` and `output`, and how that
    compares with the certificate (`tightness`, `ratio`; `refutes`, if it contradicts it). It is an estimate from
    below: a proof is what `hs.verify` gives.

    >>> import headsmith as hs
    >>> model = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3)
    >>> found = hs.falsify(model, effort=200)
    >>> found.refutes, found.error <= model.certificate.error
    (False, True)
    """
    if isinstance(effort, bool) or not isinstance(effort, int) or effort < LEAST:
        raise TargetError(f"effort is {effort!r}; it must be an integer of {LEAST} or more")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise TargetError(f"seed is {seed!r}; it must be an integer, not negative")
    match model_of(model):
        case Universal() as sampled:
            return falsify_sampled(sampled, effort=effort, seed=seed)
        case CompiledSequence() as sequence:
            return falsify_sequence(sequence, effort=effort, seed=seed)
        case compiled:
            return falsify_points(compiled, effort=effort, seed=seed)
