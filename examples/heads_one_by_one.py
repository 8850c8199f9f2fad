"""Every head kind on its own: the smallest transformers that average, take a maximum, move, multiply and clamp."""

import numpy as np
from show import show

import headsmith as hs
from headsmith.core.balls import boltzmann_constant
from headsmith.lab import heads as head_models
from headsmith.run.numpy_runner import run
from headsmith.transformer.heads.move import permutation_address
from headsmith.transformer.heads.ramp import ramp_error
from headsmith.transformer.ir import Transformer

sequence = np.array([[[1.0], [5.0], [3.0], [4.0]]])  # one sequence of four tokens, one number each


def after(model: Transformer) -> str:
    """What every token holds afterwards."""
    return " ".join(f"{value:.4f}" for value in run(model, sequence)[0, :, 0])


print("four tokens hold 1 5 3 4; afterwards every token holds")
print(f"  mean               {after(head_models.mean(4))}")
print(
    f"  boltzmann, b = 50  {after(head_models.boltzmann(4, 50.0))}   "
    f"within {boltzmann_constant(4) / 50.0:.3g} of the maximum"
)
print(f"  boltzmann, b = -50 {after(head_models.boltzmann(4, -50.0))}   and of the minimum")
print(f"  move from the left {after(head_models.move(4, 1))}")
print(f"  move to reverse    {after(head_models.move(4, address=permutation_address([3, 2, 1, 0])))}")
print(f"  ramp from 2 to 4   {after(head_models.ramp(2.0, 4.0, 16, tokens=4))}   16 reference tokens")
print(f"  the same, by 8     {after(head_models.ramp(2.0, 4.0, 4, heads=8))}   heads, and the data tokens as the grid")
for grid in (4, 16, 64):
    step = 2.0 / (grid - 1)
    print(f"    {grid:2d} tokens: within {ramp_error(grid) * step:.5f} of clamp(x; 2, 4), proven")

pairs = np.array([[[0.3, -0.7]], [[-1.0, 0.25]]])  # two sequences of one token, which holds x and y
for grid in (1, 2, 3, 4):
    products = run(head_models.gate_product(grid=grid), pairs)[:, 0, 0]
    print(f"  gate product, {grid} grid tokens: 0.3 * -0.7 = {products[0]:.9f}, -1 * 0.25 = {products[1]:.9f}")

print("\nthe same gate head, chosen by the compiler, with its certificate:")
show(hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6))
