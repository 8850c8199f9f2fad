"""A formula and two ReLU networks become softmax transformers: two to look at, a large one to see what it costs.

Writes the models and their pictures to out/ (or to the folder given as the first argument). Without matplotlib there
are no pictures; everything else is the same.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console

import headsmith as hs
from headsmith.core.errors import HeadsmithError
from headsmith.core.figures import bound, number
from headsmith.core.pictures import figure_class
from headsmith.language.evaluation import evaluate
from headsmith.report.certificate import certificate_table
from headsmith.report.falsify import falsify
from headsmith.report.plots import plot
from headsmith.report.tables import bill_table, found_table, plan_table

console = Console(highlight=False, soft_wrap=True)


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
    name: str,
    target: str | hs.Network,
    domain: tuple[float, float],
    error: float,
    effort: int,
    folder: Path,
    pictures: bool,
    words: bool,
) -> None:
    """Compile, show certificate and bill, look inside, run, attack, save, verify, draw."""
    start = time.perf_counter()
    model = hs.compile(target, domain, error)
    console.print(f"Compiled and certified in {time.perf_counter() - start:.2f} s.\n")
    console.print(certificate_table(model.certificate), "", bill_table(model.bill), sep="\n")
    if words:
        console.print("\nThe same model, told in words (model.explain(heads=3)):\n")
        console.print("\n".join(f"  {line}" for line in model.explain(heads=3).splitlines()), markup=False)

    inputs = np.random.default_rng(1).uniform(*domain, (3, model.box.size))
    console.print("\nIt runs. Three random inputs, first output of each:")
    for wanted, got in zip(evaluate(model.graph, inputs)[:, 0], model(inputs)[:, 0], strict=True):
        console.print(f"  target {wanted: .9f}   transformer {got: .9f}   difference {got - wanted: .1e}")

    console.print("\nA search for the worst input finds none beyond the bound:")
    found = falsify(model, effort=effort)
    console.print(found_table(found, model.certificate))
    file, picture = folder / f"{name}.safetensors", folder / f"{name}.png"
    model.save(file)
    proven = hs.verify(file)
    console.print(f"\nsaved to {file}; verified again from the file: error {bound(proven.error)}")
    if pictures:
        plot(model, picture, found=found)
        console.print(f"drawn into {picture}")
    console.print("")


def can_draw() -> bool:
    """Whether there will be pictures; if not, say so at once."""
    try:
        figure_class()
    except HeadsmithError as problem:
        console.print(f"No pictures: {problem}\n", markup=False)
        return False
    return True


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    folder.mkdir(parents=True, exist_ok=True)
    console.print(
        "Headsmith turns a formula or a network into a softmax transformer: attention alone, weights that are computed "
        "and not\ntrained, and a proof of how far the result can be from the target.\n"
    )
    pictures = can_draw()

    formula = "exp(-x)*sin(3*x)"
    console.rule(f"1. A formula: {formula} for x in [0, 3], error 0.0001")
    show("formula", formula, (0.0, 3.0), 1e-4, effort=4000, folder=folder, pictures=pictures, words=True)
    console.print("How much is enough? The relu recipe makes every operation a circuit of ReLU gates, a head each.")
    console.print("Table heads do the whole formula at once:\n")
    rows = hs.plan(formula, (0.0, 3.0), errors=[1e-2, 1e-4])
    console.print(plan_table([row for row in rows if row.pareto or row.recipe == "relu"]))

    small = random_network(2, 16, 16, 1)
    console.rule("2. A small ReLU network, 2-16-16-1, on [-1, 1], error 0.001")
    console.print("Every gate that can be open or closed on the domain becomes one head; the others vanish.")
    show("small", small, (-1.0, 1.0), 1e-3, effort=8000, folder=folder, pictures=pictures, words=False)

    large = random_network(784, 1024, 1024, 1024, 10)
    console.rule("3. A large one, 784-1024-1024-1024-10, on [0, 1], error 0.001")
    console.print(f"{number(large.parameters)} parameters. The proof covers every input of the box, not a sample.")
    show("large", large, (0.0, 1.0), 1e-3, effort=600, folder=folder, pictures=pictures, words=False)

    what = "models and pictures" if pictures else "models"
    console.print(f"All {what} are in {folder}. Next: headsmith --help, README.md.")


if __name__ == "__main__":
    main()
