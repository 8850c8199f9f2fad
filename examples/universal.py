"""Any function, from its values: a grid that is as fine as a bound of its second derivatives asks for."""

import math

from show import show

import headsmith as hs


def wave(x: float, y: float) -> float:
    return math.sin(2 * x + y)


made = hs.approximate(wave, {"x": (-1, 1), "y": (-1, 1)}, error=2e-2, hessian=[[4, 2], [2, 1]])
print(f"wave(0.3, -0.7) = {wave(0.3, -0.7):.6f}, the transformer {made(x=0.3, y=-0.7):.6f}")
print(f"{made.grid.nodes} values, {made.bill.heads} heads, error {made.error:.6g}")
print(f"proven: {made.proven}")
print(f"assumed: {made.assumed}")
show(made.model)
