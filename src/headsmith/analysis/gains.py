"""How far errors of a node move the output, and what a sum of them pushes it by.

Tokens have errors of their own. Where nodes read other tokens, the output at token i moves by

    here e_i  +  sum_j g_j e_j,          e_j the node's error at token j (j = i among them),

`here` along the paths that never leave the token, the g_j along the others. Slopes of gates differ from token to token,
so the two must not be added up before they meet the errors: D e_i + g e_j is up to |D| + |g| times an error, whatever
the signs of D and g are. Of the g_j three sums are known, for each component and output:

    rising >= sum max(g_j, 0),     falling >= sum max(-g_j, 0),     size >= sum |g_j|.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.intervals import Interval
from headsmith.core.rounding import upper


@dataclass(frozen=True, eq=False)
class Far:
    """What errors of any tokens do: bounds (size, outputs) of the sums above."""

    rising: Array
    falling: Array
    size: Array

    def plus(self, other: Far | None) -> Far:
        """Both together."""
        if other is None:
            return self
        pairs = ((self.rising, other.rising), (self.falling, other.falling), (self.size, other.size))
        return Far(*(np.asarray(upper(left + right, 1)) for left, right in pairs))

    def through(self, slopes: Interval) -> Far:
        """What it is for an argument of the node: `slopes` (argument, node) of the node, or one for each component."""
        positive, negative = np.maximum(slopes.high, 0.0), np.maximum(-slopes.low, 0.0)
        pairs = ((self.rising, self.falling), (self.falling, self.rising))
        rising, falling = (
            np.asarray(upper(_times(positive, same) + _times(negative, other), len(same) + 3)) for same, other in pairs
        )
        size = np.asarray(upper(_times(slopes.magnitude, self.size), len(self.size) + 2))
        return Far(rising, falling, size)


def _times(slopes: Array, values: Array) -> Array:
    return slopes[:, None] * values if slopes.ndim == 1 else slopes @ values


@dataclass(frozen=True, eq=False)
class Gain:
    """How a node's errors move the outputs: at its own token (an interval matrix), and from any tokens, if they do."""

    here: Interval
    far: Far | None = None

    @property
    def rising(self) -> Array:
        """How much an error of 1 at every token may push the outputs up, (size, outputs)."""
        own = np.maximum(self.here.high, 0.0)
        return own if self.far is None else np.asarray(upper(own + self.far.rising, 1))

    @property
    def falling(self) -> Array:
        """How much an error of 1 at every token may push the outputs down."""
        own = np.maximum(-self.here.low, 0.0)
        return own if self.far is None else np.asarray(upper(own + self.far.falling, 1))

    @property
    def magnitude(self) -> Array:
        """How much errors of either sign, at most 1, may move the outputs."""
        own = self.here.magnitude
        return own if self.far is None else np.asarray(upper(own + self.far.size, 1))

    @property
    def anywhere(self) -> Far:
        """The same as seen by a node that may read any token."""
        return Far(self.rising, self.falling, self.magnitude)

    def pushes(self, error: Interval) -> Array:
        """How far errors in `error` (size), one for each component, push each output down and up: (2, size,
        outputs)."""
        corners = [(end.T * e).T for end in (self.here.low, self.here.high) for e in (error.low, error.high)]
        down, up = np.maximum(-np.minimum.reduce(corners), 0.0), np.maximum(np.maximum.reduce(corners), 0.0)
        if self.far is not None:
            below, above = (np.maximum(each, 0.0)[:, None] for each in (-error.low, error.high))
            most = self.far.size * np.maximum(below, above)
            down = down + np.minimum(self.far.rising * below + self.far.falling * above, most)
            up = up + np.minimum(self.far.rising * above + self.far.falling * below, most)
        return np.asarray(upper(np.stack([down, up]), 4))


def pushed(sides: Array, gain: Gain, error: Interval) -> Array:
    """Add to `sides` (2, outputs) the largest pushes downwards and upwards of errors in `error` (size)."""
    return np.asarray(upper(sides + gain.pushes(error).sum(axis=1), len(error.low) + 2))
