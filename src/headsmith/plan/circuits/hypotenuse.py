"""sqrt(1 + s^2) on [0, 1] by folding the angle: reflections keep the length, so nothing needs to be unfolded.

(U, V) = (1, s) has length sqrt(1 + s^2) and an angle in [0, pi/4]. Reflecting at the angle phi whatever lies above it,

    r = max(V cos phi - U sin phi, 0),     U <- U + 2 sin(phi) r,     V <- V - 2 cos(phi) r,

halves the range of angles and keeps the length. After L folds the angle t lies in [0, w], w = pi / 2^(L + 2), and
U cos(w/2) + V sin(w/2) = length cos(t - w/2), between cos(w/2) and 1 times the length: centred, off by tan^2(w/4).
(The polyhedral second-order cone of Ben-Tal and Nemirovski.) In its perspective, with every constant multiplied by X,
the circuit computes sqrt(X^2 + Y^2) for 0 <= Y <= X.
"""

from __future__ import annotations

import math
from functools import partial

from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, gates, scalar
from headsmith.plan.circuits.proposal import Proposal


def hypotenuse(folds: int) -> Fragment:
    """sqrt(1 + s^2) on [0, 1] with `folds` gates, one a level.

    Guarantee: |out - sqrt(1 + s^2)| <= sqrt(2) tan^2(pi / 2^(folds + 4)).
    """
    builder = Builder(["x"])
    long = scalar(builder, [(builder.input, 0.0)], 1.0)
    short = scalar(builder, [(builder.input, 1.0)])
    angle = math.pi / 4.0
    for _ in range(folds):
        angle *= 0.5
        gate = gates(builder, [(short, math.cos(angle)), (long, -math.sin(angle))], [0.0])
        long = scalar(builder, [(long, 1.0), (gate, 2.0 * math.sin(angle))])
        short = scalar(builder, [(short, 1.0), (gate, -2.0 * math.cos(angle))])
    centre = 2.0 / (1.0 + math.cos(0.5 * angle))
    output = scalar(builder, [(long, centre * math.cos(0.5 * angle)), (short, centre * math.sin(0.5 * angle))])
    error = math.sqrt(2.0) * math.tan(0.25 * angle) ** 2
    return Fragment("hypotenuse", builder.graph(output), 0.0, 1.0, error)


def hypotenuse_proposals(error: float) -> list[Proposal]:
    """The fewest folds within `error`."""
    for folds in range(0, 28):
        if math.sqrt(2.0) * math.tan(math.pi / 2 ** (folds + 4)) ** 2 <= error:
            return [Proposal(folds, folds, partial(hypotenuse, folds))]
    return []
