"""How much code must be trusted for a proof that a file carries: the kernel, in lines without comments, docstrings and
blanks. `make trusted` prints it."""

from __future__ import annotations

import ast
from pathlib import Path

KERNEL = Path(__file__).parent.parent / "kernel"


def code_lines(path: Path) -> int:
    """The lines of a module that are code."""
    text = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(1 for number, line in lines if line.strip() and not line.strip().startswith("#") and number not in prose)


def trusted() -> dict[str, int]:
    """The kernel's modules, with their lines."""
    return {path.name: code_lines(path) for path in sorted(KERNEL.glob("*.py"))}


if __name__ == "__main__":
    found = trusted()
    for name, lines in found.items():
        print(f"{lines:6}  kernel/{name}")
    print(f"{sum(found.values()):6}  lines of code in {len(found)} modules")
