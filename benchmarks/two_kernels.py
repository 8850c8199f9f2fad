"""Both kernels on a corpus of networks, formulas and programs: which files have both verdicts within 1.2, which do not,
and why; and on files with one thing changed.

    PYTHONPATH=tests python benchmarks/two_kernels.py [FILES] [MUTANTS]      (30 and 100; the whole takes 500 and 5000)
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from helpers.attacks.saved import read
from helpers.attacks.two_kernels import changed, unclaimed
from helpers.models.two_kernels import KINDS

from headsmith.core.errors import HeadsmithError
from headsmith.core.second import AGREE, second_opinion
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused as LargeRefused
from headsmith.small_kernel.bounds import Refused
from headsmith.small_kernel.check import check_contents


def verdict(header, tensors):
    """One word or two: both, or why not."""
    try:
        second = second_opinion(header, tensors, header["claim"]["parts"]["rounding"])
    except HeadsmithError as problem:
        return f"DISAGREE: {problem}"
    if second.agrees:
        return "both"
    used = ", ".join(second.tightenings)
    return (
        f"without {used}: more than {AGREE} times" if second.error else second.reason + (used and f" (without {used})")
    )


def mutant(header, tensors, random):
    """What the kernels say of a file with one thing changed."""
    header, tensors, what = changed(unclaimed(header), tensors, random)
    try:
        small = check_contents(header, tensors).error
    except Refused:
        return "refused by the small kernel", what
    try:
        large = proved(header, tensors).error
    except LargeRefused as problem:
        ends = "cells of a circuit" in str(problem)
        return "certified by the small kernel alone" + (", which needs no exact ends" if ends else ": VIOLATION"), what
    return "certified by both" if small >= large * (1 - 1e-6) else "the small bound is below: VIOLATION", what


def main():
    files, mutants = (int(x) for x in (*sys.argv[1:], 30, 100)[:2])
    told, random, contents = {kind: Counter() for kind in KINDS}, np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        for place in range(files):
            kind = [*KINDS][place % len(KINDS)]
            path = Path(folder) / f"{place}.safetensors"
            try:
                KINDS[kind](place // len(KINDS))().save(path)
            except HeadsmithError:
                told[kind]["not compiled: the error cannot be met"] += 1
                continue
            contents.append(read(path))
            told[kind][verdict(*contents[-1])] += 1
    print(f"{'kind':10} files  what the small kernel says")
    for kind, counted in told.items():
        for what, times in counted.most_common():
            print(f"{kind:10} {times:5}  {what[:150]}")
    every = sum((c for c in told.values()), Counter())
    compiled = sum(times for what, times in every.items() if not what.startswith("not compiled"))
    print(f"{every['both']} of {compiled} files have both verdicts within {AGREE}")
    said = Counter()
    for _ in range(mutants):
        answer, what = mutant(*contents[random.integers(len(contents))], random)
        said[answer] += 1
        if "VIOLATION" in answer:
            print(answer, what)
    for answer, times in said.most_common():
        print(f"{times:6} mutants: {answer}")


if __name__ == "__main__":
    main()
