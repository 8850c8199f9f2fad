"""A sampled callable's model told in words: gather the tokens, then look up the nearest samples."""

from __future__ import annotations

from headsmith.core.certificate import Certificate
from headsmith.core.figures import bound, count, number
from headsmith.inside.explain import domain_text, errors_text, size_text
from headsmith.sequence.universal_model import GAIN, Attention, Lookup
from headsmith.sequence.universal_proof import Stated


def explain_universal(model: Attention, stated: Stated, lookup: Lookup, certificate: Certificate, heads: int) -> str:
    """The model in words; at most `heads` heads of a layer are told one by one."""
    layers, samples = model.layers, len(lookup.nodes)
    opening = (
        f"A callable of sequences ({model.tokens}, {model.features}) to ({model.tokens}, {model.outputs}), sampled at "
        f"{count(samples, 'node')}, for {domain_text(stated.box)}\n"
        f"A softmax transformer: {size_text(len(layers), sum(map(len, layers)))}"
        f"{', and a softmax at the end' if model.last is not None else ''}, no feed-forward block.\n"
        f"The residual stream has {count(model.d_model, 'column')}. It runs in float64."
    )
    tokens = ["Tokens", f"  t0 to t{model.tokens - 1}: the data tokens, exactly so many, one row of the input each"]
    if len(model.prefix):
        tokens.insert(1, f"  {count(len(model.prefix), 'reference token')}: a node of the grid and its answer each")
    first = [f"Layer 1: {count(len(layers[0]), 'head')}, which gather the whole input at every token"]
    for head in range(min(len(layers[0]), heads)):
        first.append(f"  gather head {head}: all tokens look at t{head} (scores {number(GAIN)} there, 0 elsewhere)")
    if len(layers[0]) > heads:
        first.append(f"  and {count(len(layers[0]) - heads, 'more gather head')}")
    where = "a softmax over all answers" if model.last is not None else "Layer 2: 1 head"
    second = (
        f"{where[:1].upper()}{where[1:]}, which looks up the answer\n"
        f"  a token scores node g with -{number(stated.width)} |t - g|^2, t the input in steps of the grid, and "
        f"{number(lookup.bonus)} more\n  where the node answers for its own place\n"
        "  so it returns a Gaussian mean of the samples around the input"
    )
    assumed = (
        f"Assumed of the callable: {stated.lipschitz} for every output, and results within "
        f"{bound(stated.evaluation)} of it."
    )
    return "\n\n".join([opening, "\n".join(tokens), "\n".join(first), second, errors_text(certificate), assumed])
