"""One model of the suite, as a folder: everything that a method may see, everything that it is scored by, and the
proof.

suite.json                        family, seed, number and level; what is claimed, and which variables have pairs
circuit.json                      the truth: nodes, edges, variables, with witnesses (inside/circuit.py)
config.json, model.safetensors, headsmith_lens.py    the model for TransformerLens; it needs no package of ours
hooked.safetensors                the same as a state dict of HookedTransformer
inputs.safetensors, pairs.safetensors                data.py
proof.safetensors                 the plain model with its proof; of a disguise, rewritten.safetensors, disguise.json
README.md, croissant.json         the card of this data set, for people and for machines
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError, FileFormatError
from headsmith.export.lens import lens
from headsmith.files import load
from headsmith.inside.ablation import Machine
from headsmith.inside.circuit_check import check_circuit
from headsmith.inside.disguise import FOLDER, Disguised, load_disguised
from headsmith.lab.suite.data import Data, data_of
from headsmith.verify import verified_file

PROOF, DISGUISE, TOLD = "proof.safetensors", "disguise.json", "suite.json"
CLOSE = 1e-9
VERSION = 1

Told = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Folder:
    """A model of the suite on disk."""

    path: Path

    @cached_property
    def told(self) -> Told:
        """suite.json."""
        try:
            found: Told = json.loads((self.path / TOLD).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise FileFormatError(f"{self.path}: no model of a suite ({problem})") from None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise FileFormatError(f"{self.path}: a suite of another version")
        return found

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def plain(self) -> Any:
        """The plain model, with its proof."""
        return load(self.path / PROOF)

    @cached_property
    def model(self) -> Any:
        """What is scored: the plain model, or its disguise."""
        return load_disguised(self.path, self.plain) if (self.path / DISGUISE).exists() else self.plain

    @cached_property
    def machine(self) -> Machine:
        """The matrices that are scored, in which edges can be cut."""
        plain = self.model.plain()
        return Machine(plain.config, plain.tensors)

    @cached_property
    def circuit(self) -> dict[str, Any]:
        """The truth."""
        found: dict[str, Any] = json.loads((self.path / "circuit.json").read_text(encoding="utf-8"))
        return found

    @cached_property
    def inputs(self) -> dict[str, Array]:
        return dict(load_file(self.path / "inputs.safetensors"))

    @cached_property
    def pairs(self) -> dict[str, Array]:
        return dict(load_file(self.path / "pairs.safetensors"))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.told['target']}; error <= {self.told['error']:g}>"


def write_folder(path: Path, model: Any, told: Told) -> Folder:
    """Write a model, plain or in disguise; `told` is the start of suite.json."""
    path.mkdir(parents=True)
    plain = model.model if isinstance(model, Disguised) else model
    if isinstance(model, Disguised):
        model.save(path)
    else:
        plain.save(path / PROOF)
    circuit = model.circuit(unique=bool(told["unique"]), seed=told["seed"])
    data = data_of(plain, told["error"], told["data_seed"], told["words"])
    counts = Counter(each["label"] for each in circuit["edges"].values())
    told = {**told, "variables": list(data.variables), "edges": dict(sorted(counts.items()))}
    for name, content in texts(told, model, circuit).items():
        (path / name).write_text(content, encoding="utf-8")
    (path / "circuit.json").write_text(json.dumps(circuit) + "\n", encoding="utf-8")
    for name, arrays in tensors(model, data).items():
        save_file({key: np.ascontiguousarray(each) for key, each in arrays.items()}, path / name)
    return Folder(path)


def tensors(model: Any, data: Data) -> dict[str, dict[str, Array]]:
    """All files of arrays but the proof."""
    found = {"model.safetensors": lens(model.plain()).tensors, "hooked.safetensors": hooked(model)}
    return found | {"inputs.safetensors": data.inputs, "pairs.safetensors": data.pairs}


def texts(told: Told, model: Any, circuit: dict[str, Any]) -> dict[str, str]:
    """All files of text but the circuit and the disguise."""
    code = (files("headsmith.export") / "code" / "headsmith_lens.txt").read_text(encoding="utf-8")
    return {
        TOLD: json.dumps(told, indent=1) + "\n",
        "config.json": json.dumps(lens(model.plain()).config, indent=1) + "\n",
        "headsmith_lens.py": code,
        "README.md": card(told, circuit),
        "croissant.json": json.dumps(croissant(told), indent=1) + "\n",
    }


def hooked(model: Any) -> dict[str, Array]:
    """A state dict of HookedTransformer (attention only, no normalisation): its scores are divided by the root of
    d_head, so W_Q is multiplied by it. Inputs enter as the residual stream before layer 0."""
    plain = lens(model.plain())
    bridge, source = plain.config["bridge"], plain.tensors
    heads, width, d_model = bridge["n_heads"], bridge["d_head"], bridge["d_model"]
    found: dict[str, Array] = {
        "embed.W_E": np.zeros((1, d_model)),
        "pos_embed.W_pos": np.zeros((bridge["n_ctx"], d_model)),
        "unembed.W_U": source["bridge.head.weight"].T,
        "unembed.b_U": source["bridge.head.bias"],
    }
    for layer in range(bridge["n_layers"]):
        stem, own = f"blocks.{layer}.attn", f"bridge.layers.{layer}.attn"
        for name, theirs in (("Q", "q"), ("K", "k"), ("V", "v")):
            weight = source[f"{own}.{theirs}.weight"].reshape(heads, width, d_model)
            found |= {f"{stem}.W_{name}": weight.transpose(0, 2, 1), f"{stem}.b_{name}": np.zeros((heads, width))}
        found[f"{stem}.W_O"] = source[f"{own}.o.weight"].T.reshape(heads, width, d_model)
        found[f"{stem}.b_O"] = np.zeros(d_model)
    return {name: np.ascontiguousarray(each) for name, each in found.items()}


def verify_folder(path: Path, again: Any = None) -> Folder:
    """Prove everything that a folder says, and CertificateError otherwise: the plain model's proof, the disguise's
    certificate, every label and witness, and that all other files follow from these and from the seeds. `again` makes
    the model from its seed, plain and in disguise."""
    folder = Folder(path)
    told = folder.told
    proved = verified_file(path / PROOF)
    if isinstance(folder.model, Disguised):
        proved = folder.model.verify()
    if not proved.error <= told["error"]:
        raise CertificateError(f"{path}: an error of {told['error']!r} is told, and {proved.error!r} can be proved")
    check_circuit(folder.circuit, folder.model)
    data = data_of(folder.plain, told["error"], told["data_seed"], told["words"])
    counts = Counter(each["label"] for each in folder.circuit["edges"].values())
    if told["variables"] != list(data.variables) or told["edges"] != dict(counts):
        raise CertificateError(f"{path / TOLD}: the variables or the counts of labels are others")
    wanted, arrays = texts(told, folder.model, folder.circuit), tensors(folder.model, data)
    own = {"circuit.json", PROOF, *(FOLDER if isinstance(folder.model, Disguised) else ())}
    if strange := sorted({each.name for each in path.iterdir()} ^ {*wanted, *arrays, *own}):
        raise CertificateError(f"{path / strange[0]}: missing, or does not belong to the folder")
    for name, content in wanted.items():
        if (path / name).read_text(encoding="utf-8") != content:
            raise CertificateError(f"{path / name}: does not follow from the proven model")
    for name, each in arrays.items():
        _compare(path / name, load_file(path / name), each)
    if again is not None:
        _compare_models(path, folder.model, again)
    return folder


def _compare(path: Path, found: dict[str, Array], wanted: dict[str, Array]) -> None:
    if found.keys() != wanted.keys():
        raise CertificateError(f"{path}: holds {sorted(found)}, not {sorted(wanted)}")
    for name, array in wanted.items():
        scale = CLOSE * max(1.0, float(np.max(np.abs(array), initial=0.0)))
        exact = path.name in ("model.safetensors", "hooked.safetensors")
        same = found[name].shape == array.shape and (
            np.array_equal(found[name], array) if exact else np.max(np.abs(found[name] - array), initial=0.0) <= scale
        )
        if not same:
            raise CertificateError(f"{path}: {name} is not what the proven model and the seed say")


def _compare_models(path: Path, found: Any, again: Any) -> None:
    """Whether a model is the one that its seed makes: its matrices, up to the last digits of another machine."""
    first, second = found.plain().tensors, again.plain().tensors
    close = first.keys() == second.keys() and all(
        first[name].shape == second[name].shape
        and np.allclose(
            first[name], second[name], rtol=1e-6, atol=1e-9 * max(1.0, float(np.max(np.abs(second[name]), initial=0.0)))
        )
        for name in first
    )
    same = not isinstance(found, Disguised) or (
        isinstance(again, Disguised) and found.seed == again.seed and _plainly(found.recipe) == _plainly(again.recipe)
    )
    if not close or not same:
        raise CertificateError(f"{path}: another model than the one that its seed makes")


def _plainly(recipe: Any) -> Any:
    return json.loads(json.dumps(recipe))


# Cards ----------------------------------------------------------------------------------------------------------------


def card(told: Told, circuit: dict[str, Any]) -> str:
    """README.md: what this is, what is proven, and what its limits are."""
    domain = ", ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in circuit["domain"].items())
    counts = ", ".join(f"{count} {label}" for label, count in told["edges"].items())
    rewrites = ", ".join(each["name"] for each in circuit["rewrites"]) or "none"
    return f"""---
license: cc0-1.0
---
# {told["name"]}

A softmax transformer whose circuit is known and proven, to score methods that look for circuits.

- Target: `{told["target"]}`, for {domain}
- Proven: |model - target| <= {told["error"]:g} for every input in the domain, in {circuit["certificate"]["dtype"]}
- Size: {circuit["cfg"]["n_layers"]} layers, at most {circuit["cfg"]["n_heads"]} heads in each, d_model
{circuit["cfg"].get("d_model")} - Edges, from every node to queries, keys, values and outputs: {counts}
- Family {told["family"]}, level {told["level"]}; rewrites: {rewrites}
- Seeds: model {told["seed"]} / {told["number"]}, data {told["data_seed"]}

A *true* edge has a witness: two inputs at which cutting it moves an output by more than ten certificates, enclosed for
every order of summation. A *false* one moves nothing by more than one certificate, by a theorem that is named. *Grey*
edges are counted neither way. `headsmith suite verify` proves all of this again.

Limits: inputs are real numbers, drawn uniformly; damages are those of resampling; the share of pairs at which an edge
matters is measured, not proven. Outside the domain nothing is known.
"""


def croissant(told: Told) -> dict[str, Any]:
    """The card for machines."""
    names = (
        "model.safetensors",
        "hooked.safetensors",
        "inputs.safetensors",
        "pairs.safetensors",
        "circuit.json",
        PROOF,
    )
    return {
        "@context": {
            "@vocab": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "sc": "https://schema.org/",
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": told["name"],
        "description": f"A transformer with a proven circuit: {told['target']}",
        "license": "https://creativecommons.org/publicdomain/zero/1.0/",
        "version": str(told["version"]),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "encodingFormat": "application/json" if name.endswith("json") else "application/octet-stream",
            }
            for name in names
        ],
    }
