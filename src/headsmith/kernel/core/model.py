"""What is run: a residual stream of named registers, layers of attention heads, and a read-out.

    X in R^{T x d}      T tokens: the sink (where there is one), the grid's tokens, then 1 to `tokens` data tokens
    X_data   = embedding(x) + initial + positional;  data = 1, position = the binary code of the token's place (+1, -1)
    X_sink   = 0 but reference = 1;    X_grid k = 0 but grid[k] = 1
    X       <- X + sum_h softmax(Q_h K_h^T) V_h O_h          all heads of a layer at once
    output   = readout(X_data) + readout_bias

Heads come in banks: all heads of one kind in one layer, stored without their zeros. `read` are the linear forms of the
stream that a bank reads, `write` where its outputs are added. Each kind's features (the columns of W_Q and W_K) and
values (W_V) are these; KEY = 8 only shares gains between query and key.

    sink        one head a form z: value z
                query_scale z | key_scale data;         reference_gain/KEY (reference + sum grid) | KEY reference
                position_gain/2/KEY position[k] | KEY position[k];  KEY data | -position_gain bits/2/KEY data
                KEY data | -reference_gain/KEY (sum grid)
    table       one head for each few forms s: values . grid, one for each column
                s_a | slope[:, a] . grid;       data | offset . grid - gain (data + reference);       keep
    gate        one head for each pair of forms x, y: value y
                x | slope . grid;               KEY data | offset/KEY . grid - position_gain bits/2/KEY data
                position_gain/2/KEY position[k] | KEY position[k]
                keep_gain/KEY (reference + sum grid - data) | KEY reference
    mean        `split` heads: as many forms are values of each.        gain/KEY data | KEY data;   keep
    boltzmann   one head a form x: value x.  query_scale data | key_scale x;  gain/KEY data | KEY data;   keep
    product     one head for each pair of forms x, y, under linear attention: value y.      x | data
    move        `split` heads: as many forms are values of each.  gain/KEY address[k] | KEY position[k];
                gain bits/KEY address[bits] + keep_gain/KEY (reference + sum grid) | KEY reference
                of an address that is a number, code c of a token: gain/KEY data | KEY sum_k c[k] position[k];  keep
    attend      one head: the first `width` forms are the query, the next the key, the others values
                query . key;                    KEY data | -gain/KEY (reference + sum grid);  keep

    keep        keep_gain/KEY (reference + sum grid) | KEY reference         with a sink: reference tokens keep to it

A layer may also be a SwiGLU block (attentions.py), whose banks hold neurons: X <- X + sum_n silu(X g_n) (X v_n) o_n.

    swiglu      two neurons for each pair of forms x, y:  g = x, v = y and g = -x, v = y, written with weights w and -w
    silu        one neuron a form z:  g = scale z, v = data, written with weights w / scale

Under another attention than softmax (attentions.py) there is no grid, and under sigmoid, relu and linear attention no
sink. Under relu attention the value of a sink head is `data`. Under elu+1 these are the features of a sink head, and
under sigmoid and relu attention a move has this one more:

    sink        query_scale z | -reference_gain reference;      -query_scale z | -reference_gain data
    move        KEY data | -gain (bits - 1/2)/KEY data
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .arithmetic import FLOAT64, PRECISIONS, Array, Precision, Weights, interval
from .errors import Refused, refuse, spend
from .reading import MOST, Tensors, field, flag, indices, items, mapping, numbers, real, text, weights, whole
from .sparse import entries_of, entrywise, of_rows, sparse_of

DATA, REFERENCE, POSITION, GRID = "data", "reference", "position", "grid"
RESERVED = (DATA, REFERENCE, POSITION, GRID)
KEY = 8.0

SHAPES: dict[str, dict[str, str]] = {
    **{key: {"query_scale": "h", "key_scale": "h"} for key in ("sink", "boltzmann")},
    "table": {"slope": "hga", "offset": "hg", "values": "hgc"},
    "gate": {"slope": "hg", "offset": "hg"},
    "silu": {"scale": "h"},
    **{key: {} for key in ("product", "swiglu", "mean", "move", "attend")},
}  # the axes of arrays: heads, tokens of the grid, arguments (1 or 2) and columns
GAINS: dict[str, tuple[str, ...]] = dict.fromkeys(SHAPES, ("gain", "keep_gain"))
GAINS.update(sink=("reference_gain", "position_gain"), gate=("position_gain", "keep_gain"), product=())
NEURONS, PAIRS = ("swiglu", "silu"), ("product", "swiglu")  # the banks of SwiGLU blocks, and those that multiply
GAINS.update(dict.fromkeys(NEURONS, ()))
SHARP, SINGLE = ("sink", "mean", "boltzmann", "move"), ("sink", "move")
ATTENTIONS = {"hardmax": SHARP, "sparsemax": SHARP, "sigmoid": SINGLE, "relu": SINGLE}
ATTENTIONS |= {"elu+1": ("sink",), "linear": ("product",), "softmax": tuple(SHAPES.keys() - {"product"})}
# The kinds of banks, under each attention.
ONE_TOKEN = ("elu+1", "linear")  # the attentions under which a model has one data token
WITHOUT_SINK = ("sigmoid", "relu", "linear")


@dataclass(frozen=True, eq=False)
class Link:
    """Weights (to, from) between a register and a run of forms, outputs or inputs that starts at `first`; a vector
    stands for a diagonal matrix."""

    register: str
    weights: Weights
    first: int

    @property
    def rows(self) -> slice:
        """The forms that a link feeds, where it reads a register."""
        return slice(self.first, self.first + self.weights.shape[0])

    @property
    def columns(self) -> slice:
        """The outputs or inputs that a link takes from, where it writes a register."""
        return slice(self.first, self.first + self.weights.shape[-1])


@dataclass(frozen=True, eq=False)
class Bank:
    """Heads of one kind. Output k stands for component `component[k]` of circuit node `node[k]`: so says the proof."""

    kind: str
    read: tuple[Link, ...]
    write: tuple[Link, ...]
    arrays: dict[str, Array]
    gains: dict[str, float]
    forms: int
    outputs: int
    heads: int
    node: Any
    component: Any
    address: str | int = ""
    width: int = 0

    @property
    def scale(self) -> Array | float:
        """By what the weights of reads are multiplied in the matrix that scores: of every head, or of all."""
        names = {"sink": "query_scale", "boltzmann": "key_scale", "silu": "scale"}
        return self.arrays.get(names.get(self.kind, ""), 1.0)

    @property
    def copies(self) -> bool:
        """Whether the outputs stand for no node, but for what the bank reads (stream.py, rule Clear)."""
        return bool(np.all(self.node == -1))


@dataclass(frozen=True, eq=False)
class Model:
    """A complete model."""

    inputs: int
    outputs: int
    tokens: int
    precision: Precision
    sizes: dict[str, int]
    embedding: tuple[Link, ...]
    initial: dict[str, Array]
    positional: dict[str, Array]
    layers: tuple[tuple[Bank, ...], ...]
    readout: tuple[Link, ...]
    readout_bias: Array
    attention: str = "softmax"
    alone: bool = False  # whether it runs under the mask self+prefix, too

    @property
    def computing(self) -> list[Bank]:
        """The banks whose outputs stand for nodes."""
        return [bank for layer in self.layers for bank in layer if not bank.copies]

    @property
    def bits(self) -> int:
        """How many columns the position code has."""
        return (self.tokens - 1).bit_length()

    @property
    def grid_tokens(self) -> int:
        """How many tokens the grid has."""
        return self.sizes.get(GRID, 0)

    @cached_property
    def sink_tokens(self) -> int:
        """One, if any head needs the sink: a gate, a move that fetches nothing, or, beside a grid, any head that reads
        values from all tokens, whose tokens must then stay zero; but a move in the first layer, to all tokens alike."""
        banks = [(place, bank) for place, layer in enumerate(self.layers) for bank in layer]
        return int(any(self._needs_sink(bank, place > 0) for place, bank in banks))

    def _needs_sink(self, bank: Bank, later: bool) -> bool:
        if self.attention in WITHOUT_SINK:
            return False
        if bank.kind == "move" and isinstance(bank.address, str) and self.positional[bank.address][:, -1].any():
            return True
        beside = self.grid_tokens > 0 and (later or isinstance(bank.address, str))
        return bank.kind in ("sink", "gate") or (bank.kind not in ("table", *NEURONS) and beside)

    @property
    def references(self) -> int:
        """How many tokens are no data tokens."""
        return self.sink_tokens + self.grid_tokens


def read_model(stored: Any, tensors: Tensors, roles: Any) -> Model:
    """The model of a file: shapes fit, names exist, constants are never written, numbers are of the format. `roles` say
    for each bank of each layer which circuit nodes and components its outputs stand for: they are the proof's."""
    dtype, tokens = text(field(stored, "dtype")), whole(field(stored, "tokens"), 1, 1 << 40)
    refuse(dtype not in PRECISIONS, f"unknown dtype {dtype!r}")
    registers = [(text(field(each, "name")), whole(field(each, "size"))) for each in items(field(stored, "registers"))]
    sizes = dict(registers)
    reserved = {DATA: 1, REFERENCE: 1, GRID: sizes.get(GRID), POSITION: (tokens - 1).bit_length() or None}
    if len(sizes) < len(registers) or any(sizes.get(name) != size for name, size in reserved.items()):
        raise Refused(f"the constant registers must be {', '.join(reserved)}, and all names different")
    if sum(sizes.values()) > sum(tensor.size for tensor in tensors.values()) + 64:
        raise Refused(f"{sum(sizes.values())} columns of registers are more than all numbers of the file")
    reader = _Reader(tensors, PRECISIONS[dtype], sizes, {*RESERVED, *mapping(mapping(stored).get("positional", {}))})
    positional = reader.constants(mapping(stored).get("positional", {}), (tokens,))
    initial = reader.constants(field(stored, "initial"), ())
    refuse(initial.keys() & positional.keys(), "a register has both initial and positional values")
    inputs, outputs = whole(field(stored, "inputs"), 1), whole(field(stored, "outputs"), 1)
    pairs = [_paired(layer, own) for layer, own in _paired(field(stored, "layers"), roles)]
    layers = tuple(tuple(reader.bank(*each) for each in layer) for layer in pairs)
    bias = reader.numbers(field(stored, "readout_bias"), 1)
    refuse(len(bias) != outputs, f"the read-out bias has shape {bias.shape}")
    attention, alone = text(mapping(stored).get("attention", "softmax")), flag(mapping(stored).get("alone", False))
    kinds, several = {bank.kind for layer in layers for bank in layer}, attention in ONE_TOKEN and tokens > 1
    grid, unknown = attention != "softmax" and GRID in sizes, not kinds <= {*ATTENTIONS.get(attention, ())}
    wrong = attention not in ATTENTIONS or unknown or several or grid
    refuse(wrong, f"there is no rule for {attention} attention in such a model")
    refuse(any(len({bank.kind in NEURONS for bank in layer}) > 1 for layer in layers), "heads and neurons in one layer")
    refuse(alone and tokens > 1, "tokens that see themselves and the prefix alone are proved one by one")
    for address in {bank.address for layer in layers for bank in layer if bank.kind == "move"}:
        known = isinstance(address, int) or (address in positional and sizes[address] == sizes[POSITION] + 1)
        refuse(tokens == 1 or not known, f"the register {address!r} of a move has no addresses, or there is one token")
    embedding = reader.links(field(stored, "embedding"), inputs, "write")
    readout = reader.links(field(stored, "readout"), outputs, "read")
    shape = inputs, outputs, tokens, PRECISIONS[dtype], sizes
    return Model(*shape, embedding, initial, positional, layers, readout, bias, attention, alone)


def _paired(banks: Any, roles: Any) -> list[tuple[Any, Any]]:
    refuse(len(items(banks)) != len(items(roles)), f"{len(items(roles))} roles for {len(items(banks))} layers or banks")
    return list(zip(banks, roles, strict=True))


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads parts of a model; the registers `fixed` are never written."""

    tensors: Tensors
    precision: Precision
    sizes: dict[str, int]
    fixed: set[str]

    def numbers(self, name: Any, *dimensions: int) -> Array:
        """A tensor whose numbers are of the model's format."""
        return self._of_format(numbers(self.tensors, name, *dimensions))

    def _of_format(self, values: Array) -> Array:
        if self.precision is FLOAT64:
            return values
        unit, least = self.precision.held or self.precision.unit_roundoff, self.precision.normal
        # A number is a whole multiple of its last digit, which is 2 u of a power of two, and that of normal numbers.
        digit = np.maximum(np.ldexp(unit, np.frexp(values)[1]), 2.0 * unit * least)
        if np.any((values % digit != 0.0) | (np.abs(values) > self.precision.largest)):
            raise Refused(f"a weight is no {self.precision.name}")
        return values

    def constants(self, stored: Any, rows: tuple[int, ...]) -> dict[str, Array]:
        """What registers hold at first, one row for each of the tokens or one for all."""
        found = {name: self.numbers(key, 1 + len(rows)) for name, key in mapping(stored).items()}
        for name, values in found.items():
            if name in RESERVED or values.shape != (*rows, self.sizes.get(name)):
                raise Refused(f"the constants of the register {name!r} have shape {values.shape}")
        return found

    def links(self, stored: Any, count: int, way: str) -> tuple[Link, ...]:
        """Links that read registers into `count` forms, or write them from `count` outputs."""
        links = []
        for each in items(stored):
            register, first = text(field(each, "register")), whole(field(each, "first"))
            link = Link(register, entrywise(weights(self.tensors, field(each, "weights")), self._of_format), first)
            if way == "read" and register in (REFERENCE, POSITION, GRID):
                raise Refused(f"the register {register} tells tokens apart; only scores may use it")
            refuse(way == "write" and register in self.fixed, f"the constant register {register} is written")
            ours, theirs = link.weights.shape[-1 if way == "read" else 0], link.rows if way == "read" else link.columns
            if ours != self.sizes.get(register) or theirs.stop > count:
                raise Refused(f"weights {link.weights.shape} that {way} the register {register} do not fit")
            links.append(link)
        _refuse_meeting(links, way)
        return tuple(links)

    def bank(self, stored: Any, role: Any) -> Bank:
        """All heads of one kind in a layer."""
        kind = text(field(stored, "kind"))
        refuse(kind not in SHAPES, f"unknown kind of bank {kind!r}")
        arrays = {name: self.numbers(field(stored, name), len(axes)) for name, axes in SHAPES[kind].items()}
        gains = {name: real(field(stored, name)) for name in GAINS[kind]}
        self._of_format(np.array([*gains.values()]))
        lengths: dict[str, int] = {}
        for name, axes in SHAPES[kind].items():
            sides = zip(axes, arrays[name].shape, strict=True)
            if any(lengths.setdefault(axis, length) != length or not length for axis, length in sides):
                raise Refused(f"{name} of a {kind} bank has the shape {arrays[name].shape}, which does not fit")
        refuse(lengths.get("g") not in (None, self.sizes.get(GRID)), f"a {kind} bank is about another grid")
        refuse(kind == "table" and mapping(stored).get("grid", GRID) != GRID, "no rule for tables over data tokens")
        node, component = (indices(self.tensors, field(role, name)) for name in ("node", "component"))
        heads = len(node) if kind in PAIRS else lengths.get("h", whole(mapping(stored).get("split", 1), 1))
        outputs = heads * lengths.get("c", 1) if arrays else len(node)
        if not len(node) == len(component) == outputs or not outputs or outputs % heads:
            raise Refused(f"a {kind} bank of {heads} heads claims {len(node)} and {len(component)} components")
        width = whole(field(stored, "width"), 1, sum(self.sizes.values())) if kind == "attend" else 0
        pairs = {"table": heads * lengths.get("a", 1), "gate": 2 * heads} | dict.fromkeys(PAIRS, 2 * heads)
        forms = pairs.get(kind, outputs + 2 * width)
        read = self.links(field(stored, "read"), forms, "read")
        write = self.links(field(stored, "write"), outputs, "write")
        address: str | int = field(stored, "address") if kind == "move" else ""
        address = whole(address) if isinstance(address, int) else text(address)
        return Bank(kind, read, write, arrays, gains, forms, outputs, heads, node, component, address, width)


def _refuse_meeting(links: list[Link], way: str) -> None:
    """Raise Refused where two links have a weight at the same place. A matrix holds their sum, which may be rounded, or
    so much smaller that it is lost; and all other rules look at links one by one."""
    places, often = defaultdict[str, list[Any]](list), Counter(link.register for link in links)
    for link in (each for each in links if often[each.register] > 1):
        entries = sparse_of(link.weights if way == "read" else link.weights.T)
        spend(1000.0 * entries.size)
        entries = entries.kept(entries.values != 0.0)
        places[link.register].append((entries.rows.astype(np.int64) + link.first) * MOST + entries.columns)
    for register, several in places.items():
        meet = np.unique(np.concatenate(several)).size < sum(map(len, several))
        refuse(meet, f"two links that {way} the register {register} meet in one weight")


def largest_weight(model: Model) -> float:
    """No entry of the dense matrices is larger: of links, of what is read times the heads' scales, of stored numbers
    and gains. (Products are rounded to the model's format.)"""
    arrays = [*model.initial.values(), *model.positional.values(), model.readout_bias]
    found = [_heaviest(model.embedding), _heaviest(model.readout), 1.0]
    for bank in [bank for layer in model.layers for bank in layer]:
        arrays += bank.arrays.values()
        found += [_heaviest(bank.read), _heaviest(bank.read, bank.scale), _heaviest(bank.write)]
        found += [] if bank.kind in NEURONS or (bank.kind == "table" and not model.sink_tokens) else [KEY]
        for name, gain in bank.gains.items():
            plain = (bank.kind, name) == ("table", "gain") or model.attention == "elu+1"
            found.append(abs(gain) if plain else abs(gain) * max(model.bits, 1) / KEY)
    most = max([*found, *(float(np.max(np.abs(array), initial=0.0)) for array in arrays)])
    digit = np.ldexp(model.precision.held or model.precision.unit_roundoff, np.frexp(most)[1])
    return float(np.ceil(most / digit) * digit)


def _heaviest(links: Iterable[Link], scale: Array | float = 1.0) -> float:
    """The largest weight of links, times the scales of what they feed."""
    found = 0.0
    for link in links:
        entries = np.abs(entries_of(link.weights))
        sizes = interval(entries.max(axis=1, keepdims=True, initial=0.0) if entries.ndim == 2 else entries)
        if isinstance(scale, np.ndarray):
            sizes = sizes * of_rows(link.weights, scale[link.rows])
        found = max(found, float(sizes.high.max(initial=0.0)))
    return found
