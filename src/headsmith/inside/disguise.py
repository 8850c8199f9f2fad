"""A model in disguise: other matrices that compute the same, with a certificate of their own.

    hidden = model.disguise(level=1, seed=3)
    hidden(x);  hidden.certificate.error
    hidden.circuit()["nodes"]["a0.h2"]["of"]        which head of the plain model it is

The plain model keeps its proof. The kernel compares what the rewritten matrices write and read with what the proven
ones do, and charges all that differs (kernel/rules/rewritten.py): so the certificate does not depend on how anything
was rewritten. Where the margins of the plain proof are too thin for that, the proof is written again with wider ones.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from headsmith.core.arrays import Array
from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError, FileFormatError, TargetError
from headsmith.export.plain import Plain
from headsmith.inside import rewrites
from headsmith.inside.ablation import Machine
from headsmith.inside.circuit import draws
from headsmith.inside.rewrites import Matrices
from headsmith.kernel.core.check import DAMAGE, refuse_less
from headsmith.kernel.core.check import Certificate as Proved
from headsmith.kernel.core.errors import Refused, ThinMargin
from headsmith.kernel.core.reading import read
from headsmith.kernel.rules.rewritten import Loss, needed_loss, rewritten
from headsmith.prove.prove import proved_again, with_wider_margins

LEVELS: Mapping[int, Mapping[str, Any]] = {
    0: {},
    1: {"balance": True, "compress": True, "mix": True, "permute": True, "rotate": True},
    2: {"balance": True, "decoys": 2, "split": True, "mix": True, "permute": True, "rotate": True},
    3: {"balance": True, "decoys": 2, "whispers": 4, "mix": True, "permute": True, "rotate": True},
}
"""What `level` stands for. At level 3 the model itself should be sharp: compiled for a smaller error than is
claimed."""

MARGINS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
"""How wide the margins of tables are made, where thinner ones are too thin."""

ROOM = 2.0
"""So much more is allowed for than a first walk asks for: coefficients grow with what is allowed for."""

SEEN = 256
"""How many runs say how large columns are; it decides nothing but powers of two."""

FOLDER = ("disguise.json", "proof.safetensors", "rewritten.safetensors")


@dataclass(frozen=True, eq=False)
class Disguised:
    """Other matrices of a model. `model` is the plain one, which is proven; `recipe` says what was done, in order."""

    model: Any
    recipe: tuple[Mapping[str, Any], ...]
    seed: int
    tensors: Mapping[str, Array]
    loss: Loss
    certificate: Certificate

    def __repr__(self) -> str:
        done = ", ".join(each["name"] for each in self.recipe) or "nothing"
        return f"<Disguised {self.model!r}\n {done}; error <= {self.certificate.error:.6g}>"

    def __call__(self, array: Any, *, outside: str = "refuse", causal: bool = False) -> Array:
        """Run the rewritten matrices on what the model takes."""

        def runner(transformer: Any, sequences: Any, *, causal: bool = False) -> Array:
            machine = replace(self.machine, config={**self.machine.config, "causal": causal})
            return machine.run(np.asarray(sequences, dtype=np.float64)).outputs

        found: Array = self.model.through(runner, array, outside, causal)
        return found

    @property
    def box(self) -> Any:
        """The domain."""
        return self.model.box

    @property
    def transformer(self) -> Any:
        """The plain model's transformer: its inputs, tokens and outputs are the same."""
        return self.model.transformer

    @property
    def blocks(self) -> bool:
        """Whether the inputs are laid out over tokens, one for each affine piece."""
        return bool(self.model.blocks)

    def circuit(self, *, damages: bool = True, unique: bool = False, seed: int = 0) -> dict[str, Any]:
        """What every head does, as data (inside/disguised_circuit.py)."""
        # It builds upon this module.
        told: dict[str, Any] = import_module("headsmith.inside.disguised_circuit").circuit_of(
            self, damages, unique, seed
        )
        return told

    @cached_property
    def plain_machine(self) -> Machine:
        """The matrices of the plain model."""
        plain = self.model.plain()
        return Machine(plain.config, plain.tensors)

    @cached_property
    def machine(self) -> Machine:
        """The rewritten matrices, in which edges can be cut."""
        layers = [
            {
                "heads": len(self.tensors[f"heads.{number}.of"]),
                "d_head": self.tensors[f"heads.{number}.mix"].shape[2],
                "d_value": self.tensors[f"heads.{number}.values"].shape[2],
                "names": [f"head {head}" for head in range(len(self.tensors[f"heads.{number}.of"]))],
            }
            for number in range(len(self.plain_machine.layers))
        ]
        config = {**self.plain_machine.config, "layers": layers, "d_model": len(self.tensors["embed.bias"])}
        own = {name: each for name, each in self.tensors.items() if not name.startswith(("heads.", "stream."))}
        return Machine(config, own)

    def plain(self) -> Plain:
        """The rewritten matrices as other tools get them (export/plain.py)."""
        return Plain(dict(self.machine.config), dict(self.machine.tensors))

    @property
    def origins(self) -> list[list[tuple[int, float]]]:
        """For each head of each layer the head of the plain model that it is, or is a part of, and its share; -1 for
        idle heads and -2 for whispers."""
        return [
            list(
                zip(
                    self.tensors[f"heads.{n}.of"].astype(int).tolist(),
                    self.tensors[f"heads.{n}.share"].tolist(),
                    strict=True,
                )
            )
            for n in range(len(self.machine.layers))
        ]

    def verify(self) -> Certificate:
        """Prove the certificate again: the plain model's proof, and that the rewritten matrices do the same."""
        try:
            found = _proved(self.model, self.plain_machine.tensors, self.tensors, self.loss)
            every = {name: value for name, value in vars(found).items() if name != "domain"}
            refuse_less("claim:", self.certificate.claim, every)
        except (Refused, *DAMAGE) as problem:
            raise CertificateError(f"the disguise is not certified: {problem}") from None
        if self.certificate.domain != found.domain:
            raise CertificateError(f"the domain {self.certificate.domain} is claimed, and it is {found.domain}")
        return Certificate.of(found)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the plain model with its proof, the rewritten matrices, and what was done, into a folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self.model.save(path / FOLDER[1])
        save_file({name: np.ascontiguousarray(each) for name, each in self.tensors.items()}, path / FOLDER[2])
        told = {
            "format": "headsmith disguise",
            "version": 1,
            "seed": self.seed,
            "rewrites": [dict(each) for each in self.recipe],
            "loss": {"returned": self.loss.returned, "scores": self.loss.scores},
            "claim": self.certificate.claim,
            "domain": [list(each) for each in self.certificate.domain],
        }
        (path / FOLDER[0]).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def load_disguised(folder: str | os.PathLike[str], model: Any) -> Disguised:
    """What `save` wrote; the model is the one in the folder. Nothing is checked here but that it is complete."""
    path = Path(folder)
    try:
        told = json.loads((path / FOLDER[0]).read_text(encoding="utf-8"))
        tensors = load_file(path / FOLDER[2])
        loss = Loss(float(told["loss"]["returned"]), float(told["loss"]["scores"]))
        domain = [(str(name), float(low), float(high)) for name, low, high in told["domain"]]
        certificate = Certificate.claimed(told["claim"], domain)
        return Disguised(model, tuple(told["rewrites"]), int(told["seed"]), tensors, loss, certificate)
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise FileFormatError(f"{path}: no complete disguise ({type(problem).__name__}: {problem})") from None


def disguise(
    model: Any, level: int | None = None, seed: int = 0, amplitude: float | None = None, **wanted: Any
) -> Disguised:
    """The model in disguise: by a level, or by what is `wanted`, by name: balance, compress, rotate, mix and permute
    (True), split (True, or the chance of a head), decoys and whispers (how many heads in each layer). All whispers
    together move the first output by at most `amplitude`, a tenth of the certificate unless given."""
    if level is not None and (level not in LEVELS or wanted):
        raise TargetError(f"a disguise has a level of 0 to {max(LEVELS)}, or its rewrites by name, not both")
    chosen = {**(LEVELS[level] if level is not None else wanted)}
    if unknown := sorted(
        chosen.keys() - {"balance", "compress", "rotate", "mix", "permute", "split", "decoys", "whispers"}
    ):
        raise TargetError(f"there is no rewrite {unknown[0]!r}")
    plain = model.plain()
    machine = Machine(plain.config, plain.tensors)
    moved = model.certificate.error / 10.0 if amplitude is None else amplitude
    found, recipe = _applied(machine, model, chosen, seed, moved)
    tensors = rewrites.tensors_of(found) | {"stream.reads": found.reads, "stream.writes": found.writes}
    for margin in MARGINS:
        roomy = with_margins(model, margin)
        try:
            loss = _loss(roomy, plain.tensors, tensors)
            certificate = _certificate(roomy, plain.tensors, tensors, loss)
        except ThinMargin:
            continue
        except Refused as problem:
            raise CertificateError(f"the disguise is not certified: {problem}") from None
        return Disguised(roomy, tuple(recipe), seed, tensors, loss, certificate)
    raise CertificateError("the disguise is not certified: what heads read is further off than the proof allows for")


def _applied(
    machine: Machine, model: Any, chosen: Mapping[str, Any], seed: int, amplitude: float
) -> tuple[Matrices, list[dict[str, Any]]]:
    """All rewrites, one after the other, and a list of them."""
    found, recipe = rewrites.matrices(machine), list[dict[str, Any]]()
    trace = machine.run(draws(model)(np.random.default_rng([seed, 0]), SEEN))
    sizes = np.max([np.abs(each).reshape(-1, each.shape[-1]).max(axis=0) for each in trace.streams], axis=0)
    constant = np.zeros(found.width)
    constant[0] = 1.0  # the register `data` comes first: one on data tokens, zero on others
    order = ("whispers", "decoys", "split", "balance", "compress", "mix", "permute", "rotate")
    for name in (name for name in order if chosen.get(name)):
        rng = np.random.default_rng([seed, 1 + order.index(name)])
        told: dict[str, Any] = {"name": name, "seed": seed}
        match name:
            case "whispers":
                found = rewrites.whispers(found, rng, int(chosen[name]), amplitude, constant)
                told |= {"parameters": {"count": int(chosen[name]), "amplitude": amplitude}}
            case "decoys":
                found = rewrites.decoys(found, rng, int(chosen[name]), sizes)
                sizes = np.append(sizes, np.ones(found.width - len(sizes)))
                told |= {"parameters": {"count": int(chosen[name])}}
            case "split":
                chance = 0.5 if chosen[name] is True else float(chosen[name])
                found = rewrites.split(found, rng, chance)
                told |= {"parameters": {"chance": chance}}
            case "balance":
                found = rewrites.balance(found, sizes)
            case "compress":
                found = rewrites.compress(found)
            case "mix":
                found = rewrites.mix(found, rng)
            case "permute":
                found = rewrites.permute(found, rng)
            case "rotate":
                found = rewrites.rotate(found, rng)
        recipe.append(told)
    return found, recipe


def with_margins(model: Any, margin: float) -> Any:
    """The model with a proof whose tables allow for reads that are off by `margin`, at least."""
    proof = with_wider_margins(model.graph, model.box, model.transformer, model.proof, margin)
    if proof is model.proof:
        return model
    parts = model.graph, model.box, model.transformer, proof
    return replace(model, proof=proof, certificate=proved_again(*parts, model.approximates))


def _contents(model: Any) -> tuple[Any, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        model.save(path)
        return read(path)


def _loss(model: Any, plain: Mapping[str, Array], other: Mapping[str, Array]) -> Loss:
    """What is allowed for: what a walk asks for that allows for next to nothing, and more, until it is enough."""
    header, stored = _contents(model)
    loss = Loss(1e-300, 0.0)
    with np.errstate(all="ignore"):
        for _ in range(6):
            needed = needed_loss(header, stored, plain, other, loss)
            if needed.returned <= loss.returned and needed.scores <= loss.scores:
                break
            loss = Loss(ROOM * needed.returned, ROOM * needed.scores)
    return loss


def _certificate(model: Any, plain: Mapping[str, Array], other: Mapping[str, Array], loss: Loss) -> Certificate:
    """What is proved of the rewritten matrices, and a little more for other machines."""
    return Certificate.of(_proved(model, plain, other, loss))


def _proved(model: Any, plain: Mapping[str, Array], other: Mapping[str, Array], loss: Loss) -> Proved:
    """What is proved of the rewritten matrices."""
    header, stored = _contents(model)
    with np.errstate(all="ignore"):
        found, extra = rewritten(header, stored, plain, other, loss)
    outputs = tuple((np.array(found.outputs) + extra).tolist())
    worst = float(extra.max())
    parts = {**found.parts, "rounding": found.parts["rounding"] + worst}
    return replace(found, error=found.error + worst, parts=parts, outputs=outputs, target=model.certificate.target)
