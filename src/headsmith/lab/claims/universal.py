"""Claims U3 and U4: attention alone approximates a sequence-to-sequence function, in two layers or one and a softmax.

Two ways. A callable that is sampled, with a stated Lipschitz bound: gather, then look up. The error falls as 1/p for
p^D answers; this rate, the soft kernel, its constant with a proof, and fitted answers are ours: we do not know which
rate the paper claims. And a ReLU network of the whole sequence, at the shape of the authors' experiment
(lab/claims/universal_shape.py). U4 does not compare its models with those of U3: each is run as one attention layer and
a softmax, from its own matrices, and compared with the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.kernel.rules.sampled import moment
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, exponent
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.lab.claims.universal_shape import (
    FEATURES,
    HIDDEN,
    TOKENS,
    beside_kinks,
    figures,
    interpolating,
    lemma,
    shape_of,
    textbook,
    without_attention,
)
from headsmith.sequence.compiled import CompiledSequence, compile_sequence
from headsmith.sequence.universal import Universal, universal
from headsmith.sequence.universal_fit import fitted
from headsmith.sequence.universal_inputs import sample
from headsmith.sequence.universal_model import Architecture
from headsmith.transformer.dense import dense
from headsmith.transformer.heads.ramp import WIDTH

KERNELS = (1.0, 2.0, WIDTH, 4.0, 10.0, 100.0)
CELLS = (4, 8, 16)
FITS = (4, 8, 16)
GAIN = 1e3
"""How much better fitted answers must do on a smooth target with 16 nodes along each coordinate."""
ASKED = (1e-2, 1e-3, 1e-5)
LENGTHS, HEADS = (5, 10, 20, 40), (1, 2, 4, 8)
STEP = 0.0631
"""No ramp errs by more steps of its grid."""


@dataclass(frozen=True)
class SequenceTarget:
    """A function of a whole sequence on [-1, 1], with a Lipschitz bound that is true of it."""

    name: str
    function: Callable[[Array], Array]
    lipschitz: Any
    norm: float
    tokens: int = 2
    features: int = 1
    outputs: int = 1
    most: int = CELLS[-1]


TARGETS = (
    SequenceTarget("sin(x_i + mean)", lambda x: np.sin(x + x.mean()), [[1.5], [1.5]], 1),
    SequenceTarget("product, difference", lambda x: np.array([x[0] * x[1], x[0] - x[1]]), [[1.0], [1.0]], 1),
    SequenceTarget("larger of the two", lambda x: np.maximum(x, x[::-1]), 1.0, np.inf),
    SequenceTarget("sorted pair", lambda x: np.sort(x, axis=0), 1.0, 2),
    SequenceTarget("sum of |x_j|", lambda x: np.full((2, 1), np.abs(x).sum()), [[1.0], [1.0]], 1),
    SequenceTarget("x_i - median", lambda x: x - np.median(x), 2.0, np.inf, tokens=3, most=8),
    # Token i turns by a quarter and goes by the other's first feature.
    SequenceTarget(
        "turn and follow",
        lambda x: np.stack([x[:, 1], x[::-1, 0] - x[:, 0]], axis=1),
        [[1.0, 1.0], [1.0, 1.0]],
        1,
        features=2,
        outputs=2,
        most=8,
    ),
)


def largest_error(
    model: Callable[[Array], Array], target: SequenceTarget, effort: int = 300, seed: int = 0
) -> tuple[float, Array]:
    """The largest error that a search finds, and where: random points, ends, middles, then ever smaller moves of the
    worst."""
    random = np.random.default_rng(seed)
    size = target.tokens * target.features
    coarse = np.round(random.uniform(-1.0, 1.0, (effort, size)) * 16.0) / 16.0
    points = np.vstack([random.uniform(-1.0, 1.0, (effort, size)), coarse, np.zeros((1, size))])
    points = np.vstack(
        [points, np.where(random.random((effort, size)) < 0.5, np.sign(points[:effort]), points[:effort])]
    )
    worst, where, reach = 0.0, points[0], 0.25
    for _ in range(8):
        errors = _errors(model, target, points)
        if errors.max() > worst:
            worst, where = float(errors.max()), points[int(np.argmax(errors))]
        best = points[np.argsort(errors)[-20:]]
        moves = random.uniform(-reach, reach, (10, *best.shape)) * (random.random((10, *best.shape)) < 0.7)
        points, reach = np.clip(np.vstack([best, (best + moves).reshape(-1, size)]), -1.0, 1.0), reach / 2.5
    return worst, where


def _errors(model: Callable[[Array], Array], target: SequenceTarget, points: Array) -> Array:
    found = model(points.reshape(-1, target.tokens, target.features))
    exact = sample(target.function, points, target.tokens, target.outputs)
    return np.asarray(np.abs(found - exact).reshape(len(points), -1).max(axis=1))


@claim("U3", "two attention layers, no feed-forward block, approximate a sequence-to-sequence function", tag="abstract")
def two_layers() -> Finding:
    """Callables for growing p: proven error, search, bill; constants of kernels; fits; then the authors' shape."""
    found = [_sampled(target, cells, "two layers") for target in TARGETS for cells in CELLS if cells <= target.most]
    found += [_kernel(width) for width in KERNELS]
    found += [_fit(TARGETS[0], nodes) for nodes in FITS]
    found += [_at_shape(asked) for asked in ASKED]
    found += [_interpolated(tokens, 1) for tokens in LENGTHS] + [_interpolated(TOKENS, heads) for heads in HEADS]
    return judged(
        f"{len(TARGETS)} callables of 2 and 3 tokens on [-1, 1], p = {CELLS[0]} to {CELLS[-1]}; and {HIDDEN} ReLUs of "
        f"all numbers of {TOKENS} tokens of {FEATURES}: certified at {ASKED[0]:g} to {ASKED[-1]:g}, and interpolated",
        [row for row, _ in found],
        _two_layers_summary,
        _two_layers_faults,
        lambda figure: (
            f"sampled callables: proven error {figure['constant']:.4f} (b - a)/p sum L_i, our rate p^"
            f"{figure['exponent']:.3f}, up to {figure['attained']:.4f} of it attained; fitted answers (an estimate) "
            f"gain x {figure['smallest_gain_of_fits']:.2g} on a smooth target at p = {FITS[-1]}. {TOKENS} tokens of "
            f"{FEATURES}, {HIDDEN} ReLUs: {figure['layers_at_shape']} layers and {figure['heads_at_shape']} heads, "
            f"certified at {ASKED[-1]:g}; by interpolation over the tokens themselves the error goes as "
            f"(n-1)^{figure['exponent_in_tokens']:.2f} H^{figure['exponent_in_heads']:.2f}"
        ),
        [counted for _, counted in found],
    )


def _two_layers_summary(rows: Rows) -> dict[str, Any]:
    sampled = [row for row in rows if "proven" in row]
    rates = [
        exponent([row["p"] for row in mine], [row["proven"] for row in mine])
        for target in TARGETS
        if len(mine := [row for row in sampled if row["target"] == target.name]) > 1
    ]
    ramps = [row for row in rows if "lemma" in row]
    longer, wider = ramps[: len(LENGTHS)], ramps[len(LENGTHS) :]
    shape = [row for row in rows if "asked" in row]
    return {
        # In units of (b - a)/p times the sum of the L_i, for bounds coordinate by coordinate.
        "constant": max(row["constant"] for row in sampled if row["constant"]),
        "exponent": max(rates, key=lambda each: abs(each + 1.0)),
        "attained": max(row["found"] / row["proven"] for row in sampled),
        "smallest_gain_of_fits": min(
            row["sampled_error"] / row["estimate"] for row in rows if "estimate" in row and row["p"] == FITS[-1]
        ),
        "layers_at_shape": max(row["layers"] for row in shape),
        "heads_at_shape": max(row["heads"] for row in shape),
        "exponent_in_tokens": exponent([row["tokens"] - 1 for row in longer], [row["measured"] for row in longer]),
        "exponent_in_heads": exponent([row["heads_each"] for row in wider], [row["measured"] for row in wider]),
    }


def _two_layers_faults(rows: Rows) -> list[str]:
    found = _two_layers_summary(rows)
    sampled, shape = ([row for row in rows if name in row] for name in ("proven", "asked"))
    ramps, kernels = ([row for row in rows if name in row] for name in ("lemma", "width"))
    within = [row["direct"] <= row["kernel_constant"] <= 1.001 * row["direct"] for row in kernels]
    steps = [row["lemma"] * (row["tokens"] - 1) * row["heads_each"] / row["sum_of_weights"] for row in ramps]
    return [
        *need(all(row["found"] <= row["proven"] for row in sampled), "an error is larger than proven"),
        *need(all(row["layers"] == 2 for row in sampled + shape + ramps), "a model does not have two layers"),
        *need(abs(found["exponent"] + 1.0) <= 0.02, f"sampled callables: exponent {found['exponent']:.3f}"),
        *need(found["constant"] <= 0.505, f"sampled callables: constant {found['constant']:.4f}"),
        *need(found["attained"] >= 0.98, f"only {found['attained']:.3f} of what is proven is attained"),
        *need(found["smallest_gain_of_fits"] >= GAIN, f"fits gain {found['smallest_gain_of_fits']:.3g} alone"),
        *need(all(within), "the constant of a kernel is not what its formula says"),
        *need(
            all(row["found"] <= row["certified"] <= row["asked"] for row in shape),
            "at the authors' shape an error is larger than certified, or than asked",
        ),
        *need(all(row["measured"] <= row["lemma"] for row in ramps), "interpolation errs more than its lemma says"),
        *need(max(steps) <= STEP, f"a ramp errs by {max(steps):.4f} steps"),
        *need(abs(found["exponent_in_tokens"] + 1.0) <= 0.2, f"tokens: exponent {found['exponent_in_tokens']:.2f}"),
        *need(abs(found["exponent_in_heads"] + 1.0) <= 0.2, f"heads: exponent {found['exponent_in_heads']:.2f}"),
    ]


@claim("U4", "one attention layer followed by a softmax suffices", tag="abstract")
def one_layer() -> Finding:
    """The targets by the architecture of that name: run from its own matrices, and compared with the target."""
    found = [_sampled(target, min(target.most, 16), ENDS_IN_SOFTMAX) for target in TARGETS]
    found += [_sampled(TARGETS[0], cells, ENDS_IN_SOFTMAX) for cells in CELLS]
    found += [_softmaxes(asked) for asked in COARSE]
    return judged(
        f"{len(TARGETS)} callables, one attention layer and softmax(x W + b) V; {HIDDEN} ReLUs of {TOKENS} tokens of "
        f"{FEATURES} by one attention layer and a sum of softmax(x W_h + b_h) V_h; run from these matrices alone",
        [row for row, _ in found],
        _one_layer_summary,
        _one_layer_faults,
        lambda figure: (
            f"sampled callables: proven error {figure['constant']:.4f} (b - a)/p sum L_i, our rate p^"
            f"{figure['exponent']:.3f}, one softmax of {figure['most_columns']} columns or fewer, no reference token. "
            f"At the authors' shape one softmax over a grid would have p^{TOKENS * FEATURES} columns; "
            f"{figure['softmaxes']} of them side by side, one for each ReLU and token, reach {figure['smallest']:.3g}, "
            f"certified"
        ),
        [counted for _, counted in found],
    )


ENDS_IN_SOFTMAX: Architecture = "one layer and a softmax"
COARSE = (3e-1, 1e-1)
"""Errors that ramps of at most a few hundred columns reach."""


def _one_layer_summary(rows: Rows) -> dict[str, Any]:
    sampled, shape = ([row for row in rows if name in row] for name in ("proven", "asked"))
    growing = sampled[len(TARGETS) :]
    return {
        "constant": max(row["constant"] for row in sampled if row["constant"]),
        "exponent": exponent([row["p"] for row in growing], [row["proven"] for row in growing]),
        "most_columns": max(row["columns"] for row in sampled),
        "softmaxes": max(row["softmaxes"] for row in shape),
        "smallest": min(row["certified"] for row in shape),
    }


def _one_layer_faults(rows: Rows) -> list[str]:
    found = _one_layer_summary(rows)
    sampled, shape = ([row for row in rows if name in row] for name in ("proven", "asked"))
    return [
        *need(all(row["found"] <= row["proven"] for row in sampled), "an error is larger than proven"),
        *need(
            all(row["found"] <= row["certified"] <= row["asked"] for row in shape),
            "at the authors' shape an error is larger than certified, or than asked",
        ),
        *need(all(row["layers"] == 1 for row in sampled + shape), "a model has more than one attention layer"),
        *need(all(row["reference_tokens"] == 0 for row in sampled), "a model has reference tokens"),
        *need(abs(found["exponent"] + 1.0) <= 0.02, f"the exponent is {found['exponent']:.3f}"),
        *need(found["constant"] <= 0.505, f"the constant is {found['constant']:.4f}"),
    ]


def _made(target: SequenceTarget, cells: int, architecture: Architecture) -> Universal:
    return universal(
        target.function,
        target.tokens,
        target.features,
        target.outputs,
        (-1.0, 1.0),
        grid=cells,
        lipschitz=target.lipschitz,
        norm=target.norm,
        architecture=architecture,
    )


def _sampled(target: SequenceTarget, cells: int, architecture: Architecture) -> Counted:
    made = _made(target, cells, architecture)
    worst, where = largest_error(made, target, 300 if len(made.answers) <= 600 else 100)
    cost, written = made.bill, made.dense()
    row = {
        "target": target.name,
        "p": cells,
        "proven": made.error,
        "found": worst,
        "constant": made.error * cells / 2.0 / float(np.sum(target.lipschitz)) if target.norm == 1 else None,
        "layers": cost.layers,
        "heads": cost.heads,
        "reference_tokens": cost.reference_tokens,
        "parameters": cost.parameters,
        **({"columns": len(made.answers) * target.tokens} if architecture == ENDS_IN_SOFTMAX else {}),
    }
    proven = float(sum(made.certificate.parts.values()))
    counted = audit(made) | {
        "p": round(len(made.answers) ** (1.0 / (target.tokens * target.features))),
        "proven": proven,
        "found": float(_errors(lambda X: textbook(written, X), target, where[None])[0]),
        "constant": proven * cells / float(2.0 * np.sum(target.lipschitz)) if target.norm == 1 else None,
        **({"columns": len(written.last[2])} if written.last is not None else {}),
    }
    return row, counted


def _kernel(width: float) -> Counted:
    """The mean distance of an answer, in steps, at the worst place: as the kernel bounds it, and from the formula."""
    nodes = np.arange(CELLS[-1], dtype=np.float64)
    places = np.linspace(-0.5, (len(nodes) - 1) / 2.0, 20_001)[:, None]
    away = np.abs(places - nodes)
    scores = -width * (away**2 - (away**2).min(axis=1, keepdims=True))
    direct = float((np.sum(np.exp(scores) * away, axis=1) / np.exp(scores).sum(axis=1)).max())
    return {"width": width, "kernel_constant": moment(len(nodes), width, 0.0, 1), "direct": direct}, {"width": width}


def _fit(target: SequenceTarget, nodes: int) -> Counted:
    """Fitted against sampled answers, on the same number of reference tokens."""
    fit, plain = fitted(target.function, target.tokens, 1, 1, (-1.0, 1.0), grid=nodes), _made(target, nodes, TWO)
    (_, there), (sampled, where) = largest_error(fit, target), largest_error(plain, target)
    row = {
        "target": f"{target.name}, fitted",
        "p": nodes,
        "sampled_error": sampled,
        "estimate": float(_errors(fit, target, there[None])[0]),
        "largest_answer": fit.largest_answer,
        "reference_tokens": fit.bill.reference_tokens,
    }
    written = dense(fit.model)
    counted = {
        "p": round((len(written.references) / target.tokens) ** 0.5),
        "sampled_error": float(_errors(plain, target, where[None])[0]),
        "estimate": float(_errors(fit, target, there[None])[0]),
        "largest_answer": float(np.abs(fit.model.table.values).max()),
        "reference_tokens": len(written.references),
    }
    return row, counted


TWO: Architecture = "two layers"


def _at_shape(asked: float) -> Counted:
    shape, model, points, worst, found = _compiled(asked, "auto", False)
    cost = model.bill
    row = {
        "asked": asked,
        "certified": model.certificate.error,
        "found": found,
        "layers": cost.layers,
        "heads": cost.heads,
        "reference_tokens": cost.reference_tokens,
        "d_model": cost.d_model,
        "parameters": cost.parameters,
        "nonzeros": cost.nonzeros,
    }
    return row, audit(model) | {
        "asked": asked,
        "found": float(np.abs(model(points[worst]) - shape(points[worst])).max()),
    }


def _softmaxes(asked: float) -> Counted:
    """Ramps over reference tokens, which are constants: softmax(x W_h + b_h) V_h, for every row x of a data token."""
    shape, model, points, worst, found = _compiled(asked, "ramp", True)
    written = model.dense()
    row = {
        "asked": asked,
        "certified": model.certificate.error,
        "found": found,
        "layers": model.bill.layers - 1,
        "heads": model.transformer.layers[0].heads,
        "softmaxes": model.transformer.layers[1].heads,
        "columns": model.bill.reference_tokens,
    }
    again = textbook(written, points[worst][None], softmax_last=True)
    counted = {
        "asked": asked,
        "certified": float(sum(model.certificate.parts.values())),
        "found": float(np.abs(again - shape(points[worst])).max()),
        "layers": len(written.layers) - 1,
        "heads": len(written.layers[0].W_Q),
        "softmaxes": len(written.layers[1].W_Q),
        "columns": len(written.references),
    }
    return row, counted


def _compiled(asked: float, recipe: str, softmax_last: bool) -> tuple[Any, CompiledSequence, Array, int, float]:
    """The function, its model, sequences, which of them is worst, and the error there, as textbook attention."""
    shape = shape_of()
    model = compile_sequence(
        shape.network, tokens=TOKENS, features=FEATURES, domain=(-1.0, 1.0), error=asked, recipe=recipe
    )
    points = beside_kinks(shape, 6)
    errors = np.abs(textbook(model.dense(), points, softmax_last) - shape(points)).reshape(len(points), -1).max(axis=1)
    worst = int(np.argmax(errors))
    return shape, model, points, worst, float(errors[worst])


def _interpolated(tokens: int, heads: int) -> Counted:
    shape = shape_of(tokens)
    written, points = interpolating(shape, heads), beside_kinks(shape, 2)
    errors = np.abs(textbook(written, points) - shape(points)).reshape(len(points), -1).max(axis=1)
    worst = points[int(np.argmax(errors))]
    row = {
        "tokens": tokens,
        "heads_each": heads,
        "measured": float(errors.max()),
        "lemma": lemma(shape, heads),
        "sum_of_weights": float(np.abs(shape.A).sum(axis=2).max()),
        **figures(written),
    }
    counted = {
        "tokens": len(written.W_pos),
        "heads_each": (len(written.layers[1].W_Q)) // (HIDDEN * tokens),
        "measured": float(np.abs(without_attention(shape, heads, worst) - shape(worst)).max()),
        "sum_of_weights": max(float(np.abs(row).sum()) for each in shape.A for row in each),
        "layers": 2,
        "heads": tokens + HIDDEN * tokens * heads,
    }
    return row, counted
