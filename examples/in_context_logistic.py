"""Logistic regression in context: a transformer learns from examples which tumours are benign, in a forward pass.

The features are the first three principal components of the breast cancer data, scaled to [-1, 1]. The context is every
fourth of its 569 tumours; predictions are about all of them.
"""

import numpy as np
from show import scikit_learn, show

from headsmith.sequence import in_context

load_breast_cancer, PCA, LogisticRegression = scikit_learn(
    "datasets.load_breast_cancer", "decomposition.PCA", "linear_model.LogisticRegression"
)

X, y = load_breast_cancer(return_X_y=True)
X = PCA(3).fit_transform((X - X.mean(axis=0)) / X.std(axis=0))
X = X / np.abs(X).max(axis=0)
shown, labels = X[::4], y[::4]

decay = 0.2
learner = in_context.logistic(steps=16, features=3, examples=len(shown), decay=decay, error=1e-4)
scores, exact = learner.predict(shown, labels, X), learner.exact(shown, labels, X)
estimator = LogisticRegression(C=1 / (len(shown) * decay), fit_intercept=False, tol=1e-12, max_iter=10_000)
estimator.fit(shown, labels)
theirs = estimator.decision_function(X)

print(f"right about {np.mean((scores > 0) == y):.1%} of the tumours; scikit-learn: {estimator.score(X, y):.1%}")
print(f"same class as scikit-learn's: {np.mean((scores > 0) == (theirs > 0)):.1%}")
print(f"scores differ by {np.abs(scores - theirs).max():.2g}, of a spread of {theirs.std():.2g}")
print(f"  of which finitely many steps: {np.abs(exact - theirs).max():.2g}")
print(f"  and the transformer:          {np.abs(scores - exact).max():.2g}")
print(f"worst error found on this context: {np.abs(scores - exact).max():.3g}")
show(learner)
