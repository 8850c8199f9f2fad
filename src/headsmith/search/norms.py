"""Diagonals for the rule Norm (kernel/norms.py): how much each gate counts in a 2-norm of errors.

Closed forms. With N = A Y A^T, what errors before a layer make of its arguments, and |N| its largest eigenvalue:

    flat     B = |N|: the errors grow by the norm of the weights, layer by layer
    dense    L = 2 / |N|: then G = (L - L N L / 4)^-1 <= |N|, so dense is never worse, and better in most directions

`scaled` versions take a diagonal d in place of the identity: |d^-1/2 N d^-1/2| d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headsmith.kernel.arithmetic import Array
from headsmith.kernel.errors import Refused
from headsmith.kernel.graph import Graph
from headsmith.kernel.norms import Carried, norms_of

WIDE = 400
"""Layers of more gates are flat: dense ones take a few products of matrices."""
ROOM = 1e-6


def find_norms(circuit: Graph, edges: Mapping[int, Sequence[Any]], gates: Sequence[int]) -> dict[int, Carried]:
    """Diagonals for nodes whose gates have heads, and for the input if its errors count; {} where there are no two
    layers, or where norms do not follow the circuit."""
    found: dict[int, Carried] = {}

    def choose(number: int, arriving: Array | None) -> Carried:
        size = circuit.nodes[number].size
        if arriving is None:
            found[number] = Carried(np.ones(size), False)
        else:
            flat = size > WIDE
            largest = float(np.linalg.eigvalsh(arriving)[-1]) * (1.0 + ROOM) + 1e-300
            found[number] = Carried(np.full(size, largest if flat else 2.0 / largest), flat)
        return found[number]

    try:
        known = norms_of(circuit, edges, set(gates), choose)
    except (Refused, np.linalg.LinAlgError):
        return {}
    return found if circuit.output in known.heights and len(found) > 1 else {}
