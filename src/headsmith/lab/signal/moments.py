"""What a normalisation does to two Gaussian numbers of variance q and covariance p: the four averages of the theory.

    q~ = E f(h1)^2        p~ = E f(h1) f(h2)        the new variance and covariance
    q^ = E f'(h1)^2       p^ = E f'(h1) f'(h2)      how much of a small change passes, and how much of a common one

LayerNorm divides by sqrt(q). Derf, f(x) = erf(alpha x), has closed forms. DyT, f(x) = tanh(alpha x), is integrated here
to about 14 digits by the trapezoidal rule, which converges exponentially for analytic functions.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.lab.signal.erf import erf

Norm = Literal["layernorm", "derf", "dyt"]
NORMS: tuple[Norm, ...] = ("layernorm", "derf", "dyt")


class Moments(NamedTuple):
    """q~, p~, q^, p^ of this module's docstring."""

    variance: float
    covariance: float
    slope_variance: float
    slope_covariance: float

    @property
    def correlation(self) -> float:
        """p~ / q~, within [-1, 1]; 0 where everything is 0."""
        return max(-1.0, min(1.0, self.covariance / self.variance)) if self.variance > 0.0 else 0.0


def norm_named(name: object) -> Norm:
    """The norm of that name, whatever its capitals, or an error that lists the names."""
    for norm in NORMS:
        if isinstance(name, str) and name.lower() == norm:
            return norm
    raise TargetError(f"unknown norm {name!r}; choose one of {', '.join(NORMS)}")


def moments(norm: Norm, alpha: float, q: float, p: float) -> Moments:
    """The four averages at variance q > 0 and covariance |p| <= q. LayerNorm does not use alpha."""
    match norm:
        case "layernorm":
            return Moments(1.0, p / q, 1.0 / q, 1.0 / q)
        case "derf":
            return _derf(alpha * alpha, q, p)
        case "dyt":
            return _dyt(alpha, q, p)


def _derf(A: float, q: float, p: float) -> Moments:
    """Closed forms. With X = 2Ap and Y = 1 + 2Aq, asin(X/Y) is the angle of (sqrt(Y^2 - X^2), X), and the root is a
    product of two factors that do not cancel: so large alpha and p near q lose no digits."""
    root_q = math.sqrt(1.0 + 4.0 * A * q)
    root_p = math.sqrt((1.0 + 2.0 * A * max(q - p, 0.0)) * (1.0 + 2.0 * A * max(q + p, 0.0)))
    slope = 4.0 * A / math.pi
    return Moments(
        2.0 / math.pi * math.atan2(2.0 * A * q, root_q),
        2.0 / math.pi * math.atan2(2.0 * A * p, root_p),
        slope / root_q,
        slope / root_p,
    )


_REACH = 8.5
"""Where the normal density stops to matter: it is 1e-16 of its peak there."""

_V = np.arange(-34, 35) * (_REACH / 34)
_V_WEIGHTS = np.exp(-(_V**2) / 2.0) * (_REACH / 34) / math.sqrt(2.0 * math.pi)
_T = np.arange(-76, 77) * 0.25
_T_SECH2 = 1.0 / np.cosh(_T) ** 2
_T_WEIGHTS = 0.25 * _T_SECH2


def _dyt(alpha: float, q: float, p: float) -> Moments:
    """Integrals for tanh(alpha x).

    Where alpha times the deviation is below 1, tanh is smooth on the scale of the Gaussian v and nodes in v do. Above,
    the Gaussian is smooth on the scale of t = alpha x, and so

        E sech^k(alpha h) = integral sech^k(t) phi(t / s) / s dt,     s = alpha sqrt(q),
        E tanh(m + s v)   = 1/2 integral sech^2(t) erf((m - t) / (s sqrt 2)) dt

    take nodes in t, as few for any alpha. E tanh^2 = 1 - E sech^2. A negative covariance changes signs only: tanh is
    odd.
    """
    variance, slope_variance = _dyt_alone(alpha, q)
    size = min(abs(p), q)
    if size == q:
        return Moments(variance, math.copysign(variance, p), slope_variance, slope_variance)
    # h = sqrt(p) u + sqrt(q - p) v with u common to both: first the averages over v, as functions of u.
    common, own = alpha * math.sqrt(size), alpha * math.sqrt(q - size)
    u = np.arange(0.0, _REACH, _step(common, own))
    weights = np.exp(-(u**2) / 2.0) * (2.0 * (u[1] - u[0]) / math.sqrt(2.0 * math.pi))
    weights[0] /= 2.0
    mean, slope = _dyt_smoothed(common * u, own)
    covariance = float(weights @ mean**2)
    return Moments(variance, math.copysign(covariance, p), slope_variance, alpha * alpha * float(weights @ slope**2))


def _step(common: float, own: float) -> float:
    """The distance of nodes in u for an error of 1e-16.

    The average over v continues to complex u, where its square grows like exp(eta^2 y^2), eta = common / own; or tanh
    itself does as far as its pole at pi / (2 common). The larger step will do.
    """
    if common == 0.0:
        return 0.5
    return min(0.5, max(0.5 / math.sqrt(0.5 + (common / own) ** 2), 0.26 / common))


def _dyt_alone(alpha: float, q: float) -> tuple[float, float]:
    """q~ and q^."""
    s = alpha * math.sqrt(q)
    if s < 1.0:
        f = np.tanh(s * _V)
        return float(_V_WEIGHTS @ f**2), alpha * alpha * float(_V_WEIGHTS @ (1.0 - f**2) ** 2)
    density = np.exp(-((_T / s) ** 2) / 2.0) / (s * math.sqrt(2.0 * math.pi))
    return 1.0 - float(_T_WEIGHTS @ density), alpha * alpha * float((_T_WEIGHTS * _T_SECH2) @ density)


def _dyt_smoothed(middle: Array, s: float) -> tuple[Array, Array]:
    """E tanh(m + s v) and E sech^2(m + s v) for each m of `middle`."""
    if s < 1.0:
        f = np.tanh(middle[:, None] + s * _V)
        return f @ _V_WEIGHTS, (1.0 - f**2) @ _V_WEIGHTS
    away = (middle[:, None] - _T) / s
    mean = erf(away / math.sqrt(2.0)) @ _T_WEIGHTS / 2.0
    return mean, np.exp(-(away**2) / 2.0) @ _T_WEIGHTS / (s * math.sqrt(2.0 * math.pi))
