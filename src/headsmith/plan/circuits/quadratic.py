"""Any function with three derivatives: a piecewise linear function plus the square of one, minus the square of another.

Knots t_0 < .. < t_n. On piece i the parabola through f at both knots and at the middle has the leading coefficient
c_i = 2 (f(t_i) - 2 f(middle) + f(t_{i+1})) / h_i^2. Let w_+ be piecewise linear with the slope +-sqrt(c_i) where
c_i > 0, and 0 elsewhere, and w_- the same for -c_i: then f - w_+^2 + w_-^2 is nearly linear on every piece, and
its interpolation at the knots is the linear part. All three share the gates max(x - t_i, 0). The signs of the
slopes are chosen to keep w in a narrow band [-rho, rho].

    |f - out| <= max_i h_i^3 max|f'''| / (72 sqrt 3)  +  (rho_+^2 / N_+^2 + rho_-^2 / N_-^2) / 2

The first from the cubic remainder z (z - h/2)(z - h) f''' / 6, largest h^3 / (12 sqrt 3) / 6; the second from the
folding squares (square.py) on a band of width 2 rho. Knots that share the integral of |f'''|^(1/3) make the first
term the same everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from headsmith.core.arrays import Array
from headsmith.language.builder import Builder
from headsmith.plan.circuits.fragment import Fragment, scalar
from headsmith.plan.circuits.polygon import place_knots, polygon
from headsmith.plan.circuits.proposal import Proposal
from headsmith.plan.circuits.radix import cells_of, radices
from headsmith.plan.circuits.square import fold
from headsmith.plan.circuits.target import Target, density

LARGEST = 800
MORE = (1.0, 1.015, 1.04, 1.1, 1.3)
# Where z (z - 1/2)(z - 1) is largest, and a few places beside; then many, close to both ends too, for pieces with
# one-sided features.
PLACES = np.array([0.1, 0.2113, 0.32, 0.68, 0.7887, 0.9])
FAIRLY_DENSE = np.linspace(0.03, 0.97, 17)
DENSE = np.unique(np.concatenate([np.linspace(0.02, 0.98, 25), 0.5 ** np.arange(2, 24), 1.0 - 0.5 ** np.arange(2, 24)]))


@dataclass(frozen=True, eq=False)
class Parabolas:
    """Knots, values there and in the middles, and the largest deviation of the parabolas."""

    knots: Array
    values: Array
    middles: Array
    error: float

    @property
    def bends(self) -> Array:
        return 2.0 * (self.values[:-1] - 2.0 * self.middles + self.values[1:]) / np.diff(self.knots) ** 2


def quadratic(fit: Parabolas, split: tuple[int, ...]) -> Fragment:
    """The circuit of these parabolas, with folding squares of the given radices.

    Guarantee: |out - f| <= |f - parabolas| + sum over the one or two squares of rho^2 / (2 N^2).
    """
    builder = Builder(["x"])
    knots = place_knots(builder, fit.knots, fit.values)
    rest, folds, error, cells = fit.values.copy(), [], fit.error, cells_of(split)
    for sign in (1.0, -1.0):
        steps = np.sqrt(np.maximum(sign * fit.bends, 0.0)) * np.diff(fit.knots)
        if not steps.any():
            continue
        # z = w + rho in [0, 2 rho], and w^2 = z^2 - 2 rho z + rho^2 with z^2 ~ 2 rho (terms + z / N) - rho^2 / (2
        # N^2), centred. Of this `rest` takes what is piecewise linear: f - w^2 at the knots, plus 2 rho (z / N -
        # z) + rho^2 - rho^2 / (2 N^2).
        z, rho = _band(steps)
        start = scalar(builder, *polygon(builder, knots, z))
        folds += [(node, sign * 2.0 * rho * weights) for node, weights in fold(builder, start, [], 2.0 * rho, split)]
        rest -= sign * (z * (z - 2.0 * rho / cells) + rho**2 / (2.0 * cells**2))
        error += rho**2 / (2.0 * cells**2)
    terms, bias = polygon(builder, knots, rest)
    output = scalar(builder, [*terms, *folds], bias)
    return Fragment("quadratic", builder.graph(output), float(fit.knots[0]), float(fit.knots[-1]), error)


def _band(steps: Array) -> tuple[Array, float]:
    """A walk with these step sizes that turns back whenever it can, moved into [0, 2 rho]; and rho."""
    places = [0.0]
    for step in steps.tolist():
        places.append(places[-1] - step if places[-1] > 0.0 else places[-1] + step)
    walk = np.array(places)
    return walk - walk.min(), 0.5 * float(walk.max() - walk.min())


def parabolas(target: Target, knots: Array, places: Array = PLACES) -> tuple[Parabolas, Array]:
    """The parabolas at these knots, and the largest deviation on each piece, as sampled at `places`."""
    width = np.diff(knots)
    values, middles = target.value(knots), target.value(knots[:-1] + 0.5 * width)
    left, right = values[:-1, None], values[1:, None]
    chord = left + (right - left) * places
    bump = 4.0 * places * (1.0 - places) * (middles - 0.5 * (values[:-1] + values[1:]))[:, None]
    exact = target.value(knots[:-1, None] + width[:, None] * places)
    gaps = np.abs(chord + bump - exact).max(axis=1)
    return Parabolas(knots, values, middles, float(gaps.max())), gaps


def balanced(target: Target, places: Array, pieces: int) -> Parabolas:
    """Parabolas on `pieces` pieces with nearly the same deviations; equal steps in `places` are a fair guess."""
    order = np.linspace(0.0, 1.0, len(places))
    share = np.linspace(0.0, 1.0, pieces + 1)
    best, gaps = parabolas(target, np.interp(share, order, places))
    for _ in range(6):
        # A deviation grows with the cube of a piece's length: its cube root is additive, so share that out evenly.
        size = np.cbrt(gaps) + 0.02 * np.cbrt(gaps).mean() + 1e-300
        total = np.concatenate([[0.0], np.cumsum(size)])
        share = np.interp(np.linspace(0.0, total[-1], pieces + 1), total, share)
        found, gaps = parabolas(target, np.interp(share, order, places))
        best = found if found.error < best.error else best
    return best


def quadratic_proposals(target: Target, low: float, high: float, error: float) -> list[Proposal]:
    """The cheapest splits between more pieces and finer squares within `error`."""
    bend = density(target, low, high, 3)
    guess = bend.total / (72.0 * math.sqrt(3.0) * error) ** (1.0 / 3.0)
    if not guess <= LARGEST:
        return []
    places = bend.places(4096 if not target.slow else 512, floor=0.02)
    first = balanced(target, places, max(math.ceil(guess), 1))
    if not np.isfinite(first.values).all() or not np.isfinite(first.error):
        return []
    # The deviation falls with the cube of the number of pieces.
    least = max(math.ceil((len(first.knots) - 1) * (first.error / error) ** (1.0 / 3.0)), 1)
    found: list[Proposal] = []
    for pieces in sorted({math.ceil(least * more) for more in MORE}):
        found += _squares(target, places, pieces, error)
    return found


def _squares(target: Target, places: Array, pieces: int, error: float) -> list[Proposal]:
    fit = balanced(target, places, pieces)
    fit = parabolas(target, fit.knots, DENSE if not target.slow else FAIRLY_DENSE)[0]
    rest = error - fit.error
    if rest <= 0.0:
        return []
    steps = [np.sqrt(np.maximum(sign * fit.bends, 0.0)) * np.diff(fit.knots) for sign in (1.0, -1.0)]
    squares = [_band(step)[1] for step in steps if step.any()]
    cells = math.sqrt(0.5 * sum(rho**2 for rho in squares) / rest)
    if not math.isfinite(cells):
        # Knots that are one number: there is nothing to bend.
        return []
    return [
        Proposal(
            pieces - 1 + len(squares) * (sum(split) - len(split)),
            (pieces > 1) + len(split) * (len(squares) > 0),
            partial(quadratic, fit, split),
        )
        for split in radices(cells)
    ]
