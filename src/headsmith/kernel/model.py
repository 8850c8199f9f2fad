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
    table       one head for each 1 or 2 forms s: values . grid, one for each column
                s_a | slope[:, a] . grid;       data | offset . grid - gain (data + reference);       keep
    gate        one head for each pair of forms x, y: value y
                x | slope . grid;               KEY data | offset/KEY . grid - position_gain bits/2/KEY data
                position_gain/2/KEY position[k] | KEY position[k]
                keep_gain/KEY (reference + sum grid - data) | KEY reference
    mean        one head: all forms are values.                         gain/KEY data | KEY data;   keep
    boltzmann   one head a form x: value x.  query_scale data | key_scale x;  gain/KEY data | KEY data;   keep
    move        one head: all forms are values.  gain/KEY address[k] | KEY position[k];
                gain bits/KEY address[bits] + keep_gain/KEY (reference + sum grid) | KEY reference
    attend      one head: the first `width` forms are the query, the next the key, the others values
                query . key;                    KEY data | -gain/KEY (reference + sum grid);  keep

    keep        keep_gain/KEY (reference + sum grid) | KEY reference         with a sink: reference tokens keep to it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import PRECISIONS, Array, Precision
from .errors import Refused
from .reading import Tensors, field, indices, items, mapping, numbers, real, text, whole

DATA, REFERENCE, POSITION, GRID = "data", "reference", "position", "grid"
RESERVED = (DATA, REFERENCE, POSITION, GRID)
KEY = 8.0

ARRAYS: dict[str, dict[str, int]] = {
    "sink": {"query_scale": 1, "key_scale": 1},
    "table": {"slope": 3, "offset": 2, "values": 3},
    "gate": {"slope": 2, "offset": 2},
    "mean": {},
    "boltzmann": {"query_scale": 1, "key_scale": 1},
    "move": {},
    "attend": {},
}
GAINS = dict.fromkeys(ARRAYS, ("gain", "keep_gain"))
GAINS.update(sink=("reference_gain", "position_gain"), gate=("position_gain", "keep_gain"))


@dataclass(frozen=True, eq=False)
class Link:
    """Weights (to, from) between a register and a run of forms, outputs or inputs that starts at `first`; a vector
    stands for a diagonal matrix."""

    register: str
    weights: Array
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
    address: str = ""
    width: int = 0


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

    @property
    def bits(self) -> int:
        """How many columns the position code has."""
        return (self.tokens - 1).bit_length()

    @property
    def grid_tokens(self) -> int:
        """How many tokens the grid has."""
        return self.sizes.get(GRID, 0)

    @property
    def sink_tokens(self) -> int:
        """One, if any head needs the sink: a gate, a move that fetches nothing, or, beside a grid whose tokens must
        stay zero, any head that reads values from all tokens."""
        return int(any(self._needs_sink(bank) for layer in self.layers for bank in layer))

    def _needs_sink(self, bank: Bank) -> bool:
        if bank.kind == "move" and self.positional[bank.address][:, -1].any():
            return True
        return bank.kind in ("sink", "gate") or (bank.kind != "table" and self.grid_tokens > 0)

    @property
    def references(self) -> int:
        """How many tokens are no data tokens."""
        return self.sink_tokens + self.grid_tokens


def read_model(stored: Any, tensors: Tensors, roles: Any) -> Model:
    """The model of a file: shapes fit, names exist, constants are never written, numbers are of the format. `roles` say
    for each bank of each layer which circuit nodes and components its outputs stand for: they are the proof's."""
    dtype = text(field(stored, "dtype"))
    if dtype not in PRECISIONS:
        raise Refused(f"unknown dtype {dtype!r}")
    tokens = whole(field(stored, "tokens"), 1, 1 << 40)
    registers = [(text(field(each, "name")), whole(field(each, "size"))) for each in items(field(stored, "registers"))]
    sizes = dict(registers)
    reserved = {DATA: 1, REFERENCE: 1}
    reserved.update({POSITION: (tokens - 1).bit_length()} if tokens > 1 else {})
    reserved.update({GRID: sizes[GRID]} if GRID in sizes else {})
    if len(sizes) < len(registers) or {name: size for name, size in sizes.items() if name in RESERVED} != reserved:
        raise Refused(f"the constant registers must be {', '.join(reserved)}, and all names different")
    if sum(sizes.values()) > sum(tensor.size for tensor in tensors.values()) + 64:
        raise Refused(f"{sum(sizes.values())} columns of registers are more than all numbers of the file")
    positional = _constants(mapping(stored).get("positional", {}), tensors, sizes, (tokens,))
    initial = _constants(field(stored, "initial"), tensors, sizes, ())
    if set(initial) & set(positional):
        raise Refused("a register has both initial and positional values")
    fixed = {*RESERVED, *positional}
    inputs, outputs = whole(field(stored, "inputs"), 1), whole(field(stored, "outputs"), 1)
    bias = numbers(tensors, field(stored, "readout_bias"), 1)
    if bias.shape != (outputs,):
        raise Refused(f"the read-out bias has shape {bias.shape}")
    model = Model(
        inputs=inputs,
        outputs=outputs,
        tokens=tokens,
        precision=PRECISIONS[dtype],
        sizes=sizes,
        embedding=_links(field(stored, "embedding"), tensors, sizes, inputs, "write", fixed),
        initial=initial,
        positional=positional,
        layers=tuple(
            tuple(_bank(each, role, tensors, sizes, fixed, positional) for each, role in _paired(layer, own))
            for layer, own in _paired(field(stored, "layers"), roles)
        ),
        readout=_links(field(stored, "readout"), tensors, sizes, outputs, "read", fixed),
        readout_bias=bias,
    )
    if tokens == 1 and any(bank.kind == "move" for layer in model.layers for bank in layer):
        raise Refused("a move needs several tokens")
    return model


def _paired(banks: Any, roles: Any) -> list[tuple[Any, Any]]:
    if len(items(banks)) != len(items(roles)):
        raise Refused(f"{len(items(roles))} roles for {len(items(banks))} layers or banks")
    return list(zip(banks, roles, strict=True))


def _constants(stored: Any, tensors: Tensors, sizes: dict[str, int], rows: tuple[int, ...]) -> dict[str, Array]:
    found = {name: numbers(tensors, key, 1 + len(rows)) for name, key in mapping(stored).items()}
    for name, values in found.items():
        if name in RESERVED or values.shape != (*rows, sizes.get(name)):
            raise Refused(f"the constants of the register {name!r} have shape {values.shape}")
    return found


def _links(
    stored: Any, tensors: Tensors, sizes: dict[str, int], count: int, way: str, fixed: set[str]
) -> tuple[Link, ...]:
    """Links that read registers into `count` forms, or write them from `count` outputs."""
    links = []
    for each in items(stored):
        register, first = text(field(each, "register")), whole(field(each, "first"))
        link = Link(register, numbers(tensors, field(each, "weights"), 1, 2), first)
        if way == "read" and register in (REFERENCE, POSITION, GRID):
            raise Refused(f"the register {register} tells tokens apart; only scores may use it")
        if way == "write" and register in fixed:
            raise Refused(f"the constant register {register} is written")
        ours, theirs = link.weights.shape[-1 if way == "read" else 0], link.rows if way == "read" else link.columns
        if ours != sizes.get(register) or theirs.stop > count:
            raise Refused(f"weights {link.weights.shape} that {way} the register {register} do not fit")
        links.append(link)
    return tuple(links)


def _bank(
    stored: Any, role: Any, tensors: Tensors, sizes: dict[str, int], fixed: set[str], positional: dict[str, Array]
) -> Bank:
    kind = text(field(stored, "kind"))
    if kind not in ARRAYS:
        raise Refused(f"unknown kind of bank {kind!r}")
    arrays = {name: numbers(tensors, field(stored, name), count) for name, count in ARRAYS[kind].items()}
    gains = {name: real(field(stored, name)) for name in GAINS[kind]}
    node, component = (indices(tensors, field(role, name)) for name in ("node", "component"))
    width = whole(field(stored, "width"), 1, sum(sizes.values())) if kind == "attend" else 0
    address = text(field(stored, "address")) if kind == "move" else ""
    heads, forms, outputs = _counts(kind, arrays, len(node), width, sizes)
    if not len(node) == len(component) == outputs or not outputs:
        raise Refused(f"a {kind} bank of {heads} heads claims {len(node)} and {len(component)} components")
    if kind == "table" and mapping(stored).get("grid", GRID) != GRID:
        raise Refused("there is no rule for tables whose grid is the data tokens")
    if kind == "move" and (address not in positional or positional[address].shape[1] != sizes.get(POSITION, 0) + 1):
        raise Refused(f"the register {address!r} of a move holds no addresses")
    read = _links(field(stored, "read"), tensors, sizes, forms, "read", fixed)
    write = _links(field(stored, "write"), tensors, sizes, outputs, "write", fixed)
    return Bank(kind, read, write, arrays, gains, forms, outputs, heads, node, component, address, width)


def _counts(
    kind: str, arrays: dict[str, Array], claimed: int, width: int, sizes: dict[str, int]
) -> tuple[int, int, int]:
    """How many heads, forms and outputs a bank has; its arrays must agree."""
    grid, shapes = sizes.get(GRID, 0), {name: array.shape for name, array in arrays.items()}
    wanted: dict[str, tuple[int, ...]] = {}
    if kind in ("sink", "boltzmann"):
        heads = len(arrays["query_scale"])
        wanted = {"query_scale": (heads,), "key_scale": (heads,)}
        found = heads, heads, heads
    elif kind == "table":
        heads, _, arguments = shapes["slope"]
        columns = shapes["values"][2]
        wanted = {"slope": (heads, grid, arguments), "offset": (heads, grid), "values": (heads, grid, columns)}
        found = heads, heads * arguments, heads * columns
        if arguments not in (1, 2) or not columns:
            raise Refused(f"a table of {arguments} arguments and {columns} columns")
    elif kind == "gate":
        heads = len(arrays["offset"])
        wanted = {"slope": (heads, grid), "offset": (heads, grid)}
        found = heads, 2 * heads, heads
    else:
        found = 1, claimed + 2 * width, claimed
    if shapes != wanted or (kind in ("table", "gate") and not grid):
        raise Refused(f"the arrays of a {kind} bank have the shapes {shapes}, which do not fit")
    return found


def check_format(model: Model) -> None:
    """Raise Refused unless every weight is a number of the model's format."""
    if model.precision.name == "float32":
        links = [*model.embedding, *model.readout]
        banks = [bank for layer in model.layers for bank in layer]
        links += [link for bank in banks for link in (*bank.read, *bank.write)]
        arrays = [link.weights for link in links] + [model.readout_bias]
        arrays += [*model.initial.values(), *model.positional.values()]
        arrays += [array for bank in banks for array in (*bank.arrays.values(), np.array([*bank.gains.values()]))]
        with np.errstate(over="ignore"):
            if not all(np.array_equal(array, array.astype(np.float32)) for array in arrays):
                raise Refused("a weight is no float32")
