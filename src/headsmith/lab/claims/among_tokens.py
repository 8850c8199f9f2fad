"""Claim R11: other attentions between data tokens that see each other.

Gates, moves, means and maxima of hardmax, sparsemax, sigmoid and relu attention are compiled and certified
(heads/attentions.py). What follows is why two kinds have no gates or products among tokens here, and why weights that
are divided by nothing take neither means nor maxima.

Linear attention, one layer.  A head adds score times value, (row_i M row_j) (v row_j), over the tokens j. A row holds
x, y and constants of its position. So at token i, with n >= 2 tokens in sight of each other,

    x_i y_j (j not i)   comes with a number A(j), from scores that hold x_i: it depends on j alone
    y_i x_j             comes with A'(j), in the same way
    x_j y_j (j not i)   comes with B(i), from keys and values that hold both: it depends on i alone
    x_i y_i             comes with A(i) + A'(i) + B(i)

for the sum over all heads. A product token by token needs A = A' = B = 0 and A + A' + B = 1. Signs chosen at random
show that the error, a polynomial of degree three, is at least as large on [-1, 1] as what any of these is off by (no
other monomial of that degree is odd in the same two variables): 1/4 or more. (Under a causal mask from three tokens on:
the second sees the first and is seen by the third.)

Two layers do it, exactly, for one-hot codes e: n heads of constant scores e_i[m] e_j[m] put x_i into column m = i, and
in the second layer one head of n features scores (x_i e_i) . e_j, which is x_i on itself and zero elsewhere.

elu+1.  Products of features phi(q_i) . phi(k_j) are a matrix of rank d_head at most. Where a token gives all others
together less than it gives itself, the matrix has a dominant diagonal, and rank n: so d_head >= n. One feature for each
token is also enough: queries t - C + C e_i[m], keys -C + C e_j[m], and one for the sink. A token gives itself phi(t) at
least, and another one phi(t) e^-C + e^(t - C) + (n - 2) e^(t - 2 C), with shares of a sum that is one at least.

Means and maxima without a quotient.  At token 1 one layer returns f(x_1) + sum over j of g_j(x_1, x_j). Between x_2 =
-1 and 1 that rises as much with a third token in sight as without; a mean by 1 of two tokens, by 2/3 of three. So one
of the four is off by 1/12. And f + g_2 + g_3 at the corners x_2, x_3 = -1, 1 has an alternating sum of zero; max(-1,
x_2, x_3) one of -2: one of the four is off by 1/2."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, random_network
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.model import Compiled
from headsmith.report.falsify import errors_at, falsify
from headsmith.sequence import tokens as over
from headsmith.sequence.compiled import compile_sequence
from headsmith.transformer.heads.attentions import BANKS, SHARP, WITHOUT_SINK, weights_of

AMONG = tuple(kind for kind, banks in BANKS.items() if "move" in banks)
BILLED = ("layers", "heads", "reference_tokens", "data_tokens", "d_head", "max_weight")
ASKED, TOKENS = 1e-3, 4
PROGRAMS: dict[str, Callable[[Any], Any]] = {"sort": over.sort, "max": over.max, "mean": over.mean}
LENGTHS = (2, 4, 8)
STEEP, FAR = 8.0, 40.0
"""The scale of gates under elu+1, and how far the features of other tokens are below zero."""


@claim(
    "R11", "other attentions between tokens that see each other: where gates, moves, means, maxima remain", tag="ours"
)
def among_tokens() -> Finding:
    """Compile for every kind that has moves; run what the others could do; compute what cannot be done."""
    found = [_network(kind) for kind in ("softmax", *AMONG)]
    found += [_program(kind, "sort") for kind in ("softmax", *AMONG)]
    found += [_program(kind, name) for kind in ("softmax", *SHARP) for name in ("max", "mean")]
    found += [*(_products(tokens) for tokens in LENGTHS), _one_layer(), *(_features(tokens) for tokens in LENGTHS)]
    found += [_alternating(), _lengths()]
    return judged(
        f"a network of 2 x 8 gates and programs (sort, max, mean) for {TOKENS} tokens at {ASKED:g}, under five "
        "attentions; products by linear attention and gates by elu+1 with one-hot codes, as a textbook has it",
        [row for row, _ in found],
        _summary,
        _faults,
        lambda figure: (
            f"nothing leaks under hardmax, sparsemax and relu attention, at most {figure['leak_of_sigmoid']:.1g} under "
            f"sigmoid; {TOKENS} numbers are sorted within {figure['sort_hardmax']:.1g} (hardmax), "
            f"{figure['sort_relu']:.1g} (relu), {figure['sort_sparsemax']:.1g} and {figure['sort_sigmoid']:.1g}, and "
            f"the largest is found within {figure['max_hardmax']:.1g} by hardmax. Linear attention misses x y by "
            f"{figure['product_in_one_layer']:g} in one layer, and takes two, with d_head n; gates of elu+1 take "
            f"d_head n + 1. Without a quotient one layer misses a mean by {figure['mean_without_quotient']:.3f} and a "
            f"maximum by {figure['max_without_quotient']:g}"
        ),
        [counted for _, counted in found],
    )


def _network(kind: Any) -> Counted:
    network = random_network([3, 8, 8, 1])
    model = compile(network, (-1.0, 1.0), ASKED, recipe="relu", attention=kind, tokens=TOKENS)
    return _row(model, {"attention": kind, "target": "network"})


def _program(kind: Any, name: str) -> Counted:
    model = compile_sequence(
        PROGRAMS[name], tokens=TOKENS, domain=(-1.0, 1.0), error=ASKED, recipe="relu", attention=kind
    )
    return _row(model, {"attention": kind, "target": name})


def _row(model: Compiled, told: dict[str, Any]) -> Counted:
    worst = falsify(model, effort=60)
    row = told | {"certified": model.certificate.error, "leak": model.certificate.parts["leak"]}
    row |= {name: getattr(model.bill, name) for name in BILLED}
    row |= {"found": _largest(model, worst.input), "asked": ASKED}
    return row, told | audit(model) | {"found": _largest(model, worst.input), "asked": ASKED}


def _largest(model: Compiled, worst: Array) -> float:
    """The error at an input: a sequence, or a point, which all tokens then hold."""
    return float(errors_at(model, np.atleast_2d(worst)).max())


def _attended(kind: str, stream: Array, heads: list[Any], visible: Any) -> Array:
    """A layer as a textbook has it, from matrices W_Q, W_K, W_V, W_O."""
    added = [
        weights_of(kind, stream @ W_Q, stream @ W_K, visible) @ (stream @ W_V) @ W_O for W_Q, W_K, W_V, W_O in heads
    ]
    return stream + sum(added, np.zeros_like(stream))


def _picks(size: int, *columns: int) -> Array:
    """The matrix that reads some columns."""
    return np.eye(size)[:, list(columns)]


def _products(tokens: int) -> Counted:
    """x times y at every token by two layers of linear attention, from their matrices. Columns of the stream: x, y, one
    for each place, x in the column of its place, the product."""
    width, code, laid = 3 + 2 * tokens, range(2, 2 + tokens), range(2 + tokens, 2 + 2 * tokens)
    first = [
        (_picks(width, one), _picks(width, one), _picks(width, 0), _picks(width, two).T)
        for one, two in zip(code, laid, strict=True)
    ]
    second = [(_picks(width, *laid), _picks(width, *code), _picks(width, 1), _picks(width, width - 1).T)]
    inputs, errors = np.random.default_rng(3).uniform(-1.0, 1.0, (200, tokens, 2)), []
    for causal in (False, True):
        visible = np.tri(tokens, dtype=bool) | (not causal)
        for x in inputs:
            stream = np.hstack([x, np.eye(tokens), np.zeros((tokens, tokens + 1))])
            for heads in (first, second):
                stream = _attended("linear", stream, heads, visible)
            errors.append(np.abs(stream[:, -1] - x[:, 0] * x[:, 1]).max())
    row = {"attention": "linear", "target": "x*y, one-hot codes", "tokens": tokens, "error": float(max(errors))}
    row |= {"layers": 2, "heads": len(first) + len(second), "d_head": second[0][0].shape[1]}
    return row, row | {"heads": tokens + 1, "d_head": tokens, "error": 0.0}


def _one_layer() -> Counted:
    """What one layer misses x y by: shown from its proof, of which random heads of three tokens confirm the sum."""
    random, off, signs = np.random.default_rng(4), 0.0, list(product((-1.0, 1.0), repeat=6))
    heads = [tuple(random.standard_normal((5, 5)) for _ in range(4)) for _ in range(2)]
    outs = []
    for each in signs:
        stream = np.hstack([np.reshape(each, (3, 2)), np.eye(3)])
        outs.append(_attended("linear", stream, heads, np.ones((3, 3), dtype=bool))[:, 0])
    values, inputs = np.array(outs), np.reshape(signs, (-1, 3, 2))

    def number(at: int, x: int, y: int) -> float:
        """By what x_x y_y is multiplied at a token."""
        return float((values[:, at] * inputs[:, x, 0] * inputs[:, y, 1]).mean())

    for i, k in ((0, 1), (1, 2), (2, 0)):
        off = max(off, abs(number(i, i, i) - number(k, k, i) - number(k, i, k) - number(i, k, k)))
    # This sum is zero for every layer, and one for x y: one of its four numbers is off by a quarter. With A = A' = B =
    # 1/4 none is off by more.
    signs_of, wanted, closest = np.array([1.0, -1.0, -1.0, -1.0]), np.eye(4)[0], np.array([0.75, 0.25, 0.25, 0.25])
    row: dict[str, Any] = {"attention": "linear", "target": "x*y, one layer", "confirmed": off < 1e-9}
    row |= {"misses_by": float(abs(signs_of @ wanted) / np.abs(signs_of).sum())}
    return row, row | {"misses_by": float(np.abs(closest - wanted).max()), "confirmed": signs_of @ closest == 0.0}


def _features(tokens: int) -> Counted:
    """Gates under elu+1 and a causal mask, one feature for each token: how far the others move a gate, and the law."""
    z = np.random.default_rng(5).uniform(-1.0, 1.0, (200, tokens))
    z[:4] = [np.full(tokens, end) for end in (-1.0, 1.0, 0.0, -1e-3)]
    visible, worst, direct = np.tri(tokens + 1, dtype=bool), 0.0, 0.0
    one, sink = np.eye(tokens), np.zeros((tokens, 1))
    for values in z:
        t = STEEP * values[:, None]
        queries = np.vstack([np.zeros(tokens + 1), np.hstack([t - FAR + FAR * one, -t])])
        keys = np.vstack([np.append(np.full(tokens, -FAR), 0.0), np.hstack([-FAR + FAR * one, sink - FAR])])
        found = weights_of("elu+1", queries, keys, visible)[1:] @ np.append(0.0, values)
        alone = values * _share(t[:, 0])
        worst = max(worst, float(np.abs(found - alone).max()))
        direct = max(direct, float(np.abs(_by_hand(values, t[:, 0]) - alone).max()))
    law = 4.0 * tokens * float(np.exp(STEEP - FAR))
    row = {"attention": "elu+1", "target": "relu, one feature a token", "tokens": tokens, "law": law}
    counted = row | {"law": tokens * 4.0 / float(np.exp(FAR - STEEP)), "d_head": tokens + 1, "within": direct <= law}
    return row | {"d_head": queries.shape[1], "within": worst <= law}, counted


def _phi(x: Any) -> Any:
    return np.where(x > 0.0, x + 1.0, np.exp(np.minimum(x, 0.0)))


def _share(t: Array) -> Array:
    return np.asarray(_phi(t) / (_phi(t) + _phi(-t)))


def _by_hand(values: Array, t: Array) -> Array:
    """What gates under elu+1 attention return among tokens, computed pair by pair: a second count."""
    small, outs = np.exp(-FAR), []
    for i, own in enumerate(t):
        near, far = _phi(own), np.exp(own - FAR)
        others = [near * small + far + (len(t) - 2) * far * small + _phi(-own) * small] * i
        mine, sink = near + (len(t) - 1) * far * small + _phi(-own) * small, _phi(-own) + near * small
        sink = sink + (len(t) - 1) * far * small
        outs.append((mine * values[i] + np.dot(others, values[:i])) / (mine + sink + sum(others)))
    return np.array(outs)


def _alternating() -> Counted:
    """What a sum of functions of two tokens misses the largest of three by."""
    corners = {(a, b): max(-1.0, a, b) for a, b in product((-1.0, 1.0), repeat=2)}
    sums = corners[1, 1] - corners[1, -1] - corners[-1, 1] + corners[-1, -1]
    row = {"attention": ", ".join(WITHOUT_SINK), "target": "max of three, one layer", "misses_by": abs(sums) / 4.0}
    return row, row | {"misses_by": float(Fraction(1 - 1 - 1 - 1, 4).__abs__())}


def _lengths() -> Counted:
    """What it misses the mean of two tokens, or of three, by."""
    rises = [np.mean([0.0, 1.0, *[0.0] * more]) - np.mean([0.0, -1.0, *[0.0] * more]) for more in (0, 1)]
    row: dict[str, Any] = {"attention": ", ".join(WITHOUT_SINK), "target": "mean of two and of three, one layer"}
    row |= {"misses_by": float(rises[0] - rises[1]) / 4.0}
    return row, row | {"misses_by": float((Fraction(2, 2) - Fraction(2, 3)) / 4)}


def _summary(rows: Rows) -> dict[str, Any]:
    of = {(row["attention"], row["target"]): row for row in rows if "certified" in row}
    missed = {row["target"]: row["misses_by"] for row in rows if "misses_by" in row}
    return {
        **{f"sort_{kind}": of[kind, "sort"]["certified"] for kind in AMONG},
        **{f"max_{kind}": of[kind, "max"]["certified"] for kind in SHARP},
        "leak_of_sigmoid": max(row["leak"] for (kind, _), row in of.items() if kind == "sigmoid"),
        "product_in_one_layer": missed["x*y, one layer"],
        "max_without_quotient": missed["max of three, one layer"],
        "mean_without_quotient": missed["mean of two and of three, one layer"],
    }


def _faults(rows: Rows) -> list[str]:
    made = [row for row in rows if "certified" in row]
    leaks = [row["leak"] for row in made if row["attention"] not in ("softmax", "sigmoid")]
    sizes = {row["target"]: (row["layers"], row["heads"]) for row in made if row["attention"] == "softmax"}
    exact = [row["certified"] for row in made if row["attention"] in ("hardmax", "relu")]
    products = [row for row in rows if row["target"] == "x*y, one-hot codes"]
    return [
        *need(all(row["found"] <= row["certified"] for row in made), "an error is larger than certified"),
        *need(all(row["certified"] <= row["asked"] for row in made), "an error was not met"),
        *need(all(sizes[row["target"]] == (row["layers"], row["heads"]) for row in made), "a kind takes other heads"),
        *need(not any(leaks), "something leaks under hardmax, sparsemax or relu attention"),
        *need(max(exact) <= 1e-11, "hardmax or relu attention is not exact up to rounding"),
        *need(all(row["error"] == 0.0 for row in products), "linear attention does not multiply exactly"),
        *need(all(row["confirmed"] for row in rows if "confirmed" in row), "the numbers of one layer do not add up"),
        *need(
            all(row["within"] for row in rows if "within" in row), "others move a gate of elu+1 by more than the law"
        ),
    ]
