"""Quadratic over linear, without a division: the square with its thresholds read off a second value.

The square circuit on [0, 1] has biases only in its thresholds and in its centring. Replace every bias b by b V, V
> 0: all nodes become homogeneous of degree one in (x, V), so on 0 <= x <= V the output is V F(x / V), and V (x /
V)^2 = x^2 / V.
"""

from __future__ import annotations

from headsmith.circuits.fragment import Fragment
from headsmith.circuits.square import square


def perspective_square(levels: int, base: int = 2) -> Fragment:
    """The square on [0, 1], homogeneous: after the substitution b -> b V it computes x^2 / V for 0 <= x <= V.

    Guarantee: |out - x^2 / V| <= V base^(-2 levels) / 8.   levels * (base - 1) gates, depth levels.
    """
    return square(0.0, 1.0, (base,) * levels)


def perspective_split(split: tuple[int, ...]) -> Fragment:
    """The same with mixed radices, N their product. Guarantee: |out - x^2 / V| <= V / (8 N^2)."""
    return square(0.0, 1.0, split)
