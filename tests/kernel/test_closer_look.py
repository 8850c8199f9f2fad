"""The closer look of rule Arrive: how far a node is off, by gains to it, whatever else a proof says.

Gains to a node that is no output of the circuit take that node for the output: nobody reads it, and an error of it
moves it by itself. So a step or a power that a proof names says nothing about how far its own node, or one that it has
nothing to do with, is off. Each file here has a table that is wrong by far more than the margin of the next one, and a
step or power beside it; without either it is refused, and with it, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.models.carried import carried

import headsmith as hs
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import ThinMargin


class Changed:
    """A compiled model whose file is changed by hand."""

    def __init__(self, program: Any, features: int) -> None:
        compiled = hs.compile_sequence(program, tokens=2, features=features, domain=(-1, 1), error=1e-4)
        self.header, self.tensors = carried(compiled)
        self.proof = self.header["proof"]
        self.nodes = self.proof["circuit"]["nodes"]
        self.spoiled, self.by = "", 0.0  # the tensor of the first bank that will be changed, and by how much

    def keep(self, values: Any) -> str:
        """The name of a new tensor."""
        self.tensors[f"more.{len(self.tensors)}"] = np.array(values, dtype=np.float64)
        return f"more.{len(self.tensors) - 1}"

    def affine(self, terms: list[tuple[int, Any]], bias: float = 0.0) -> dict[str, Any]:
        """A node of size 1."""
        stored = [{"node": node, "weights": self.keep(weights)} for node, weights in terms]
        return {"kind": "affine", "terms": stored, "bias": self.keep([bias])}

    def product(self, left: int, right: int) -> int:
        """A product that nobody computes, as a region of a margin that stands for another such product."""
        first = len(self.nodes)
        twice = [{"kind": "product", "left": left, "right": right, "size": 1}] * 2
        self.nodes += [*twice, self.affine([(first + 1, [1.0])])]
        self.proof["regions"] += [{"output": first + 2, "stands_for": first, "margin": 1e-3}]
        return first + 2


def step_beside() -> Changed:
    """sin(mean(exp(x))), whose exp will be wrong by 0.5; and w - 0.5 mean(x (x w + 0.1)), which nobody needs."""
    file = Changed(lambda x: hs.sin(hs.tokens.mean(hs.exp(x))), 1)
    file.spoiled, file.by = "layers.0.0.values", 0.5
    first = len(file.nodes)
    file.nodes += [file.affine([(0, [[1.0]])]), file.affine([], 0.5)]
    file.nodes += [file.affine([(file.product(first + 1, first), [[1.0]])], 0.1)]
    gradient = file.product(len(file.nodes) - 1, first)
    file.nodes += [{"kind": "pool", "of": "mean", "argument": gradient, "size": 1, "causal": False}]
    file.nodes += [file.affine([(first + 1, [1.0]), (gradient + 1, [-0.5])])]
    file.proof["steps"] = [len(file.nodes) - 1]
    return file


def power_before() -> Changed:
    """sin(0.5 mean(x y)), whose product will be wrong by up to 0.5; 0.5 mean(x y) is a power w_0, of a copy of y."""
    file = Changed(lambda x: hs.sin(0.5 * hs.tokens.mean(x[:, 0] * x[:, 1])), 2)
    file.spoiled, file.by = "layers.0.0.offset", -0.004
    # The copy is the new node 3: what reads nodes from 3 on, and the right factor, read one further.
    for node in file.nodes[3:]:
        for place, argument in enumerate(node.get("arguments", ())):
            node["arguments"][place] += argument >= 2
        for term in node.get("terms", ()):
            term["node"] += term["node"] >= 2
        node |= {key: node[key] + (node[key] >= 2) for key in ("left", "right", "argument") if key in node}
    file.nodes.insert(3, file.affine([(2, [[1.0]])]))
    file.proof["circuit"]["output"] += 1
    for table in file.proof["tables"]:
        table["node"] += 1
    for region in file.proof["regions"]:
        region |= {"output": region["output"] + 1, "stands_for": region["stands_for"] + 1}
    for (role,) in file.proof["roles"]:
        file.tensors[role["node"]] = file.tensors[role["node"]] + 1
    file.proof["powers"] = [number for number, node in enumerate(file.nodes) if _after_a_pool(file.nodes, node)]
    return file


def _after_a_pool(nodes: list[Any], node: Any) -> bool:
    return node["kind"] == "affine" and any(nodes[term["node"]]["kind"] == "pool" for term in node["terms"])


@pytest.mark.parametrize("make", [step_beside, power_before], ids=lambda make: make.__name__)
def test_a_step_or_power_hides_no_error_from_the_next_table(make: Any) -> None:
    """Theorem: the last table reads something that is off by more than its margin, so nothing is known of it."""
    file = make()
    assert file.proof["steps"] or file.proof["powers"]
    assert proved(file.header, file.tensors).error < 1e-4, "the proof is a good one, as long as the heads are"
    file.tensors[file.spoiled] = file.tensors[file.spoiled] + file.by
    file.proof["tables"][-1]["margin"] = 1e-6
    named = {name: file.proof[name] for name in ("steps", "powers")}
    for lists in ({"steps": [], "powers": []}, named):
        file.proof |= lists
        with pytest.raises(ThinMargin, match="more than the margin 1e-06"):
            proved(file.header, file.tensors)
