"""Nearest neighbours in context: softmax attention is a kernel mean, so two layers look up the label of a digit.

Where the nearest example is nearer than the second by the gap, the prediction is within the error of its label, and the
certificate says so for every context and query in the domain.
"""

import numpy as np
from show import scikit_learn, show

from headsmith.sequence import in_context

load_digits, KNeighborsRegressor = scikit_learn("datasets.load_digits", "neighbors.KNeighborsRegressor")
pixels, digits = load_digits(return_X_y=True)
pixels, digits = pixels / 16.0, digits.astype(float)
shown, asked = slice(0, 200), slice(200, 400)

learner = in_context.nearest_neighbour(64, 200, gap=0.1, domain=(0, 1), labels=(0, 9), error=1e-3)

theirs = KNeighborsRegressor(1).fit(pixels[shown], digits[shown])
away = theirs.kneighbors(pixels[asked], 2)[0] ** 2
clear = away[:, 1] - away[:, 0] >= 0.1
found = learner.predict(pixels[shown], digits[shown], pixels[asked])
off = np.abs(found - theirs.predict(pixels[asked]))[clear].max()
print(f"{clear.sum()} of {len(clear)} queries have a clear neighbour: there it is scikit-learn's")
right = np.mean(np.round(found) == digits[asked])
print(f"{right:.0%} of all {len(found)} digits are read correctly")
print(f"worst error found at clear queries: {off:.1e}")
assert off <= 1e-3
show(learner)

smooth = in_context.kernel_regression(0.3, 64, 200, domain=(0, 1), labels=(0, 9), error=1e-3)
gap = smooth.predict(pixels[shown], digits[shown], pixels[asked]) - smooth.exact(
    pixels[shown], digits[shown], pixels[asked]
)
print(f"kernel regression: {smooth.bill.layers} layers, {smooth.bill.heads} heads, {abs(gap).max():.1e} from exact")
assert abs(gap).max() <= smooth.certificate.error
