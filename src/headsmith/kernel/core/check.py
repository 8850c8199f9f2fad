"""The check: from the file alone, how far the model can be from its target; and whether that is what the file claims.

Compare what floating point computes with the exact target. Every head commits two errors,

    r   what it reads is off: stored weights against the circuit's (deviation), rounding of the register sums and of the
        read (times the slope of a table);
    e   what it returns is off, for the argument that it has: its lemma, other tokens (leak), rounding inside the head,

and tables and circuits in place of functions commit theirs (approximation). All are bounded layer by layer, with ranges
that are wider by what has accumulated so far (flow.arrive), and carried to the outputs by gains (flow.gains). The bound
is their sum. nan or infinity anywhere means: not certified.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as default
from itertools import chain
from typing import Any

import numpy as np

from .arithmetic import EXP_ULPS, Interval
from .errors import WORK, WORK_A_NUMBER, Refused, limited, refuse
from .expressions import computed, headed
from .fields import GIVEN, refuse_unknown
from .flow import gains
from .graph import Graph, identical, read_graph
from .model import Model, largest_weight, read_model
from .proof import Proof, read_proof, refuse_open
from .ranges import ranges, refuse_undefined
from .reading import Tensors, digest, field, flag, items, mapping, numbers, read, real, text
from .same import Forms, TooLarge
from .slopes import edges_of
from .softmax import refuse_large
from .walk import Facts, carried, refuse_overflow, walk_through

# What a file that nobody's compiler wrote may lead to, where no rule has refused it by name.
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
DAMAGE = (*BROKEN, MemoryError, RecursionError, TooLarge)
ABOUT_TOKENS = ("positional", "move", "exchange", "sampled")
PARTS = ("approximation", "softmax", "leak", "rounding")


@dataclass(frozen=True)
class Certificate:
    """For every input in the domain, every output and every token: |run(model, x) - target(x)| <= error.

    `run` is floating-point execution in `dtype`, rounded to nearest, in any order of summation, with exp correct to
    `exp_ulps` units in the last place, of 1 to `tokens` data tokens, under the masks in `masks`; formats of 16 bits
    compute in float32 (arithmetic.Precision). `target` is exact real arithmetic. With `blocks`, the inputs are laid out
    over that many tokens (proof.py). `parts` belong to the worst output and add up to the error; `outputs` has a bound
    for each output. No score is larger than `max_score`, and no entry of the dense matrices than `max_weight`. `target`
    is a digest of the target: of what it approximates, where the file says that it approximates something; `run` one
    of what steers how the model is called.
    """

    error: float
    parts: Mapping[str, float]
    outputs: tuple[float, ...]
    dtype: str
    tokens: int
    masks: tuple[str, ...]
    max_score: float
    exp_ulps: int
    blocks: int
    domain: tuple[tuple[str, float, float], ...]
    max_weight: float
    target: str = ""
    assumes: tuple[str, ...] = ()
    run: str = default(default="", compare=False)


def check_file(path: str | os.PathLike[str]) -> Any:
    """The certificate of a file, or of the stock model in a folder, proved again. Raises Refused where less can be
    proved than is claimed."""
    if os.path.isdir(path):
        from ..rules.stock import check_folder

        return check_folder(path)
    return checked(*read(path))


def checked(header: Any, tensors: Tensors) -> Any:
    """The certificate of the contents of a file, compared with what they claim."""
    found: Any = stated(header, tensors) if "given" in header else _of_model(header, tensors)
    every = {name: value for name, value in vars(found).items() if name != "domain"}  # that is the file's
    refuse_less("claim:", field(header, "claim"), every)
    return found


def _of_model(header: Any, tensors: Tensors) -> Certificate:
    """What is proved of a model, and a digest of what steers how it is called: by points or by sequences, under which
    mask, with which matrix that features are multiplied by, and where its grid is."""
    refuse("circuit" not in mapping(field(header, "proof")), "the file carries no proof that this kernel can check")
    names = ("kind", "causal", "grid", "preconditioner")
    kind, causal, grid, matrix = (field(field(header, "run"), name) for name in names)
    known = text(kind), flag(causal), text(grid), None if matrix is None else numbers(tensors, matrix, 2)
    refuse(len(known) < len(header["run"]), "the file says more about how the model is called than is known")
    return replace(proved(header, tensors), run=digest(header["run"], tensors))


def stated(header: Any, tensors: Tensors) -> Any:
    """What the contents of a file about a given network prove (rules/given.py), whatever they claim."""
    from ..rules.given import check_given

    try:
        with limited(WORK + WORK_A_NUMBER * sum(each.size for each in tensors.values())), np.errstate(all="ignore"):
            refuse_unknown(header, GIVEN)
            return check_given(header, tensors)
    except DAMAGE as problem:
        raise Refused(f"the file is damaged ({type(problem).__name__}: {problem})") from None


def proved(header: Any, tensors: Tensors) -> Certificate:
    """What the contents of a file prove, whatever they claim."""
    try:
        with limited(WORK + WORK_A_NUMBER * sum(each.size for each in tensors.values())), np.errstate(all="ignore"):
            target, model, proof, box, name = contents(header, tensors)
            return replace(certificate(target, facts_of(target, model, proof, box), box), target=name)
    except DAMAGE as problem:
        raise Refused(f"the file is damaged ({type(problem).__name__}: {problem})") from None


def contents(header: Any, tensors: Tensors) -> tuple[Graph, Model, Proof, Interval, str]:
    """Target, model, proof and domain of a file, and the digest of what its claim is about: the target, or what that
    approximates."""
    refuse_unknown(header)
    # A file may name a tensor many times: as doubles once, it takes no memory for that.
    tensors = {name: each.astype(np.float64) if each.dtype == np.float32 else each for name, each in tensors.items()}
    target, stored = read_graph(field(header, "source"), tensors), field(header, "proof")
    model = read_model(field(header, "transformer"), tensors, field(stored, "roles"))
    box, proof, about = box_of(field(header, "domain"), target), read_proof(stored, tensors, target), header["source"]
    if "approximates" in header:
        from ..rules.composed import check_composition

        about = header["approximates"]
        proof = replace(proof, beyond=check_composition(target, read_graph(about, tensors), box, stored, tensors).error)
    return target, model, proof, box, digest(about, tensors)


def box_of(stored: Any, target: Graph) -> Interval:
    """The domain: an interval for each input; or for each input of each token, where a sampled function says of how
    many: then one token in each column."""
    low, high = ([real(end) for end in items(field(stored, name))] for name in ("low", "high"))
    sampled = [node for node in target.nodes if node.kind == "sampled"]
    tokens = len(sampled[0].constants) if sampled else 1
    if not len(low) == len(high) == target.nodes[0].size * tokens or any(a > b for a, b in zip(low, high, strict=True)):
        raise Refused("the domain does not have an interval for each input")
    columns = Interval(*(np.reshape(end, (tokens, -1)).T for end in (low, high)))
    return columns if sampled else columns[:, 0]


def refuse_less(name: str, claimed: Any, found: Any) -> None:
    """Raise Refused unless every bound of a claim is at least what was found, and everything else is the case."""
    if isinstance(found, float):
        refuse(not found <= real(claimed), f"{name}: {claimed!r} is claimed, and {found!r} can be proved")
    elif isinstance(found, dict) and mapping(claimed).keys() <= found.keys():
        for each, value in found.items():
            refuse_less(f"{name} {each}", field(claimed, each), value)
    elif isinstance(found, tuple) and len(items(claimed)) == len(found):
        for number, value in enumerate(found):
            refuse_less(f"{name} {number}", claimed[number], value)
    elif claimed != found or type(claimed) is not type(found):
        raise Refused(f"{name}: {claimed!r} is claimed, and {found!r} is the case")


def facts_of(target: Graph, model: Model, proof: Proof, box: Interval) -> Facts:
    """What the proof says before the walk, checked: none of it depends on the scales and gains of heads."""
    masks_of(target, model, proof)
    kinds = {node.kind for graph in (target, proof.circuit) for node in graph.nodes}
    # Two with the same answers may be two functions, and there may be none with these: rule Same knows neither.
    sampled = max(sum(node.kind == "sampled" for node in graph.nodes) for graph in (target, proof.circuit))
    if sampled > 1 or (sampled and not kinds <= {"input", "affine", "positional", "move", "sampled"}):
        raise Refused("there is no rule for sampled functions beside others")
    refuse_large(model, box.magnitude, "an input")
    if proof.blocks or proof.regions or proof.views or proof.alike or not identical(target, proof.circuit):
        _refuse_other_function(target, proof)
    places = headed(proof.circuit, model)
    refuse_open(proof, places)
    found, chords = ranges(proof, box, _compared)
    refuse_undefined(target, box, proof, found)
    tables = computed(proof, model, found)
    approximations = {**chords, **{number: each.error for number, each in tables.items()}}
    edges, output = edges_of(proof, found, places, tables), proof.circuit.output
    every = gains(proof.circuit, edges.of, output, edges.steps, edges.norms)
    return Facts(model, proof, found, places, tables, approximations, edges, every)


def _compared(*region: Any) -> Any:
    from ..rules.chord import check_region

    return check_region(*region)


def _assumption(*sampled: Any) -> str:
    from ..rules.sampled import assumption

    return assumption(*sampled)


def certificate(target: Graph, facts: Facts, box: Interval) -> Certificate:
    """What can be proved of a model."""
    model, proof = facts.model, facts.proof
    walk, weight = walk_through(facts), largest_weight(model)
    refuse_overflow(model, walk, weight)
    parts = carried(facts, walk)
    if proof.beyond is not None:
        parts["approximation"] = parts["approximation"] + proof.beyond
    total = parts["approximation"] + parts["softmax"] + parts["leak"] + parts["rounding"]
    refuse(not np.isfinite(total.value).all(), "no finite bound: rounding errors may be as large as the scores")
    worst, name = int(np.argmax(total.value)), model.precision.name
    inside = (f"maps, attention and sums compute in float32, and round what they return to {name}",)
    names = target.nodes[0].names * (box.low.size // len(box.low))
    sampled = [_assumption(number, node) for number, node in enumerate(target.nodes) if node.kind == "sampled"]
    domain = tuple(zip(names, box.low.T.ravel().tolist(), box.high.T.ravel().tolist(), strict=True))
    error, shares = float(total.value[worst]), {each: float(parts[each].value[worst]) for each in PARTS}
    score, runs = max((local.max_score for _, local in walk.locals_), default=0.0), masks_of(target, model, proof)
    about = name, model.tokens, runs, score, EXP_ULPS, proof.blocks, domain, weight
    found = Certificate(error, shares, tuple(total.value.tolist()), *about)
    return replace(found, assumes=(*sampled, *(inside if model.precision.held else ())))


def masks_of(target: Graph, model: Model, proof: Proof) -> tuple[str, ...]:
    """Under which masks the model computes the target: both, unless it pools or attends under one of them, or fetches
    from tokens ahead."""
    inputs, outputs = target.nodes[0].size * max(proof.blocks, 1), target.nodes[target.output].size
    sizes = model.inputs, model.outputs, proof.circuit.nodes[0].size
    if sizes != (inputs, outputs, inputs) or proof.blocks not in (0, model.tokens):
        raise Refused("the model's inputs, outputs or tokens are not the target's")
    nodes = [*target.nodes, *proof.circuit.nodes]
    more = proof.regions or proof.tables or proof.views or proof.alike
    if proof.blocks and (more or any(node.kind in ABOUT_TOKENS for node in target.nodes)):
        raise Refused("a model in blocks computes affine maps, maxima and minima of one token's inputs alone")
    if model.alone and any(node.kind in (*ABOUT_TOKENS, "pool", "attend") for node in nodes):
        raise Refused("tokens that see themselves and the prefix alone cannot compute what is about other tokens")
    lengths = {len(node.targets or node.constants) for node in nodes if node.kind in ABOUT_TOKENS}
    refuse(not lengths <= {model.tokens}, f"a graph is about another number of tokens than {model.tokens}")
    wanted = {node.causal for node in nodes if node.kind in ("pool", "attend")}
    if any(fetched > place for node in nodes for place, fetched in enumerate(node.targets)):
        wanted.add(False)
    refuse(len(wanted) > 1, "the target looks at all tokens and at those so far: no mask computes both")
    every = tuple(name for name, causal in (("full", False), ("causal", True)) if wanted <= {causal})
    return (*(every if model.attention != "elu+1" else ("causal",)), *(("self+prefix",) if model.alone else ()))


def _refuse_other_function(target: Graph, proof: Proof) -> None:
    """Rule Same: the circuit, with what its regions stand for, is the target; regions and views are what they say."""
    forms, meant = Forms(once=proof.blocks > 0), proof.meant()
    viewed = [(number, view) for number, views in proof.views.items() for view in views]
    ((wanted,),) = forms.of(target, [target.output])
    found, *others = forms.of(meant, [meant.output, *chain(*viewed)], blocks=proof.blocks)
    refuse(any(row != wanted for row in found), "the circuit of the proof does not compute the target")
    refuse(others[::2] != others[1::2], "a node is not what it is viewed as")
    if proof.alike and forms.of(target, [*proof.alike]) != forms.of(meant, [*proof.alike.values()]):
        raise Refused("a node of the target is not alike a node of the circuit")
    for region in (region for region in proof.regions.values() if region.ends is None):
        # What a region reads may be off: it must stand for its reference whatever its arguments are.
        alone = proof.meant(but=region.output)
        output, reference = forms.of(alone, [region.output, region.stands_for], region.arguments)
        refuse(output != reference, f"node {region.output} does not stand for node {region.stands_for}")
