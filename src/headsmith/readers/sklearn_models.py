"""Models of scikit-learn as targets; scikit-learn itself is not imported: whoever has a model has it.

A Pipeline is followed step by step. Each kind of estimator is a function of the builder, the numbers that it reads and
the fitted estimator (see `STEPS` for what comes before a model, `MODELS` for the models).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.foreign import family_of
from headsmith.language.builder import Builder
from headsmith.language.graph import Graph
from headsmith.readers import operators as op
from headsmith.readers import over_axes as axes
from headsmith.readers.imported import Difference, Imported, input_names, measured
from headsmith.readers.pooled import finished
from headsmith.readers.tensors import Operand, Tensor, add, flat, joined, moved, scale, shape_of, whole

Reader = Callable[[Builder, Tensor, Any], Operand]


def from_sklearn(estimator: Any, *, probabilities: bool = False) -> Imported:
    """A fitted estimator of scikit-learn, or a Pipeline of them, as a target that `hs.compile` takes.

    A classifier's outputs are its scores: what `decision_function` gives, or what `predict_proba` is made of; with
    `probabilities`, what `predict_proba` gives. Weights are taken as they are, as doubles.
    """
    kind = type(estimator).__name__
    if family_of(estimator) != "sklearn":
        raise TargetError(f"a {kind} is no estimator of scikit-learn")
    estimator = _inner(estimator)
    size = _features(estimator)
    builder = Builder(input_names(size, _names(estimator)))
    found = _model(builder, whole(builder, builder.input), estimator)
    scores = finished(builder.graph(flat(builder, found)))
    # An MLPClassifier shows its probabilities alone: these are compared, whatever is wanted.
    proba = probabilities or _is(_last(estimator), "MLPClassifier")
    graph = finished(builder.graph(flat(builder, _probabilities(builder, found, estimator)))) if proba else scores
    difference = _compared(graph, estimator, size, proba)
    graph = graph if probabilities else scores
    shape = (graph.nodes[graph.output].size,)
    return Imported(graph, f"scikit-learn's {kind}", (size,), shape, tuple(_said(estimator, probabilities)), difference)


# Following estimators that are made of others.


def _inner(estimator: Any) -> Any:
    """What a search has found to be the best, or the estimator itself."""
    return _inner(estimator.best_estimator_) if hasattr(estimator, "best_estimator_") else estimator


def _steps(estimator: Any) -> list[Any]:
    """The steps of a pipeline, without those that pass on what they get."""
    steps = [each for _, each in estimator.steps] if _is(estimator, "Pipeline") else [estimator]
    return [_inner(each) for each in steps if each is not None and each != "passthrough"]


def _last(estimator: Any) -> Any:
    steps = _steps(_inner(estimator))
    return estimator if not steps else steps[-1] if steps[-1] is estimator else _last(steps[-1])


def _model(builder: Builder, x: Tensor, estimator: Any) -> Operand:
    """The outputs of an estimator: of its model, or of its last step where it is a transformer."""
    found: Operand = x
    for step in _steps(_inner(estimator)):
        reader = _reader(step)
        found = _as_tensor(builder, reader(builder, _as_tensor(builder, found), step))
    return found


def _as_tensor(builder: Builder, x: Operand) -> Tensor:
    return x if isinstance(x, Tensor) else whole(builder, flat(builder, x))


def _is(estimator: Any, *names: str) -> bool:
    return any(each.__name__ in names for each in type(estimator).__mro__)


def _reader(estimator: Any) -> Reader:
    kind = type(estimator).__name__
    for each in type(estimator).__mro__:
        if each.__name__ in CONSTANT:
            raise TargetError(
                f"a {kind} is piecewise constant: its predictions jump, and no continuous model computes a jump. Fit a "
                f"continuous model, such as an MLP, to its predictions"
            )
        if each.__name__ in READERS:
            _check_fitted(estimator)
            return READERS[each.__name__]
    _check_fitted(estimator)
    if hasattr(estimator, "coef_") and hasattr(estimator, "intercept_") and hasattr(estimator, "predict"):
        return _linear
    if hasattr(estimator, "get_support"):
        return _selected
    raise TargetError(f"a {kind} of scikit-learn is not read; from_sklearn takes {KNOWN}")


def _check_fitted(estimator: Any) -> None:
    if _is(estimator, "Pipeline", "FeatureUnion", "FunctionTransformer", "Normalizer"):
        return
    if not any(name.endswith("_") and not name.startswith("_") for name in vars(estimator)):
        kind = type(estimator).__name__
        raise TargetError(f"this {kind} is not fitted: call its fit first; from_sklearn takes {KNOWN}")


def _features(estimator: Any) -> int:
    for step in _steps(estimator):
        if _is(step, "Pipeline"):
            return _features(step)
        _reader(step)
        if hasattr(step, "n_features_in_"):
            return int(step.n_features_in_)
    raise TargetError(f"this {type(estimator).__name__} is not fitted: how many features it takes is not known")


def _names(estimator: Any) -> list[str] | None:
    found = getattr(estimator, "feature_names_in_", None)
    return None if found is None else [str(name) for name in found]


# What comes before a model.


def _standard(builder: Builder, x: Tensor, step: Any) -> Operand:
    gain = 1.0 if step.scale_ is None else 1.0 / np.asarray(step.scale_, dtype=np.float64)
    centre = 0.0 if step.mean_ is None else np.asarray(step.mean_, dtype=np.float64)
    return _centred(builder, x, centre if step.with_mean else 0.0, gain)


def _robust(builder: Builder, x: Tensor, step: Any) -> Operand:
    gain = 1.0 if step.scale_ is None else 1.0 / np.asarray(step.scale_, dtype=np.float64)
    return _centred(builder, x, 0.0 if step.center_ is None else step.center_, gain)


def _centred(builder: Builder, x: Tensor, centre: Any, gain: Any) -> Operand:
    """gain (x - centre)."""
    return scale(builder, x, gain, -np.asarray(centre, dtype=np.float64) * gain)


def _min_max(builder: Builder, x: Tensor, step: Any) -> Operand:
    found = scale(builder, x, step.scale_, step.min_)
    return op.clamp(builder, found, *map(float, step.feature_range)) if step.clip else found


def _max_abs(builder: Builder, x: Tensor, step: Any) -> Operand:
    found = scale(builder, x, 1.0 / np.asarray(step.scale_, dtype=np.float64))
    return op.clamp(builder, found, -1.0, 1.0) if getattr(step, "clip", False) else found


def _normalizer(builder: Builder, x: Tensor, step: Any) -> Operand:
    if step.norm == "l2":
        size = op.function(builder, "sqrt", axes.total(builder, op.multiply(builder, x, x), (0,), keep=True))
    else:
        sizes = op.absolute(builder, x)
        over = axes.extreme_over if step.norm == "max" else axes.total
        size = over(builder, sizes, (0,), keep=True)
    return op.divide(builder, x, size)


def _components(builder: Builder, x: Tensor, step: Any) -> Operand:
    """PCA and other projections; whitened ones are divided by their deviations."""
    matrix = step.components_.toarray() if hasattr(step.components_, "toarray") else step.components_
    mean = getattr(step, "mean_", None)
    found = axes.dense(builder, x if mean is None else add(builder, x, mean, -1.0), matrix)
    if getattr(step, "whiten", False):
        found = scale(builder, found, 1.0 / np.sqrt(step.explained_variance_))
    return found


def _polynomial(builder: Builder, x: Tensor, step: Any) -> Operand:
    """All products of powers; each is the product of one that is there already and one input."""
    known: dict[tuple[int, ...], Operand] = {}
    for powers in map(tuple, np.asarray(step.powers_).tolist()):
        known[powers] = _monomial(builder, x, powers, known)
    return joined(builder, [moved(each, np.ravel) for each in known.values()], 0)


def _monomial(builder: Builder, x: Tensor, powers: tuple[int, ...], known: dict[tuple[int, ...], Operand]) -> Operand:
    if not any(powers):
        return np.ones(1)
    place = next(each for each, power in enumerate(powers) if power)
    one = Tensor(x.node, x.places[place : place + 1])
    fewer = tuple(power - (each == place) for each, power in enumerate(powers))
    if not any(fewer):
        return one
    before = known[fewer] if fewer in known else _monomial(builder, x, fewer, known)
    return op.multiply(builder, before, one)


def _selected(builder: Builder, x: Tensor, step: Any) -> Operand:
    chosen = np.asarray(step.get_support())
    return Tensor(x.node, x.places[chosen])


def _same(builder: Builder, x: Tensor, step: Any) -> Operand:
    return x


def _function(builder: Builder, x: Tensor, step: Any) -> Operand:
    if step.func is None:
        return x
    name = {"absolute": "abs"}.get(getattr(step.func, "__name__", ""), getattr(step.func, "__name__", ""))
    if name not in op.UNARY or step.kw_args:
        known = ", ".join(sorted(op.UNARY))
        raise TargetError(f"a FunctionTransformer of {step.func!r} is not read; these functions are: {known}")
    return op.UNARY[name](builder, x)


def _columns(builder: Builder, x: Tensor, step: Any) -> Operand:
    """Each transformer of a ColumnTransformer on its own columns, one after another."""
    found: list[Operand] = []
    names = list(getattr(step, "feature_names_in_", ()))
    for _, each, columns in step.transformers_:
        if isinstance(each, str) and each == "drop":
            continue
        chosen = np.arange(x.size)[columns] if not _are_names(columns) else [names.index(name) for name in columns]
        part = Tensor(x.node, x.places[np.atleast_1d(chosen)])
        if part.size:
            found.append(part if isinstance(each, str) else _model(builder, part, each))
    return joined(builder, found, 0)


def _are_names(columns: Any) -> bool:
    return not isinstance(columns, slice) and any(isinstance(each, str) for each in np.ravel(columns))


def _union(builder: Builder, x: Tensor, step: Any) -> Operand:
    parts = [x if each == "passthrough" else _model(builder, x, each) for _, each in step.transformer_list]
    return joined(builder, parts, 0)


# Models.


def _linear(builder: Builder, x: Tensor, model: Any) -> Operand:
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    bias = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64).ravel(), weights.shape[:1])
    return axes.dense(builder, x, weights, bias)


def _exponential(builder: Builder, x: Tensor, model: Any) -> Operand:
    """A generalised linear model whose mean is the exponential of a linear form, unless its link says otherwise."""
    found = _linear(builder, x, model)
    identity = getattr(model, "link", "auto") == "identity" or getattr(model, "power", 1) <= 0
    return found if identity else op.function(builder, "exp", found)


ACTIVATIONS: dict[str, Callable[[Builder, Operand], Operand]] = {
    "relu": op.relu,
    "identity": lambda builder, x: x,
    "tanh": op.UNARY["tanh"],
    "logistic": op.UNARY["sigmoid"],
}


def _perceptron(builder: Builder, x: Tensor, model: Any) -> Operand:
    if model.activation not in ACTIVATIONS:
        raise TargetError(f"the activation {model.activation!r} is not known; known are {', '.join(ACTIVATIONS)}")
    found: Operand = x
    for index, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        found = ACTIVATIONS[model.activation](builder, found) if index else found
        found = axes.dense(builder, found, weights.T, bias)
    return op.function(builder, "exp", found) if model.out_activation_ == "exp" else found


def _kernel_machine(builder: Builder, x: Tensor, model: Any) -> Operand:
    """A support vector machine of two classes or of regression: a sum of kernels at its support vectors."""
    if len(getattr(model, "classes_", ())) > 2:
        raise TargetError("a support vector machine of more than two classes votes, which jumps; use LinearSVC")
    vectors = np.asarray(model.support_vectors_.toarray() if model._sparse else model.support_vectors_)
    gamma, weights = float(model._gamma), np.asarray(model.dual_coef_.toarray() if model._sparse else model.dual_coef_)
    inner = axes.dense(builder, x, vectors)
    match model.kernel:
        case "linear":
            values = inner
        case "rbf":
            squares = axes.total(builder, op.multiply(builder, x, x), (0,), keep=True)
            apart = add(builder, squares, scale(builder, inner, 2.0), -1.0)
            # A square, so never negative: saying so keeps the exponential below 1.
            apart = op.relu(builder, add(builder, apart, np.sum(vectors**2, axis=1)))
            values = op.function(builder, "exp", scale(builder, apart, -gamma))
        case "poly":
            values = op.power(builder, scale(builder, inner, gamma, model.coef0), model.degree)
        case "sigmoid":
            values = op.function(builder, "tanh", scale(builder, inner, gamma, model.coef0))
        case _:
            raise TargetError(f"the kernel {model.kernel!r} is not read; linear, rbf, poly and sigmoid are")
    return axes.dense(builder, values, weights, model.intercept_)


def _several(name: str) -> Reader:
    """Models side by side, one output (or more) each."""
    return lambda builder, x, model: joined(builder, [_model(builder, x, each) for each in getattr(model, name)], 0)


def _average(builder: Builder, x: Tensor, model: Any) -> Operand:
    chosen = getattr(model, "estimators_features_", [slice(None)] * len(model.estimators_))
    parts_of_x = [Tensor(x.node, x.places[columns]) for columns in chosen]
    found = [_model(builder, part, each) for part, each in zip(parts_of_x, model.estimators_, strict=True)]
    weights = getattr(model, "_weights_not_none", None)
    parts = np.ones(len(found)) if weights is None else np.asarray(weights, dtype=np.float64)
    total: Operand = 0.0
    for each, part in zip(found, parts / parts.sum(), strict=True):
        total = add(builder, total, scale(builder, each, part))
    return total


def _target(builder: Builder, x: Tensor, model: Any) -> Operand:
    """A regressor whose target was scaled: scaled back."""
    found, back = _model(builder, x, model.regressor_), model.transformer_
    if _is(back, "StandardScaler"):
        gain = 1.0 if back.scale_ is None else back.scale_
        return scale(builder, found, gain, 0.0 if back.mean_ is None else back.mean_)
    if _is(back, "MinMaxScaler"):
        return scale(builder, found, 1.0 / back.scale_, -back.min_ / back.scale_)
    name = getattr(getattr(back, "inverse_func", None), "__name__", "")
    if name in op.UNARY:
        return op.UNARY[name](builder, found)
    raise TargetError(f"a target that is transformed by a {type(back).__name__} is not read; scalers and exp are")


READERS: dict[str, Reader] = {
    "Pipeline": _model,
    "StandardScaler": _standard,
    "RobustScaler": _robust,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "Normalizer": _normalizer,
    **dict.fromkeys(("PCA", "IncrementalPCA", "TruncatedSVD", "BaseRandomProjection"), _components),
    "PolynomialFeatures": _polynomial,
    "SimpleImputer": _same,
    "FunctionTransformer": _function,
    "ColumnTransformer": _columns,
    "FeatureUnion": _union,
    **dict.fromkeys(("PoissonRegressor", "GammaRegressor", "TweedieRegressor"), _exponential),
    "BaseMultilayerPerceptron": _perceptron,
    **dict.fromkeys(("SVC", "NuSVC", "SVR", "NuSVR"), _kernel_machine),
    **dict.fromkeys(("MultiOutputRegressor", "OneVsRestClassifier"), _several("estimators_")),
    **dict.fromkeys(("VotingRegressor", "BaggingRegressor"), _average),
    "TransformedTargetRegressor": _target,
}
CONSTANT = (
    *("BaseDecisionTree", "ForestRegressor", "ForestClassifier", "BaseForest", "BaseGradientBoosting"),
    *(
        "KNeighborsMixin",
        "BaseHistGradientBoosting",
        "RadiusNeighborsMixin",
        "BaseWeightBoosting",
        "IsolationForest",
        "NearestCentroid",
    ),
    *("KBinsDiscretizer", "Binarizer", "OneHotEncoder", "OrdinalEncoder"),
)
KNOWN = (
    "fitted MLPs, linear models (with coef_ and intercept_), support vector machines, and Pipelines of them with "
    "scalers, projections (PCA), polynomial features and selected columns"
)


# What is said about the outputs, and how they compare with scikit-learn's own.


def _said(estimator: Any, probabilities: bool) -> list[str]:
    classes = getattr(_last(estimator), "classes_", None)
    if classes is None or not hasattr(_last(estimator), "predict") or isinstance(classes, list):
        return []
    names = [str(each) for each in classes]
    shown = ", ".join(names if len(names) <= 6 else [*names[:3], "...", names[-1]])
    if len(names) == 2:
        score = f"a score: class {names[1]} where it is positive, else class {names[0]}"
        return [f"the output is {f'the probability of class {names[1]}' if probabilities else score}"]
    what = "probabilities" if probabilities else "scores"
    return [f"the outputs are {what} of the classes {shown}: the largest is the prediction"]


def _probabilities(builder: Builder, scores: Operand, estimator: Any) -> Operand:
    last = _last(estimator)
    if not hasattr(last, "predict_proba") or not _is(last, "LogisticRegression", "MLPClassifier"):
        raise TargetError(
            f"a {type(last).__name__} has no probabilities that are read; LogisticRegression and MLPClassifier have"
        )
    if shape_of(scores)[0] == 1 or getattr(last, "out_activation_", "") == "logistic":
        return op.function(builder, "sigmoid", scores)
    return axes.softmax(builder, scores)


def _compared(graph: Graph, estimator: Any, size: int, proba: bool) -> Difference | None:
    """scikit-learn's own outputs beside the graph's."""
    runs = ("predict_proba",) if proba else ("decision_function", "predict", "transform")
    name = next((each for each in runs if hasattr(estimator, each)), None)
    if name is None:
        return None

    def run(inputs: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(getattr(estimator, name)(inputs))
        pair = name == "predict_proba" and graph.nodes[graph.output].size == 1
        return found[:, 1] if pair else found

    runner = "scikit-learn's probabilities" if proba else "scikit-learn's own run"
    return measured(graph, run, runner, np.zeros((0, size)), 2.0**-23 if _is_single(estimator) else 2.0**-52)


def _is_single(estimator: Any) -> bool:
    """Whether some weights are float32, so that a run may be, too."""
    arrays = [value for step in _steps(estimator) for value in vars(step).values()]
    flat_arrays = [each for array in arrays for each in (array if isinstance(array, list) else [array])]
    return any(getattr(each, "dtype", None) == np.float32 for each in flat_arrays)
