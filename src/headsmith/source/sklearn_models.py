"""Models of scikit-learn as targets; scikit-learn itself is not imported: whoever has a model has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from headsmith.core.errors import TargetError
from headsmith.source.foreign import family_of
from headsmith.source.graph import Builder, Graph
from headsmith.source.network import Network

ACTIVATIONS = {"relu": "relu", "identity": "", "tanh": "tanh", "logistic": "sigmoid"}


def from_sklearn(estimator: Any) -> Network | Graph:
    """A fitted MLPRegressor, MLPClassifier or linear model of scikit-learn as a target that `hs.compile` takes.

    A classifier's outputs are its scores, before the softmax or the sigmoid: what `decision_function` gives, or
    `predict_proba` is made of. Weights are taken as they are, as doubles.
    """
    kind = type(estimator).__name__
    if family_of(estimator) != "sklearn":
        raise TargetError(f"a {kind} is no estimator of scikit-learn")
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())] or None
    if hasattr(estimator, "coefs_"):
        layers = [(weights.T, bias) for weights, bias in zip(estimator.coefs_, estimator.intercepts_, strict=True)]
        return _perceptron(Network(layers, names, transposed=False), str(estimator.activation))
    if hasattr(estimator, "coef_") and hasattr(estimator, "intercept_"):
        weights = np.atleast_2d(np.asarray(estimator.coef_))
        if weights.ndim == 2 and hasattr(estimator, "predict"):
            bias = np.broadcast_to(np.asarray(estimator.intercept_).ravel(), weights.shape[:1])
            return Network([(weights, bias)], names, transposed=False)
    known = "fitted MLPRegressor, MLPClassifier and linear models (with coef_ and intercept_)"
    if not any(name.endswith("_") and not name.startswith("_") for name in vars(estimator)):
        raise TargetError(f"this {kind} is not fitted: call its fit first; from_sklearn takes {known}")
    raise TargetError(f"a {kind} of scikit-learn is not read; from_sklearn takes {known}")


def _perceptron(network: Network, activation: str) -> Network | Graph:
    """The same layers with another function between them."""
    if activation not in ACTIVATIONS:
        raise TargetError(f"the activation {activation!r} is not known; known are {', '.join(ACTIVATIONS)}")
    if activation == "relu":
        return network
    builder = Builder(network.names)
    node = builder.input
    for index, (weights, bias) in enumerate(network.layers):
        if index and ACTIVATIONS[activation]:
            node = builder.function(ACTIVATIONS[activation], node)
        node = builder.affine([(node, weights)], bias)
    return builder.graph(node)
