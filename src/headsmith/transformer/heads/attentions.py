"""Kinds of attention: how queries and keys become weights. Softmax is the default, and all that most heads know.

    softmax     e^score, divided by their sum
    hardmax     all the weight to the largest score, in equal shares to equals
    sparsemax   the weights, not negative and with the sum one, that are closest to the scores
    sigmoid     1 / (1 + e^-score), divided by nothing
    relu        max(score, 0), divided by nothing
    linear      the score itself, divided by nothing
    elu+1       phi(query) . phi(key), divided by their sum; phi(x) = e^x below zero, 1 + x above, feature by feature

Under any but softmax a sink head is a gate with a lemma of its own (kernel/core/softmax.py,
kernel/rules/attentions.py): with the score t = b z it returns z s(t) for

    hardmax     s = 1 where t > 0, else 0            exact
    sparsemax   s = (1 + t) / 2, clipped to [0, 1]   within 1/8 / b of the ReLU
    sigmoid     s = 1 / (1 + e^-t)                   within 0.2785 / b, without a sink
    elu+1       s = phi(t) / (phi(t) + phi(-t))      within 0.16 / b: queries (t, -t), the token's key (0, -gain), the
                                                     sink's (-gain, 0)
    relu        max(z, 0) times a value of one       exact, without a sink

and linear attention has no gates, but products: x times y is the score x times the value y.

Data tokens that see each other score `gain` less for each bit in which their positions differ, whatever t is:

    hardmax     anything less is no weight at all
    sparsemax   a score that is lower by one or more has no weight
    sigmoid     weights e^(t - gain): the gain must be above the largest t
    relu        no weight below a score of zero: the gain must be above the largest t

so that under hardmax, sparsemax and relu attention nothing leaks. Two kinds have no such code (`NOT_AMONG`).
What tokens take from each other:

    hardmax     moves and maxima exactly, means as equal shares
    sparsemax   moves exactly, means as equal shares, maxima within (n - 1)/(4 n) / b
    sigmoid     moves, up to e^(-gain/2)
    relu        moves exactly

Weights that are divided by nothing add up: one layer of sigmoid, relu or linear attention computes neither the means of
two and of three tokens, nor the largest of three (lab/claims/among_tokens.py has the proofs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

AttentionKind = Literal["softmax", "hardmax", "sparsemax", "sigmoid", "relu", "linear", "elu+1"]
ATTENTIONS: tuple[AttentionKind, ...] = get_args(AttentionKind)
MaskKind = Literal["full", "causal", "self+prefix"]
MASKS: tuple[MaskKind, ...] = get_args(MaskKind)

WITHOUT_SINK = ("sigmoid", "relu", "linear")
"""Kinds whose gates and products need no reference token."""
EXACT = ("hardmax", "relu")
"""Kinds whose gates are exact, whatever their scale."""
SHARP = ("hardmax", "sparsemax")
"""Kinds whose weights are shares of one, and nothing at all for scores that are low enough."""
GATES: dict[str, float] = {
    "hardmax": 0.0,
    "sparsemax": 0.125,
    "sigmoid": 0.2784645427610739,
    "relu": 0.0,
    "elu+1": 0.16,
}
"""How far a gate of scale one can be from the ReLU."""
MAXIMA: dict[str, Callable[[int], float]] = {
    "hardmax": lambda tokens: 0.0,
    "sparsemax": lambda tokens: 0.25 * (tokens - 1) / tokens,
}
"""How far a head of scale one can be from the largest of so many tokens, where it can be one."""
ONE_TOKEN = ("elu+1", "linear")
"""Kinds under which a model has one data token, or any number that do not see each other."""
NOT_AMONG: dict[str, str] = {
    "linear": "in one layer x_i times y_j comes for every token j or for none",
    "elu+1": "it takes a feature for each token to tell them apart, for weights add up feature by feature",
}
"""Why data tokens that see each other are refused (lab/claims/among_tokens.py has the proofs)."""
NO_MIXING = {
    "attend": "hs.tokens.attend is softmax attention itself",
    "mean": "weights that are divided by nothing add up, and one layer of them computes neither means of sequences of "
    "two and of three tokens nor the largest of three. Hardmax and sparsemax attention do; hs.tokens.sort and "
    "cumulative_sum take moves and gates alone, and so does the mean of the tokens so far, written as "
    "cumulative_sum(x) / (position(x) + 1)",
    "move": "data tokens do not see each other",
}
"""Why a token cannot take from others what some nodes need, where the attention has no head for it."""
BANKS: dict[str, set[str]] = {
    "hardmax": {"sink", "mean", "boltzmann", "move"},
    "sparsemax": {"sink", "mean", "boltzmann", "move"},
    "sigmoid": {"sink", "move"},
    "relu": {"sink", "move"},
    "elu+1": {"sink"},
    "linear": {"product"},
}
"""The kinds of heads that there are."""
PEAKS = {"sparsemax": 0.5, "elu+1": 0.8031}
"""How far from zero that is, where it is not as far as under softmax."""


def weights_of(kind: str, queries: Any, keys: Any, visible: Any) -> Any:
    """Where queries (..., query, feature) look, as a textbook has it: weights (..., query, key). `visible` says which
    keys a query sees, and every query sees one."""
    if kind == "elu+1":
        products = np.where(visible, positive(queries) @ np.swapaxes(positive(keys), -1, -2), 0.0)
        return products / products.sum(axis=-1, keepdims=True)
    return shares_of(kind, queries @ np.swapaxes(keys, -1, -2), visible)


def shares_of(kind: str, scores: Any, visible: Any) -> Any:
    """Weights from scores (..., query, key), of any kind but elu+1."""
    if kind in WITHOUT_SINK:
        return np.where(visible, _alone(kind, scores), scores.dtype.type(0.0))
    scores = np.where(visible, scores, scores.dtype.type(-np.inf))
    scores -= scores.max(axis=-1, keepdims=True)
    if kind == "sparsemax":
        return _sparsemax(scores)
    powers = np.exp(scores) if kind == "softmax" else (scores == 0.0).astype(scores.dtype)
    return powers / powers.sum(axis=-1, keepdims=True)


def positive(features: Any) -> Any:
    """phi of elu+1: e^x below zero, 1 + x above."""
    return np.where(features > 0.0, features + 1.0, np.exp(np.minimum(features, 0.0))).astype(features.dtype)


def _alone(kind: str, scores: Any) -> Any:
    """Weights that know of no other token."""
    if kind == "sigmoid":
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-scores))
    return np.maximum(scores, 0.0) if kind == "relu" else scores


def _sparsemax(scores: Any) -> Any:
    """Sorted from the largest on, the first k scores keep weight, k the last with 1 + k s_k > s_1 + ... + s_k; they
    all lose the same, so that the sum is one. The largest score is zero."""
    sorted_ = -np.sort(-scores, axis=-1)
    counts = np.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    finite = np.maximum(sorted_, scores.dtype.type(-2.0))  # what is further below than one never counts
    sums = np.cumsum(finite, axis=-1)
    kept = (1.0 + counts * finite > sums).sum(axis=-1, keepdims=True)
    lost = (np.take_along_axis(sums, kept - 1, axis=-1) - 1.0) / kept
    return np.maximum(scores - lost.astype(scores.dtype), 0.0)
