"""When rounding gives the exact answer. The certificate compares the model with exact softmax attention; this module
bounds how far that is from attention that looks at what it should alone. Together:

Decoding theorem.  Let a number of the output stand for one of several levels, neighbours at least g apart, and let the
    question be one that the scene answers. If certificate + soft < g / 2, the nearest level is the right one.

Soft bound.  K tokens; all margins below are at least m, the `margin`. An attention whose right tokens score alike and
    at least m more than all others gives those at most K e^{-m}. If scores are off by at most d, that is at most
    K e^{2d - m}, and the mean over several right tokens moves by d / 2 times the spread (kernel/core/softmax.py).

    formation    digits of codes weigh m: another seat or step is 2 m below, null in the middle. Queries are exact, and
                 fields are off by e0 = 2 K e^{-m}
    composition  the C digits of a source are off by e0, scores by d = m C e0: parts are off by (results) + K e^{2d - m}
    execution    words weigh m; an object shows at most G features, an operation asks for at most D. Scores are off by
                 d = m (G + D + 1) (e0 + parts). Results of the one object found: K e^{2d - m}, null being m below;
                 counts, where objects found and null score alike: that and d / 2
    memory       results, and apart from them counts with their tags: remembering adds (memory) + K e^{-m}. Parts take
                 results alone, so that the error of counts goes no further
    comparing    held counts differ by at least 1 / (4 n - 2), so `count` = m (4 n - 2), and what is not compared is
                 `compare` = `count` + m below. Keys are off by d = (compare + count) (counts),
                 digits by (counts) + 2 K e^{2d - m} + d, since they lie between -1 and 1

Levels.  A count c is held as c / (c + n), levels at least n / (2 n (2 n - 1)) = 1 / (4 n - 2) apart. Words are zeros
    and ones. Digits of tags are +1 and -1; where some of k results are equally many, a digit in which their tags differ
    is at most 1 - 2 / k in size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from headsmith.core.errors import TargetError
from headsmith.lab.iprm.layout import Module

MARGINS = tuple(float(margin) for margin in range(12, 61, 2))
SHARE = 0.25
"""How much of half a gap the soft bound may take."""
SLACK = 1.0 + 1e-6
"""Covers the rounding of these few sums. Codes and clock are exact."""


@dataclass(frozen=True)
class Scales:
    """How much scores weigh digits of codes, words, counts, and the mark of what is compared; what null scores among
    codes, and how much more it scores where objects are counted."""

    margin: float
    code: float
    word: float
    count: float
    compare: float
    null_code: float
    heavy: float


@dataclass(frozen=True)
class Gaps:
    """Half the distance of neighbouring levels, for words, counts and tags."""

    word: float
    count: float
    tag: float


def gaps(module: Module) -> Gaps:
    """Half the distance of levels, for as many objects and comparisons as the module takes."""
    return Gaps(0.5, 0.5 / (4 * module.objects - 2), 1.0 / max(module.compared, 2))


def scales_for(module: Module, margin: float) -> Scales:
    """The weights of scores for this margin."""
    count = margin * (4 * module.objects - 2)
    null_code = (2 * module.digits - 1) * margin
    return Scales(margin, margin, margin, count, count + margin, null_code, math.log(module.objects))


def soft_bound(module: Module, scales: Scales) -> Gaps:
    """How far exact softmax attention can be from the right words, counts and tags, on scenes that answer."""
    tokens, margin = module.tokens * SLACK, scales.margin

    def outside(disturbance: float) -> float:
        return tokens * math.exp(min(2.0 * disturbance - margin, 0.0))

    field = 2.0 * outside(0.0)
    shown, parts = module.vocabulary.most_shown, len(module.vocabulary.parts)
    found = counted = 0.0
    for step in range(module.steps):
        composed = bool(step) and module.composition
        asked = field + (parts * (found + outside(scales.code * module.capacity * field)) if composed else 0.0)
        moved = scales.word * (shown + module.demands) * asked
        older = outside(0.0) if composed and module.window else 0.0
        kept = 1.0 if older else 0.0
        found = min((outside(moved) + kept * found + older) * SLACK, 1.0)
        counted = min((outside(moved) + moved / 2.0 + field + kept * counted + older) * SLACK, 1.0)
    moved = (scales.compare + scales.count) * counted
    return Gaps(found, counted, min((counted + 2.0 * outside(moved) + moved) * SLACK, 1.0))


@lru_cache(maxsize=64)
def choose_scales(module: Module) -> tuple[Scales, Gaps]:
    """The smallest margin whose soft bound takes a small share of half of every gap."""
    wanted = gaps(module)
    for margin in MARGINS:
        scales = scales_for(module, margin)
        soft = soft_bound(module, scales)
        fits = soft.word <= SHARE * wanted.word
        if module.vocabulary.counts:
            fits = fits and soft.count <= SHARE * wanted.count and soft.tag <= SHARE * wanted.tag
        if fits:
            return scales, soft
    raise TargetError(
        f"{module.steps} steps on {module.objects} objects need sharper attention than margins of {MARGINS[-1]:g}: the "
        "soft bound stays above the gaps; take fewer steps, objects or slots"
    )
