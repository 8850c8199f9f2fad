"""Edits of a run, as interpretability makes them every day: heads that are silenced, activations that come from another
run. And what the certificate then still proves.

    without = model.ablate("layer 1 / head 0")           the head returns zero, or its mean over given inputs
    without(x);  without.proven                          for each output the bound that still holds, or None
    patched = model.patch(x, source, "layer 1 / register z2")
    patched.outputs;  patched.says

An edited model computes something else, and nothing is proven of an output that depends on what was edited. An output
that does not depend on it is computed as before, operation by operation, and keeps its bound. Which outputs depend on
what is read from the weights: a path of weights that are not zero leads there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import DomainError, TargetError
from headsmith.core.figures import bound, count
from headsmith.inside.places import Place, place_of
from headsmith.run.numpy_runner import Edits, run_edited
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank
from headsmith.transformer.heads.stream import Link
from headsmith.transformer.ir import Bank, Transformer

Runner = Callable[..., Any]
"""run(transformer, sequences, causal=...), as the model calls it."""


class Editable(Protocol):
    """What is needed of a model."""

    @property
    def transformer(self) -> Transformer: ...
    @property
    def certificate(self) -> Any: ...
    def through(self, runner: Runner, array: Any, outside: str = ..., causal: bool = ...) -> Array: ...


@dataclass(frozen=True, eq=False)
class Edited:
    """A model with some heads silenced. Call it like the model; `proven` has a bound for each output that does not
    depend on them, and None for the others."""

    model: Editable
    values: tuple[tuple[Place, Any], ...]

    def __call__(self, array: Any, *, outside: str = "refuse", causal: bool = False) -> Array:
        """Run the edited model on an array, as the model itself is run."""
        edits = Edits({place.key: value for place, value in self.values}, {})
        return self.model.through(edited_runner(edits), array, outside, causal)

    @property
    def proven(self) -> tuple[float | None, ...]:
        """For each output the proven error that still holds; None where nothing is proven."""
        return still_proven(self.model, [place for place, _ in self.values])

    @property
    def says(self) -> str:
        """What the certificate still proves, in words."""
        return told(self.proven)

    def __repr__(self) -> str:
        return f"<the model without {', '.join(place.name for place, _ in self.values)}\n {self.says}>"


@dataclass(frozen=True, eq=False)
class Patched:
    """What the model returns where some activations come from another run."""

    outputs: Array
    before: Array
    proven: tuple[float | None, ...]
    places: tuple[str, ...]

    @property
    def says(self) -> str:
        """What the certificate still proves, in words."""
        return told(self.proven)

    def __repr__(self) -> str:
        moved = float(np.max(np.abs(self.outputs - self.before), initial=0.0))
        return f"<patched {', '.join(self.places)}: outputs move by {moved:.3g} at most\n {self.says}>"


def ablated(model: Editable, names: Sequence[str], mean_over: Any, causal: bool) -> Edited:
    """The model without some heads: they return zero, or what they return on average over given inputs."""
    if not names:
        raise TargetError('name the heads to silence: model.ablate("layer 1 / head 0")')
    places = [place_of(model.transformer, name) for name in names]
    if wrong := [each.name for each in places if each.register]:
        raise TargetError(f"{wrong[0]!r} is no head; model.patch takes registers")
    values: list[Any] = [0.0] * len(places)
    if mean_over is not None:
        seen = Edits({each.key: None for each in places}, {})
        model.through(edited_runner(seen), mean_over, "refuse", causal)
        kept = [seen.kept[each.key] for each in places]
        values = [each.reshape(-1, each.shape[-1]).mean(axis=0) for each in kept]
    return Edited(model, tuple(zip(places, values, strict=True)))


def patched(model: Editable, array: Any, source: Any, names: Sequence[str], causal: bool) -> Patched:
    """A run on `array` with activations of a run on `source`."""
    if not names:
        raise TargetError('name what to patch: model.patch(x, source, "layer 1 / head 0")')
    if np.shape(array) != np.shape(source):
        raise DomainError(f"inputs of shape {np.shape(array)} and a source of shape {np.shape(source)}")
    places = [place_of(model.transformer, name) for name in names]
    seen = Edits(
        {each.key: None for each in places if not each.register}, {each.key: None for each in places if each.register}
    )
    model.through(edited_runner(seen), source, "refuse", causal)
    edits = Edits({key: seen.kept[key] for key in seen.heads}, {key: seen.kept[key] for key in seen.registers})
    outputs = model.through(edited_runner(edits), array, "refuse", causal)
    before = model.through(edited_runner(Edits({}, {})), array, "refuse", causal)
    return Patched(outputs, before, still_proven(model, places), tuple(names))


def edited_runner(edits: Edits) -> Runner:
    """A runner that edits as it goes."""

    def runner(transformer: Transformer, sequences: Any, *, causal: bool = False) -> Any:
        return run_edited(transformer, sequences, causal, edits)

    return runner


def still_proven(model: Editable, places: Sequence[Place]) -> tuple[float | None, ...]:
    """For each output its bound, if no path of weights that are not zero leads there from what was edited."""
    transformer, bounds = model.transformer, model.certificate.outputs
    touched = {name: np.zeros(size, dtype=bool) for name, size in transformer.sizes.items()}

    def edit_registers(layer: int) -> None:
        for place in places:
            if place.layer == layer and place.register:
                touched[place.register][:] = True

    edit_registers(0)
    for number, layer in enumerate(transformer.layers):
        found = []
        for place, bank in enumerate(layer.banks):
            outputs = _outputs(bank, _reads(bank.read, touched, bank.readers))
            for each in places:
                if (each.layer, each.bank) == (number + 1, place) and not each.register:
                    outputs[each.outputs[0] : each.outputs[1]] = True
            found.append((bank, outputs))
        for bank, outputs in found:
            for link in bank.write:
                mine = outputs[link.sources]
                touched[link.register] |= (
                    mine & (link.weights != 0) if link.weights.ndim == 1 else ((link.weights != 0) @ mine)
                )
        edit_registers(number + 1)
    reached = _reads(transformer.readout, touched, transformer.outputs)
    return tuple(None if hit else float(bound) for hit, bound in zip(reached, bounds, strict=True))


def _reads(links: Sequence[Link], touched: Mapping[str, Array], size: int) -> Any:
    """Which linear forms read something that was touched."""
    found = np.zeros(size, dtype=bool)
    for link in links:
        held = touched[link.register]
        found[link.reads] |= held & (link.weights != 0) if link.weights.ndim == 1 else (link.weights != 0) @ held
    return found


def _outputs(bank: Bank, reads: Any) -> Any:
    """Which outputs of a bank depend on reads that were touched: of means and moves the same ones, of other heads all
    of a head that reads any."""
    if isinstance(bank, MeanBank | MoveBank):
        return reads.copy()
    units = bank.heads or bank.outputs
    each = reads.reshape(units, -1).any(axis=1)
    return np.repeat(each, bank.outputs // units)


def told(proven: Sequence[float | None]) -> str:
    """What is left of a certificate, in one sentence."""
    kept = [(place, value) for place, value in enumerate(proven) if value is not None]
    if not kept:
        return "every output depends on what was edited: nothing is proven of them any more"
    if len(kept) == len(proven):
        largest = bound(max(value for _, value in kept))
        return f"no output depends on what was edited: all keep their proven error, at most {largest}"
    names = ", ".join(f"y{place} (error <= {bound(value)})" for place, value in kept[:6])
    more = f" and {count(len(kept) - 6, 'more output')}" if len(kept) > 6 else ""
    return f"still proven, because they do not depend on what was edited: {names}{more}; of the others nothing is"
