"""hs.train: the same architecture, built and proven, and trained: from random weights, from the built, from near them.

    training = hs.train("x*y", {"x": (-1, 1), "y": (-1, 1)})     # or hs.train(like="product.safetensors")
    print(training.table())
    training.plot("product.png")

The stages are in stages.py, what is measured of their weights in judge.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

from headsmith.core.errors import TargetError
from headsmith.core.progress import Shown, shown
from headsmith.lab.training.cases import case_of
from headsmith.lab.training.journal import Journal, environment
from headsmith.lab.training.judge import judged
from headsmith.lab.training.measure import kick
from headsmith.lab.training.optimise import one_thread
from headsmith.lab.training.result import Training
from headsmith.lab.training.settings import settings_of
from headsmith.lab.training.stages import Clock, Trainer
from headsmith.model import Compiled


def train(
    target: Any = None,
    domain: Any = None,
    *,
    like: Compiled | str | os.PathLike[str] | None = None,
    progress: Shown = None,
    journal: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Training:
    """Train the architecture of a compiled model: `like`, a model or its file, or what `hs.compile` makes of a target.

    Options: `seeds`, a number or a list of seeds; `starts`, some of "random", "compiled", "perturbed"; `steps` and
    `rates` of Adam; `iterations` of Levenberg-Marquardt; `polish=False` leaves out norms above 2; `noise` and `zeros`
    of perturbed starts (`zeros=False` fills the zeros of the weights); `certify=False` leaves out proofs; `error` for
    what is compiled; `shape`, such as {"layers": 2, "heads": 2, "tokens": 3}, for another shape than the compiled one,
    which is then trained from random weights only. `journal`, a file: the same call with the same journal goes on where
    it stopped. Needs torch.
    """
    error, shape = options.pop("error", 1e-6), options.pop("shape", None)
    settings = settings_of(**options)
    with one_thread(), shown(progress) as report:
        case = case_of(target, domain, like, error, shape)
        starts = [start for start in settings.starts if case.compiled is not None or start == "random"]
        if not starts:
            raise TargetError("a shape that was not compiled has no built weights: start at random")
        about = {"settings": asdict(settings), "case": case.digest, **environment()}
        diary = Journal(None if journal is None else os.fspath(journal), json.dumps(about, sort_keys=True))
        predicted = None if case.compiled is None else kick(case.problem, case.compiled, case.error)
        trainer = Trainer(case, settings, diary, Clock(starts, report))
        runs = [run for start in starts for run in judged(case, start, trainer.rows(start), settings.certify)]
        return Training(case, tuple(runs), predicted, asdict(settings), environment(), case.digest)
