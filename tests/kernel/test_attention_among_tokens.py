"""Data tokens that see each other under other attentions than softmax: gates, moves, means and maxima, their lemmas at
the extremal points, every rounding pushed the worst way, models within what is proven, and gaps that are too small."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attacks.saved import read as read_parts
from helpers.effort import tried
from helpers.models.networks import random_network
from test_heads import attained, bank, model, reads, sink
from test_heads_in_few_bits import CODES, DATA, MINE, THEIRS, TOY, TRIALS, added, rounded, uniform

import headsmith as hs
from headsmith.kernel.core.arithmetic import Upper
from headsmith.kernel.core.check import checked, proved
from headsmith.kernel.core.errors import Refused
from headsmith.kernel.core.heads import local_errors
from headsmith.kernel.core.model import KEY
from headsmith.kernel.core.softmax import maximum, outside_weight
from headsmith.lab.attack.file_attack import worst_ratio
from headsmith.lab.attack.rounding_oracle import plain_run
from headsmith.transformer.heads.attentions import shares_of

T = hs.tokens
SHARP, ALL = ("hardmax", "sparsemax"), ("hardmax", "sparsemax", "sigmoid", "relu")


# The lemmas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [1, 2, 7, 63])
def test_the_maximum_by_sparsemax_is_attained(others: int, rng: np.random.Generator) -> None:
    """Of n numbers it misses the largest by at most (n - 1)/(4 n)/b, where all others score 1/2 less."""
    only = replace(model(sink()), attention="sparsemax")
    below, more = maximum(only, np.array(8.0), others, Upper(0.0))
    scores = np.append(np.full(others, -0.5), 0.0)
    lost = -(shares_of("sparsemax", scores[None], True) @ scores)[0]
    attained(below, lost / 8.0)
    assert more.value == 0.0
    scores = np.sort(rng.uniform(-1.5, 0.0, (2000, others + 1)), axis=1)
    scores -= scores[:, -1:]
    assert np.all(-(shares_of("sparsemax", scores, True) * scores).sum(axis=1) <= 8.0 * below.value + 1e-12)


@pytest.mark.parametrize("kind", SHARP)
def test_scores_that_are_off_cost_twice_that(kind: Any, rng: np.random.Generator) -> None:
    """Any scores that are off by d miss the largest number by at most 2d more; under hardmax that is attained."""
    d, only = 0.05, replace(model(sink()), attention=kind)
    below, more = maximum(only, np.array(1.0), 3, Upper(d))
    numbers = np.concatenate([[[-2 * d * 0.9999, -1.0, -1.0, 0.0]], rng.uniform(-0.3, 0.0, (5000, 4))])
    off = rng.choice([-d, 0.0, d], size=numbers.shape)
    off[0] = [d, 0.0, 0.0, -d]
    lost = numbers.max(axis=1) - (shares_of(kind, numbers + off, True) * numbers).sum(axis=1)
    assert np.all(lost <= (below + more).value + 1e-12)
    if kind == "hardmax":
        assert lost.max() >= 0.999 * more.value


@pytest.mark.parametrize("kind", SHARP)
def test_nothing_leaks_where_the_gap_is_wide_enough(kind: str) -> None:
    """From a margin of 2d (sparsemax: and two) on nothing, below that nobody knows; a tie is shared, so it must be
    more."""
    apart = {"hardmax": 0.0, "sparsemax": 2.0}[kind]
    gap = 2 * 0.125 + apart
    assert outside_weight(3, np.nextafter(gap, 9.0) + 1e-15, Upper(0.125), kind).value == 0.0
    for margin in (gap, gap - 0.1, np.nan):
        assert outside_weight(3, margin, Upper(0.125), kind).value == np.inf
    assert outside_weight(0, 0.0, Upper(0.125), kind).value == 0.0
    assert shares_of("hardmax", np.array([[1.0, 1.0]]), True)[0].tolist() == [0.5, 0.5]
    assert (
        shares_of("sparsemax", np.array([[0.0, -0.999]]), True)[0, 1]
        > 0.0
        == shares_of("sparsemax", np.array([[0.0, -1.0]]), True)[0, 1]
    )


# Few bits -------------------------------------------------------------------------------------------------------------


def weights(kind: str, scores: Any, way: Any, rng: np.random.Generator) -> Any:
    """The weights of scores (trials, tokens) in few bits, pushed that way."""
    if kind == "relu":
        return np.maximum(scores, 0.0)
    if kind == "sigmoid":
        power = rounded(np.exp(-scores) * (1.0 - 7.9 * way * TOY.unit_roundoff))
        return rounded(1.0 / rounded(1.0 + power, -way), way)
    scores = rounded(scores - scores.max(axis=1, keepdims=True), way)
    if kind == "hardmax":
        largest = (scores == 0.0).astype(float)
        return rounded(largest / largest.sum(axis=1, keepdims=True), way)
    ordered, push = np.maximum(-np.sort(-scores, axis=1), -2.0), rng.choice([-1.0, 1.0], size=(len(scores), 1))
    sums = [ordered[:, :1]]
    for place in range(1, scores.shape[1]):
        sums.append(rounded(sums[-1] + ordered[:, place : place + 1], push))
    counts, sums = np.arange(1.0, scores.shape[1] + 1.0), np.concatenate(sums, axis=1)
    reach = rounded(1.0 + rounded(counts * ordered, -push), -push)
    kept = (reach > sums).sum(axis=1, keepdims=True)
    lost = rounded(rounded(np.take_along_axis(sums, kept - 1, axis=1) - 1.0, push) / kept, push)
    return np.maximum(rounded(scores - lost, way), 0.0)


def attention(kind: str, features: Any, values: Any, middle: Any, order: str, rng: np.random.Generator) -> Any:
    """What the query gets, with everything pushed so that it is more: `features` are pairs of it and keys, and shares
    go to what is above the `middle`."""
    way = np.sign(values - middle[:, None]) if kind in SHARP else np.sign(values)
    products = [rounded(np.reshape(query, (-1, 1)) * keys, way) for query, keys in features]
    scores = added(np.stack([np.broadcast_to(each, values.shape) for each in products], axis=-1), order, way, rng)
    return added(rounded(weights(kind, scores, way, rng) * values, 1.0), order, 1.0, rng)


def tokens(first: Any, data: Any, sharp: bool) -> Any:
    """What the sink, where there is one, and the data tokens hold."""
    data = np.broadcast_to(data, (*np.shape(data)[:-1], DATA) if np.ndim(data) else (DATA,))
    return np.concatenate([np.full((*data.shape[:-1], 1), first), data], axis=-1) if sharp else data


FOUND = {
    ("sink", "hardmax"): 0.005,
    ("sink", "sparsemax"): 0.99,
    ("sink", "sigmoid"): 0.98,
    ("sink", "relu"): 0.01,
    ("move", "sigmoid"): 0.019,
    ("mean", "hardmax"): 0.015,
    ("boltzmann", "hardmax"): 0.02,
    ("boltzmann", "sparsemax"): 0.7,
}
"""Which share of its bound a head commits at least: the bounds are put to a test. The other heads round nothing here,
or next to nothing (a mean by sparsemax)."""


@pytest.mark.parametrize("order", ["one by one", "pairs"])
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("head", ["sink", "move", "mean", "boltzmann"])
def test_no_head_commits_more_than_its_bound(head: str, kind: Any, order: str, rng: np.random.Generator) -> None:
    sharp, (one, scale) = kind in SHARP, (1.0, 1.0 if kind == "relu" else 8.0)
    if not sharp and head in ("mean", "boltzmann"):
        return
    apart = {"hardmax": 2.0, "sparsemax": 4.0, "sigmoid": 24.0, "relu": 4.0}[kind]
    z = uniform(rng, -1.0, 1.0)
    z[: TRIALS // 2, MINE] = rounded(z[: TRIALS // 2, MINE] / 2.0**20)  # where signs may turn
    z[0], z[1] = 0.0, z[1, 0]
    none = (0.0, tokens(KEY, 0.0, sharp))
    if head == "sink":
        only, wanted = sink(scale, apart, apart), np.maximum(z[:, MINE], 0.0)
        features = [(scale * z[:, MINE], tokens(0.0, one, sharp)), none]
        features += [(apart / 2 / KEY * code[MINE], tokens(0.0, KEY * code, sharp)) for code in CODES]
        features += [(KEY, tokens(0.0, -apart * 4 / 2 / KEY, sharp))]
    elif head == "move":
        gain = {"hardmax": 2.0, "sparsemax": 4.0, "sigmoid": 24.0, "relu": 2.0}[kind]
        only, wanted = bank("move", gain=gain, keep_gain=24.0), z[:, THEIRS]
        features = [(gain / KEY * code[THEIRS], tokens(0.0, KEY * code, sharp)) for code in CODES]
        features += [none if sharp else (KEY, tokens(0.0, -gain * 3.5 / KEY, False))]
    elif head == "mean":
        only, wanted = bank("mean", gain=24.0, keep_gain=24.0), z.mean(axis=1)
        features = [(24.0 / KEY, tokens(0.0, KEY, sharp)), none]
    else:
        only = bank("boltzmann", query_scale=[8.0], key_scale=[1.0], gain=32.0, keep_gain=24.0)
        lower = rng.choice([0.0, 1.0 / 16.0], (TRIALS, 1))
        z[:, 1:] = rounded(z[:, :1] - lower + z[:, 1:] * rng.choice([2.0**-15, 2.0**-12, 1.0], (TRIALS, 1)) / 64.0)
        z, wanted = np.clip(z, -1.0, 1.0), np.clip(z, -1.0, 1.0).max(axis=1)
        features = [(8.0, tokens(0.0, z, sharp)), (32.0 / KEY, tokens(0.0, KEY, sharp)), none]
    whole = replace(model(only, DATA, precision=TOY, nothing=True), attention=kind)
    found = local_errors(whole, only, reads(-1.0, 1.0))
    more, below = (found.leak + found.rounding).value[0], found.below.value[0]
    held = tokens(0.0, np.ones_like(z) if kind == "relu" and head == "sink" else z, sharp)
    middle, share = z[:, MINE] / 2.0 if head == "sink" else wanted, 0.0
    for way in (1.0, -1.0):
        out = attention(kind, features, way * held, way * middle, order, rng) * way
        assert np.all(out - wanted <= more)
        assert np.all(wanted - out <= below + more)
        share = max(share, np.max(out - wanted) / max(more, 1e-300), np.max(wanted - out) / max(below + more, 1e-300))
        assert np.all(np.abs(out) <= found.reach.value[0])
    assert found.leak.value[0] == 0.0 or kind == "sigmoid"
    assert share >= FOUND.get((head, kind), 0.0)
    assert np.isfinite(found.committed.value[0])


# Models ---------------------------------------------------------------------------------------------------------------


def outputs_of(network: hs.Network, x: Any) -> Any:
    for number, (matrix, bias) in enumerate(network.layers):
        x = (np.maximum(x, 0.0) if number else x) @ matrix.T + bias
    return x


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ALL)
def test_networks_among_tokens(kind: Any, dtype: Any, rng: np.random.Generator) -> None:
    """Every token of a sequence, whatever the others hold, under both masks: the runner, closed forms, the textbook."""
    network = random_network([2, 5, 4, 1], 1)
    found = hs.compile(network, (-1, 1), 1e-2, attention=kind, tokens=9, dtype=dtype)
    assert found.certificate.masks == ("full", "causal")
    assert found.bill.d_head == (6 if kind in ("sigmoid", "relu") else 7)
    x = rng.uniform(-1, 1, (100, 9, 2)).astype(dtype).astype(float)
    x[:20], x[20:40] = np.round(x[:20]), x[20:40, :1]
    for length in (1, 4, 9):
        wanted = outputs_of(network, x[:, :length])
        for causal in (False, True):
            runs = [found(x[:, :length], causal=causal), found(x[:, :length], causal=causal, fused=True)]
            for out in [*runs, plain_run(found.dense(), x[:, :length], dtype, causal)]:
                assert np.abs(out - wanted).max() <= found.certificate.error <= 1e-2
    exact = kind in ("hardmax", "relu")
    assert (found.certificate.parts["softmax"] == 0.0) == exact
    assert (found.certificate.parts["leak"] == 0.0) == (kind != "sigmoid")


PROGRAMS: dict[str, Any] = {
    "shift": lambda x: hs.relu(T.shift(x, 1) - x),
    "sort": T.sort,
    "at": lambda x: T.at(x, 1) + x,
    "mean": lambda x: x - T.mean(x),
    "max": T.max,
    "min and gates": lambda x: T.min(x) + T.mean(hs.relu(x)),
    "causal": lambda x: T.max(x) + T.cumulative_sum(x),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_among_tokens(name: str, kind: Any, rng: np.random.Generator) -> None:
    causal = name == "causal"
    if kind not in SHARP and name not in ("shift", "sort", "at"):
        with pytest.raises(hs.TargetError, match="neither means"):
            hs.compile_sequence(PROGRAMS[name], tokens=4, domain=(-1, 1), causal=causal, attention=kind)
        return
    found = hs.compile_sequence(PROGRAMS[name], tokens=4, domain=(-1, 1), error=1e-3, causal=causal, attention=kind)
    x = rng.uniform(-1, 1, (200, 4, 1))
    x[:50], x[50:70] = np.round(2 * x[:50]) / 2, x[50:70, :1]  # ties
    wanted = found.target(x)
    for out in (found(x), found(x, fused=True), plain_run(found.dense(), x, "float64", causal)):
        assert np.abs(out - wanted).max() <= found.certificate.error <= 1e-3
    if kind in ("hardmax", "relu"):
        assert found.certificate.error <= 1e-11
    assert (found.certificate.parts["leak"] == 0.0) == (kind != "sigmoid")


@pytest.mark.parametrize("kind", ["sigmoid", "relu"])
def test_the_mean_of_the_tokens_so_far_is_written_as_the_refusal_says(kind: Any, rng: np.random.Generator) -> None:
    """A sum by moves, over the position and one: without a head for means."""
    with pytest.raises(hs.TargetError, match=r"written as cumulative_sum\(x\) / \(position\(x\) \+ 1\)"):
        hs.compile_sequence(T.mean, tokens=3, domain=(-1, 1), causal=True, attention=kind)

    def mean(x: Any) -> Any:
        return T.cumulative_sum(x) / (T.position(x) + 1)

    found = hs.compile_sequence(mean, tokens=3, domain=(-1, 1), error=5e-2, causal=True, attention=kind)
    x = rng.uniform(-1, 1, (200, 3, 1))
    wanted = np.cumsum(x, axis=1) / np.array([[1.0], [2.0], [3.0]])
    for out in (found(x), plain_run(found.dense(), x, "float64", True)):
        assert np.abs(out - wanted).max() <= found.certificate.error <= 5e-2


def test_what_is_about_softmax_is_refused() -> None:
    with pytest.raises(hs.TargetError, match="is softmax attention itself"):
        hs.compile_sequence(
            lambda x: T.attend(x[:, 0], x[:, 0], x[:, 0]), tokens=3, domain=(-1, 1), attention="hardmax"
        )
    for kind in ("elu+1", "linear"):
        target: Any = "x*y" if kind == "linear" else "relu(x)"
        with pytest.raises(hs.TargetError, match=r"mask='self\+prefix'"):
            hs.compile(target, (-1, 1), 1e-2, attention=kind, tokens=2)


# Forged files ---------------------------------------------------------------------------------------------------------


def forged(found: Any, path: Path, kind: str, **changes: float) -> tuple[Any, Any]:
    """The contents of a file with other gains in all banks of a kind."""
    found.save(path)
    header, tensors = read_parts(path)
    for layer in header["transformer"]["layers"]:
        for each in layer:
            if each["kind"] == kind:
                assert changes.keys() <= each.keys()
                each.update(changes)
    return header, tensors


@cache
def sort(kind: Any) -> Any:
    """A sort of four numbers."""
    return hs.compile_sequence(T.sort, tokens=4, domain=(-1, 1), error=1e-2, attention=kind)


@pytest.mark.parametrize(
    ("kind", "head", "changes"),
    [
        ("hardmax", "sink", {"position_gain": 0.0}),
        ("hardmax", "sink", {"position_gain": 2.0**-52}),
        ("hardmax", "sink", {"reference_gain": 0.0}),
        ("hardmax", "move", {"gain": 2.0**-55, "keep_gain": 0.0}),
        ("hardmax", "move", {"gain": 0.0}),
        ("sparsemax", "sink", {"position_gain": 1.99}),
        ("sparsemax", "sink", {"reference_gain": 1.0}),
        ("sparsemax", "move", {"gain": 0.99}),
        ("sigmoid", "sink", {"position_gain": 16.0}),
        ("sigmoid", "move", {"gain": 2.0}),
        ("relu", "sink", {"position_gain": 0.5}),
        ("relu", "move", {"gain": 1.0}),
        ("relu", "move", {"gain": 3.0}),
    ],
)
def test_gaps_that_are_too_small_are_refused(kind: Any, head: str, changes: Any, tmp_path: Path) -> None:
    """Moves, gates, and layers that read what earlier ones wrote on the sink."""
    with pytest.raises(Refused):
        checked(*forged(sort(kind), tmp_path / "model.safetensors", head, **changes))


@pytest.mark.again
@pytest.mark.parametrize("kind", ALL)
def test_other_gains_prove_what_is_true_of_them(kind: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    """Whatever gains a file has, what the kernel proves of it is never less than what is found."""
    found = hs.compile_sequence(
        lambda x: hs.relu(T.shift(x, 1) - x), tokens=3, domain=(-1, 1), attention=kind, error=0.1
    )
    proven = 0
    for _ in range(tried(12, 3)):
        gains = {name: float(rng.choice([0.25, 1.0, 2.0, 3.0, 8.0, 64.0, 1e7])) for name in ("position_gain",)}
        header, tensors = forged(found, tmp_path / "model.safetensors", "sink", **gains)
        try:
            certificate = proved(header, tensors)
        except Refused:
            continue
        proven += 1
        assert worst_ratio(header, tensors, certificate.outputs, certificate.masks, rng, count=24, steps=2).ratio <= 1.0
    assert proven >= tried(3, 3)
