"""Check a file, or the folder of a stock model: exit code 0 and what is certified, or 1 and the reason why not."""

import json
import os
import sys
from dataclasses import asdict

from .check import check_file
from .errors import Refused
from .stock import check_folder


def main(arguments: list[str]) -> int:
    """Check the file that is named, and print the certificate as text or, with --json, as one object."""
    paths = [argument for argument in arguments if argument != "--json"]
    if len(paths) != 1:
        print("usage: python -m kernel FILE|DIR [--json]", file=sys.stderr)
        return 2
    try:
        found = check_folder(paths[0]) if os.path.isdir(paths[0]) else check_file(paths[0])
    except Refused as problem:
        if "--json" in arguments:
            print(json.dumps({"file": paths[0], "verified": False, "reason": str(problem)}))
        else:
            print(f"not certified: {problem}", file=sys.stderr)
        return 1
    if "--json" in arguments:
        print(json.dumps({"file": paths[0], "verified": True, "certificate": asdict(found)}))
    else:
        parts = ", ".join(f"{name} {size:.3g}" for name, size in found.parts.items())
        print(f"certified: |model - target| <= {found.error:.6g} on the domain, in {found.dtype} ({parts})")
    return 0


sys.exit(main(sys.argv[1:]))
