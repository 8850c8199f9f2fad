"""Every record of one layer as a theorem for Rocq: how long coqc takes, and whether a bound too small is refused.

    python lemmas/records.py [TEXT] [--errors 1e-4,1e-6] [--below 0.97]

For each record (of a formula that holds TEXT), the compiler makes the model, `headsmith export --to rocq` the theorem,
and coqc checks it. With --below F the theorem says F times the largest error that hs.falsify finds: it is false, so
coqc must not accept it. It ends with 1 where one of these fails, and with 2 where coqc is not installed.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from check import accepted

import headsmith as hs
from headsmith.export.rocq import rocq_text
from headsmith.lab.records.records import records


def main(only: str, errors: set[float], below: float | None) -> int:
    """Check the records; what to exit with."""
    if shutil.which("coqc") is None:
        print("nothing was checked: coqc is not installed (Debian: apt-get install coq libcoq-interval)")
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for record in records():
            if record.error not in errors or record.layers != 1 or only not in record.formula:
                continue
            model = hs.compile(record.formula, record.entry.box, record.error, progress=False)
            told = f"{record.formula} on {record.domain} at {record.error:g}"
            try:
                seen = 0.0 if below is None else below * hs.falsify(model).error
                text = rocq_text(model, None if below is None else [seen] * len(model.certificate.outputs))
            except hs.TargetError as problem:
                print(f"{told}: no theorem: {problem}", flush=True)
                continue
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            fine = accepted(Path(name), text, "model.v", quiet=True) == (below is None)
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            wrong += not fine
            verdict = {None: "checked"}.get(below, "refused, as it must be") if fine else "WRONG"
            print(f"{told}: {verdict}, {seconds:.1f} s of CPU, {text.count('Lemma piece')} pieces", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="?", default="")
    parser.add_argument("--errors", default="1e-4,1e-6")
    parser.add_argument("--below", type=float)
    given = parser.parse_args()
    sys.exit(main(given.only, {float(each) for each in given.errors.split(",")}, given.below))
