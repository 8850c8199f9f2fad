"""The matrices of a model written out, as a textbook transformer stores them: every number is a stored one, or a
product of stored ones that is rounded once where it is put into its format.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arithmetic import Array
from .errors import Refused, refuse
from .graph import dense
from .heads import addresses
from .model import DATA, GRID, KEY, POSITION, REFERENCE, Bank, Link, Model

Heads = tuple[Array, Array, Array, Array]


def columns_of(model: Model) -> dict[str, slice]:
    """Which columns of the stream a register has: one after the other."""
    ends = np.cumsum([*model.sizes.values()]).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(model.sizes.items(), ends, strict=True)}


def placed(model: Model, links: Sequence[Link], rows: int, way: str) -> Array:
    """Links as one matrix (rows, d_model), in which no two may meet so that their sum is rounded."""
    columns, found = columns_of(model), np.zeros((rows, sum(model.sizes.values())))
    for link in links:
        weights, place = dense(link.weights), link.rows if way == "read" else link.columns
        held = found[place, columns[link.register]]
        weights = weights if way == "read" else weights.T
        total = held + weights
        if not np.array_equal(total.astype(np.float32), total) or not np.array_equal(total - held, weights):
            raise Refused("two links meet in one weight, whose sum would be rounded")
        found[place, columns[link.register]] = total
    return found


def tokens_of(model: Model) -> tuple[Array, Array]:
    """The rows of all tokens, the reference tokens first, data tokens without their inputs; and for each input what it
    adds to the row of a data token, times its value."""
    place, found = columns_of(model), np.zeros((model.references + model.tokens, sum(model.sizes.values())))
    if model.sink_tokens:
        found[0, place[REFERENCE]] = 1.0
    if model.grid_tokens:
        found[model.sink_tokens : model.references, place[GRID]] = np.eye(model.grid_tokens)
    data = found[model.references :]
    data[:, place[DATA]] = 1.0
    if model.tokens > 1:
        data[:, place[POSITION]] = addresses(tuple(range(model.tokens)), model.bits)[:, :-1]
    for name, values in (*model.initial.items(), *model.positional.items()):
        data[:, place[name]] = values
    return found, placed(model, model.embedding, model.inputs, "write")


def readout_of(model: Model) -> Array:
    """What the outputs read, (outputs, d_model): the bias is a weight on `data`, which is one."""
    found, place = placed(model, model.readout, model.outputs, "read"), columns_of(model)[DATA]
    refuse(np.any(model.readout_bias) and found[:, place].any(), "the bias of the read-out meets another weight")
    found[:, place] += model.readout_bias[:, None]
    return found


def heads_of(model: Model, bank: Bank) -> Heads:
    """W_Q, W_K (heads, d_model, features), W_V (heads, d_model, values) and W_O (heads, values, d_model) of a bank, as
    model.py says."""
    columns, gains, bits = columns_of(model), bank.gains, model.bits
    read, write = placed(model, bank.read, bank.forms, "read"), placed(model, bank.write, bank.outputs, "write")
    ones = np.eye(read.shape[1])
    data, reference, grid = (ones[columns[name]] if name in columns else ones[:0] for name in (DATA, REFERENCE, GRID))
    place, kept = ones[columns[POSITION]] if bits else ones[:0], reference + grid.sum(axis=0)
    keep = [(gains["keep_gain"] / KEY * kept, KEY * reference)] if "keep_gain" in gains and model.sink_tokens else []
    values, arrays = read.reshape(bank.heads, -1, read.shape[1]).transpose(0, 2, 1), bank.arrays
    if bank.kind == "sink":
        reference_gain, position_gain = gains["reference_gain"] / KEY, gains["position_gain"] / KEY
        query, key = arrays["query_scale"][:, None], arrays["key_scale"][:, None]
        features = [(query * read, key * data), (reference_gain * kept, KEY * reference)]
        features += [(position_gain / 2.0 * bit, KEY * bit) for bit in place]
        features += [(KEY * data, -position_gain * bits / 2.0 * data)] if bits else []
        features += [(KEY * data, -reference_gain * grid.sum(axis=0))] if len(grid) else []
    elif bank.kind == "table":
        slope, silent, wide = arrays["slope"], gains["gain"] * (data + reference), arrays["slope"].shape[2]
        features = [(read[each::wide], slope[:, :, each] @ grid) for each in range(wide)]
        features += [(data, arrays["offset"] @ grid - silent), *keep]
        values = np.einsum("hgc,gn->hnc", arrays["values"], grid)
    elif bank.kind == "gate":
        position_gain = gains["position_gain"] / KEY
        own = arrays["offset"] / KEY @ grid - position_gain * bits / 2.0 * data
        features = [(read[0::2], arrays["slope"] @ grid), (KEY * data, own)]
        features += [(position_gain / 2.0 * bit, KEY * bit) for bit in place]
        features += [(gains["keep_gain"] / KEY * (kept - data), KEY * reference)]
        values = read[1::2, :, None]
    elif bank.kind == "boltzmann":
        features = [(arrays["query_scale"][:, None] * data, arrays["key_scale"][:, None] * read)]
        features += [(gains["gain"] / KEY * data, KEY * data), *keep]
    elif bank.kind == "mean":
        features = [(gains["gain"] / KEY * data, KEY * data), *keep]
    elif bank.kind == "move" and isinstance(bank.address, int):
        code = addresses((bank.address,), bits)[:, :-1] @ place
        features = [(gains["gain"] / KEY * data, KEY * code), *keep]
    elif bank.kind == "move":
        address = ones[columns[str(bank.address)]]
        features = [(gains["gain"] / KEY * one, KEY * bit) for one, bit in zip(address[:-1], place, strict=True)]
        features += [(query + gains["gain"] * bits / KEY * address[-1], key) for query, key in keep]
    else:
        wide = bank.width
        features = [(read[each], read[wide + each]) for each in range(wide)]
        features += [(KEY * data, -gains["gain"] / KEY * kept)] if model.references else []
        features, values = [*features, *keep], read[2 * wide :].T[None]
    shape = (bank.heads, read.shape[1])
    W_Q, W_K = (np.stack([np.broadcast_to(each[way], shape) for each in features], axis=2) for way in (0, 1))
    return W_Q, W_K, values, write.reshape(bank.heads, -1, read.shape[1])


def neurons_of(model: Model, bank: Bank) -> tuple[Array, Array, Array]:
    """Of all neurons of a bank what the gate reads, what it is multiplied with, and where that goes: (neurons, d_model)
    each, as model.py says."""
    read, write = placed(model, bank.read, bank.forms, "read"), placed(model, bank.write, bank.outputs, "write")
    if bank.kind == "swiglu":
        sign = np.tile([1.0, -1.0], bank.outputs)[:, None]
        return sign * np.repeat(read[0::2], 2, axis=0), np.repeat(read[1::2], 2, axis=0), sign * np.repeat(write, 2, 0)
    scale, data = bank.arrays["scale"][:, None], np.zeros_like(read)
    data[:, columns_of(model)[DATA]] = 1.0
    return read * scale, data, write / scale
