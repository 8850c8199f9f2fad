"""Claim R9: where the recipe survives other attentions than softmax, and where it cannot.

Gates.  The recipe asks of attention that it computes a ReLU. Five kinds do, with the constants of
kernel/rules/attentions.py; then networks and circuits follow, with the same layers and heads.

Linear attention.  Score times value is a product of three linear forms at most, so L layers are polynomials of degree
3^L in the inputs; and no polynomial p of degree n is close to |x| on [-1, 1]. For x = sin(a) it is a trigonometric
polynomial of degree n in a. Let F be Fejer's kernel of degree n - 1: not negative, with mean one, so

    f  ->  1/(4 n) sum over k of (-1)^k F(a_k) f(a_k),      a_k = pi k / (2 n),  k = 0, ..., 4 n - 1,

has norm one; and it is zero for p, because F p has a degree below 2 n. So what it makes of |sin(a)| is a lower bound of
the largest |p(x) - |x||. With F(a) = sin(n a / 2)^2 / (n sin(a / 2)^2) that is

    1/n^2 |sum over 0 < k < 2 n of (-1)^k sin(pi k / 4)^2 cot(pi k / (4 n))|,         about 0.22 / n,

and half of it for the ReLU. (The best possible is 0.28 / n in the limit, by Bernstein.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.arrays import Array
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, random_network
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.model import Compiled
from headsmith.plan.product_design import BERNSTEIN
from headsmith.report.falsify import errors_at, falsify
from headsmith.transformer.dense import DenseTransformer
from headsmith.transformer.heads.attentions import EXACT, GATES, weights_of
from headsmith.transformer.heads.sink import SinkBank

SOFTMAX = 0.2784645427610738
CONSTANTS = {"softmax": SOFTMAX, **GATES}
BILLED = ("layers", "heads", "reference_tokens", "d_head", "d_model", "parameters", "nonzeros", "max_weight")
LONG = 4096
LAYERS = 11
"""Of linear attention, at most: so many that a ReLU within 1e-6 is not excluded any more."""
ASKED = 1e-6


@claim("R9", "other attentions: the recipe survives hardmax, sparsemax, sigmoid, relu, elu+1; not linear", tag="review")
def other_attentions() -> Finding:
    """Compile a gate, a network and a product for every kind; count degrees and bound errors of linear attention."""
    found = [_compiled(kind, *case) for kind in CONSTANTS for case in CASES]
    found += [_product(), _alone(), _table_by_hardmax(), *(_degree(layers) for layers in (1, 2))]
    found += [_excluded(layers) for layers in range(1, LAYERS + 1)]
    return judged(
        "relu(x) at 1e-3, a network of 2 x 16 gates at 1e-3 and x*y at 1e-2 under six attentions, x*y under linear "
        f"attention; all with the recipe relu; {LONG} tokens under the mask self+prefix; random linear attention of 1 "
        f"and 2 layers; polynomials of degree 3 to 3^{LAYERS}",
        [row for row, _ in found],
        _summary,
        _faults,
        lambda figure: (
            "a gate of scale b is below the ReLU by at most c/b, c = "
            + ", ".join(f"{figure[f'constant_{kind}']:.4g} ({kind})" for kind in CONSTANTS if kind not in EXACT)
            + f", nothing ({', '.join(EXACT)}); networks and circuits take the same layers and heads under all of "
            f"these. Under hardmax a table errs by {figure['table_under_hardmax']:.2g}. Linear attention "
            f"multiplies exactly, in {figure['heads_of_a_product']} head, and has no gate: "
            f"{figure['layers_excluded']} layers miss relu on "
            f"[-1, 1] by more than 1e-6 (degree n by {figure['proven_times_degree']:.3f}/n or more). Alone with "
            f"the prefix, {LONG} tokens leak nothing, and d_head is {figure['d_head_alone']}. Of tokens that see each "
            "other: row R11"
        ),
        [counted for _, counted in found],
    )


CASES = (("relu(x)", 1e-3), ("network", 1e-3), ("x*y", 1e-2))


def _compiled(kind: Any, target: str, error: float) -> Counted:
    """A model under some attention: its figures, and a second count of them."""
    network = random_network([4, 16, 16, 1])
    model = compile(network if target == "network" else target, (-1.0, 1.0), error, recipe="relu", attention=kind)
    worst = falsify(model, effort=200)
    row = {"attention": kind, "target": target, "asked": error, "certified": model.certificate.error}
    row |= {name: getattr(model.bill, name) for name in BILLED} | {"found": float(errors_at(model, worst.input).max())}
    counted = {"attention": kind, "target": target, "asked": dict(CASES)[target]} | audit(model, worst)
    if target == "relu(x)":
        (bank,) = model.transformer.layers[0].banks
        assert isinstance(bank, SinkBank)
        scale = float(bank.query_scale[0] * bank.key_scale[0])
        row |= {"scale": scale, "constant": model.certificate.parts["softmax"] * scale}
        row |= {"attained": _furthest(model.dense(), kind) * scale}
        counted |= {"scale": _steepness(model.dense(), kind), "constant": CONSTANTS[kind], "attained": _lemma(kind)}
    return row, counted


def _furthest(written: DenseTransformer, kind: str) -> float:
    """How far a written-out gate is from the ReLU, by textbook attention, on a fine grid round zero."""
    (layer,) = written.layers
    x = np.sort(np.concatenate([sign * np.geomspace(1e-6, 1.0, 200_001) for sign in (-1.0, 1.0)]))
    data = x[:, None] @ written.W_E + written.b_E + written.W_pos[0]
    stream = np.concatenate(
        [np.broadcast_to(written.references, (len(x), *written.references.shape)), data[:, None]], 1
    )
    weights = weights_of(kind, data[:, None] @ layer.W_Q[0], stream @ layer.W_K[0], True)
    out = data + (weights @ (stream @ layer.W_V[0]))[:, 0] @ layer.W_O[0]
    return float(np.abs((out @ written.W_U + written.b_U)[:, 0] - np.maximum(x, 0.0)).max())


def _steepness(written: DenseTransformer, kind: str) -> float:
    """How fast the score of a gate grows with its argument, from the matrices."""
    (layer,) = written.layers
    data = np.array([[0.0], [1.0]]) @ written.W_E + written.b_E + written.W_pos[0]
    queries = data @ layer.W_Q[0]
    rise = queries[1] - queries[0]
    return float(rise[0] if kind == "elu+1" else rise @ (data[0] @ layer.W_K[0]))


def _lemma(kind: str) -> float:
    """The constant of a gate of scale one, on a fine grid, from the formulas of the lemma."""
    t = np.geomspace(1e-3, 40.0, 2_000_001)
    match kind:
        case "softmax" | "sigmoid":
            return float((t / (1.0 + np.exp(t))).max())
        case "sparsemax":
            return float((t * (1.0 - np.minimum(t, 1.0)) / 2.0).max())
        case "elu+1":
            return float((t / (1.0 + (1.0 + t) * np.exp(t))).max())
    return 0.0


def _product() -> Counted:
    model = compile("x*y", (-1.0, 1.0), 1e-9, attention="linear")
    return _plainly(model, {"attention": "linear", "target": "x*y"})


def _alone() -> Counted:
    model = compile("relu(x)", (-1.0, 1.0), 1e-3, recipe="relu", tokens=LONG, mask="self+prefix")
    return _plainly(model, {"attention": "softmax", "mask": "self+prefix", "target": "relu(x)"})


def _plainly(model: Compiled, told: dict[str, Any]) -> Counted:
    worst = falsify(model, effort=200)
    row = told | {
        "certified": model.certificate.error,
        "leak": model.certificate.parts["leak"],
        "found": float(errors_at(model, worst.input).max()),
    }
    return row | {name: getattr(model.bill, name) for name in BILLED}, told | audit(model, worst)


def _table_by_hardmax() -> Counted:
    """A table that softmax reads within 1e-3, read by hardmax: it returns one of its values."""
    model = compile("sin(x)", (-3.0, 3.0), 1e-3, recipe="native")
    x = np.linspace(-3.0, 3.0, 2001)[:, None]
    row = {"attention": "hardmax", "target": "sin(x), a table", "certified": model.certificate.error}
    row["error"] = float(np.abs(model(x, hardmax=True) - np.sin(x)).max())
    return row, row | {"certified": model.verify().error, "error": _by_hardmax(model.dense(), x)}


def _by_hardmax(written: DenseTransformer, x: Array) -> float:
    """What textbook attention with the written-out matrices gives."""
    data = x @ written.W_E + written.b_E + written.W_pos[0]
    stream = np.concatenate(
        [np.broadcast_to(written.references, (len(x), *written.references.shape)), data[:, None]], 1
    )
    for layer in written.layers:
        added = np.zeros_like(stream)
        for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
            added += weights_of("hardmax", stream @ W_Q, stream @ W_K, True) @ (stream @ W_V) @ W_O
        stream = stream + added
    return float(np.abs(stream[:, -1] @ written.W_U + written.b_U - np.sin(x)).max())


def _degree(layers: int) -> Counted:
    """The degree of what random linear attention computes along a line: fitted, and 3^layers."""
    x, y = np.cos(np.pi * (np.arange(64) + 0.5) / 64), np.zeros(64)
    for place, value in enumerate(x):
        random = np.random.default_rng(7)
        stream = np.outer(random.standard_normal(3), np.ones(4)) / 4 + value * random.standard_normal((3, 4)) / 2
        for _ in range(layers):
            W_Q, W_K, W_V = random.standard_normal((3, 4, 4)) / 2
            visible = np.ones((3, 3), dtype=bool)
            stream = stream + weights_of("linear", stream @ W_Q, stream @ W_K, visible) @ (stream @ W_V)
        y[place] = stream[0, 0]
    sizes = np.abs(np.polynomial.chebyshev.chebfit(x, y, 40))
    degree = int(np.flatnonzero(sizes > 1e-10 * sizes.max())[-1])
    row = {"attention": "linear", "target": "random weights", "layers": layers, "degree": degree}
    return row, row | {"degree": 3**layers}


def _excluded(layers: int) -> Counted:
    """What so many layers of linear attention miss the ReLU by at least."""
    degree = 3**layers
    proven, law = lower_bound(degree), 0.5 * BERNSTEIN / degree
    row = {"attention": "linear", "target": "relu(x)", "layers": layers, "degree": degree, "misses_by": proven}
    return row | {"law": law}, row | {"degree": 3**layers, "misses_by": _by_definition(degree), "law": law}


def lower_bound(degree: int) -> float:
    """No polynomial of this degree is closer to the ReLU on [-1, 1]; see above.

    Cotangents and their sum are off by fewer roundings than there are terms and ten, of the sum of their sizes.
    """
    k = np.arange(1, 2 * degree)
    signs = np.where(k % 2 == 1, -0.5, np.where(k % 4 == 2, 1.0, 0.0))
    terms = signs / np.tan(np.pi * k / (4 * degree))
    slack = (len(k) + 10) * 2.0**-52 * float(np.abs(terms).sum())
    return (abs(float(terms.sum())) - slack) / (2.0 * degree**2)


def _by_definition(degree: int) -> float:
    """What `lower_bound` returns, summed from the definition of Fejer's kernel, for a second count."""
    angles = np.pi * np.arange(4 * degree) / (2 * degree)
    half = np.sin(angles / 2)
    kernel = np.full(4 * degree, float(degree))
    kernel[1:] = (np.sin(degree * angles[1:] / 2) / half[1:]) ** 2 / degree
    return abs(float((np.cos(np.pi * np.arange(4 * degree)) * kernel * np.abs(np.sin(angles))).mean())) / 2.0


def _summary(rows: Rows) -> dict[str, Any]:
    gates = {row["attention"]: row for row in rows if "constant" in row}
    bounds = [row for row in rows if "misses_by" in row]
    (table,) = (row for row in rows if "error" in row)
    (product,) = (row for row in rows if row["attention"] == "linear" and "found" in row)
    (alone,) = (row for row in rows if "mask" in row)
    return {f"constant_{kind}": row["constant"] for kind, row in gates.items() if kind not in EXACT} | {
        "table_under_hardmax": table["error"],
        "heads_of_a_product": product["heads"],
        "layers_excluded": max(row["layers"] for row in bounds if row["misses_by"] > ASKED),
        "proven_times_degree": min(row["misses_by"] * row["degree"] for row in bounds),
        "d_head_alone": alone["d_head"],
    }


def _faults(rows: Rows) -> list[str]:
    made, gates = [row for row in rows if "found" in row], [row for row in rows if "constant" in row]
    bounds, found = [row for row in rows if "misses_by" in row], _summary(rows)
    sizes = {row["target"]: (row["layers"], row["heads"]) for row in made if row["attention"] == "softmax"}
    same = [sizes[row["target"]] == (row["layers"], row["heads"]) for row in made if "asked" in row]
    alone = [row["leak"] for row in made if "leak" in row]
    return [
        *need(all(row["found"] <= row["certified"] for row in made), "an error is larger than certified"),
        *need(all(row["certified"] <= row["asked"] for row in made if "asked" in row), "an error was not met"),
        *need(all(same), "a kind takes other layers or heads than softmax"),
        *need(all(row["attained"] <= row["constant"] + 1e-9 for row in gates), "a constant is exceeded"),
        *need(all(row["attained"] >= 0.998 * row["constant"] for row in gates), "a constant is not attained"),
        *need(alone == [0.0, 0.0], "something leaks where nothing else is in sight"),
        *need(found["table_under_hardmax"] > 0.1, "hardmax reads a table well"),
        *need(found["layers_excluded"] == LAYERS - 1, f"{LAYERS - 1} layers of linear attention are not excluded"),
        *need(all(row["misses_by"] <= row["law"] for row in bounds[2:]), "a bound is above Bernstein's law"),
        *need(found["heads_of_a_product"] == 1, "a product takes several heads of linear attention"),
    ]
