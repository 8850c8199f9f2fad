"""How signals and gradients grow through deep random transformers: recurrences of the average partial Jacobian norm.

A block is  h += W_O W_V (average of Norm(h) over the tokens that attention looks at),  h += W_2 ReLU(W_1 Norm(h)), with
weights N(0, sigma^2 / inputs). For n tokens that look alike, two numbers describe the stream: q = h_a.h_a / d and
p = h_a.h_b / d. With a = (sigma_o sigma_v)^2, b = (sigma_1 sigma_2)^2, and the moments of `moments.py`, in the limit of
large width d

    attention   q += a p~,  p += a p~              every token looks at all, evenly, and n is large
    MLP         q += b q~/2,  p += b q~ kappa(p~/q~),      kappa(r) = (sqrt(1 - r^2) + r (pi - acos r)) / (2 pi)

The average partial Jacobian norm J^{k,l} = (1/(n d)) E |dh^k / dh^l|_F^2 has a companion K between different tokens.
From the output backwards

    MLP         J <- (1 + b q^/2) J,              K <- (1 + b kappa'(p~/q~) p^) K
    attention   J <- J + a q^ (J/n + K),          K <- K + a p^ (J/n + K).

The recurrences are those of the literature on transformers without normalisation (arXiv 2604.11890); with
`finite_tokens` they keep terms of order 1/n that it drops (ours).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array, frozen
from headsmith.core.errors import TargetError
from headsmith.lab.signal.moments import Moments, Norm, moments, norm_named

SHRUNK = math.sqrt(768.0 / 1024.0)
SIGMA, SIGMA_2 = 0.64 * SHRUNK, 1.28 * SHRUNK
"""The weights of a ViT-Base at initialisation (deviation 0.02, width 768, MLP of 3072)."""


@dataclass(frozen=True)
class Settings:
    """A random transformer and its input, as the theory sees them."""

    norm: Norm = "layernorm"
    alpha: float = 1.0
    depth: int = 64
    tokens: int = 196
    q0: float = 1.0
    p0: float = 0.2
    sigma_o: float = SIGMA
    sigma_v: float = SIGMA
    sigma_1: float = SIGMA
    sigma_2: float = SIGMA_2
    sigma_qk: float | None = None
    finite_tokens: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", norm_named(self.norm))
        for name in ("depth", "tokens"):
            object.__setattr__(self, name, counted(name, getattr(self, name)))
        for name in ("alpha", "q0", "p0", "sigma_o", "sigma_v", "sigma_1", "sigma_2"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.sigma_qk is not None:
            object.__setattr__(self, "sigma_qk", _number("sigma_qk", self.sigma_qk))
        for name in ("alpha", "q0"):
            if not getattr(self, name) > 0.0:
                raise TargetError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        for name in ("sigma_o", "sigma_v", "sigma_1", "sigma_2", "sigma_qk"):
            if (getattr(self, name) or 0.0) < 0.0:
                raise TargetError(f"{name} is {getattr(self, name)!r}; a standard deviation is at least 0")
        if abs(self.p0) > self.q0:
            raise TargetError(f"p0 is {self.p0!r} and q0 is {self.q0!r}; a covariance is at most the variance")

    @property
    def attention(self) -> float:
        """a = (sigma_o sigma_v)^2."""
        return (self.sigma_o * self.sigma_v) ** 2

    @property
    def mlp(self) -> float:
        """b = (sigma_1 sigma_2)^2."""
        return (self.sigma_1 * self.sigma_2) ** 2


@dataclass(frozen=True, eq=False)
class Propagation:
    """What the theory says of each block. The first axis of every array is the block, from 0 (the input) to the depth.

    q[k], p[k]       the stream after k blocks: mean square of a coordinate, and the same between two tokens.
    J[k]             |dh^k / dh^0|^2 / (n d): how k blocks change gradients. J[0] is 1, J[-1] is the whole depth.
    J_to_output[l]   |dh^L / dh^l|^2 / (n d), L the depth. J_to_output[0] is the whole depth, J_to_output[-1] is 1.
    log_J            log(J), which stays finite where J goes beyond float64; log_J_to_output alike.

    Where several alphas were asked for, the second axis is theirs.
    """

    settings: Settings
    alphas: tuple[float, ...]
    q: Array
    p: Array
    log_J: Array
    log_J_to_output: Array

    @property
    def J(self) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(self.log_J)

    @property
    def J_to_output(self) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(self.log_J_to_output)

    @property
    def correlation(self) -> Array:
        """p / q: how alike two tokens are."""
        return np.asarray(self.p / self.q)

    def __iter__(self) -> Iterator[Array]:
        """q, p, J = ..."""
        return iter((self.q, self.p, self.J))

    def draw(self, path: Any) -> None:
        """Draw q, p, p/q and J against the block into a .png, .svg or .pdf file."""
        from headsmith.lab.signal.draw import draw_propagation

        draw_propagation(self, path)


def apjn(
    norm: str = "layernorm",
    *,
    alpha: Any = 1.0,
    depth: int = 64,
    tokens: int = 196,
    q0: float = 1.0,
    p0: float = 0.2,
    sigma_o: float = SIGMA,
    sigma_v: float = SIGMA,
    sigma_1: float = SIGMA,
    sigma_2: float = SIGMA_2,
    sigma_qk: float | None = None,
    finite_tokens: bool = False,
) -> Propagation:
    """Run the recurrences through `depth` blocks; see `Propagation` for what each index means.

    `norm` is "layernorm", "derf" (erf(alpha x)) or "dyt" (tanh(alpha x)). `alpha` may be a sequence of numbers: arrays
    then get a second axis. The default weights are those of a ViT-Base at initialisation.

    `sigma_qk`, the product of the deviations of W_Q and W_K, turns on attention that is not even: a token looks more at
    itself, exp(sigma_qk^2 x (p~ - q~)) as much at any other (x is q~ for the variance, p~ for the covariance). It
    changes q and p; gradients are still carried as if attention were even, which makes J too small as sigma_qk grows
    (`measure` shows by how much). `sigma_qk=None` is even attention among many
    tokens; `sigma_qk=0` even attention that counts the token itself as one of n. `finite_tokens=True` keeps all terms
    of order 1/n, backward too (n - 1 other tokens, not n): what random transformers of few tokens do.
    """
    shape = np.shape(alpha)
    if len(shape) > 1:
        raise TargetError(f"alpha has shape {shape}; give one number, or a sequence of numbers")
    several = list(np.ravel(alpha)) if shape else [alpha]
    if not several:
        raise TargetError("alpha is empty; give at least one number")
    runs = []
    for value in several:
        settings = Settings(
            norm=norm,  # type: ignore[arg-type]
            alpha=value,
            depth=depth,
            tokens=tokens,
            q0=q0,
            p0=p0,
            sigma_o=sigma_o,
            sigma_v=sigma_v,
            sigma_1=sigma_1,
            sigma_2=sigma_2,
            sigma_qk=sigma_qk,
            finite_tokens=bool(finite_tokens),
        )
        runs.append(propagate(settings))
    if not shape:
        return runs[0]
    arrays = (
        frozen(np.stack([getattr(run, name) for run in runs], axis=1))
        for name in ("q", "p", "log_J", "log_J_to_output")
    )
    return Propagation(runs[0].settings, tuple(run.settings.alpha for run in runs), *arrays)


def propagate(settings: Settings) -> Propagation:
    """The recurrences for one network."""
    q, p = np.empty((2, settings.depth + 1))
    q[0], p[0] = settings.q0, settings.p0
    blocks = []
    for place in range(settings.depth):
        block, q[place + 1], p[place + 1] = _forward(settings, float(q[place]), float(p[place]))
        blocks.append(block)
    return Propagation(
        settings,
        (settings.alpha,),
        frozen(q),
        frozen(p),
        frozen(np.concatenate([[0.0], np.cumsum(_from_input(settings, blocks))])),
        frozen(np.concatenate([[0.0], np.cumsum(_to_output(settings, blocks))])[::-1].copy()),
    )


@dataclass(frozen=True)
class _Block:
    """What gradients need to know of one block: the moments before the attention, and what the MLP multiplies by."""

    before: Moments
    mlp_J: float
    mlp_K: float


def _forward(settings: Settings, q: float, p: float) -> tuple[_Block, float, float]:
    """One block forwards: what it does to gradients, and q and p after it."""
    norm, alpha, b = settings.norm, settings.alpha, settings.mlp
    before = moments(norm, alpha, q, p)
    q_half = q + settings.attention * _attended(settings, before, before.variance)
    p_half = p + settings.attention * _attended(settings, before, before.covariance)
    half = moments(norm, alpha, q_half, _possible(settings, q_half, p_half))
    rho = half.correlation
    block = _Block(before, 1.0 + b * half.slope_variance / 2.0, 1.0 + b * kappa_slope(rho) * half.slope_covariance)
    q_next, p_next = q_half + b * half.variance / 2.0, p_half + b * half.variance * kappa(rho)
    return block, q_next, _possible(settings, q_next, p_next)


def _possible(settings: Settings, q: float, p: float) -> float:
    """p, where rounding alone made tokens more alike than equal; refused, where no tokens are like that."""
    if not (q > 0.0 and abs(p) <= q * (1.0 + 1e-9)):
        if math.isfinite(q) and math.isfinite(p):
            raise TargetError(
                f"from q0 = {settings.q0:g} and p0 = {settings.p0:g} the recurrences reach q = {q:g}, p = {p:g}, which "
                f"no tokens have; give p0 >= -q0 / (tokens - 1), and finite_tokens=True where p0 is negative"
            )
        raise TargetError("q goes beyond float64: take smaller sigmas, or fewer blocks")
    return max(-q, min(q, p))


def _attended(settings: Settings, found: Moments, x: float) -> float:
    """What attention adds to q (x = q~) or to p (x = p~), over a."""
    if settings.sigma_qk is None and not settings.finite_tokens:
        return found.covariance
    # The other n - 1 tokens weigh `other` each, where the token itself weighs 1.
    other = math.exp((settings.sigma_qk or 0.0) ** 2 * x * (found.covariance - found.variance))
    others = (settings.tokens - 1) * other
    return (found.variance + found.covariance * others) / (1.0 + others)


def _to_output(settings: Settings, blocks: list[_Block]) -> list[float]:
    """log of the factor by which each block multiplies J, from the last block to the first. r is K / J."""
    r, logs = 0.0, []
    for block in reversed(blocks):
        r *= block.mlp_K / block.mlp_J
        mixed = 1.0 / settings.tokens + _others(settings) * r
        factor = 1.0 + settings.attention * block.before.slope_variance * mixed
        r = (r + settings.attention * block.before.slope_covariance * mixed) / factor
        logs.append(math.log(factor) + math.log(block.mlp_J))
    return logs


def _from_input(settings: Settings, blocks: list[_Block]) -> list[float]:
    """J from the first block on: J of the first k blocks for every k, by the transposed recurrences.

    J^{k,0} is the first entry of e A_1 M_1 ... A_k M_k e, with the matrices A and M that act on (J, K) above and
    e = (1, 0): the row vector e A_1 M_1 ... is (J^{k,0}, s J^{k,0}).
    """
    s, logs = 0.0, []
    share = 1.0 / settings.tokens
    for block in blocks:
        passed = settings.attention * (block.before.slope_variance + s * block.before.slope_covariance)
        factor = 1.0 + share * passed
        s = (s + _others(settings) * passed) / factor * (block.mlp_K / block.mlp_J)
        logs.append(math.log(factor) + math.log(block.mlp_J))
    return logs


def _others(settings: Settings) -> float:
    """The share of the other tokens in an average over all: (n - 1)/n, or 1 where n counts as large."""
    return (settings.tokens - 1) / settings.tokens if settings.finite_tokens else 1.0


def kappa(r: float) -> float:
    """E ReLU(x) ReLU(y) for unit Gaussians of correlation r."""
    return (math.sqrt(max(0.0, 1.0 - r * r)) + r * (math.pi - math.acos(r))) / (2.0 * math.pi)


def kappa_slope(r: float) -> float:
    """Its derivative: how often both are positive."""
    return 0.25 + math.asin(r) / (2.0 * math.pi)


def _number(name: str, value: Any) -> float:
    """A finite number, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise TargetError(f"{name} is {value!r}; it must be a finite number")
    return float(value)


def counted(name: str, value: Any) -> int:
    """A positive integer, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise TargetError(f"{name} is {value!r}; it must be a positive integer")
    return int(value)
