"""python -m headsmith.small_kernel FILE: the bound that the small kernel proves, beside the one that the file
claims."""

from __future__ import annotations

import sys

from headsmith.small_kernel.bounds import Refused
from headsmith.small_kernel.check import check


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m headsmith.small_kernel FILE", file=sys.stderr)
        return 2
    try:
        verdict = check(sys.argv[1])
    except Refused as problem:
        print(f"not certified: {problem}")
        return 1
    parts = ", ".join(f"{name} {size:.3g}" for name, size in verdict.parts.items())
    print(f"proved: |model - target| <= {verdict.error!r} ({parts}); claimed: {verdict.claimed!r}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
