"""What training found, beside what was built: one row for each run, as a table, LaTeX, csv, JSON or a picture."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headsmith.core import figures
from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.core.folders import write_text
from headsmith.core.markup import csv_text, latex_table, markdown_table, plain_table
from headsmith.lab.training.cases import Case
from headsmith.lab.training.measure import Kick

COLUMNS = (
    "start",
    "method",
    "seed",
    "rate",
    "found",
    "rms",
    "certified",
    "verdict",
    "circuit",
    "distance",
    "max_weight",
    "max_score",
    "sharpness",
)
"""What a row shows; `found` and all that follows but `certified` are estimates."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run. `found` is the largest error that a search finds, at the input `worst` (an estimate), `certified` what
    is proven of it in float64, or None where nothing was proven; `verdict` compares the latter, or else the
    former, with the certificate of the built model; `distance` is that of attention patterns, None for another shape.
    `stages` has the largest error after each stage; `curve` its points, (step, root mean square, largest error on
    training points)."""

    start: str
    method: str
    seed: int | None
    rate: float | None
    found: float
    rms: float
    certified: float | None
    verdict: str
    circuit: str
    distance: float | None
    max_weight: float
    max_score: float
    sharpness: float
    stages: Mapping[str, float]
    seconds: float
    digest: str
    worst: Array
    curve: Array = field(repr=False)
    weights: Array = field(repr=False)

    @property
    def reached(self) -> float:
        """What the verdict is about: the proven bound, or what was found where nothing is proven."""
        return self.found if self.certified is None else self.certified


def verdict_of(reached: float, before: float) -> str:
    """What training made of a certificate: improved it, kept it (within 5 %), loosened it (to twice), or lost it."""
    share = reached / before if before > 0.0 else math.inf
    return "improved" if share < 0.95 else "kept" if share <= 1.05 else "loosened" if share <= 2.0 else "lost"


@dataclass(frozen=True, eq=False)
class Training:
    """All runs of one target. `error` is the certificate of the built model, `kick` what theory says of training from
    its weights. `settings`, `environment` and `digest` (of the inputs) say what a rerun needs; on the same machine it
    has equal bits."""

    case: Case = field(repr=False)
    runs: tuple[Run, ...]
    kick: Kick | None
    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    digest: str

    @property
    def error(self) -> float:
        """The certified error of the built model."""
        return self.case.error

    @property
    def median(self) -> float:
        """The median of the largest errors of runs from random weights: an estimate."""
        return float(np.median([run.found for run in self._random]))

    @property
    def best_run(self) -> Run:
        """The run with the least error: certified where that is known, found elsewhere."""
        return min(self.runs, key=lambda run: run.reached)

    @property
    def best(self) -> Any:
        """The model of the best run, a torch module. It carries no certificate but the one of its row."""
        return self.module(self.best_run)

    def module(self, run: Run) -> Any:
        """The model of a run, a torch module."""
        return self.case.module(run.weights)

    @property
    def _random(self) -> list[Run]:
        found = [run for run in self.runs if run.start == "random"]
        if not found:
            raise TargetError('no run started from random weights: add "random" to starts')
        return found

    def summary(self) -> list[str]:
        """What came out, in sentences."""
        built = f"built: certified {figures.bound(self.error)} with {self.case.parameters:,} weights of this shape"
        if self.case.compiled is None:
            built = (
                f"built, in a shape of its own: certified {figures.bound(self.error)}; trained: "
                f"{self.case.parameters:,} weights"
            )
        lines = [built + f" ({self.case.target})"]
        random = [run.found for run in self.runs if run.start == "random"]
        if random:
            times = self.median / self.error if self.error else math.inf
            lines.append(
                f"trained from random weights, {figures.count(len(random), 'seed')}: best {min(random):.2e}, median "
                f"{self.median:.2e} (estimates), {times:.3g} times the certificate"
            )
        if self.kick is not None:
            moves = ", ".join(f"{rate:g} gives {move:.2e}" for rate, move in self.kick.moves.items())
            lines.append(
                f"predicted before training: one step of Adam from the built weights at rate {moves}; the certificate "
                f"survives steps of {self.kick.budget:.1e} in all; gradient descent rests below rate "
                f"{self.kick.rests_below:.1e}"
            )
        return lines

    def table(self) -> str:
        """What came out, and every run, as text for a terminal."""
        return "\n".join([*self.summary(), "", plain_table(COLUMNS, self._cells())])

    def markdown(self) -> str:
        """Every run as a Markdown table."""
        return markdown_table(COLUMNS, self._cells())

    def latex(self, caption: str = "") -> str:
        """Every run as a LaTeX table (booktabs)."""
        return latex_table([name.replace("_", " ") for name in COLUMNS], self._cells(), caption or self.summary()[0])

    def csv(self) -> str:
        """Every run, numbers in full."""
        return csv_text(COLUMNS, [[getattr(run, name) for name in COLUMNS] for run in self.runs])

    def data(self) -> dict[str, Any]:
        """All of it for JSON, but weights and curves."""
        hidden = ("curve", "weights")
        runs = [{name: each for name, each in vars(run).items() if name not in hidden} for run in self.runs]
        return {
            "target": self.case.target,
            "error": self.error,
            "parameters": self.case.parameters,
            "student": asdict(self.case.student),
            "kick": self.kick,
            "settings": dict(self.settings),
            "environment": dict(self.environment),
            "digest": self.digest,
            "runs": runs,
        }

    def plot(self, file: str | os.PathLike[str]) -> None:
        """Draw error against steps, with the certificate and the kick, into a .png, .svg or .pdf file."""
        from headsmith.lab.training.draw import draw_training

        draw_training(self, file)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write training.json, runs.csv, and the best model for `hs.run.torch_model.load` (config.json and
        model.safetensors, which carry no certificate)."""
        from safetensors.numpy import save_file

        from headsmith.report.data import as_data

        os.makedirs(folder, exist_ok=True)
        best = self.best
        write_text(os.path.join(folder, "training.json"), json.dumps(as_data(self.data()), indent=1) + "\n")
        write_text(os.path.join(folder, "runs.csv"), self.csv())
        write_text(os.path.join(folder, "config.json"), json.dumps(best.config, indent=1) + "\n")
        tensors = {name: np.ascontiguousarray(each.detach().numpy()) for name, each in best.state_dict().items()}
        save_file(tensors, os.path.join(folder, "model.safetensors"))

    def _cells(self) -> list[Sequence[str]]:
        return [[_cell(name, getattr(run, name)) for name in COLUMNS] for run in self.runs]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return (
            figures.bound(value, 3) if name == "certified" else f"{value:.2g}" if name == "distance" else f"{value:.3g}"
        )
    return str(value)
