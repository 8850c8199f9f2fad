"""A theorem for Rocq: that a model is within its error of its target, for all inputs of the domain.

    forall x, low <= x <= high  ->  Rabs (model x - target x) <= e

The model is written out from its dense matrices (rocq_terms.py), the target from its graph (rocq_target.py), both
exactly; e is what is claimed; arithmetic is that of real numbers. Rocq's library Interval proves it, alone: nothing of
ours is trusted, but that the text says what the file says.

How the proof goes. Let t be the form that the heads read. The range of t is cut into pieces; on each, the tokens of a
head are written anew: v + sum_k (v_k - v) e^(s_k - c) / sum_k e^(s_k - c) is the same for all v and c. Where the target
is smooth, v is 0 and c the mean slope of the scores there, times t: so powers of e vary little, and Taylor models of a
few terms hold on wide cells. Where the target is affine, v and c are value and score of the token that weighs most:
what cancels between the model and the target has cancelled before it is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.export.rocq_target import affine_pieces, has_kinks, number, polynomial, target_text
from headsmith.export.rocq_terms import Poly, Terms, Token, along, terms_of
from headsmith.language.graph import Graph, Input

SPREAD = 3.0
"""How much scores may differ over a piece: the standard deviation of slopes, under the weights, times its length."""
MOST_PIECES = 256
LEAST = 2.0**-33
"""The smallest error that is stated: with 60 bits and degree 8, Interval did not show 3e-15 in reasonable time."""
TACTIC = "interval with (i_bisect t, i_taylor t, i_degree 8, i_prec 60, i_depth 40)"

PRELUDE = (files("headsmith.export") / "code" / "softmax_rocq.txt").read_text()
"""Softmax means as Rocq knows them, and what is proved of them once: `around`."""


@dataclass(frozen=True)
class _Piece:
    """The form lies in [low, high]. For each head v and c, as polynomials of the form; and the affine function of the
    inputs that the target is there, if it is one."""

    low: Fraction
    high: Fraction
    around: tuple[tuple[Poly, Poly], ...]
    target: Poly | None


@dataclass(frozen=True)
class _Output:
    """All that the theorem of one output is made of: its number, the heads that write to it, its claimed error."""

    number: int
    terms: Terms
    heads: tuple[tuple[Token, ...], ...]
    graph: Graph
    names: tuple[str, ...]
    box: tuple[tuple[Fraction, Fraction], ...]
    error: Fraction


def rocq_text(model: Any, errors: Sequence[float] | None = None) -> str:
    """A file for coqc with a theorem for each output of the model; `errors` in place of what its certificate claims.
    Where that is below LEAST, LEAST is stated, which is less.

    Raises TargetError, with the reason, where the model is not of one layer whose heads read one linear form of the
    inputs, or where its target is neither piecewise affine nor made of functions that Interval knows."""
    if not hasattr(model, "wanted"):
        raise TargetError(f"a theorem is written of compiled formulas and networks, not of a {type(model).__name__}")
    graph: Graph = model.wanted
    first = graph.nodes[0]
    terms = terms_of(model.dense(), model.certificate.dtype)
    if not isinstance(first, Input) or first.size != len(terms.form):
        raise TargetError("a theorem is written of models of one data token, and this one takes its inputs in blocks")
    names = tuple("x" if first.size == 1 else f"x{number}" for number in range(1, first.size + 1))
    low, high = (np.asarray(each, dtype=np.float64).tolist() for each in (model.box.low, model.box.high))
    box = tuple((Fraction(a), Fraction(b)) for a, b in zip(low, high, strict=True))
    claimed = [max(each, LEAST) for each in model.certificate.outputs] if errors is None else errors
    parts = [_head(names, first.names, terms, model.certificate.dtype)]
    for place, error in enumerate(claimed):
        heads = tuple(each for each in terms.heads if any(any(token.values[place]) for token in each))
        parts.append(_output_text(_Output(place, terms, heads, graph, names, box, Fraction(error))))
    return "\n".join(parts)


def _head(names: Sequence[str], own: Sequence[str], terms: Terms, dtype: str) -> str:
    called = ", ".join(f"{name} is {mine!r}" for name, mine in zip(names, own, strict=True))
    lines = [
        "(** A transformer of one layer, and what it is for: proved by Rocq with its library Interval.",
        "",
        "        coqc model.v",
        "",
        f"    Of the inputs, {called}. The theorems are `close_...`, one for each output, below. They hold in real",
        f"    arithmetic, of the weights that are stored ({dtype}), which are written exactly. *)",
        "",
        PRELUDE,
        "(** What all heads read. *)",
        f"Definition form ({' '.join(names)} : R) : R := {polynomial((Fraction(0), *terms.form), ('1', *names))}.",
        "",
    ]
    return "\n".join(lines)


def _output_text(output: _Output) -> str:
    """Definitions, lemmas of pieces, and the theorem of one output."""
    number_of, names = output.number, output.names
    lines = [f"(** Output {number_of}: what each token of a head holds and scores. *)"]
    for place, head in enumerate(output.heads):
        lines.append(f"Definition head_{number_of}_{place} (t : R) : list (R * R) :=")
        lines.append(_tokens([(token.values[number_of], token.score) for token in head]) + ".")
    applied = f"form {' '.join(names)}"
    means = [f"softmax (head_{number_of}_{place} ({applied}))" for place in range(len(output.heads))]
    rest = polynomial(output.terms.base[number_of], ("1", *names))
    variables = f"({' '.join(names)} : R)"
    lines += [
        "",
        f"Definition model_{number_of} {variables} : R := {' + '.join([*means, rest])}.",
        f"Definition target_{number_of} {variables} : R := {target_text(output.graph, number_of, names)}.",
        "",
    ]
    pieces = _pieces(output)
    for place, piece in enumerate(pieces):
        lines += [_piece_text(output, place, piece), ""]
    return "\n".join([*lines, _theorem_text(output, pieces), ""])


def _tokens(pairs: Sequence[tuple[Poly, Poly]]) -> str:
    powers = ("1", "t", "(t * t)")
    rows = [f"({_along_t(value, powers)}, {_along_t(score, powers)})" for value, score in pairs]
    return "  [" + ";\n   ".join(rows) + "]"


def _along_t(poly: Poly, powers: Sequence[str] = ("1", "t", "(t * t)")) -> str:
    return polynomial(poly, powers[: len(poly)])


# Pieces -------------------------------------------------------------------------------------------------------------


def _pieces(output: _Output) -> list[_Piece]:
    low = sum((min(a * c for c in ends) for a, ends in zip(output.terms.form, output.box, strict=True)), Fraction(0))
    high = sum((max(a * c for c in ends) for a, ends in zip(output.terms.form, output.box, strict=True)), Fraction(0))
    if not has_kinks(output.graph):
        if len(output.names) == 1:
            return _smooth_pieces(output, low, high)
        raise TargetError(f"a theorem of a target without kinks is written of one input, not of {len(output.names)}")
    pieces = []
    for first, last, target in affine_pieces(output.graph, output.number, output.terms.form, low, high):
        around = tuple(_heaviest(output, head, (first + last) / 2) for head in output.heads)
        pieces.append(_Piece(first, last, around, target))
    return pieces


def _heaviest(output: _Output, head: Sequence[Token], place: Fraction) -> tuple[Poly, Poly]:
    best = max(head, key=lambda token: sum(c * place**power for power, c in enumerate(token.score)))
    return best.values[output.number], best.score


def _smooth_pieces(output: _Output, low: Fraction, high: Fraction) -> list[_Piece]:
    """Halves of halves, until the scores that count are nearly those of their mean slope."""
    waiting, found = [(low, high)], list[_Piece]()
    while waiting:
        first, last = waiting.pop()
        middle = (first + last) / 2
        steep = [_slope(head, place)[1] for head in output.heads for place in (first, middle, last)]
        if max(steep, default=0.0) * float(last - first) > SPREAD and len(waiting) + len(found) < MOST_PIECES:
            waiting += [(middle, last), (first, middle)]
        else:
            means = [Fraction(float(np.float32(_slope(head, middle)[0]))) for head in output.heads]
            zero = Fraction(0)
            found.append(_Piece(first, last, tuple(((zero, zero), (zero, each, zero)) for each in means), None))
    return found


def _slope(head: Sequence[Token], place: Fraction) -> tuple[float, float]:
    """Mean and standard deviation of the scores' slopes under the weights that tokens have at a place: an estimate, by
    which pieces are chosen."""
    at = float(place)
    scores = np.array([[float(each) for each in token.score] for token in head])
    values = scores @ [1.0, at, at * at]
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    slopes = scores[:, 1] + 2.0 * scores[:, 2] * at
    mean = float(weights @ slopes)
    return mean, float(np.sqrt(weights @ (slopes - mean) ** 2))


# Proofs -------------------------------------------------------------------------------------------------------------


def _piece_text(output: _Output, place: int, piece: _Piece) -> str:
    """The bound on a piece, for every value t of the form; the target is affine there, or a function of t."""
    number_of = output.number
    means = [f"softmax (head_{number_of}_{head} t)" for head in range(len(output.heads))]
    if piece.target is None:
        claim = f"model_{number_of} t - target_{number_of} t"
        unfolded = f"unfold model_{number_of}, form, target_{number_of}, sinh, cosh, tanh. rewrite ?Rmult_1_l."
    else:
        claim, unfolded = " + ".join([*means, f"({_along_t(_rest(output, piece))})"]), ""
    steps = [f"intros H. {unfolded}".rstrip()]
    for head, (tokens, (value, score)) in enumerate(zip(output.heads, piece.around, strict=True)):
        name = f"head_{number_of}_{head}"
        mine = [(_minus(token.values[number_of], value), _minus(token.score, score)) for token in tokens]
        steps += [
            f"rewrite (around ({_along_t(value)}) ({_along_t(score)}) ({name} t)) by discriminate.",
            f"replace (off ({_along_t(value)}) ({_along_t(score)}) ({name} t)) with",
            f"{_tokens(mine)}",
            f"  by (unfold off, {name}; cbn [map fst snd]; repeat (apply same_token; [lra | lra |]); reflexivity).",
        ]
    if piece.target is not None:
        steps.append(_gathered(output, piece))
    steps += [
        "unfold softmax, total. cbn [fold_right fst snd]. rewrite ?Rmult_0_l, ?exp_0, ?Rplus_0_l, ?Rplus_0_r.",
        f"{TACTIC}.",
    ]
    bounds = f"{number(piece.low)} <= t <= {number(piece.high)} -> Rabs ({claim}) <= {number(output.error)}"
    return "\n".join([f"Lemma piece_{number_of}_{place} t : {bounds}.", "Proof.", *steps, "Qed."])


def _minus(one: Poly, other: Poly) -> Poly:
    return tuple(a - b for a, b in zip(one, other, strict=True))


def _rest(output: _Output, piece: _Piece) -> Poly:
    """What the model has beside its heads, less the target, along the form."""
    assert piece.target is not None
    found = along(_minus(output.terms.base[output.number], piece.target), output.terms.form)
    if found is None:
        raise TargetError("the target reads inputs that the model's heads do not, in another way than the model does")
    return found


def _gathered(output: _Output, piece: _Piece) -> str:
    """What is affine, in one: the values that were taken out of the means, and the rest."""
    values, rest = [value for value, _ in piece.around], _rest(output, piece)
    means = [f"S{head}" for head in range(len(values))]
    before = " + ".join([f"({_along_t(value)} + {mean})" for value, mean in zip(values, means, strict=True)])
    together = tuple(sum(parts, Fraction(0)) for parts in zip(rest, *values, strict=True))
    after = " + ".join([*means, f"({_along_t(together)})"])
    law = f"forall {' '.join(means)}, {before} + ({_along_t(rest)}) = {after}"
    return f"assert (G : {law}) by (intros; lra). rewrite G. clear G."


def _theorem_text(output: _Output, pieces: Sequence[_Piece]) -> str:
    number_of, names = output.number, output.names
    model, target = (f"{kind}_{number_of} {' '.join(names)}" for kind in ("model", "target"))
    inside = [
        f"{number(low)} <= {name} <= {number(high)} ->" for name, (low, high) in zip(names, output.box, strict=True)
    ]
    statement = f"{' '.join(inside)}\n  Rabs ({model} - {target}) <= {number(output.error)}"
    steps = ["intros."]
    for place, piece in enumerate(pieces):
        last = place == len(pieces) - 1
        if piece.target is None:
            step = f"apply piece_{number_of}_{place}; lra."
            steps.append(step if last else f"destruct (Rle_dec x {number(piece.high)}); [{step[:-1]} |].")
            continue
        applied = f"form {' '.join(names)}"
        means = [f"softmax (head_{number_of}_{head} ({applied}))" for head in range(len(output.heads))]
        rest = f"({polynomial(_rest(output, piece), ('1', f'({applied})'))})"
        proof = [
            f"replace ({model} - {target}) with ({' + '.join([*means, rest])});",
            f"  [apply piece_{number_of}_{place}; unfold form in *; lra |].",
            f"  unfold model_{number_of}, target_{number_of}.",
            *(f"  generalize ({each}); intros S{head}." for head, each in enumerate(means)),
            "  unfold form, Rmax, Rmin in *.",
            "  repeat match goal with |- context [Rle_dec ?a ?b] => destruct (Rle_dec a b) end; lra.",
        ]
        if last:
            steps += proof
        else:
            steps += [f"destruct (Rle_dec ({applied}) {number(piece.high)}).", "{", *proof, "}"]
    return "\n".join([f"Theorem close_{number_of} {' '.join(names)} :", f"  {statement}.", "Proof.", *steps, "Qed."])
