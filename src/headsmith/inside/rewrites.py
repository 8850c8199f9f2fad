"""Rewrites of a transformer's matrices that change nothing of what it computes, or next to nothing: disguises.

    balance     columns times powers of two, reads times their inverses: all columns are about as large
    rotate      the stream in another basis: a Hadamard matrix with random signs, its columns permuted, over a power of
                two; so it is orthogonal exactly
    compress    as few columns as the rows that are written span, and of these as few as are read
    mix         another basis of each head's queries and keys, and of its values: whole matrices with whole inverses
    permute     the heads of a layer in another order
    split       a head in several parts that return the same, each with its share of W_O
    decoys      heads that look where true heads look, and write what nobody but other decoys reads
    whispers    heads that look where true heads look, return a number in [0, D], and write to the outputs alone

Whoever rewrites is not trusted: the kernel's rule (kernel/rules/rewritten.py) compares products of what is written and
what is read, and charges all that differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import TargetError
from headsmith.inside.ablation import Machine

IDLE, WHISPER = -1, -2
"""What heads are that are of no head of the proven model."""

RANK = 1e-10
"""Singular values below this share of the largest one count as zero."""

PARTS = (0.5, 0.25, 0.25)
"""The shares of a head that is split."""

Generator = np.random.Generator


@dataclass(frozen=True, eq=False)
class Layer:
    """The heads of a layer: W_Q, W_K, W_V (heads, d_model, width), W_O (heads, width, d_model), of which proven head
    each is one, with which share, and how features of queries and keys and values are mixed, with the inverses."""

    query: Array
    key: Array
    value: Array
    write: Array
    of: Array
    share: Array
    mix: Array
    unmix: Array
    values: Array
    devalues: Array

    def picked(self, heads: Any) -> Layer:
        """Some of the heads, in this order."""
        return Layer(*(getattr(self, name)[heads] for name in self.__dataclass_fields__))

    def with_stream(self, reads: Array, writes: Array) -> Layer:
        """The same heads on a stream that is the old one times `writes`; columns that read it are `reads` times the
        old ones."""
        query, key, value = (reads @ each for each in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value, write=self.write @ writes)

    def joined(self, other: Layer) -> Layer:
        """These heads and others."""
        names = self.__dataclass_fields__
        return Layer(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


@dataclass(frozen=True, eq=False)
class Matrices:
    """A whole transformer. `reads` takes columns that read the proven stream to those that read this one, `writes` rows
    that are written there to those that are written here."""

    references: Array
    embed: Array
    bias: Array
    positions: Array
    layers: tuple[Layer, ...]
    unembed: Array
    outputs: Array
    reads: Array
    writes: Array

    def with_stream(self, reads: Array, writes: Array) -> Matrices:
        """These matrices on a stream that is the old one times `writes`."""
        return Matrices(
            self.references @ writes,
            self.embed @ writes,
            self.bias @ writes,
            self.positions @ writes,
            tuple(layer.with_stream(reads, writes) for layer in self.layers),
            reads @ self.unembed,
            self.outputs,
            reads @ self.reads,
            self.writes @ writes,
        )

    @property
    def width(self) -> int:
        return len(self.bias)


def matrices(machine: Machine) -> Matrices:
    """The matrices of a proven model."""
    tensors, layers = machine.tensors, []
    for query, key, value, write in machine.layers:
        heads = len(query)
        features, columns = (
            np.broadcast_to(np.eye(each), (heads, each, each)) for each in (query.shape[2], value.shape[2])
        )
        ones, count = np.ones(heads), np.arange(heads, dtype=np.float64)
        layers.append(Layer(query, key, value, write, count, ones, features, features, columns, columns))
    eye, bias = np.eye(len(tensors["embed.bias"])), tensors["embed.bias"]
    ends = tensors["embed.weight"].T, bias, tensors["positions"]
    read = tensors["unembed.weight"].T, tensors["unembed.bias"]
    return Matrices(tensors["references"], *ends, tuple(layers), *read, eye, eye)


def tensors_of(model: Matrices) -> dict[str, Array]:
    """The tensors of an exported model, and where its heads come from."""
    found = {
        "references": model.references,
        "embed.weight": model.embed.T,
        "embed.bias": model.bias,
        "positions": model.positions,
        "unembed.weight": model.unembed.T,
        "unembed.bias": model.outputs,
    }
    for number, layer in enumerate(model.layers):
        for name in ("query", "key", "value"):
            found[f"layers.{number}.{name}.weight"] = getattr(layer, name).transpose(0, 2, 1).reshape(-1, model.width)
        found[f"layers.{number}.output.weight"] = layer.write.reshape(-1, model.width).T
        for name in ("of", "share", "mix", "unmix", "values", "devalues"):
            found[f"heads.{number}.{name}"] = getattr(layer, name)
    return {name: np.ascontiguousarray(each, dtype=np.float64) for name, each in found.items()}


def config_of(config: Mapping[str, Any], model: Matrices) -> dict[str, Any]:
    """The configuration of an exported model."""
    layers = [
        {
            "heads": len(layer.of),
            "d_head": layer.query.shape[2],
            "d_value": layer.value.shape[2],
            "names": [f"head {head}" for head in range(len(layer.of))],
        }
        for layer in model.layers
    ]
    return {**config, "d_model": model.width, "layers": layers}


# The rewrites ---------------------------------------------------------------------------------------------------------


def balance(model: Matrices, sizes: Array) -> Matrices:
    """Columns times powers of two, so that those of the largest values `sizes` become about one."""
    powers = 2.0 ** -np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0)))
    return model.with_stream(np.diag(1.0 / powers), np.diag(powers))


def rotate(model: Matrices, rng: Generator) -> Matrices:
    """The stream in a random orthogonal basis of 4^k columns, exactly."""
    power = 1
    while 4**power < model.width:
        power += 1
    wide = 4**power
    hadamard = np.ones((1, 1))
    for _ in range(2 * power):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    basis = (hadamard * rng.choice([-1.0, 1.0], wide))[:, rng.permutation(wide)] / 2.0**power
    basis = basis[rng.permutation(wide)][: model.width]
    return model.with_stream(basis.T, basis)


def compress(model: Matrices) -> Matrices:
    """As few columns as the rows that are written span, and of these as few as are read."""
    data = model.positions + model.bias
    rows = np.vstack(
        [model.references, model.embed, data, *(layer.write.reshape(-1, model.width) for layer in model.layers)]
    )
    _, found, basis = np.linalg.svd(rows, full_matrices=False)
    basis = basis[found > RANK * found[0]].T
    model = model.with_stream(basis.T, basis)
    reads = [
        each.transpose(1, 0, 2).reshape(model.width, -1) for x in model.layers for each in (x.query, x.key, x.value)
    ]
    basis, found, _ = np.linalg.svd(np.hstack([*reads, model.unembed]), full_matrices=False)
    basis = basis[:, found > RANK * found[0]]
    return model.with_stream(basis.T, basis)


def mix(model: Matrices, rng: Generator) -> Matrices:
    """Features of queries and keys, and values, mixed within each head."""
    layers = []
    for layer in model.layers:
        pairs = [(_whole(rng, layer.query.shape[2]), _whole(rng, layer.value.shape[2])) for _ in layer.of]
        mixed, unmixed = (np.stack([pair[0][side] for pair in pairs]) for side in (0, 1))
        values, devalues = (np.stack([pair[1][side] for pair in pairs]) for side in (0, 1))
        layers.append(
            replace(
                layer,
                query=layer.query @ mixed,
                key=layer.key @ unmixed.transpose(0, 2, 1),
                value=layer.value @ values,
                write=devalues @ layer.write,
                mix=layer.mix @ mixed,
                unmix=unmixed @ layer.unmix,
                values=layer.values @ values,
                devalues=devalues @ layer.devalues,
            )
        )
    return replace(model, layers=tuple(layers))


def _whole(rng: Generator, size: int) -> tuple[Array, Array]:
    """A random whole matrix and its inverse, which is whole, too: a permutation with signs, and a few rows added."""
    found = np.eye(size)[rng.permutation(size)] * rng.choice([-1.0, 1.0], size)
    inverse = found.T.copy()
    for _ in range(min(size - 1, 4)):
        one, other = rng.choice(size, 2, replace=False)
        sign = rng.choice([-1.0, 1.0])
        found[one] += sign * found[other]
        inverse[:, other] -= sign * inverse[:, one]
    return found, inverse


def permute(model: Matrices, rng: Generator) -> Matrices:
    """The heads of each layer in another order."""
    return replace(model, layers=tuple(layer.picked(rng.permutation(len(layer.of))) for layer in model.layers))


def split(model: Matrices, rng: Generator, chance: float = 0.5) -> Matrices:
    """Some heads in three parts, with shares of a half and two quarters; one at least."""
    layers, chosen = [], [rng.random(len(layer.of)) < chance for layer in model.layers]
    if chosen and not any(each.any() for each in chosen):
        chosen[0][0] = True
    for layer, mine in zip(model.layers, chosen, strict=True):
        mine = mine & (layer.of >= 0)
        parts = [replace(layer.picked(~mine))]
        for share in PARTS:
            part = layer.picked(mine)
            parts.append(replace(part, write=part.write * share, share=part.share * share))
        joined = parts[0]
        for part in parts[1:]:
            joined = joined.joined(part)
        layers.append(joined)
    return replace(model, layers=tuple(layers))


def decoys(model: Matrices, rng: Generator, count: int, sizes: Array) -> Matrices:
    """So many heads more in each layer, which look where true heads look, and write to columns that only they read."""
    own, old = max(2, count), model.width
    wide = np.eye(old, old + own)
    model, layers = model.with_stream(wide.T, wide), []
    # Decoys read columns whose sizes are known, each of which then is no larger than one.
    scale = np.append(1.0 / np.where(sizes > 0.0, sizes, 1.0), np.ones(own)) / (2.0 * old)
    for layer in model.layers:
        more = layer.picked(rng.integers(0, len(layer.of), count))
        value, write = np.zeros_like(more.value), np.zeros_like(more.write)
        value[:, :, 0] = rng.normal(size=(count, old + own)) * scale
        write[:, 0, old:] = rng.normal(size=(count, own)) / own
        layers.append(layer.joined(_strangers(replace(more, value=value, write=write), IDLE)))
    return replace(model, layers=tuple(layers))


def whispers(model: Matrices, rng: Generator, count: int, amplitude: float, constant: Array) -> Matrices:
    """So many heads more in each layer from which the outputs alone can be reached, which return numbers in [0, D] and
    write them to the first output; all D add up to `amplitude`. `constant` is a column that reads one on data tokens,
    and zero elsewhere."""
    places, later = [], np.zeros((model.width, 0))
    for number in range(len(model.layers) - 1, -1, -1):
        row = _to_output(model.unembed, later)
        if row is None:
            break
        places.append((number, row))
        layer = model.layers[number]
        reads = [each.transpose(1, 0, 2).reshape(model.width, -1) for each in (layer.query, layer.key, layer.value)]
        later = np.hstack([later, *reads])
    if not places or not count:
        raise TargetError("whispers write to what the outputs alone read: here heads of every layer read it, too")
    each, layers = amplitude / (count * len(places)), list(model.layers)
    for number, row in places:
        layer = layers[number]
        more = layer.picked(rng.integers(0, len(layer.of), count))
        value, write = np.zeros_like(more.value), np.zeros_like(more.write)
        value[:, :, 0] = constant
        write[:, 0] = row * each
        layers[number] = layer.joined(_strangers(replace(more, value=value, write=write), WHISPER))
    return replace(model, layers=tuple(layers))


def _to_output(unembed: Array, later: Array) -> Array | None:
    """A row that the first output reads as one, the others as zero, and later heads not at all."""
    wanted = np.zeros(unembed.shape[1] + later.shape[1])
    wanted[0] = 1.0
    columns = np.hstack([unembed, later])
    free = [
        c for c in range(len(columns)) if not np.any(later[c]) and np.count_nonzero(unembed[c]) == 1 and unembed[c, 0]
    ]
    if free:
        row = np.zeros(len(columns))
        row[free[0]] = 1.0 / unembed[free[0], 0]
        return row
    return None


def _strangers(layer: Layer, kind: int) -> Layer:
    """Heads that are of none of the proven model."""
    heads, features, columns = len(layer.of), layer.query.shape[2], layer.value.shape[2]
    eyes = [np.broadcast_to(np.eye(size), (heads, size, size)) for size in (features, features, columns, columns)]
    return replace(
        layer,
        of=np.full(heads, kind),
        share=np.zeros(heads),
        mix=eyes[0],
        unmix=eyes[1],
        values=eyes[2],
        devalues=eyes[3],
    )
