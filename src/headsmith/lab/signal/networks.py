"""A random transformer in numpy, with its own reverse and tangent passes: what the theory is measured on.

    Y = Norm(X);  S_ab = Y_a W_Q . Y_b W_K / sqrt(d_head);  X += softmax(S) Y W_V W_O         for each head
    Z = Norm(X);  X += ReLU(Z W_1) W_2

Weights are N(0, sigma^2 / inputs). Arrays of tokens are (tokens, width); what travels through the passes has leading
axes of its own, so several probes go together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.lab.signal.erf import erf
from headsmith.lab.signal.moments import Norm
from headsmith.lab.signal.theory import Settings


@dataclass(frozen=True, eq=False)
class RandomBlock:
    """The weights of one block: W_QK is (2, heads, width, d_head), or None where every token looks at all evenly."""

    W_QK: Array | None
    W_V: Array
    W_O: Array
    W_1: Array
    W_2: Array


@dataclass(frozen=True, eq=False)
class Trace:
    """What one block saw, for the passes that follow: its normalised inputs, attention (heads, tokens, tokens), open
    gates."""

    before: Array
    half: Array
    attention: Array | None
    gates: npt.NDArray[np.bool_]


def equiangular_tokens(settings: Settings, width: int, rng: np.random.Generator) -> Array:
    """Tokens (n, width) with h_a.h_a = q0 width and h_a.h_b = p0 width exactly, in a random orientation."""
    n, q0, p0 = settings.tokens, settings.q0, settings.p0
    if n > 1 and p0 < -q0 / (n - 1) * (1.0 + 1e-12):
        raise TargetError(f"{n} tokens cannot have p0 = {p0:g} at q0 = {q0:g}: it must be at least {-q0 / (n - 1):g}")
    if width < n:
        raise TargetError(f"a width of {width} has no room for {n} tokens in general position; take width >= tokens")
    # The Gram matrix (q0 - p0) I + p0 11^T has the square root x I + y 11^T.
    x = math.sqrt(max(q0 - p0, 0.0))
    y = (math.sqrt(max(q0 + (n - 1) * p0, 0.0)) - x) / n
    frame, _ = np.linalg.qr(rng.standard_normal((width, n)))
    frame *= np.sign(rng.standard_normal(n))
    return np.asarray(math.sqrt(width) * (x * frame.T + y * frame.sum(axis=1)))


def draw_block(settings: Settings, width: int, hidden: int, heads: int, rng: np.random.Generator) -> RandomBlock:
    """The weights of one block, independent of all others."""

    def weights(sigma: float, inputs: int, outputs: int) -> Array:
        return np.asarray(rng.standard_normal((inputs, outputs)) * (sigma / math.sqrt(inputs)))

    W_QK = None
    if settings.sigma_qk:
        # sigma_qk is the product of both deviations.
        scale = math.sqrt(settings.sigma_qk / width)
        W_QK = rng.standard_normal((2, heads, width, width // heads)) * scale
    return RandomBlock(
        W_QK,
        weights(settings.sigma_v, width, width),
        weights(settings.sigma_o, width, width),
        weights(settings.sigma_1, width, hidden),
        weights(settings.sigma_2, hidden, width),
    )


def forward(settings: Settings, block: RandomBlock, X: Array) -> tuple[Array, Trace]:
    """The stream after the block, and what the other passes need of it."""
    Y = normalised(settings.norm, settings.alpha, X)
    attention = _attention(block, Y)
    half = X + _mix(attention, Y @ block.W_V) @ block.W_O
    pre = normalised(settings.norm, settings.alpha, half) @ block.W_1
    return half + np.maximum(pre, 0.0) @ block.W_2, Trace(X, half, attention, pre > 0.0)


def reverse(settings: Settings, block: RandomBlock, trace: Trace, G: Array) -> Array:
    """From gradients at the block's output, (probes, tokens, width), to those at its input."""
    norm, alpha = settings.norm, settings.alpha
    G = G + slope_applied(norm, alpha, trace.half, ((G @ block.W_2.T) * trace.gates) @ block.W_1.T)
    values = G @ block.W_O.T
    back = _mix_transposed(trace.attention, values) @ block.W_V.T
    if trace.attention is not None:
        back = back + _scores_reversed(settings, block, trace, values)
    return G + slope_applied(norm, alpha, trace.before, back)


def tangent(settings: Settings, block: RandomBlock, trace: Trace, T: Array) -> Array:
    """From changes of the block's input, (probes, tokens, width), to those of its output."""
    norm, alpha = settings.norm, settings.alpha
    dY = slope_applied(norm, alpha, trace.before, T)
    mixed = _mix(trace.attention, dY @ block.W_V)
    if trace.attention is not None:
        mixed = mixed + _scores_moved(settings, block, trace, dY)
    T = T + mixed @ block.W_O
    dZ = slope_applied(norm, alpha, trace.half, T)
    return np.asarray(T + ((dZ @ block.W_1) * trace.gates) @ block.W_2)


def normalised(norm: Norm, alpha: float, X: Array) -> Array:
    """The norm of every token."""
    match norm:
        case "layernorm":
            centred = X - X.mean(axis=-1, keepdims=True)
            return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True)))
        case "derf":
            return np.asarray(erf(alpha * X))
        case "dyt":
            return np.asarray(np.tanh(alpha * X))


def slope_applied(norm: Norm, alpha: float, X: Array, D: Array) -> Array:
    """The derivative of the norm at X, applied to D. It is symmetric for every norm here, LayerNorm's too: it removes
    the mean and the part along the normalised token, and divides by the deviation."""
    match norm:
        case "layernorm":
            Y = normalised(norm, alpha, X)
            centred = X - X.mean(axis=-1, keepdims=True)
            deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True))
            D = D - D.mean(axis=-1, keepdims=True)
            return np.asarray((D - Y * (D * Y).mean(axis=-1, keepdims=True)) / deviation)
        case "derf":
            return np.asarray(D * (2.0 * alpha / math.sqrt(math.pi) * np.exp(-((alpha * X) ** 2))))
        case "dyt":
            return np.asarray(D * (alpha / np.cosh(np.minimum(np.abs(alpha * X), 350.0)) ** 2))


def _attention(block: RandomBlock, Y: Array) -> Array | None:
    """softmax(S), (heads, tokens, tokens); None where attention is even."""
    if block.W_QK is None:
        return None
    queries, keys = (Y @ W for W in block.W_QK)
    scores = queries @ keys.swapaxes(-1, -2) / math.sqrt(block.W_QK.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _by_heads(values: Array, heads: int) -> Array:
    """(..., tokens, width) -> (..., heads, tokens, d_head)."""
    return values.reshape(*values.shape[:-1], heads, -1).swapaxes(-2, -3)


def _joined(values: Array) -> Array:
    """The inverse of `_by_heads`."""
    values = values.swapaxes(-2, -3)
    return values.reshape(*values.shape[:-2], -1)


def _mix(attention: Array | None, values: Array) -> Array:
    """What each token sees of the values (..., tokens, width)."""
    if attention is None:
        return np.broadcast_to(values.mean(axis=-2, keepdims=True), values.shape)
    return _joined(attention @ _by_heads(values, len(attention)))


def _mix_transposed(attention: Array | None, values: Array) -> Array:
    return _mix(None if attention is None else attention.swapaxes(-1, -2), values)


def _scores_reversed(settings: Settings, block: RandomBlock, trace: Trace, values: Array) -> Array:
    """Gradients at Y that come through the scores; `values` are those at what the heads return."""
    A, W_QK = trace.attention, block.W_QK
    assert A is not None
    assert W_QK is not None
    Y = normalised(settings.norm, settings.alpha, trace.before)
    weights = _by_heads(values, len(A)) @ _by_heads(Y @ block.W_V, len(A)).swapaxes(-1, -2)
    scores = A * (weights - (A * weights).sum(axis=-1, keepdims=True)) / math.sqrt(W_QK.shape[-1])
    to_query = scores @ (Y @ W_QK[1]) @ W_QK[0].swapaxes(-1, -2)
    to_key = scores.swapaxes(-1, -2) @ (Y @ W_QK[0]) @ W_QK[1].swapaxes(-1, -2)
    return np.asarray((to_query + to_key).sum(axis=-3))


def _scores_moved(settings: Settings, block: RandomBlock, trace: Trace, dY: Array) -> Array:
    """How what the heads return changes because Y's change `dY` moves the scores."""
    A, W_QK = trace.attention, block.W_QK
    assert A is not None
    assert W_QK is not None
    Y = normalised(settings.norm, settings.alpha, trace.before)
    dY = dY[..., None, :, :]
    moved = (dY @ W_QK[0]) @ (Y @ W_QK[1]).swapaxes(-1, -2) + (Y @ W_QK[0]) @ (dY @ W_QK[1]).swapaxes(-1, -2)
    moved = moved / math.sqrt(W_QK.shape[-1])
    weights = A * (moved - (A * moved).sum(axis=-1, keepdims=True))
    return _joined(weights @ _by_heads(Y @ block.W_V, len(A)))
