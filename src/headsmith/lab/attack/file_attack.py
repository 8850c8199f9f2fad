"""An honest attempt to break the bound of a file: whatever is in it, if the kernel certifies it, it must hold.

The model is run from its dense matrices, the target is evaluated from the file, and the sequence of inputs that is
furthest off is looked for: random ones, corners, equal tokens, then a climb from the worst. Candidates are ranked in
the widest format of the machine; the last word has an oracle of many digits. The worst sequence runs again with every
rounding pushed the worst way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from headsmith.core import precise
from headsmith.core.errors import HeadsmithError
from headsmith.kernel.core.reading import read
from headsmith.lab.attack.rounding_oracle import plain_run, worst_run
from headsmith.lab.attack.target_oracle import Digits, Wide, target_values
from headsmith.transformer.dense import DenseTransformer, dense
from headsmith.transformer.stored import read_transformer

Header = Mapping[str, Any]
Tensors = Mapping[str, Any]

LARGEST = 1 << 22
"""Models with more entries in their dense matrices are not run here."""
CLOSE = 0.5
"""Errors of more than this share of their bound are looked at with many digits; the largest always is."""


@dataclass(frozen=True, eq=False)
class Worst:
    """The worst that was found: error over bound (above 1 the bound is false), where, and in which run."""

    ratio: float
    sequence: Any
    causal: bool
    run: str


class CannotRunError(Exception):
    """The contents of a file are no model that can be run, or none that is small enough."""


def saved(model: Any) -> tuple[Any, Any]:
    """The header and the tensors of the file of a model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        return read(path)


def stored_model(header: Header, tensors: Tensors) -> DenseTransformer:
    """The dense matrices of the model in a file."""
    stored = header["transformer"]
    try:
        layers = [banks for banks in stored["layers"] if banks]
        roles = [each for each in header["proof"]["roles"] if each]
        # Keys and values are the same numbers in all forms of the grid.
        transformer = read_transformer({**stored, "layers": layers}, roles, tensors.__getitem__)
        heads = transformer.heads
        columns = sum(register.size for register in transformer.registers)
        if (4 * heads + transformer.tokens + 1) * columns**2 > LARGEST:
            raise CannotRunError("the matrices are too large to be written out")
        return dense(transformer)
    except (HeadsmithError, KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
        raise CannotRunError(f"{type(problem).__name__}: {problem}") from None


def blocks_of(header: Header) -> int:
    """How many blocks the inputs come in: one for each token, which holds them there and zeros elsewhere; or 0."""
    return int(header["proof"].get("blocks", 0))


def lengths(header: Header, most: int = 5) -> list[int]:
    """Lengths of sequences on which the target is defined (nobody fetches from a token that is not there): the
    shortest ones and the longest."""
    if blocks_of(header):
        return [1]
    moves = [node["targets"] for node in header["source"]["nodes"] if node["kind"] == "move"]
    tokens = int(header["transformer"]["tokens"])
    few = [*range(1, min(tokens, most) + 1), *range(max(most + 1, tokens), tokens + 1)]
    return [length for length in few if all(max(targets[:length]) < length for targets in moves)]


def worst_ratio(
    header: Header,
    tensors: Tensors,
    outputs: Sequence[float],
    masks: Sequence[str],
    rng: np.random.Generator,
    *,
    count: int = 48,
    steps: int = 3,
) -> Worst:
    """The largest error of an output that was found, over its bound. Raises CannotRunError where nothing runs."""
    model = stored_model(header, tensors)
    bounds = np.maximum(np.asarray(outputs, dtype=np.float64), 1e-300)
    met: list[tuple[float, Any, _FileSearch]] = []
    wanted = sorted({mask != "full" for mask in masks})
    for causal in wanted[:1] if len(model.W_pos) == 1 else wanted:  # one token sees itself under all masks
        for length in lengths(header):
            search = _FileSearch(header, tensors, model, bounds, causal)
            met.append((*search.climb(search.starts(rng, count, length), rng, steps), search))
    met.sort(key=lambda each: -each[0])
    close = [each for place, each in enumerate(met) if place == 0 or each[0] > CLOSE]
    found = [worst for _, sequence, search in close for worst in search.judged(sequence)]
    return max(found, key=lambda each: each.ratio, default=Worst(0.0, None, False, "nothing"))


@dataclass(frozen=True, eq=False)
class _FileSearch:
    header: Header
    tensors: Tensors
    model: DenseTransformer
    bounds: Any
    causal: bool

    @property
    def box(self) -> tuple[Any, Any]:
        domain = self.header["domain"]
        return np.array(domain["low"], dtype=np.float64), np.array(domain["high"], dtype=np.float64)

    @property
    def dtype(self) -> str:
        return str(self.header["transformer"]["dtype"])

    @property
    def target(self) -> Any:
        """What the claim is about: what a network approximates, if the file says so."""
        return self.header.get("approximates", self.header["source"])

    def starts(self, rng: np.random.Generator, count: int, length: int) -> Any:
        """Sequences inside the box: anywhere, at corners, with equal tokens, with one token unlike the others."""
        low, high = self.box
        share = rng.random((count, length, len(low)))
        share = np.where(rng.random(share.shape) < 0.15, np.round(share), share)
        corners, equal = rng.random(count) < 0.25, rng.random(count) < 0.25
        share[corners] = np.round(share[corners])
        alone = share[equal, 0]
        share[equal] = share[equal][:, -1:]
        share[equal, 0] = np.where(rng.random((len(alone), 1)) < 0.5, alone, share[equal, 0])
        return np.clip(low + (high - low) * share, low, high)

    def ratios(self, sequences: Any) -> Any:
        """Error over bound for each sequence, (count,); infinite where the model has no number."""
        got = plain_run(self.model, self.laid(sequences), self.dtype, self.causal)
        with np.errstate(all="ignore"):
            wanted = target_values(self.target, self.tensors, sequences, Wide())
            share = np.abs(got - wanted) / self.bounds
        return np.max(np.where(np.isnan(share), np.inf, share), axis=(1, 2)).astype(np.float64)

    def laid(self, sequences: Any) -> Any:
        """Sequences (count, tokens, inputs) as the model takes them: with blocks, one point over all tokens."""
        blocks = blocks_of(self.header)
        if not blocks:
            return sequences
        return np.einsum("ij,cn->cijn", np.eye(blocks), sequences[:, 0]).reshape(len(sequences), blocks, -1)

    def climb(self, points: Any, rng: np.random.Generator, steps: int) -> tuple[float, Any]:
        """The worst sequence that was met, and its error over its bound."""
        low, high = self.box
        scores = self.ratios(points)
        for step in range(steps):
            order = np.argsort(scores)[-6:]
            parents, kept = points[order], scores[order]
            moved = np.repeat(parents, 6, axis=0)
            scale = 10.0 ** rng.uniform(-2 - step, -step, (len(moved), 1, 1))
            near = moved + rng.normal(size=moved.shape) * (high - low) * scale
            jump = low + (high - low) * rng.choice([0.0, 1.0, rng.random()], size=moved.shape)
            change = rng.random(moved.shape) < max(0.3, 1.0 / moved[0].size)
            moved = np.where(change, np.where(rng.random(moved.shape) < 0.3, jump, near), moved)
            moved = np.clip(moved, low, high)
            points = np.concatenate([parents, moved])
            scores = np.concatenate([kept, self.ratios(moved)])
        return float(scores.max()), points[int(np.argmax(scores))]

    def judged(self, sequence: Any) -> list[Worst]:
        """What many digits say of a sequence: as it runs, and with roundings pushed both ways."""
        with precise.many_digits():
            wanted = target_values(self.target, self.tensors, sequence, Digits())
            laid = self.laid(sequence[None])
            plain = plain_run(self.model, laid, self.dtype, self.causal)[0]
            shares = self._shares(plain, wanted)
            token, output = (int(place) for place in np.unravel_index(int(np.argmax(shares)), shares.shape))
            found = [Worst(float(shares.max()), sequence, self.causal, "as it is")]
            for up in (True, False):
                pushed = worst_run(self.model, laid[0], self.dtype, self.causal, token, output, up)
                ratio = float(self._shares(pushed, wanted).max())
                found.append(Worst(ratio, sequence, self.causal, "with every rounding pushed the worst way"))
        return found

    def _shares(self, got: Any, wanted: Any) -> Any:
        finite = np.isfinite(got)
        errors = precise.least_distance(precise.exact(np.where(finite, got, 0.0)), wanted)
        return np.where(finite, errors, np.inf) / self.bounds
