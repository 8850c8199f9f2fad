"""Claims U5 and U6: gradient descent on the examples of a context, and statistical models fitted by it.

U5 compares models of more and more steps that are made of the same heads. Asking each for an error in proportion to
its steps would show nothing: the planner meets what is asked by finer heads, however errors grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.certificate import PARTS
from headsmith.core.extras import install
from headsmith.lab.claims.audit import audit
from headsmith.lab.claims.recipe import Counted, exponent
from headsmith.lab.claims.rows import Finding, Rows, claim, judged, need
from headsmith.language.graph import Product
from headsmith.lower.lower import Setting, lower
from headsmith.lower.scales import demand_of, with_softmax_budget
from headsmith.model import Compiled, parts_of
from headsmith.plan.approximation import approximate, gained
from headsmith.plan.circuits.assemble import GATE, Choice, assemble, expression_of
from headsmith.plan.reading import read
from headsmith.plan.tables import GateHead
from headsmith.prove.prove import Wanted, certified, drafted
from headsmith.sequence import in_context
from headsmith.sequence.descent import Descent, descent_graph
from headsmith.sequence.learner import Learner
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.gate import gate_product_fit
from headsmith.transformer.stored import numbered

RISE = 2.0**-6
MARGIN = 0.05
DECAY = 1.0
LINEAR = 1.1
"""Up to this exponent a growth counts as linear."""
WIDTH = 0.4
"""The bandwidth of kernel regression."""
MILD = 0.01
"""A decay with which gradient descent takes hundreds of steps, and Newton's iteration nine layers."""
CLOSE = 2e-3
"""How near models come to scikit-learn's predictions, relative to their spread."""


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
    gate = Choice(GATE, MARGIN, numbers={"incline": fit.incline, "intercept": fit.intercept, "follows": 1})
    choices = {number: gate for number, node in enumerate(graph.nodes) if isinstance(node, Product)}
    assembly = assemble(graph, choices)
    tables = {
        (expression_of(assembly, number), component): GateHead(fit.slope, fit.offset)
        for number in choices
        for component in range(features)
    }
    design = gained(graph, choices, assembly, approximate(graph, request.ranges, assembly, choices, tables), tables)
    skeleton = lower(design.circuit, design.ranges, tables, Setting(examples))
    transformer = with_softmax_budget(skeleton, demand_of(skeleton, design.gains), 1e-4, 1e-10)
    draft = drafted(Wanted(graph, choices, None, transformer), request.box)
    proven = certified(draft)
    billed = bill(transformer, proven.max_score)
    parts = (graph, request.box, numbered(transformer, draft.places), proven, billed, draft.proof)
    model = Compiled(*parts, labels=draft.labels)
    return Learner(**parts_of(model), rule=run)


@claim("U6", "statistical models in context: least squares, ridge, lasso, logistic, nearest neighbours", tag="abstract")
def statistical_models() -> Finding:
    """Data sets that scikit-learn ships: the transformer against its estimators, the gap in its two parts."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return Finding("nothing", {}, None, f"not checked: scikit-learn is not installed ({install('sklearn')})")
    found = [*(_fitted(case) for case in _cases()), _nearest_digits()]
    return judged(
        "diabetes, breast cancer, iris and digits, as scikit-learn ships them; all examples are in the context, all "
        "queries are asked but those with two nearest neighbours; no intercept; features are principal components "
        "where so named, scaled to the box, or clipped at one standard deviation",
        [row for row, _ in found],
        _fitted_summary,
        _fitted_faults,
        lambda figure: (
            f"{figure['models']} models within {figure['largest_gap']:.2g} of scikit-learn's predictions, relative to "
            f"their spread; attention errs by at most {figure['attention_part']:.2g}, the rest are steps that were not "
            f"made; ridge has scikit-learn's penalty alpha = {figure['smallest_alpha']:g} to "
            f"{figure['largest_alpha']:.3g} on {figure['most_examples']} examples or fewer, logistic regression C = 1/"
            f"{figure['logistic_alpha']:.3g} at the least (strong, so that few steps do); {figure['left_out']} of "
            f"{figure['queries']} queries are left out, which have two nearest neighbours; up to "
            f"{figure['most_layers']} layers, {figure['most_heads']} heads"
        ),
        [counted for _, counted in found],
    )


@dataclass(frozen=True)
class LearnerCase:
    """A data set, a learner for it, and scikit-learn's estimator of the same. `alpha` is the penalty that scikit-learn
    is given, where its estimator has one."""

    data: str
    model: str
    X: Array
    y: Array
    learner: Learner
    theirs: Any
    alpha: float | None = None


def _fitted_summary(rows: Rows) -> dict[str, Any]:
    penalties = [row["alpha"] for row in rows if row["model"] in ("ridge", "newton")]
    return {
        "models": len(rows),
        "largest_gap": max(row["gap"] for row in rows),
        "attention_part": max(row["attention_part"] for row in rows),
        "smallest_alpha": min(penalties),
        "largest_alpha": max(penalties),
        "logistic_alpha": max(row["alpha"] for row in rows if row["model"] == "logistic"),
        "most_examples": max(row["examples"] for row in rows),
        "queries": sum(row["queries"] for row in rows),
        "left_out": sum(row["left_out"] for row in rows),
        "most_layers": max(row["layers"] for row in rows),
        "most_heads": max(row["heads"] for row in rows),
    }


def _fitted_faults(rows: Rows) -> list[str]:
    """A gap is made of what more steps would change, `optimisation`, and of what attention errs by, `attention`; both
    are relative to the spread of scikit-learn's predictions, and `attention_part` is not."""
    slack = 1e-12
    parts = [abs(row["attention"] * row["spread"] - row["attention_part"]) <= slack for row in rows]
    sums = [row["gap"] <= row["optimisation"] + row["attention"] + slack for row in rows]
    other = [row["optimisation"] <= row["gap"] + row["attention"] + slack for row in rows]
    return [
        *need(all(row["attention_part"] <= row["certified"] for row in rows), "an error is larger than certified"),
        *need(all(row["gap"] <= CLOSE for row in rows), f"a model is off by {max(row['gap'] for row in rows):.2g}"),
        *need(all(parts), "what attention errs by is not its share of the spread"),
        *need(all(sums) and all(other), "a gap is not made of its parts"),
        *need(all(row["left_out"] <= 0.01 * row["queries"] for row in rows), "more than a hundredth is left out"),
    ]


def _cases() -> Iterator[LearnerCase]:
    from sklearn import datasets, decomposition, linear_model, neighbors

    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = _scaled(X), _scaled(y[:, None])[:, 0]
    theirs: Any = neighbors.KNeighborsRegressor(len(X), weights=lambda d: np.exp(-np.square(d) / (2.0 * WIDTH**2)))
    yield LearnerCase("diabetes", "kernel", X, y, in_context.kernel_regression(WIDTH, X.shape[1], len(X)), theirs)

    few, count = _scaled(decomposition.PCA(3).fit_transform(X)), len(X)
    theirs = linear_model.Ridge(alpha=MILD * count, fit_intercept=False)
    learner = in_context.newton(MILD, 9, 3, count, error=1e-5)
    yield LearnerCase("diabetes, 3 components", "newton", few, y, learner, theirs, MILD * count)

    clipped = decomposition.PCA(2).fit_transform(X)
    clipped, data = np.clip(clipped / clipped.std(axis=0), -1.0, 1.0), "diabetes, 2 components, clipped"
    theirs = linear_model.LinearRegression(fit_intercept=False)
    yield LearnerCase(
        data, "least squares", clipped, y, in_context.least_squares(12, 2, count, rate=1.0, error=1e-3), theirs
    )
    theirs = linear_model.Ridge(fit_intercept=False)
    learner = in_context.ridge(1.0 / count, 14, 2, count, error=1e-4)
    yield LearnerCase(data, "ridge", clipped, y, learner, theirs, 1.0)
    theirs = linear_model.Lasso(alpha=0.02, fit_intercept=False, tol=1e-12)
    yield LearnerCase(
        data, "lasso", clipped, y, in_context.lasso(0.02, 10, 2, count, rate=1.0, error=1e-3), theirs, 0.02
    )

    X, y = datasets.load_breast_cancer(return_X_y=True)
    X = _scaled(decomposition.PCA(3).fit_transform((X - X.mean(axis=0)) / X.std(axis=0)))
    yield _logistic("breast cancer, 3 components", X, y, 0.2, 16)
    X, y = datasets.load_iris(return_X_y=True)
    yield _logistic("iris, two classes", _scaled(X[y < 2]), y[y < 2], 0.5, 8)


def _logistic(data: str, X: Array, y: Array, decay: float, steps: int) -> LearnerCase:
    from sklearn import linear_model

    theirs = linear_model.LogisticRegression(C=1.0 / (len(X) * decay), fit_intercept=False, tol=1e-12, max_iter=10_000)
    learner = in_context.logistic(steps, X.shape[1], len(X), decay=decay, error=1e-4)
    return LearnerCase(data, "logistic", X, y, learner, theirs, decay * len(X))


def _fitted(case: LearnerCase) -> Counted:
    fitted = case.theirs.fit(case.X, case.y)
    # Scores of a linear model, of which a classifier would only tell the sign.
    wanted = case.X @ np.ravel(fitted.coef_) if hasattr(fitted, "coef_") else fitted.predict(case.X)
    given = 1.0 / fitted.C if hasattr(fitted, "C") else getattr(fitted, "alpha", None)
    return _gap(case, case.X, wanted, 0, {"alpha": given, "queries": len(case.y), "left_out": 0})


def _nearest_digits(examples: int = 300, gap: float = 1e-3) -> Counted:
    """Digits by their pixels: the label of the nearest example, of all queries that have one. Pixels are multiples of
    1/16, so squared distances differ by 1/256 or are equal."""
    from sklearn import datasets, neighbors

    X, y = datasets.load_digits(return_X_y=True)
    X, y = X / 16.0, y.astype(np.float64)
    shown, asked = slice(examples), slice(examples, 2 * examples)
    learner = in_context.nearest_neighbour(
        X.shape[1], examples, gap=gap, domain=(0.0, 1.0), labels=(0.0, 9.0), error=1e-3
    )
    theirs = neighbors.KNeighborsRegressor(1).fit(X[shown], y[shown])
    distances = np.square(256.0 * (X[asked][:, None] - X[shown])).sum(axis=2)
    ordered = np.sort(distances, axis=1)
    clear = X[asked][ordered[:, 0] < ordered[:, 1]]
    away = np.sort(theirs.kneighbors(X[asked], 2)[0] ** 2, axis=1)
    ties = int(np.sum(away[:, 1] - away[:, 0] < gap))
    case = LearnerCase("digits, pixels", "nearest", X[shown], y[shown], learner, theirs)
    counted = {"queries": len(X[asked]), "left_out": ties}
    return _gap(case, clear, theirs.predict(clear), examples - len(clear), counted)


def _scaled(X: Array) -> Array:
    """Centred, each column within [-1, 1]."""
    centred = X - X.mean(axis=0)
    return np.asarray(centred / np.abs(centred).max(axis=0))


def _gap(case: LearnerCase, queries: Array, wanted: Array, left_out: int, counted: dict[str, Any]) -> Counted:
    learner, X, y = case.learner, case.X, case.y
    scores, exact = learner.predict(X, y, queries), np.asarray(learner.exact(X, y, queries), dtype=np.float64)
    spread = float(wanted.std())
    row = {
        "data": case.data,
        "model": case.model,
        "alpha": case.alpha,
        "features": X.shape[1],
        "examples": len(X),
        "queries": len(queries) + left_out,
        "left_out": left_out,
        "steps": learner.rule.steps,
        "layers": learner.bill.layers,
        "heads": learner.bill.heads,
        "spread": spread,
        "gap": float(np.abs(scores - wanted).max()) / spread,
        "optimisation": float(np.abs(exact - wanted).max()) / spread,
        "attention": float(np.abs(scores - exact).max()) / spread,
        "attention_part": float(np.abs(scores - exact).max()),
        "certified": learner.certificate.error,
    }
    counted |= {"features": learner.features, "examples": learner.examples, "steps": learner.rule.steps}
    counted["optimisation"] = float(np.abs(np.asarray(learner.exact(X, y, queries), float) - wanted).max()) / spread
    counted["spread"] = float(np.sqrt(np.mean(np.square(wanted - np.mean(wanted)))))
    return row, audit(learner) | counted
