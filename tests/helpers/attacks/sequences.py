"""An honest attempt to break the certificate of any model, whatever it computes and however many tokens it takes.

Random sequences, corners, equal tokens, one token against all others; then a climb from the best of them, first by
jumps of single coordinates and then by small steps. Candidates are ranked in 80-bit floats; the last word is mpmath's.
The model runs twice: as the runner does it, and as a textbook would (every matrix, reference tokens included).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import headsmith as hs
from headsmith.language.evaluation import evaluate
from headsmith.language.graph import Attend, Move, Pool
from headsmith.transformer.dense import DenseTransformer, dense
from helpers.oracles.precise import error_at, precise


def is_causal(model: hs.Compiled) -> bool:
    """The mask that the model was compiled for."""
    return any(isinstance(node, Attend | Pool) and node.causal for node in model.graph.nodes)


def lengths(model: hs.Compiled) -> list[int]:
    """The lengths of sequences on which the target is defined: nobody fetches from a token that is not there."""
    moves = [node.targets for node in model.graph.nodes if isinstance(node, Move)]
    return [
        length
        for length in range(1, model.transformer.tokens + 1)
        if all(max(targets[:length]) < length for targets in moves)
    ]


def output_of(model: hs.Compiled, sequences: Any, textbook: DenseTransformer | None = None) -> Any:
    """(count, tokens, outputs) for sequences (count, tokens, inputs)."""
    causal = is_causal(model)
    if textbook is not None:
        return run_textbook(textbook, sequences, model.transformer.dtype, causal)
    if model.transformer.tokens == 1:
        return model(sequences[:, 0], causal=causal)[:, None]
    return model(sequences, causal=causal)


def run_textbook(model: DenseTransformer, sequences: Any, dtype: str, causal: bool) -> Any:
    """Plain attention with all matrices, in the dtype."""
    kind = np.dtype(dtype).type
    x = sequences.astype(kind)
    data = x @ model.W_E.astype(kind) + model.b_E.astype(kind) + model.W_pos[: x.shape[1]].astype(kind)
    references = np.broadcast_to(model.references.astype(kind), (len(x), *model.references.shape))
    stream = np.concatenate([references, data], axis=1)
    places = np.arange(stream.shape[1])
    with np.errstate(all="ignore"):
        for layer in model.layers:
            update = np.zeros_like(stream)
            for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
                query, key = stream @ W_Q.astype(kind), stream @ W_K.astype(kind)
                scores = query @ key.transpose(0, 2, 1)
                if causal:
                    scores = np.where(places[None, :] > places[:, None], kind(-np.inf), scores)
                weights = np.exp(scores - scores.max(axis=2, keepdims=True))
                weights /= weights.sum(axis=2, keepdims=True)
                update += (weights @ (stream @ W_V.astype(kind))) @ W_O.astype(kind)
            stream = stream + update
        return stream[:, len(model.references) :] @ model.W_U.astype(kind) + model.b_U.astype(kind)


def starts(model: hs.Compiled, rng: np.random.Generator, count: int, length: int) -> Any:
    """Sequences inside the box, of all the sorts above."""
    low, high = model.box.low, model.box.high
    share = rng.random((count, length, len(low)))
    share = np.where(rng.random(share.shape) < 0.15, np.round(share), share)
    corners = rng.random(count) < 0.25
    share[corners] = np.round(share[corners])
    equal = rng.random(count) < 0.25
    alone = share[equal, 0]
    share[equal] = share[equal][:, -1:]
    share[equal, 0] = np.where(rng.random((len(alone), 1)) < 0.5, alone, share[equal, 0])
    return np.clip(low + (high - low) * share, low, high)


def errors(model: hs.Compiled, sequences: Any, textbook: DenseTransformer | None = None) -> Any:
    """|model - target| in 80-bit floats, (count, tokens, outputs); infinite where the model has no number."""
    with np.errstate(all="ignore"):
        wanted = evaluate(model.graph, sequences, np.longdouble)
        found = np.abs(output_of(model, sequences, textbook).astype(np.longdouble) - wanted)
    return np.where(np.isnan(found), np.inf, found).astype(np.float64)


def worst_ratio(
    model: hs.Compiled,
    bounds: Any,
    rng: np.random.Generator,
    *,
    count: int = 200,
    steps: int = 4,
    exact: bool = True,
) -> float:
    """The largest found error of an output, over its bound; above 1 the bound is false."""
    bounds = np.maximum(np.asarray(bounds, dtype=np.float64), 1e-300)
    worst = 0.0
    for textbook in (None, dense(model.transformer)):
        for length in lengths(model):
            best = _climb(model, bounds, textbook, starts(model, rng, count, length), rng, steps)
            if exact:
                got = output_of(model, best[None], textbook)[0]
                found = error_at(got, precise(model.graph, best))
                ratio = float(np.max(found / bounds))
                worst = max(worst, ratio if np.isfinite(ratio) else np.inf)
            else:
                worst = max(worst, float(np.max(errors(model, best[None], textbook) / bounds)))
    return worst


def _climb(
    model: hs.Compiled,
    bounds: Any,
    textbook: DenseTransformer | None,
    points: Any,
    rng: np.random.Generator,
    steps: int,
) -> Any:
    """The worst sequence that was met."""
    low, high = model.box.low, model.box.high
    scores = np.max(errors(model, points, textbook) / bounds, axis=(1, 2))
    for step in range(steps):
        order = np.argsort(scores)[-8:]
        parents, kept = points[order], scores[order]
        moved = np.repeat(parents, 8, axis=0)
        near = moved + rng.normal(size=moved.shape) * (high - low) * 10.0 ** rng.uniform(
            -2 - step, -step, (len(moved), 1, 1)
        )
        jump = low + (high - low) * rng.choice([0.0, 1.0, rng.random()], size=moved.shape)
        change = rng.random(moved.shape) < max(0.3, 1.0 / moved[0].size)
        moved = np.clip(np.where(change, np.where(rng.random(moved.shape) < 0.3, jump, near), moved), low, high)
        points = np.concatenate([parents, moved])
        scores = np.concatenate([kept, np.max(errors(model, moved, textbook) / bounds, axis=(1, 2))])
    return points[int(np.argmax(scores))]
