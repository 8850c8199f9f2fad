"""Smoothing a sequence: the mean of the last four tokens. Each neighbour is fetched by one head, all in one layer."""

import numpy as np
from show import show

from headsmith.sequence import tokens
from headsmith.sequence.compiled import compile_sequence


def smooth(x):  # type: ignore[no-untyped-def]
    return tokens.moving_average(x[:, 0], 4)


model = compile_sequence(smooth, tokens=64, features=1, domain=(-1, 1), error=1e-9, causal=True)
steps = np.sign(np.sin(np.arange(12)))
print("in: ", steps)
print("out:", np.round(model(steps)[:, 0], 3))
show(model)
