"""What stock models have in common: tokens, inputs, words, heads and read-out, laid out in matrices of larger widths.

The rows of the embedding: the reference tokens; the data token at each place, without its inputs; for each input what
it adds to a data token, times its value; one row for padding, of zeros. With a vocabulary of numbers (tokenizer.json),
there are as many data tokens as inputs, and rows for words: "x=0.25" is the data token at the place of x among the
inputs, with 0.25 there and the middles of the domain for all others, an input like any other.

Heads and columns are filled up with zeros, which add zeros. Scores are divided by the root of d_head = 16^k, together
or a quarter power for each factor: powers of two, by which W_Q is multiplied. The bias of the read-out is a weight on
`data`. After its registers, every token holds constants, against which norms see nothing else. In a `balanced` model
two more columns come before these: a balance, to which minus the sum of all that is written to registers is written;
and a probe, which holds zero and is read by minus the sum of the weights of all registers.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..core.arithmetic import FLOAT32, Array, Interval, Upper, largest
from ..core.errors import Refused, refuse
from ..core.graph import dense
from ..core.heads import addresses
from ..core.model import DATA, GRID, KEY, NEURONS, POSITION, REFERENCE, RESERVED, Bank, Link, Model
from ..core.reading import whole
from ..core.walk import Facts, walk_through

NUMBER = re.compile(r"(.*)=(-?[0-9]{1,40}(\.[0-9]{1,200})?)", re.DOTALL)
MOST_NUMBERS, LARGEST_SQUARE = 1 << 28, 2.0**120
ENTERS = (
    "inputs enter as inputs_embeds: rows of the embedding for the tokens in their order, and for every data token its "
    "inputs times the inputs' rows, added in float32; no padding. Words for numbers, if there are any, enter as "
    "input_ids: the reference tokens, and then one word for each variable, in the order of the variables"
)
Heads = tuple[Array, Array, Array, Array]
Layers = Sequence[Sequence[Heads]]
Neurons = tuple[Array, Array, Array]
Words = Sequence[tuple[int, Array]]


@dataclass(frozen=True, eq=False)
class Laid:
    """The embedding (rows, width); of every layer W_Q, W_K and W_V, (3, width, heads, d_head), and W_O, (heads, d_head,
    width); and the read-out (width, outputs)."""

    table: Array
    layers: list[tuple[Array, Array]]
    score: Array


# The matrices of a model written out ----------------------------------------------------------------------------------
# As a textbook transformer stores them: every number is a stored one, or a product of stored ones that is rounded once
# where it is put into its format.


def columns_of(model: Model) -> dict[str, slice]:
    """Which columns of the stream a register has: one after the other."""
    ends = np.cumsum([*model.sizes.values()]).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(model.sizes.items(), ends, strict=True)}


def placed(model: Model, links: Sequence[Link], rows: int, way: str) -> Array:
    """Links, no two of which meet in one weight (model.py), as one matrix (rows, d_model)."""
    columns, found = columns_of(model), np.zeros((rows, sum(model.sizes.values())))
    for link in links:
        weights, place = (dense(link.weights), link.rows) if way == "read" else (dense(link.weights).T, link.columns)
        found[place, columns[link.register]] += weights
    return found


def tokens_of(model: Model) -> tuple[Array, Array]:
    """The rows of all tokens, the reference tokens first, data tokens without their inputs; and for each input what it
    adds to the row of a data token, times its value."""
    place, found = columns_of(model), np.zeros((model.references + model.tokens, sum(model.sizes.values())))
    found[: model.sink_tokens, place[REFERENCE]] = 1.0
    found[model.sink_tokens : model.references, place.get(GRID, slice(0))] = np.eye(model.grid_tokens)
    data = found[model.references :]
    data[:, place[DATA]] = 1.0
    data[:, place.get(POSITION, slice(0))] = addresses(tuple(range(model.tokens)), model.bits)[:, :-1]
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
    elif bank.kind in ("boltzmann", "mean"):
        features = [(arrays["query_scale"][:, None] * data, arrays["key_scale"][:, None] * read)] if arrays else []
        features += [(gains["gain"] / KEY * data, KEY * data), *keep]
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


# Words and layers ---------------------------------------------------------------------------------------------------


def numbers_of(model: Model, names: Sequence[str], box: Interval, words: Mapping[str, Any]) -> list[tuple[int, Array]]:
    """The place and the inputs of the word in each row after that of padding."""
    first, found, apart = padding(model) + 1, list[tuple[int, Array]](), model.tokens == len(names) == len({*names})
    rows = sorted((whole(row), word) for word, row in words.items() if whole(row) >= first or NUMBER.fullmatch(word))
    if [row for row, _ in rows] != [*range(first, first + len(rows))] or (rows and not apart):
        raise Refused("the rows of words are not one after the other, or there is not one token for each variable")
    for _, word in rows:
        read = NUMBER.fullmatch(word)
        if read is None or read[1] not in names:
            raise Refused(f"the word {word!r} is not a name, = and a number")
        place, values = names.index(read[1]), ((box.low + box.high) / 2.0).astype(np.float32).astype(np.float64)
        values[place] = float(Fraction(read[2]))
        inside = bool(np.all((box.low <= values) & (values <= box.high)))
        if not inside or Fraction(float(np.float32(values[place]))) != Fraction(read[2]):
            raise Refused(f"the number of the word {word!r} is no float32, or not in the domain")
        found.append((place, values))
    return found


def padding(model: Model) -> int:
    """The row of padding: after those of all tokens and inputs."""
    return model.references + model.tokens + model.inputs


def layers_of(model: Model) -> tuple[Layers, list[Neurons]]:
    """The heads and the neurons of every layer of a stock model: a layer of neurons is the MLP of the layer of heads
    before it, or of one without heads."""
    heads, neurons = list[list[Heads]](), list[Neurons]()
    nothing = (np.zeros((0, sum(model.sizes.values()))),) * 3
    for layer in model.layers:
        alone = bool(layer) and layer[0].kind in NEURONS
        if not alone or not heads or len(neurons[-1][0]):
            heads, neurons = [*heads, [heads_of(model, bank) for bank in layer if not alone]], [*neurons, nothing]
        if alone:
            gate, up, down = zip(*(neurons_of(model, bank) for bank in layer), strict=True)
            neurons[-1] = np.vstack(gate), np.vstack(up), np.vstack(down)
    return heads, neurons


def grown(size: int, factor: int, least: int) -> int:
    """The first of size, size times factor, ... that is at least so much."""
    while size < least:
        size *= factor
    return size


def widest(layers: Layers) -> tuple[int, int, int]:
    """The most heads in a layer, and the most features and values of a head."""
    heads = [head for layer in layers for head in layer]
    most = max(sum(len(W_Q) for W_Q, _, _, _ in layer) for layer in layers)
    features, values = ([1, *(head[place].shape[2] for head in heads)] for place in (0, 2))
    return most, max(features), max(values)


def settings(name: str, model: Model, words: int, size: int, width: int) -> dict[str, Any]:
    """What config.json says in the architecture of a name; `size` numbers in all layers, and rows of `width`."""
    rows = padding(model) + 1 + words
    if size + width * rows > MOST_NUMBERS:
        raise Refused(f"{rows} rows of {width} and {size} weights: too large for a stock model")
    kind = "Token" if model.tokens > 1 and not words else "Sequence"
    found: dict[str, Any] = {"architectures": [f"{name}For{kind}Classification"], "dtype": "float32"}
    found |= {"id2label": {str(place): f"y{place}" for place in range(model.outputs)}, "use_cache": False}
    found |= {"label2id": {f"y{place}": place for place in range(model.outputs)}, "tie_word_embeddings": False}
    return found | {"vocab_size": rows, "pad_token_id": padding(model), "bos_token_id": None, "eos_token_id": None}


# How large registers are --------------------------------------------------------------------------------------------


def column_sizes(facts: Facts) -> Upper:
    """How large each column of the stream may be, on any token, before any layer and after the last."""
    walk, precision, found = walk_through(facts), facts.model.precision, np.zeros(sum(facts.model.sizes.values()))
    for stream in (*walk.past, walk.stream):
        sizes = []
        for name, register in stream.items():
            drift = register.drift + precision.gamma(register.count + 2) * register.drift
            size = largest(register.magnitude, drift) + register.off(precision)
            sizes.append(np.ones_like(size.value) if name in RESERVED else size.value)
        found = np.maximum(found, np.concatenate(sizes))
    return Upper(found)


def totals(model: Model, sizes: Upper) -> tuple[Upper, Upper]:
    """Bounds of the sums of the sizes of all columns, and of their squares. Of the reserved columns data and reference
    at most one is 1, and of those of the grid; those of the position code are +-1."""
    own = sizes * np.concatenate([np.full(size, name not in RESERVED) for name, size in model.sizes.items()])
    return own.sum() + (2.0 + model.bits), (own * own).sum() + (2.0 + model.bits)


def root_of(squares: Upper, width: int, epsilon: float, given: float | None) -> float:
    """The weight of all norms, the one that is given or the smallest: a power of two r with
    Q (1 + 2 n u) + n epsilon < n u r^2, for squares of the other columns that add up to at most Q."""
    needed = squares * (1.0 + 2.0 * width * FLOAT32.unit_roundoff) + width * epsilon
    for root in 2.0 ** np.arange(41.0) if given is None else [given]:
        square = float(root) * float(root) * width
        if np.frexp(root)[0] == 0.5 and square <= LARGEST_SQUARE and needed.value < FLOAT32.unit_roundoff * square:
            return float(root)
    shown = "no constant is large enough" if given is None else f"the norms' weight {given:.4g} does not fit"
    raise Refused(f"registers whose squares add up to {float(squares.value):.4g} are not normed away: {shown}")


# What stock models hold ---------------------------------------------------------------------------------------------


def laid_out(
    model: Model, layers: Layers, words: Words, rows: int, sizes: tuple[int, int, int], constants: Array, balanced: bool
) -> Laid:
    """The matrices of a stock model of `sizes` (width, heads, d_head)."""
    (width, heads, head), used = sizes, sum(model.sizes.values())
    balance, probe = (used, used + 1) if balanced else (None, None)
    tokens, inputs = tokens_of(model)
    table, held = np.zeros((rows, width)), used + 2 * balanced
    table[: padding(model)] = _filled(np.concatenate([tokens, inputs]).T, width, balance).T
    table[: len(tokens), held : held + len(constants)] = constants
    data = table[model.references : len(tokens)]
    if words and (np.count_nonzero(inputs, axis=0) + data[:, :used].any(axis=0) > 1).any():
        raise Refused("words need inputs that have columns of the stream for themselves")
    for row, (place, values) in enumerate(words, padding(model) + 1):
        # One product of two float32 in each column, or what was there.
        table[row] = data[place] + _filled(values @ inputs, width, balance)
    found = []
    for layer in layers:
        reads, writes, first = np.zeros((3, width, heads, head)), np.zeros((width, heads, head)), 0
        for *parts, W_O in layer:
            mine = slice(first, first + len(W_O))
            for read, part in zip(reads, parts, strict=True):
                read[:, mine, : part.shape[2]] = _filled(part.transpose(1, 0, 2), width, probe)
            writes[:, mine, : W_O.shape[1]] = _filled(W_O.transpose(2, 0, 1), width, balance)
            first += len(W_O)
        reads[0] *= np.sqrt(head)
        found.append((reads, writes.transpose(1, 2, 0)))
    return Laid(table, found, _filled(readout_of(model).T, width, probe))


def _filled(weights: Array, width: int, minus_sum: int | None) -> Array:
    """Weights (registers, ...) with zeros up to `width`; or minus the sum of all, at one place."""
    found = np.zeros((width, *weights.shape[1:]))
    found[: len(weights)] = weights.astype(np.float32)
    if minus_sum is not None:
        found[minus_sum] = -found.sum(axis=0)
    return found
