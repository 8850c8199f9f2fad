"""Recipe "maxout": one token for each affine piece of a network of maxima. Attention takes the maximum, and nothing is
approximated."""

from __future__ import annotations

from dataclasses import replace

from headsmith.plan.analysis.flow import flow_of, known_of, ranges_in_blocks
from headsmith.plan.approximation import Design
from headsmith.plan.circuits.assemble import Assembly, with_own_output
from headsmith.plan.circuits.pieces import lay_out
from headsmith.plan.request import Request


def piece_design(request: Request) -> Design:
    """The target laid out over the tokens of the request. Raises TargetError where it has other nodes than maxima."""
    circuit = with_own_output(lay_out(request.graph).graph)
    known = replace(known_of(circuit, {}), blocks=request.tokens)
    ranges = ranges_in_blocks(known, request.box)
    return Design({}, Assembly(circuit, {}, (), (), {}), ranges, flow_of(known, ranges, {}).gains, 0.0)
