"""How many heads and layers are enough for every error of a range: a theorem, proved by finitely many certificates.

Lemma.  A model that is certified for an error is one for every larger error.

So let models have the certified errors e_0 > e_1 > ... > e_K. For every e in [e_K, e_0] the first of them with e_k <= e
will do: what it costs, as a function of e, is a step function, and this is a theorem about all errors at once. A
formula F(e) that rises as e falls bounds the cost of all steps if it does at the upper end of each: the cost of model
k + 1 is at most F(e_k). The formula here is a log2(1/e) + b, the least one above all steps with the slope of a
line through them. It holds in floating point, for every recipe, and for a family of networks.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headsmith.compile import compile
from headsmith.core.errors import CertificateError, TargetError, UnreachableError
from headsmith.core.figures import bound, count
from headsmith.core.folders import write_text
from headsmith.core.rounding import Dtype
from headsmith.lab.enough.bounds import below
from headsmith.model import Compiled
from headsmith.plan.reading import Target
from headsmith.verify import verify

RATIO = 4.0
"""Errors are asked for in steps of such a factor."""
LISTING = "law.json"


@dataclass(frozen=True, eq=False)
class Law:
    """Models with falling certified errors, and what they cost: enough for every error from the smallest to the
    largest of them. With a `folder`, they are files there, and `check` proves them again."""

    name: str
    models: tuple[Compiled, ...]
    folder: str | None = None

    @property
    def errors(self) -> tuple[float, float]:
        """The smallest and the largest error that the law is about."""
        return self.models[-1].certificate.error, self.models[0].certificate.error

    def _at(self, error: float) -> Compiled:
        low, high = self.errors
        if not error >= low:
            raise TargetError(f"the law is about errors from {low:.3g} to {high:.3g}, not {error:.3g}")
        return next(model for model in self.models if model.certificate.error <= error)

    def heads(self, error: float) -> int:
        """So many heads are enough for the error."""
        return self._at(error).bill.heads

    def layers(self, error: float) -> int:
        """So many layers are enough for the error, of the same model."""
        return self._at(error).bill.layers

    def tokens(self, error: float) -> int:
        """So many reference tokens are enough for the error, of the same model."""
        return self._at(error).bill.reference_tokens

    def formula(self, what: str) -> tuple[float, float]:
        """(a, b) such that a log2(1/e) + b is at least the cost `what` at every error of the range."""
        ends = np.array([-math.log2(model.certificate.error) for model in self.models])
        costs = np.array([float(getattr(model.bill, what)) for model in self.models])
        # The cost of model k + 1 is charged from e_k on, just below it.
        upper = np.concatenate([ends[:1], ends[:-1]])
        slope = max(float(np.polyfit(upper, costs, 1)[0]), 0.0) if len(set(upper)) > 1 else 0.0
        slope = math.ceil(1e3 * slope) / 1e3
        return slope, math.ceil(1e3 * float(np.max(costs - slope * upper))) / 1e3

    @property
    def text(self) -> str:
        """The theorem in words."""
        low, high = self.errors
        (a, b), (c, d) = self.formula("heads"), self.formula("layers")
        return (
            f"For every error e from {bound(low)} to {below(high)} there is a softmax transformer within e of "
            f"{self.name} with at most {a:g} log2(1/e) + {b:g} heads in at most {c:g} log2(1/e) + {d:g} layers. Proved "
            f"by {count(len(self.models), 'certificate')}: a model certified for an error is one for every larger one."
        )

    def latex(self) -> str:
        """The theorem and its proof, for a paper."""
        low, high = self.errors
        (a, b), (c, d) = self.formula("heads"), self.formula("layers")
        rows = "\n".join(
            f"{bound(model.certificate.error)} & {model.bill.heads} & {model.bill.layers} \\\\" for model in self.models
        )
        name = "".join(f"\\{each}" if each in "_#%&$" else each for each in self.name).replace("**", "\\^{}")
        return (
            f"\\begin{{theorem}}\nFor every $e \\in [{bound(low)}, {below(high)}]$ some softmax transformer is within "
            f"$e$ of \\texttt{{{name}}} everywhere on its domain, in floating point, with at most "
            f"${a:g} \\log_2(1/e) + {b:g}$ heads and ${c:g} \\log_2(1/e) + {d:g}$ layers.\n\\end{{theorem}}\n"
            "\\begin{proof}\nA model certified for an error is one for every larger error. "
            "The models below are certified, so between two rows the lower one "
            "will do; the formulas are at least its cost at the upper end of that interval, and rise as $e$ falls.\n"
            f"\\begin{{center}}\\begin{{tabular}}{{rrr}}\nerror & heads & layers \\\\ \\hline\n{rows}\n"
            "\\end{tabular}\\end{center}\n\\end{proof}\n"
        )

    def save(self, folder: str | os.PathLike[str]) -> Law:
        """Write a file for each model, and a list of them with their digests; the law that `check` then proves."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        rows = []
        for number, model in enumerate(self.models):
            path = place / f"{number}.safetensors"
            model.save(path)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            cost = {name: getattr(model.bill, name) for name in ("heads", "layers", "reference_tokens")}
            rows.append({"file": path.name, "sha256": digest, "error": model.certificate.error, **cost})
        write_text(str(place / LISTING), json.dumps({"law": self.name, "text": self.text, "models": rows}, indent=1))
        return Law(self.name, self.models, str(place))

    def check(self) -> None:
        """Prove all certificates again, from the files where there are some. Raises CertificateError where a file is
        missing, is another one than the law was stated with, or proves less."""
        if self.folder is None:
            for model in self.models:
                verify(model)
            return
        place = Path(self.folder)
        listed = json.loads((place / LISTING).read_text())["models"]
        if len(listed) != len(self.models):
            raise CertificateError(f"{place / LISTING} lists {len(listed)} models; the law has {len(self.models)}")
        for row, model in zip(listed, self.models, strict=True):
            path = place / row["file"]
            if not path.is_file():
                raise CertificateError(f"{path} is missing: the law rests on it")
            if hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
                raise CertificateError(f"{path} is not the file that the law was stated with")
            if not verify(path).error <= model.certificate.error:
                raise CertificateError(f"{path} proves less than the law says")


def law(
    target: Any,
    domain: Any = None,
    recipe: str = "relu",
    errors: Sequence[float] = (1e-8, 1e-1),
    *,
    dtype: Dtype = "float64",
    approximates: Target | None = None,
) -> Law:
    """How many heads and layers are enough for every error of the range, as a theorem with its certificates.

    `target` is what `compile` takes. With `approximates`, it is a family: a function of m = 1, 2, ... that returns a
    network, and the theorem is about what the networks approximate.
    """
    low, high = (float(each) for each in errors)
    if not 0.0 < low < high:
        raise TargetError(f"errors is {tuple(errors)!r}; give the smallest and the largest, both positive")
    found: list[Compiled] = []
    asked, turn = high, 1
    while not found or found[-1].certificate.error > low:
        try:
            if approximates is None:
                model = compile(target, domain, max(asked, low), recipe=recipe, dtype=dtype, progress=False)
            else:
                model = compile(target(turn), domain, asked, recipe="relu", approximates=approximates, progress=False)
        except UnreachableError:
            if approximates is None or turn > 64:
                break
            turn += 1
            continue
        if not found or model.certificate.error < found[-1].certificate.error:
            found.append(model)
        asked = min(asked, model.certificate.error) / RATIO
    if len(found) < 2:
        raise TargetError(f"a law needs models of two errors; only {len(found)} of {high:g} and less compiled")
    name = " , ".join(target) if isinstance(target, list | tuple) else str(approximates or target)
    return Law(name, tuple(found))
