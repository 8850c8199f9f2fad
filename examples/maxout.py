"""A maxout network: for a unit of rank k, k - 1 heads in ceil(log2 k) layers."""

import numpy as np
from show import show

import headsmith as hs

random = np.random.default_rng(0)
network = hs.MaxoutNetwork(
    [
        (random.normal(size=(4, 8, 2)) / 2, random.normal(size=(4, 8)) / 2),  # rank 4, 2 inputs, 8 units
        (random.normal(size=(3, 8, 8)) / 8, random.normal(size=(3, 8)) / 2),  # rank 3, 8 units
        (random.normal(size=(1, 8)), [0.0]),  # affine, 1 output
    ]
)
model = hs.compile(network, domain=(-1, 1), error=1e-4)
point = [0.3, -0.7]
print(f"{network} at {point}: {float(network(point)[0]):.6f}, the transformer {float(model(point)[0]):.6f}")
print(f"{network.parameters} parameters became {model.bill.nonzeros} non-zero weights")
show(model)
