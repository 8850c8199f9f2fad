"""A formula and two ReLU networks become softmax transformers: two to look at, a large one to see what it costs.

Writes the models and their pictures to out/ (or to the folder given as the first argument).
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console

import headsmith as hs
from headsmith.core.figures import bound
from headsmith.report.falsify import falsify
from headsmith.report.plots import plot
from headsmith.report.tables import bill_table, certificate_table, found_table
from headsmith.source.evaluation import evaluate

console = Console(highlight=False)


def random_network(*widths: int, seed: int = 0) -> hs.Network:
    """A network as it comes from the usual initialisation."""
    random = np.random.default_rng(seed)
    return hs.Network(
        [
            (random.normal(size=(after, before)) * np.sqrt(2.0 / before), 0.1 * random.normal(size=after))
            for before, after in pairwise(widths)
        ]
    )


def show(
    name: str, target: str | hs.Network, domain: tuple[float, float], error: float, effort: int, folder: Path
) -> None:
    """Compile, show certificate and bill, run, attack, save, verify, draw."""
    console.rule(f"{target} on [{domain[0]:g}, {domain[1]:g}], error {error:g}")
    start = time.perf_counter()
    model = hs.compile(target, domain, error)
    console.print(f"compiled and certified in {time.perf_counter() - start:.2f} s\n")
    console.print(certificate_table(model.certificate), "", bill_table(model.bill), sep="\n")

    inputs = np.random.default_rng(1).uniform(*domain, (3, model.box.size))
    console.print("\nThree random inputs, first output of each:")
    for wanted, got in zip(evaluate(model.graph, inputs)[:, 0], model(inputs)[:, 0], strict=True):
        console.print(f"  target {wanted: .9f}   transformer {got: .9f}   difference {got - wanted: .1e}")

    console.print("")
    found = falsify(model, effort=effort)
    console.print(found_table(found, model.certificate))
    file, picture = folder / f"{name}.safetensors", folder / f"{name}.png"
    model.save(file)
    proven = hs.verify(file)
    console.print(f"\nsaved to {file}; verified again from the file: error {bound(proven.error)}")
    plot(model, picture, found=found)
    console.print(f"drawn into {picture}\n")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    folder.mkdir(parents=True, exist_ok=True)
    show("formula", "exp(-x)*sin(3*x)", (0.0, 3.0), 1e-4, effort=4000, folder=folder)
    show("small", random_network(2, 16, 16, 1), (-1.0, 1.0), 1e-3, effort=8000, folder=folder)
    show("large", random_network(784, 1024, 1024, 1024, 10), (0.0, 1.0), 1e-3, effort=600, folder=folder)


if __name__ == "__main__":
    main()
