"""What sensitivity-based scales gain over the equal split.

The equal split gives each of N gates the same share of the error: gate h needs b_h = w c_h N / error, where c_h is how
much the gate can move an output and w = W(1/e). The budget pass gives a gate its share by its sensitivity instead. Both
are certified by the same kernel. The equal split overshoots (signs and outputs cancel), so it is also shown loosened,
all its scales divided by one factor, until it is certified for the same error as ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

import headsmith as hs
from headsmith.core.balls import gate_constant
from headsmith.lower.scales import gains_of_heads
from headsmith.plan.analysis.flow import flow_of, known_of
from headsmith.plan.analysis.ranges import ranges
from headsmith.prove.prove import proved_again
from headsmith.transformer.bill import bill
from headsmith.transformer.heads.scaling import split_scale
from headsmith.transformer.ir import Layer, Transformer

ERROR = 1e-3


@dataclass(frozen=True)
class Outcome:
    """What one way of choosing scales leads to."""

    certified: float
    softmax: float
    max_weight: float
    max_scale: float


def random_network(*widths: int, spread: float = 0.0) -> hs.Network:
    """The usual initialisation; with `spread`, neurons get lognormal factors: some matter more than others."""
    random = np.random.default_rng(0)
    layers = []
    for before, after in pairwise(widths):
        weights = random.standard_normal((after, before)) * np.sqrt(2.0 / before)
        weights *= np.exp(spread * random.standard_normal(before) - spread**2)
        layers.append((weights, 0.1 * random.standard_normal(after)))
    return hs.Network(layers)


def digits_network() -> hs.Network:
    """A classifier of 8 x 8 digits, trained by scikit-learn."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    fitted = MLPClassifier((64, 64), max_iter=200, tol=1e-3, random_state=0).fit(images / 16.0, labels)
    return hs.Network([(weights.T, bias) for weights, bias in zip(fitted.coefs_, fitted.intercepts_, strict=True)])


def networks() -> Iterator[tuple[str, hs.Network]]:
    for widths in ((2, 16, 16, 1), (8, 64, 64, 64, 4), (784, 1024, 1024, 1024, 10)):
        yield "random", random_network(*widths)
    for spread in (1.0, 2.0):
        yield f"uneven, {spread:g}", random_network(8, 64, 64, 64, 4, spread=spread)
    yield "digits", digits_network()


def outcome(model: hs.Compiled, transformer: Transformer) -> Outcome:
    assert model.proof is not None
    certificate = proved_again(model.graph, model.box, transformer, model.proof)
    cost = bill(transformer, certificate.max_score)
    scales = [bank.query_scale * bank.key_scale for layer in transformer.layers for bank in layer.banks]
    largest = max(float(scale.max()) for scale in scales)
    return Outcome(certificate.error, certificate.parts["softmax"], cost.max_weight, largest)


def equal_split(model: hs.Compiled, error: float) -> Transformer:
    """The same model with b_h = w c_h N / error."""
    transformer = model.transformer
    gains = flow_of(known_of(model.graph, {}), ranges(model.graph, model.box), {}).gains
    layers = []
    for layer in transformer.layers:
        banks = []
        for bank in layer.banks:
            reach = gains_of_heads(bank, gains, transformer.outputs).size.value.max(axis=1)
            scale = gate_constant() * np.maximum(reach, 1e-12) * model.bill.heads / error
            query, key = split_scale(scale, transformer.precision)
            banks.append(replace(bank, query_scale=query, key_scale=key))
        layers.append(Layer(tuple(banks)))
    return replace(transformer, layers=tuple(layers))


def main() -> None:
    print(f"error {ERROR:g} on [0, 1]; a gain is the equal split's figure over ours\n")
    print(f"{'network':37s} {'gates':>6s}   {'scales':22s} {'certified':>9s} {'max weight':>11s} {'max scale':>11s}")
    for name, network in networks():
        model = hs.compile(network, (0.0, 1.0), ERROR)
        share = model.certificate.parts["softmax"]
        ours, equal = outcome(model, model.transformer), outcome(model, equal_split(model, share))
        loosened = outcome(model, equal_split(model, share * share / equal.softmax))
        print(f"{f'{network!r} {name}':37s} {model.bill.heads:6d}   {_row('budget', ours)}")
        for label, row in (("equal split", equal), ("equal split, loosened", loosened)):
            gains = f"   gain {row.max_weight / ours.max_weight:6.3g} {row.max_scale / ours.max_scale:8.3g}"
            print(f"{'':44s}   {_row(label, row)}{gains}")


def _row(label: str, row: Outcome) -> str:
    return f"{label:22s} {row.certified:9.3g} {row.max_weight:11.4g} {row.max_scale:11.4g}"


if __name__ == "__main__":
    main()
