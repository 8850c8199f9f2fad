"""Sorting the tokens of a sequence: a sorting network, in which each stage is a move head and two gates."""

import numpy as np
from show import show

from headsmith.sequence import tokens
from headsmith.sequence.compiled import compile_sequence


def ascending(x):  # type: ignore[no-untyped-def]
    return tokens.sort(x[:, 0])


model = compile_sequence(ascending, tokens=8, features=1, domain=(0, 10), error=1e-6)
print("3 1 4 1 5 9 2 6 sorted:", np.round(model([3, 1, 4, 1, 5, 9, 2, 6])[:, 0], 6))
found, cache = model.run([3, 1, 4, 1, 5, 9, 2, 6], cache=True)
print("intermediates:", len(cache), "by name, for example", next(name for name in cache if "sink" in name))
show(model)
