"""Check a file, or the folder of a stock model: exit code 0 and what is certified, or 1 and the reason why not."""

import json
import sys
from dataclasses import asdict
from typing import Any

from .core.check import check_file
from .core.errors import Refused


def main(arguments: list[str]) -> int:
    """Check the file that is named, and print the certificate as text or, with --json, as one object."""
    paths = [argument for argument in arguments if argument != "--json"]
    if len(paths) != 1:
        print("usage: python -m kernel FILE|DIR [--json]", file=sys.stderr)
        return 2
    answer: dict[str, Any] = {"file": paths[0], "verified": True}
    try:
        found = check_file(paths[0])
        parts = ", ".join(f"{name} {size:.3g}" for name, size in found.parts.items())
        text = f"certified: |model - target| <= {found.error:.6g} on the domain, in {found.dtype} ({parts})"
        answer["certificate"] = asdict(found)
    except Refused as problem:
        text = f"not certified: {problem}"
        answer |= {"verified": False, "reason": str(problem)}
    data = "--json" in arguments
    print(json.dumps(answer) if data else text, file=sys.stdout if data or answer["verified"] else sys.stderr)
    return 0 if answer["verified"] else 1


sys.exit(main(sys.argv[1:]))
