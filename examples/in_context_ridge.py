"""Ridge regression in context: a transformer fits the diabetes data that it is shown, and nobody trained it.

The context is 111 of its 442 patients, ten features each, scaled to [-1, 1]; predictions are about all of them. Every
step of gradient descent is three layers.
"""

import numpy as np
from show import scikit_learn, show

from headsmith.sequence import in_context

load_diabetes, Ridge = scikit_learn("datasets.load_diabetes", "linear_model.Ridge")

X, y = load_diabetes(return_X_y=True)
X, y = X - X.mean(axis=0), y - y.mean()
X, y = X / np.abs(X).max(axis=0), y / np.abs(y).max()
shown, labels = X[::4], y[::4]
patients, features = shown.shape

decay = 2.0
learner = in_context.ridge(decay, steps=22, features=features, examples=patients, error=1e-4)
predicted, exact = learner.predict(shown, labels, X), learner.exact(shown, labels, X)
theirs = Ridge(alpha=decay * patients, fit_intercept=False).fit(shown, labels).predict(X)

spread = theirs.std()
print(f"{learner.rule.steps} steps on {patients} examples with {features} features")
print("from scikit-learn's Ridge, in units of the spread of its predictions:")
print(f"  altogether:                   {np.abs(predicted - theirs).max() / spread:.2g}")
print(f"  of which finitely many steps: {np.abs(exact - theirs).max() / spread:.2g}")
print(f"  and the transformer:          {np.abs(predicted - exact).max() / spread:.2g}")
print(f"worst error found on this context: {np.abs(predicted - exact).max():.3g}")
few = learner.predict(X[:20], y[:20], X[:3])
print("the same transformer, shown 20 patients:", np.round(few, 4))
show(learner)
