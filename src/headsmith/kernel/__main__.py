"""Check a file, or the folder of a stock model: exit code 0 and what is certified, or 1 and the reason why not."""

import json
import sys
from dataclasses import asdict

from .check import check_file
from .errors import Refused


def main(arguments: list[str]) -> int:
    """Check the file that is named, and print the certificate as text or, with --json, as one object."""
    paths = [argument for argument in arguments if argument != "--json"]
    if len(paths) != 1:
        print("usage: python -m kernel FILE|DIR [--json]", file=sys.stderr)
        return 2
    try:
        found = check_file(paths[0])
    except Refused as problem:
        answer, text = {"verified": False, "reason": str(problem)}, f"not certified: {problem}"
    else:
        parts = ", ".join(f"{name} {size:.3g}" for name, size in found.parts.items())
        answer, text = {"verified": True, "certificate": asdict(found)}, "certified: |model - target| <= "
        text += f"{found.error:.6g} on the domain, in {found.dtype} ({parts})"
    if "--json" in arguments:
        print(json.dumps({"file": paths[0], **answer}))
    else:
        print(text, file=sys.stdout if answer["verified"] else sys.stderr)
    return 0 if answer["verified"] else 1


sys.exit(main(sys.argv[1:]))
