"""Newton's iteration in context: 512 steps of gradient descent in twelve layers.

With little regularisation gradient descent needs hundreds of steps, three layers each. Squaring the matrix of a step
doubles the number of steps that a layer takes, and the certificate knows how errors travel through that. The context is
every fourth patient of the diabetes data; predictions are about all of them.
"""

import numpy as np
from show import scikit_learn, show

from headsmith.sequence import in_context

load_diabetes, PCA, Ridge = scikit_learn("datasets.load_diabetes", "decomposition.PCA", "linear_model.Ridge")

X, y = load_diabetes(return_X_y=True)
X, y = PCA(3).fit_transform(X), y - y.mean()
X, y = X / np.abs(X).max(axis=0), y / np.abs(y).max()
shown, labels = X[::4], y[::4]
patients, features = shown.shape

decay = 0.01
newton = in_context.newton(decay, doublings=9, features=features, examples=patients, error=1e-5)
theirs = Ridge(alpha=decay * patients, fit_intercept=False).fit(shown, labels).predict(X)
print(f"{newton.rule.steps} steps of gradient descent in {newton.bill.layers} layers")
ours = newton.predict(shown, labels, X)
print(f"from scikit-learn's Ridge: {np.abs(ours - theirs).max() / theirs.std():.1e} of its spread")

few = in_context.ridge(decay, steps=4, features=features, examples=patients, error=1e-4)
print(f"gradient descent, {few.rule.steps} steps in as many layers ({few.bill.layers}):", end=" ")
print(f"{np.abs(few.predict(shown, labels, X) - theirs).max() / theirs.std():.1e} of its spread")
show(newton)
