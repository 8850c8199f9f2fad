"""The fields that each object of a file may have: what the kernel does not know, nobody else shall act upon.

An object is a dict of its fields, a list is one of what it lists, and None is a number, a text, a list of these, or
what is compared as a whole; objects of several kinds are told apart by their field "kind".
"""

from typing import Any

from .errors import refuse
from .graph import READS
from .model import GAINS, SHAPES

EXTENSIONS = ("labels", "rewrites")  # what a proof does without, by name: nothing of it steers a run or is proved


class Kinds(dict[str, Any]):
    """Objects by their kind."""


def _object(names: str, **others: Any) -> dict[str, Any]:
    return {**dict.fromkeys(names.split()), **others}


WEIGHTS, MATRIX = _object("shape gaps values"), _object("M K")
LINKS = [_object("register first", weights=WEIGHTS)]
NODES = Kinds(
    input=_object("kind names"),
    affine=_object("kind bias", terms=[_object("node", weights=WEIGHTS)]),
    positional=_object("kind values"),
    sampled=_object("kind arguments answers lipschitz scale norm evaluation"),
    copy=_object("kind node arguments"),
    expression=_object("kind size arguments", program=_object("variables steps")),
    maximum=_object("kind size arguments"),
    minimum=_object("kind size arguments"),
    **{kind: _object("kind size", **dict.fromkeys(names)) for kind, names in READS.items()},
)
for _kind, _more in (("function", "name parameter"), ("pool", "of causal"), ("attend", "causal"), ("average", "keys")):
    NODES[_kind] |= _object(_more)
for _kind in ("move", "exchange"):
    NODES[_kind] |= _object("targets")
BANKS = Kinds(
    {
        kind: _object("kind", read=LINKS, write=LINKS, **dict.fromkeys((*arrays, *GAINS[kind])))
        for kind, arrays in SHAPES.items()
    }
)
for _kind, _more in (("table", "grid"), ("mean", "split"), ("move", "split address"), ("attend", "width")):
    BANKS[_kind] |= _object(_more)
GRAPH = _object("output", nodes=[NODES])
PIECE = _object("network function reads approximation", turned=MATRIX, rewritten=GRAPH)
PIECE["pieces"] = [PIECE]
PROOF = _object(
    "steps powers halvings blocks approximation",
    circuit=GRAPH,
    regions=[_object("output stands_for margin ends")],
    tables=[_object("node margin cells")],
    norms=[_object("node diagonal flat")],
    linear=[_object("node slopes")],
    bends=[_object("node argument kinks")],
    views=[_object("node as")],
    alike=[_object("node as")],
    roles=[[_object("node component")]],
    turned=MATRIX,
    rewritten=GRAPH,
    pieces=[PIECE],
)
MODEL = _object(
    "inputs outputs tokens dtype initial positional readout_bias attention alone",
    registers=[_object("name size")],
    embedding=LINKS,
    layers=[[BANKS]],
    readout=LINKS,
)
FILE = _object(
    "version claim",
    domain=_object("low high"),
    source=GRAPH,
    approximates=GRAPH,
    transformer=MODEL,
    proof=PROOF,
    run=_object("kind causal preconditioner grid"),
    extensions=_object(" ".join(EXTENSIONS)),
)
BROUGHT = _object("order cells dtype runs closer", network=GRAPH, function=GRAPH)
GIVEN = _object("version claim", domain=FILE["domain"], given=BROUGHT)


def refuse_unknown(value: Any, known: Any = FILE, name: str = "the header") -> None:
    """Raise Refused where an object of a file has a field that is not known; its readers say what else is wrong."""
    if isinstance(known, Kinds) and isinstance(value, dict):
        known, name = known.get(str(value.get("kind"))), f"{name} {value.get('kind')!r}"
    if isinstance(known, list) and isinstance(value, list):
        for each in value:
            refuse_unknown(each, known[0], name)
    elif isinstance(known, dict) and isinstance(value, dict):
        unknown = sorted(value.keys() - known.keys())
        refuse(unknown, f"{name} has the field {unknown[:1]}, which this kernel does not know")
        for each, inner in known.items():
            if inner is not None and each in value:
                refuse_unknown(value[each], inner, each)
