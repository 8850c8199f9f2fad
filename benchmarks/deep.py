"""Deep and wide networks: how far certified gains and errors are from the largest that are found, scores, run times.

    python benchmarks/deep.py                 the table for networks that are trained on scikit-learn's data, 1e-3

gain      what errors of at most 1 at every gate of the first hidden layer do to an output: as certified, and the
          largest that is found over all slopes of later gates, from 0 to 1 where they have heads (alternating ascent:
          each gate is opened or closed by the sign of its derivative, from random starts): an estimate from below
error     certified, over the largest that hs.falsify finds

    python benchmarks/deep.py float32         what is certified in float32, and how wide the residual stream is for it
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

import headsmith as hs
from headsmith.export.file import header_of
from headsmith.kernel.core.arithmetic import Upper
from headsmith.kernel.core.check import box_of, facts_of
from headsmith.kernel.core.graph import read_graph
from headsmith.kernel.core.model import read_model
from headsmith.kernel.core.proof import read_proof

SETS = {
    "digits": (datasets.load_digits, MLPClassifier),
    "diabetes": (datasets.load_diabetes, MLPRegressor),
    "breast cancer": (datasets.load_breast_cancer, MLPClassifier),
}
SHAPES = {"100-100-100": (100,) * 3, "8 x 48": (48,) * 8}
STARTS, TURNS = 20, 30


def trained(name: str, shape: tuple[int, ...]) -> tuple[hs.Network, list[tuple[float, float]]]:
    """A network and the box of its data, in units of their standard deviations (digits: from 0 to 1)."""
    load, estimator = SETS[name]
    data = load()
    inputs = data.data / 16.0 if name == "digits" else StandardScaler().fit_transform(data.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = estimator(hidden_layer_sizes=shape, max_iter=60, random_state=0).fit(inputs, data.target)
    pairs = [(weights.T, bias) for weights, bias in zip(fitted.coefs_, fitted.intercepts_, strict=True)]
    return hs.Network(pairs, transposed=False), list(zip(inputs.min(axis=0), inputs.max(axis=0), strict=True))


def certified_gain(model: hs.Compiled) -> tuple[float, list[Any]]:
    """The certified gain of the first gates; and the slopes of all layers of gates."""
    tensors: dict[str, Any] = {}
    header = json.loads(json.dumps(header_of(model.contents(), tensors)))
    target = read_graph(header["source"], tensors)
    stored = read_model(header["transformer"], tensors, header["proof"]["roles"])
    with np.errstate(all="ignore"):
        proof = read_proof(header["proof"], tensors, target)
        facts = facts_of(target, stored, proof, box_of(header["domain"], target))
        found = facts.gains
        first, slopes = min(facts.slopes.gates), [each for _, each in sorted(facts.slopes.gates.items())]
        heads = (slopes[0].low < slopes[0].high).astype(float)
        return float(found[first].carried(Upper(heads)).max().value), slopes


def found_gain(network: hs.Network, known: list[Any]) -> float:
    """The largest sum of |d output / d gate| that is found over all slopes of later gates."""
    first = (known[0].low < known[0].high).astype(float)
    random, weights = np.random.default_rng(0), [np.array(each) for each, _ in network.layers][1:]
    best = 0.0
    for _ in range(STARTS):
        slopes = [random.uniform(each.low, each.high).round() for each in known[1:]]
        signs, output = random.choice([-1.0, 1.0], len(first)) * first, int(random.integers(len(weights[-1])))
        for _ in range(TURNS):
            forwards = [signs]
            for each, slope in zip(weights[:-1], slopes, strict=True):
                forwards.append(slope * (each @ forwards[-1]))
            backwards = weights[-1][output]
            for place in reversed(range(len(slopes))):
                wanted = (weights[place] @ forwards[place]) * backwards > 0.0
                slopes[place] = np.clip(wanted.astype(float), known[place + 1].low, known[place + 1].high)
                backwards = weights[place].T @ (slopes[place] * backwards)
            signs = np.where(backwards >= 0.0, 1.0, -1.0) * first
            best = max(best, float(np.abs(backwards) @ first))
    return best


def singles() -> None:
    """Networks in float32 at errors that are close to the smallest."""
    random = np.random.default_rng(0)
    shapes = zip((10, 64, 64), (64, 64, 5), strict=True)
    he = [
        (random.standard_normal((after, before)) * np.sqrt(2.0 / before), np.zeros(after)) for before, after in shapes
    ]
    wanted = [
        ("digits, 100-100-100", trained("digits", (100,) * 3)[0], (0, 1), 1e-2),
        ("digits, 64-64", trained("digits", (64,) * 2)[0], (0, 1), 3e-3),
        ("He, 10-64-64-5", hs.Network(he), (-1, 1), 1e-3),
    ]
    print("| network | asked | certified | d_model | parameters |\n|---|---:|---:|---:|---:|")
    for name, network, box, error in wanted:
        try:
            model = hs.compile(network, box, error, dtype="float32")
        except hs.UnreachableError as refused:
            print(f"| {name} | {error:.2g} | refused, {refused.smallest:.3g} is the smallest | | |", flush=True)
            continue
        cost = model.bill
        print(
            f"| {name} | {error:.2g} | {model.certificate.error:.3g} | {cost.d_model} | {cost.parameters:,} |",
            flush=True,
        )


def main() -> None:
    titles = ("network", "heads", "of gates", "gain certified", "found", "ratio", "error certified", "found", "ratio")
    print(f"| {' | '.join(titles)} | largest score | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    ratios: dict[str, list[float]] = {name: [] for name in SHAPES}
    for name in SETS:
        for shape, widths in SHAPES.items():
            network, box = trained(name, widths)
            start = time.process_time()
            model = hs.compile(network, box, 1e-3, recipe="relu")
            seconds = time.process_time() - start
            certified, slopes = certified_gain(model)
            found, worst = found_gain(network, slopes), hs.falsify(model).error
            ratios[shape].append(model.certificate.error / worst)
            print(
                f"| {name}, {shape} | {model.bill.heads} | {network.graph.gates} | {certified:.3g} | {found:.3g} | "
                f"{certified / found:.2g} | {model.certificate.error:.2g} | {worst:.2g} | {ratios[shape][-1]:.3g} | "
                f"{model.bill.max_score:.2g} | {seconds:.1f} |",
                flush=True,
            )
    for shape, found_ratios in ratios.items():
        print(f"certified over found error, median for {shape}: {np.median(found_ratios):.3g}")


if __name__ == "__main__":
    singles() if sys.argv[1:] == ["float32"] else main()
