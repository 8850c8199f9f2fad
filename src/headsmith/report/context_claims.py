"""Claims U5 and U6: gradient descent on the examples of a context, and statistical models fitted by it.

U5 compares models of more and more steps that are made of the same heads. Asking each for an error in proportion to
its steps would show nothing: the planner meets what is asked by finer heads, however errors grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headsmith.circuits.assemble import GATE, Choice, assemble, expression_of
from headsmith.core.arrays import Array
from headsmith.core.certificate import PARTS
from headsmith.core.extras import install
from headsmith.heads.gate_fit import gate_product_fit
from headsmith.lower.approximation import approximate
from headsmith.lower.budget import with_softmax_budget
from headsmith.lower.lower import lower
from headsmith.lower.plan import gained
from headsmith.lower.prove import certified, drafted
from headsmith.lower.tables import Gate
from headsmith.model import Compiled, parts_of
from headsmith.reading import read
from headsmith.report.audit import audit
from headsmith.report.claims import Finding, Rows, claim, judged, need
from headsmith.report.recipe_claims import Counted, exponent
from headsmith.sequence import in_context
from headsmith.sequence.descent import Descent, descent_graph, largest_rate
from headsmith.sequence.in_context import Learner
from headsmith.source.graph import Product
from headsmith.transformer.bill import bill

RISE = 2.0**-6
MARGIN = 0.05
DECAY = 1.0
LINEAR = 1.1
"""Up to this exponent a growth counts as linear."""
WIDTH = 0.4
"""The bandwidth of kernel regression."""
MILD = 0.01
"""A decay with which gradient descent takes hundreds of steps, and Newton's iteration nine layers."""
CLOSE = 1e-4
"""How near ridge comes to scikit-learn's predictions, relative to their spread."""


@claim(
    "U5",
    "gradient descent in context: error at most linear in the steps for ridge, steps^1.7 for least squares",
    tag="ours",
)
def linear_in_steps() -> Finding:
    """The same gate for every product of every step: how do the certified and the measured error grow?

    Errors of the steps add up, whatever their number. A gate errs in proportion to the weights, and these are bounded
    for ridge; for least squares the proven bound grows with the root of the steps, and the sum of errors with it.
    """
    found = [_steps_row(count, decay) for decay in (DECAY, 0.0) for count in STEPS]
    return judged(
        "3 features, 16 examples, 1 to 50 steps of rate 1/L, one gate for all products; ridge and least squares",
        [row for row, _ in found],
        _steps_summary,
        _steps_faults,
        lambda figure: (
            f"with the same heads in every step the certified error of ridge is at most {figure['ridge_constant']:.3g} "
            f"a step, and grows as steps^{figure['ridge_exponent']:.2f} because its steps shrink errors; that of least "
            f"squares grows as steps^{figure['least_squares_exponent']:.2f}, because the proven range of its weights "
            "grows as steps^0.5, and a gate errs in proportion to it"
        ),
        [counted for _, counted in found],
    )


STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 25, 36, 50)


def _steps_summary(rows: Rows) -> dict[str, Any]:
    ridge, least = rows[: len(STEPS)], rows[len(STEPS) :]
    grown = [
        exponent([row["steps"] for row in each[3:]], [row["certified"] for row in each[3:]]) for each in (ridge, least)
    ]
    constant = max(row["certified_per_step"] for row in ridge)
    return {"ridge_exponent": grown[0], "ridge_constant": constant, "least_squares_exponent": grown[1]}


def _steps_faults(rows: Rows) -> list[str]:
    found = _steps_summary(rows)
    parts = [abs(sum(row[name] for name in PARTS) - row["certified"]) <= 1e-6 * row["certified"] for row in rows]
    return [
        *need(all(row["found"] <= row["certified"] for row in rows), "an error is larger than certified"),
        *need(all(parts), "the parts of an error do not add up to it"),
        *need(found["ridge_exponent"] <= LINEAR, f"the error of ridge grows as steps^{found['ridge_exponent']:.2f}"),
        *need(
            found["least_squares_exponent"] <= 0.5 + LINEAR + 0.1,
            f"the error of least squares grows as steps^{found['least_squares_exponent']:.2f}",
        ),
    ]


def _steps_row(steps: int, decay: float) -> Counted:
    learner = same_heads(steps, decay)
    error, contexts = learner.certificate.error, list(_contexts(learner))
    errors = [_error(learner, *context) for context in contexts]
    row = {
        "decay": decay,
        "steps": steps,
        "certified": error,
        "certified_per_step": error / steps,
        "found": max(errors),
        "layers": learner.bill.layers,
        "heads": learner.bill.heads,
        **learner.certificate.parts,
    }
    counted = {"decay": decay, "steps": steps, "found": _error(learner, *contexts[int(np.argmax(errors))])}
    return row, audit(learner) | counted | {"certified_per_step": sum(learner.certificate.parts.values()) / steps}


def _contexts(learner: Learner) -> Iterator[tuple[Array, Array, Array]]:
    """Examples X, y and queries: random ones, corners, and equal examples."""
    random = np.random.default_rng(0)
    for trial in range(60):
        count = int(random.integers(1, learner.examples + 1))
        tokens = random.uniform(-1.0, 1.0, (count, 2 * learner.features + 1))
        tokens = np.sign(tokens) if trial % 3 == 0 else tokens
        X, y, queries = tokens[:, : learner.features], tokens[:, learner.features], tokens[:, learner.features + 1 :]
        if trial % 3 == 1:
            X, y = np.repeat(np.sign(X[:1]), count, axis=0), np.sign(y)
        yield X, y, queries


def _error(learner: Learner, X: Array, y: Array, queries: Array) -> float:
    """How far predictions are from exact gradient descent."""
    return float(np.abs(learner.predict(X, y, queries) - learner.exact(X, y, queries)).max())


def same_heads(steps: int, decay: float = 0.0, features: int = 3, examples: int = 16) -> Learner:
    """Least squares, or ridge, with one and the same gate head for every product, whatever the number of steps."""
    rate = 1.0 / (features + decay)
    run = Descent("squared", steps, features, rate, kept=1.0 - rate * decay)
    graph = descent_graph(run)
    request = read(graph, (-1.0, 1.0), 1.0, examples, "float64")
    fit = gate_product_fit(-1.0, 1.0, 2, rise=RISE)
    gate = Choice(GATE, {"incline": fit.incline, "intercept": fit.intercept, "follows": 1}, MARGIN)
    choices = {number: gate for number, node in enumerate(graph.nodes) if isinstance(node, Product)}
    assembly = assemble(graph, choices)
    tables = {
        (expression_of(assembly, number), component): Gate(fit.slope, fit.offset)
        for number in choices
        for component in range(features)
    }
    planned = gained(
        graph, choices, assembly.circuit, approximate(graph, request.found, assembly, choices, tables), tables
    )
    skeleton = lower(planned.circuit, planned.ranges, tokens=examples, dtype="float64", tables=tables)
    transformer = with_softmax_budget(skeleton, planned.gains, 1e-4, 1e-10)
    draft = drafted(graph, request.box, choices, None, transformer)
    proven = certified(draft, transformer)
    billed = bill(transformer, proven.max_score)
    model = Compiled(graph, choices, request.box, transformer, proven, billed, None, draft.proof)
    return Learner(**parts_of(model), rule=run)


@claim("U6", "statistical models in context: least squares, ridge, lasso, logistic, nearest neighbours", tag="abstract")
def statistical_models() -> Finding:
    """Data sets that scikit-learn ships: the transformer against its estimators, the gap in its two parts."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return Finding("nothing", {}, None, f"not checked: scikit-learn is not installed ({install('sklearn')})")
    rows = [*(_gap(*case) for case in _cases()), _nearest_digits()]
    sound = all(row["softmax_part"] <= row["certified"] for row in rows)
    ridge = max(row["gap"] for row in rows if row["model"] == "ridge")
    rest = max(row["gap"] for row in rows if row["model"] != "ridge")
    part = max(row["softmax_part"] for row in rows)
    holds = sound and ridge <= CLOSE and rest <= 1e-2
    figures = (
        f"{len(rows)} models; ridge on diabetes within {ridge:.2g} of scikit-learn's predictions, the others within "
        f"{rest:.2g}, relative to their spread; the softmax part is at most {part:.2g}; up to "
        f"{max(row['layers'] for row in rows)} layers, {max(row['heads'] for row in rows)} heads"
    )
    return Finding(
        ran="ridge (on diabetes with the large penalty alpha = 884, so that few steps do), least squares and lasso (on "
        "generated data), logistic regression (on 3 principal components), kernel means, and nearest neighbours (of "
        "queries that are nearer to one example than to any other by a gap; the rest are left out), all in context, on "
        "data scaled to the box, no intercept",
        figure={"ridge_gap": ridge, "other_gap": rest, "softmax_part": part, **preconditioning(), "rows": rows},
        holds=holds,
        verdict=f"holds with these constants: {figures}" if holds else f"fails: {figures}",
    )


Case = tuple[str, str, Array, Array, Callable[[int, int], Learner], Any]


def _cases() -> Iterator[Case]:
    """Data set, model, X, y, the learner for (features, examples), and scikit-learn's estimator of the same."""
    from sklearn import datasets, decomposition, linear_model, neighbors

    def logistic(decay: float, steps: int, count: int) -> tuple[Callable[[int, int], Learner], Any]:
        theirs = linear_model.LogisticRegression(
            C=1.0 / (count * decay), fit_intercept=False, tol=1e-12, max_iter=10_000
        )
        return lambda d, m: in_context.logistic(steps, d, m, decay=decay, error=1e-4), theirs

    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = _scaled(X), _scaled(y[:, None])[:, 0]
    theirs = linear_model.Ridge(alpha=2.0 * len(X), fit_intercept=False)
    yield "diabetes", "ridge", X, y, lambda d, m: in_context.ridge(2.0, 22, d, m, error=1e-4), theirs

    theirs = neighbors.KNeighborsRegressor(len(X), weights=lambda d: np.exp(-np.square(d) / (2.0 * WIDTH**2)))
    yield "diabetes", "kernel", X, y, lambda d, m: in_context.kernel_regression(WIDTH, d, m), theirs

    few = _scaled(decomposition.PCA(3).fit_transform(X))
    theirs = linear_model.Ridge(alpha=MILD * len(X), fit_intercept=False)
    yield "diabetes, 3 components", "newton", few, y, lambda d, m: in_context.newton(MILD, 9, d, m, error=1e-5), theirs

    X, y = datasets.make_regression(200, 2, random_state=0)
    X, y = np.clip(X, -1.0, 1.0), y / np.abs(y).max()
    theirs = linear_model.LinearRegression(fit_intercept=False)
    yield (
        "generated",
        "least squares",
        X,
        y,
        lambda d, m: in_context.least_squares(12, d, m, rate=1.0, error=1e-3),
        theirs,
    )
    theirs = linear_model.Lasso(alpha=0.02, fit_intercept=False, tol=1e-12)
    yield "generated", "lasso", X, y, lambda d, m: in_context.lasso(0.02, 10, d, m, rate=1.0, error=1e-2), theirs

    X, y = datasets.load_breast_cancer(return_X_y=True)
    X = _scaled(decomposition.PCA(3).fit_transform((X - X.mean(axis=0)) / X.std(axis=0)))
    yield "breast cancer", "logistic", X, y, *logistic(0.2, 16, len(X))
    X, y = datasets.load_iris(return_X_y=True)
    yield "iris, two classes", "logistic", _scaled(X[y < 2]), y[y < 2], *logistic(0.5, 8, int(np.sum(y < 2)))
    X, y = datasets.load_digits(return_X_y=True)
    X, y = _scaled(decomposition.PCA(3).fit_transform(X[y < 2])), y[y < 2]
    yield "digits 0 and 1", "logistic", X, y, *logistic(0.5, 8, len(X))


def _nearest_digits(examples: int = 300, gap: float = 0.05) -> dict[str, Any]:
    """Digits by their pixels: the label of the nearest example, at all queries where it is nearer by the gap."""
    from sklearn import datasets, neighbors

    X, y = datasets.load_digits(return_X_y=True)
    X, y = X / 16.0, y.astype(np.float64)
    shown, asked = slice(examples), slice(examples, 2 * examples)
    learner = in_context.nearest_neighbour(
        X.shape[1], examples, gap=gap, domain=(0.0, 1.0), labels=(0.0, 9.0), error=1e-3
    )
    theirs = neighbors.KNeighborsRegressor(1).fit(X[shown], y[shown])
    away = np.sort(theirs.kneighbors(X[asked], 2)[0] ** 2, axis=1)
    clear = X[asked][away[:, 1] - away[:, 0] >= gap]
    wanted = theirs.predict(clear)
    return _row("digits, pixels", "nearest", learner, X[shown], y[shown], clear, wanted)


def preconditioning(close: float = 1e-2) -> dict[str, int]:
    """Steps of the largest rate until least squares on diabetes, without any decay, is within `close` of the limit
    relative to its spread; on the features as they are, and whitened by a preconditioner. In plain arithmetic: with
    three layers a step, neither is a model that one would compile."""
    from sklearn import datasets

    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = _scaled(X), _scaled(y[:, None])[:, 0]
    whitening = np.linalg.inv(np.linalg.cholesky(X.T @ X / len(X)))
    return {
        "steps_plain": _steps_until(X, y, close),
        "steps_whitened": _steps_until(X @ whitening.T, y, close),
    }


def _steps_until(X: Array, y: Array, close: float) -> int:
    """In the eigenvectors of the Hessian, t steps leave (1 - rate lambda)^t of the limit's weights to go."""
    curvatures, vectors = np.linalg.eigh(X.T @ X / len(X))
    limit = vectors.T @ (X.T @ y / len(X)) / curvatures
    rate = largest_rate("squared", np.abs(X).max(axis=0))
    features = X @ vectors
    allowed = close * float((features @ limit).std())
    below, above = 0, 2**24
    while above - below > 1:
        middle = (below + above) // 2
        left = features @ ((1.0 - rate * curvatures) ** middle * limit)
        below, above = (below, middle) if np.abs(left).max() <= allowed else (middle, above)
    return above


def _scaled(X: Array) -> Array:
    """Centred, each column within [-1, 1]."""
    centred = X - X.mean(axis=0)
    return np.asarray(centred / np.abs(centred).max(axis=0))


def _gap(data: str, model: str, X: Array, y: Array, make: Callable[[int, int], Learner], theirs: Any) -> dict[str, Any]:
    """`gap`, and `optimisation` are relative to the spread of the estimator's scores; `softmax_part` is absolute."""
    learner, fitted = make(X.shape[1], len(X)), theirs.fit(X, y)
    # Scores of a linear model, of which a classifier would only tell the sign.
    wanted = X @ np.ravel(fitted.coef_) if hasattr(fitted, "coef_") else fitted.predict(X)
    return _row(data, model, learner, X, y, X, wanted)


def _row(data: str, model: str, learner: Learner, X: Array, y: Array, queries: Array, wanted: Array) -> dict[str, Any]:
    scores, exact = learner.predict(X, y, queries), np.asarray(learner.exact(X, y, queries), dtype=np.float64)
    spread = float(wanted.std())
    return {
        "data": data,
        "model": model,
        "features": X.shape[1],
        "examples": len(X),
        "steps": learner.rule.steps,
        "layers": learner.bill.layers,
        "heads": learner.bill.heads,
        "spread": spread,
        "gap": float(np.abs(scores - wanted).max()) / spread,
        "optimisation": float(np.abs(exact - wanted).max()) / spread,
        "softmax": float(np.abs(scores - exact).max()) / spread,
        "softmax_part": float(np.abs(scores - exact).max()),
        "certified": learner.certificate.error,
    }
