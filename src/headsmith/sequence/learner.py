"""A learner in context, as a model: what it was shown and asked becomes the tokens of a sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, TargetError
from headsmith.core.figures import bound, count
from headsmith.core.markup import card
from headsmith.export.file import Form
from headsmith.inside.explain import HEADS
from headsmith.inside.notebook import bill_text
from headsmith.model import real_inputs
from headsmith.sequence.compiled import CompiledSequence
from headsmith.sequence.descent import Descent
from headsmith.sequence.neighbours import Neighbours
from headsmith.sequence.newton import Newton

Rule = Descent | Neighbours | Newton

BATCH = 32
"""How many sequences run at a time."""


@dataclass(frozen=True, eq=False)
class Learner(CompiledSequence):
    """A transformer that learns from its context: a sequence model whose tokens are (x, y, query).

    `rule` is what it computes (which steps, how many, at which rate). `preconditioner`, if any, is the matrix P by
    which `predict` multiplies features and queries before they are embedded: domain and certificate are about P x.
    """

    rule: Rule = field(kw_only=True)
    preconditioner: Array | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return f"<{self._title}\n error <= {bound(self.certificate.error)}, {bill_text(self.bill)}>"

    def _repr_html_(self) -> str:
        return card(self._title, self.certificate._repr_html_(), self.bill._repr_html_())

    @property
    def _title(self) -> str:
        shown = f"{count(self.features, 'feature')} and up to {count(self.examples, 'example')}"
        return f"Learner: {_rule_text(self.rule)}, on {shown}"

    def explain(self, heads: int = HEADS) -> str:
        """The learner in words, layer by layer and head by head; a context's tokens hold an example and a query."""
        return f"A learner in context: {_rule_text(self.rule)}.\n\n{super().explain(heads)}"

    @property
    def features(self) -> int:
        """How many features an example has."""
        return self.rule.features

    @property
    def examples(self) -> int:
        """How many examples a context may hold."""
        return self.transformer.tokens

    def predict(self, X: Any, y: Any, queries: Any) -> Array:
        """For each row q of `queries` the prediction from the examples (X, y): (k,). With weights w that were fitted in
        context it is w . q; for the logistic loss that is the score, whose sign is the class.

        Guarantee: within certificate.error of `exact`, for examples, labels and queries in the domain.
        """
        X, y, queries = self._context(X, y, queries)
        return self._run(X, y, queries)[:, 0]

    def weights(self, X: Any, y: Any) -> Array:
        """The weights fitted in context, of a learner that was made with weights=True. They are those of P x, where
        there is a preconditioner.

        Guarantee: each within certificate.error of the exact one.
        """
        if self.transformer.outputs == 1:
            raise TargetError("this learner returns predictions alone; make it with weights=True")
        X, y, _ = self._context(X, y, np.zeros((0, self.features)))
        low, high = self.box.low, self.box.high
        nearest_to_zero = np.clip(0.0, low, high)[self.features + 1 :]
        return np.asarray(self._run(X, y, nearest_to_zero[None])[0, 1:])

    def exact(self, X: Any, y: Any, queries: Any, dtype: Any = np.longdouble) -> Any:
        """What `predict` approximates: the same steps in plain arithmetic, of extended precision."""
        X, y, queries = self._context(X, y, queries)
        return self.rule.predicted(X, y, queries, dtype)

    def sequences(self, X: Any, y: Any, queries: Any) -> Array:
        """The sequences (s, m, inputs) that the model is run on: m queries in each, the last filled up by repeating."""
        X, y, queries = self._context(X, y, queries)
        return self._tokens(X, y, queries)

    def _form(self) -> Form:
        return Form("learner", self.masked, self.preconditioner)

    def _run(self, X: Array, y: Array, queries: Array) -> Array:
        """All outputs at every query: (k, outputs)."""
        sequences = self._tokens(X, y, queries)
        parts = [self(sequences[start : start + BATCH]) for start in range(0, len(sequences), BATCH)]
        found = np.concatenate(parts) if parts else np.zeros((0, len(X), self.transformer.outputs))
        return np.asarray(found.reshape(-1, self.transformer.outputs)[: len(queries)])

    def _tokens(self, X: Array, y: Array, queries: Array) -> Array:
        count, length = len(queries), len(X)
        number = math.ceil(count / length)
        places = np.minimum(np.arange(number * length), count - 1)
        asked = queries[places].reshape(number, length, self.features)
        shown = np.broadcast_to(np.column_stack([X, y]), (number, length, self.features + 1))
        return np.concatenate([shown, asked], axis=-1)

    def _context(self, X: Any, y: Any, queries: Any) -> tuple[Array, Array, Array]:
        """Arrays of the right shapes, in the domain; with the preconditioner applied."""
        X, y, queries = (real_inputs(each, name) for each, name in ((X, "X"), (y, "y"), (queries, "queries")))
        size = self.features if self.preconditioner is None else self.preconditioner.shape[1]
        for name, rows in (("X", X), ("queries", queries)):
            if rows.ndim != 2 or rows.shape[1] != size:
                raise DomainError(f"{name} has shape {rows.shape}; this learner takes rows of {size} features")
        if y.shape != (len(X),):
            raise DomainError(f"y has shape {y.shape}; it should be ({len(X)},), one label for each row of X")
        if not 1 <= len(X) <= self.examples:
            raise DomainError(
                f"a context of {count(len(X), 'example')}; this learner was compiled for 1 to {self.examples}"
                + (f": take fewer, or compile it with examples={len(X)}" if len(X) else "")
            )
        if self.preconditioner is not None:
            X, queries = X @ self.preconditioner.T, queries @ self.preconditioner.T
        return self._inside(X, y, queries)

    def _inside(self, X: Array, y: Array, queries: Array) -> tuple[Array, Array, Array]:
        box, size = self.box, self.features
        for name, rows, place in (("X", X, 0), ("y", y[:, None], size), ("queries", queries, size + 1)):
            low, high = box.low[place : place + rows.shape[1]], box.high[place : place + rows.shape[1]]
            wrong = np.argwhere(~((rows >= low) & (rows <= high)))
            if len(wrong):
                row, column = map(int, wrong[0])
                shown = f"{name}[{row}]" if name == "y" else f"{name}[{row}, {column}]"
                image = " (after the preconditioner)" if self.preconditioner is not None and name != "y" else ""
                raise DomainError(
                    f"{shown} = {float(rows[row, column])!r}{image} lies outside its domain "
                    f"[{float(low[column])!r}, {float(high[column])!r}], where alone the certificate holds: scale the "
                    "data, or compile for a larger domain"
                )
        return X, y, queries


def _rule_text(run: Rule) -> str:
    """What a learner computes, in a few words."""
    match run:
        case Descent():
            penalties = [f"decay {(1.0 - run.kept) / run.rate:.4g}"] if run.kept != 1.0 else []
            penalties += [f"threshold {run.cut / run.rate:.4g}"] if run.cut else []
            penalty = f" with {' and '.join(penalties)}" if penalties else ""
            return f"{count(run.steps, 'step')} of gradient descent on the {run.loss} loss{penalty}"
        case Newton():
            return f"Newton's iteration, {count(run.doublings, 'doubling')}: as {count(run.steps, 'step')} of descent"
        case Neighbours():
            return f"a mean of labels with weights exp(-{run.scale:.4g} |q - x|^2)"
