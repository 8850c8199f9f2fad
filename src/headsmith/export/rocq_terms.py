"""What a model of one layer computes, in exact arithmetic: an affine function of the inputs, plus a softmax mean for
each head. With t = a . x, the one linear form that all heads read,

    output o  =  base_o . (1, x)  +  sum over heads of   sum_k v_ko(t) e^(s_k(t)) / sum_k e^(s_k(t)),

where scores s_k and values v_ko are polynomials of t, of degree 2 and 1 at most. Their coefficients are sums of
products of entries of the dense matrices, as fractions: nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.core.rounding import HALVES, held
from headsmith.transformer.dense import DenseTransformer

Poly = tuple[Fraction, ...]
"""Coefficients of 1, t, t^2."""

LARGEST = 4096
"""Entries of the matrices that are multiplied as fractions: a model of this kind has a few hundred."""


@dataclass(frozen=True)
class Token:
    """What a token scores, and what it adds to each output, as polynomials of the form."""

    score: Poly
    values: tuple[Poly, ...]


@dataclass(frozen=True)
class Terms:
    """The form, by its coefficients; the tokens of each head; and for each output the rest, by its coefficients of 1
    and of the inputs."""

    form: Poly
    heads: tuple[tuple[Token, ...], ...]
    base: tuple[Poly, ...]


def terms_of(dense: DenseTransformer, dtype: str) -> Terms:
    """The model's terms; TargetError where it is of another kind."""
    _refuse_others(dense, dtype)
    layer = dense.layers[0]
    data = _exact(np.vstack([dense.b_E + dense.W_pos[0], dense.W_E]), dtype)  # its rows: 1 and each input
    references, readout = _exact(dense.references, dtype), _exact(dense.W_U, dtype)
    raw = []
    for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
        queries, keys = data @ _exact(W_Q, dtype), _exact(W_K, dtype)
        values = _exact(W_V, dtype) @ _exact(W_O, dtype) @ readout
        # A token as a function of x: a row for 1, and one for each input. References are constant.
        everyone = [_constant(row, len(data)) for row in references] + [data]
        raw.append([(queries @ (token @ keys).T, token @ values) for token in everyone])
    form = _form_of(raw)
    heads = tuple(tuple(_token(score, value, form) for score, value in tokens) for tokens in raw)
    base = data @ readout
    base[0] += _exact(dense.b_U, dtype)
    return Terms(form, heads, tuple(tuple(column) for column in base.T))


def along(vector: Iterable[Fraction], form: Poly) -> tuple[Fraction, Fraction] | None:
    """(c, d) with c + d (form . x) the affine function of x that has these coefficients of 1 and x; None if there are
    no such numbers."""
    constant, *linear = vector
    place = next(number for number, each in enumerate(form) if each)
    slope = linear[place] / form[place]
    return (constant, slope) if all(each == slope * a for each, a in zip(linear, form, strict=True)) else None


def _refuse_others(dense: DenseTransformer, dtype: str) -> None:
    if dense.attention != "softmax":
        raise TargetError(f"a theorem is written of softmax attention; this model has {dense.attention} attention")
    found = f"{len(dense.layers)} layers"
    if len(dense.layers) == 1 and dense.layers[0].neurons:
        found = "neurons"
    elif dense.last is not None:
        found = "a softmax at its end"
    if found != "1 layers":
        raise TargetError(f"a theorem is written of models of one layer of heads, and this one has {found}")
    if len(dense.W_pos) != 1:
        raise TargetError(f"a theorem is written of models of one data token, and this one takes {len(dense.W_pos)}")
    if dtype in HALVES:
        raise TargetError(f"a theorem is written of models in float64 and float32, and this one is in {dtype}")
    layer = dense.layers[0]
    largest = max(layer.W_Q.size, layer.W_V.size, dense.references.size, dense.W_E.size)
    if largest > LARGEST:
        raise TargetError(f"a theorem is written of models with matrices of up to {LARGEST} entries, not {largest}")


def _exact(values: Any, dtype: str) -> Any:
    """The stored numbers as fractions."""
    numbers = np.asarray(held(values, dtype), dtype=np.float64)
    found = np.empty(numbers.size, dtype=object)
    found[:] = [Fraction(each) for each in numbers.reshape(-1).tolist()]
    return found.reshape(numbers.shape)


def _constant(row: Any, rows: int) -> Any:
    """A constant token as a function of x."""
    token = np.full((rows, len(row)), Fraction(0), dtype=object)
    token[0] = row
    return token


def _form_of(raw: Any) -> Poly:
    """The linear form of x that every score and value is a polynomial of, by its coefficients: the first is 1."""
    found: set[Poly] = set()
    for tokens in raw:
        for score, value in tokens:
            bent = score[1:, 1:] + score[1:, 1:].T
            for linear in (score[1:, 0] + score[0, 1:], *bent, *value[1:].T):
                if any(linear):
                    first = next(each for each in linear if each)
                    found.add(tuple(each / first for each in linear))
    if not found:
        raise TargetError("a theorem is written of models whose heads read the inputs, and no head of this one does")
    if len(found) > 1:
        raise TargetError(
            "a theorem is written of models whose heads all read one linear form of the inputs, and these read "
            f"{len(found)}"
        )
    return found.pop()


def _token(score: Any, value: Any, form: Poly) -> Token:
    """Scores and values by their coefficients along the form, which all of them are (_form_of)."""
    place = 1 + next(number for number, each in enumerate(form) if each)
    along_it = (score[0, 0], score[place, 0] + score[0, place], score[place, place])
    return Token(along_it, tuple(zip(value[0], value[place], strict=True)))
