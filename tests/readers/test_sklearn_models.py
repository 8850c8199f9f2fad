"""Estimators of scikit-learn become targets. Every reading compares itself with scikit-learn's own outputs, and raises
where they differ by more than rounding: so reading is the test."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import headsmith as hs

pytest.importorskip("sklearn")
from sklearn import (
    compose,
    decomposition,
    ensemble,
    feature_selection,
    linear_model,
    model_selection,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

chain = pipeline.make_pipeline
DIABETES, CANCER, IRIS = (load(return_X_y=True) for load in (load_diabetes, load_breast_cancer, load_iris))


def fitted(estimator: Any, data: tuple[Any, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*data)


def read(estimator: Any, data: tuple[Any, Any], **options: Any) -> hs.Imported:
    found = hs.from_sklearn(fitted(estimator, data), **options)
    assert found.difference is not None
    assert found.difference.largest < 1e-9
    return found


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_perceptrons(activation: str) -> None:
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (40, 2))
    estimator = neural_network.MLPRegressor(hidden_layer_sizes=(4,), activation=activation, max_iter=3, random_state=0)
    fitted(estimator, (points, points[:, 0] - points[:, 1]))
    model = hs.compile(hs.from_sklearn(estimator), (-1, 1), 1e-2)
    gap = np.abs(model(points)[:, 0] - estimator.predict(points)).max()
    assert gap <= model.certificate.error + 1e-12
    for wrong in (hs.compile, hs.Network):
        with pytest.raises(hs.TargetError, match=r"hs\.from_sklearn"):
            wrong(estimator, (-1, 1))


def test_linear_models() -> None:
    for model in (
        *(linear_model.LinearRegression(), linear_model.Lasso(0.1), linear_model.ElasticNet(0.1), linear_model.Ridge()),
        *(linear_model.PoissonRegressor(), linear_model.TweedieRegressor(power=0), svm.LinearSVR(), svm.SVR()),
        compose.TransformedTargetRegressor(linear_model.Ridge(), transformer=preprocessing.StandardScaler()),
        compose.TransformedTargetRegressor(linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1),
        model_selection.GridSearchCV(linear_model.Ridge(), {"alpha": [1, 2]}),
        ensemble.BaggingRegressor(linear_model.Ridge(), 3, max_features=0.5, random_state=0),
    ):
        read(model, DIABETES)


def test_classifiers_give_scores_and_say_what_they_mean() -> None:
    two = read(linear_model.LogisticRegression(), CANCER)
    assert two.notes == ("the output is a score: class 1 where it is positive, else class 0",)
    three = read(svm.LinearSVC(), IRIS)
    assert three.output_shape == (3,)
    assert "classes 0, 1, 2: the largest is the prediction" in three.notes[0]
    for estimator in (linear_model.RidgeClassifier(), svm.SVC(), svm.SVC(kernel="poly"), linear_model.Perceptron()):
        read(estimator, CANCER)
    for data, outputs in ((CANCER, 1), (IRIS, 3)):
        for estimator in (linear_model.LogisticRegression(), neural_network.MLPClassifier((3,), max_iter=3)):
            assert read(estimator, data, probabilities=True).output_shape == (outputs,)
            assert "probabilit" in hs.from_sklearn(estimator, probabilities=True).notes[0]


def test_pipelines_are_followed() -> None:
    ridge, scaler = linear_model.Ridge, preprocessing.StandardScaler
    for estimator in (
        chain(scaler(), linear_model.Ridge()),
        chain(preprocessing.RobustScaler(), decomposition.PCA(3, whiten=True), ridge()),
        chain(preprocessing.MinMaxScaler(clip=True), "passthrough", decomposition.TruncatedSVD(2), ridge()),
        chain(preprocessing.MaxAbsScaler(), chain(scaler(with_mean=False), ridge())),
        chain(preprocessing.Normalizer(), ridge()),
        chain(preprocessing.PolynomialFeatures(3), ridge()),
        chain(feature_selection.SelectKBest(k=2), preprocessing.FunctionTransformer(np.log1p), ridge()),
        chain(pipeline.make_union(scaler(), decomposition.PCA(2)), ridge()),
        chain(compose.make_column_transformer((scaler(), [0, 2]), ("passthrough", [1]), remainder="drop"), ridge()),
    ):
        read(estimator, IRIS)


def test_a_pipeline_predicts_the_same_wherever_the_certificate_says_so() -> None:
    points, labels = CANCER
    estimator = chain(preprocessing.StandardScaler(), neural_network.MLPClassifier((8,), max_iter=30, random_state=0))
    network = read(estimator, CANCER)
    model = hs.compile(network, list(zip(points.min(axis=0), points.max(axis=0), strict=True)), 1e-3)
    scores = model(points)[:, 0]
    decided = np.abs(scores) > model.certificate.error
    assert decided.mean() > 0.99
    assert ((scores > 0) == estimator.predict(points))[decided].all()
    assert ((scores > 0) == labels).mean() > 0.9


@pytest.mark.parametrize(
    "estimator",
    [
        tree.DecisionTreeRegressor(),
        ensemble.RandomForestRegressor(2),
        ensemble.HistGradientBoostingRegressor(max_iter=2),
        neighbors.KNeighborsRegressor(),
        chain(preprocessing.StandardScaler(), ensemble.GradientBoostingRegressor(n_estimators=2)),
    ],
)
def test_what_is_piecewise_constant_is_refused_with_the_reason(estimator: Any) -> None:
    with pytest.raises(hs.TargetError, match="piecewise constant: its predictions jump"):
        hs.from_sklearn(fitted(estimator, IRIS))


def test_what_is_not_read_is_told_so() -> None:
    with pytest.raises(hs.TargetError, match="Ridge is not fitted"):
        hs.from_sklearn(linear_model.Ridge())
    with pytest.raises(hs.TargetError, match="PowerTransformer of scikit-learn is not read"):
        hs.from_sklearn(fitted(chain(preprocessing.PowerTransformer(), linear_model.Ridge()), IRIS))
    with pytest.raises(hs.TargetError, match="votes, which jumps"):
        hs.from_sklearn(fitted(svm.SVC(), IRIS))
    with pytest.raises(hs.TargetError, match="no estimator"):
        hs.from_sklearn("x")
