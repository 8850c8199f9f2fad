"""Where to start: keys of a table head by differential evolution, with values, incline and intercept by least squares.

For given keys the best values are linear least squares, so only keys are searched: few numbers, in a landscape of many
valleys. A generation is one array (heads, points, tokens): all its least-squares problems are one batch of QR
factorisations, and hundreds of generations take a tenth of a second (Storn and Price 1997).

Values that are too large for their room are held down by a ridge, which follows the error that is being reached: a
value of the size of the room then costs a part of that error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.plan.fit.search import grids, scattered

POPULATION, GENERATIONS = 60, 150
ELITE = 6
"""Every other generation moves from one of so many, the best."""
RETUNED = 25
"""After so many generations the ridge follows the error."""
SHARE = 0.05
"""What part of the error a value of the size of its room costs."""
LEAST_RIDGE = 1e-9
"""Of the range of the targets: keeps the factorisation regular."""
LARGEST_KEY = 80.0
RADII = tuple(np.geomspace(0.01, 1.5, 16).tolist())
CENTRES = (-1.0, 0.0, 1.0, 2.0, 3.0)
"""Of polygons of slopes: their radii, and the offsets of their centres."""


@dataclass(frozen=True, eq=False)
class Landscape:
    """Targets at points (points, variables) of the unit box, and limits of values and slopes; with `affine`, an incline
    is fitted too."""

    points: Array
    targets: Array
    affine: bool
    values: float
    slopes: float


def evolved(landscape: Landscape, tokens: int, seed: int, known: Array | None = None) -> Array:
    """Keys (heads, tokens, variables + 1) of the best heads of a run, best first: an estimate of the best there are.
    `known` are keys to begin with, besides grids and random ones."""
    random = np.random.default_rng(seed)
    variables = landscape.points.shape[1]
    ridge = LEAST_RIDGE * float(np.ptp(landscape.targets))
    first = [*grids(tokens)] if variables == 1 else [*scattered(tokens), *rings(tokens)]
    spread = np.append(np.full(variables, 4.0), 3.0)
    drawn = spread * random.standard_normal((POPULATION, tokens, variables + 1))
    keys = np.concatenate([first, drawn, *([] if known is None else [known])])
    keys -= np.mean(keys, axis=1, keepdims=True)
    errors = _errors(landscape, keys, ridge)
    keys, errors = _best(keys, errors)
    for generation in range(GENERATIONS):
        if generation % RETUNED == 0 and np.isfinite(landscape.values):
            wanted = SHARE * float(errors[0]) / landscape.values
            ridge = max(wanted, LEAST_RIDGE * float(np.ptp(landscape.targets)))
            errors = _errors(landscape, keys, ridge)
        chosen = random.integers(len(keys), size=(3, len(keys)))
        base = keys[random.integers(ELITE, size=len(keys))] if generation % 2 else keys[chosen[0]]
        moved = base + random.uniform(0.3, 1.0, (len(keys), 1, 1)) * (keys[chosen[1]] - keys[chosen[2]])
        moved = np.where(random.random(keys.shape) < 0.9, moved, keys)
        moved -= np.mean(moved, axis=1, keepdims=True)
        found = np.where(np.max(np.abs(moved), axis=(1, 2)) < LARGEST_KEY, _errors(landscape, moved, ridge), np.inf)
        better = found < errors
        keys[better], errors[better] = moved[better], found[better]
        keys, errors = _best(keys, errors)
    return keys


def rings(tokens: int) -> Iterator[Array]:
    """Regular polygons of slopes, of many radii, alone and with a centre: for functions of the radius.

    The sum of e^(r d_k . x) over an n-gon of directions d_k depends on |x| alone up to the order n - 1 in r, so a small
    polygon makes even functions of the radius out of large values.
    """
    for centre in (0, 1):
        corners = tokens - centre
        if corners < 3:
            continue
        angles = 2.0 * math.pi * np.arange(corners) / corners
        for radius in RADII:
            for offset in CENTRES if centre else (0.0,):
                keys = np.zeros((tokens, 3))
                keys[:corners, 0], keys[:corners, 1] = radius * np.cos(angles), radius * np.sin(angles)
                keys[corners:, 2] = offset
                yield keys


def _best(keys: Array, errors: Array) -> tuple[Array, Array]:
    order = np.argsort(errors, kind="stable")[:POPULATION]
    return keys[order], errors[order]


def _errors(landscape: Landscape, keys: Array, ridge: float) -> Array:
    """The largest errors of heads with these keys."""
    solutions, columns, _ = fitted(landscape, keys, ridge)
    outputs = columns @ solutions[..., None]
    errors = np.max(np.abs(outputs[..., 0] - landscape.targets), axis=1)
    return np.where(np.isfinite(errors), errors, np.inf)


def fitted(landscape: Landscape, keys: Array, ridge: float) -> tuple[Array, Array, Array]:
    """Values, incline and intercept of heads with these keys (heads, numbers), by least squares with a ridge; values
    are cut to their room. With them the columns that they multiply, and the keys with slopes within their room."""
    slopes = (
        keys[..., :-1] - (keys[..., :-1].max(axis=1, keepdims=True) + keys[..., :-1].min(axis=1, keepdims=True)) / 2
    )
    keys = np.concatenate([np.clip(slopes, -landscape.slopes, landscape.slopes), keys[..., -1:]], axis=2)
    scores = np.einsum("pv,htv->hpt", landscape.points, keys[..., :-1]) + keys[:, None, :, -1]
    scores -= scores.max(axis=2, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(axis=2, keepdims=True)
    heads, points, tokens = weights.shape
    straight = landscape.points if landscape.affine else landscape.points[:, :0]
    beside = np.concatenate([straight, np.ones((points, 1))], axis=1)
    columns = np.concatenate([weights, np.broadcast_to(beside, (heads, *beside.shape))], axis=2)
    count = columns.shape[2]
    held = np.diag(np.append(np.full(tokens, ridge * np.sqrt(points)), np.full(count - tokens, 1e-12 + 1e-3 * ridge)))
    basis, triangle = np.linalg.qr(np.concatenate([columns, np.broadcast_to(held, (heads, count, count))], axis=1))
    wanted = basis[:, :points].transpose(0, 2, 1) @ landscape.targets
    try:
        solutions = np.linalg.solve(triangle, wanted[..., None])[..., 0]
    except np.linalg.LinAlgError:
        solutions = np.full((heads, count), np.nan)
    solutions[:, :tokens] = np.clip(solutions[:, :tokens], -landscape.values, landscape.values)
    return solutions, columns, keys
