"""How much code must be trusted for a proof that a file carries: the kernel, in lines without comments, docstrings and
blanks. `make trusted` prints it.

No file needs all of the kernel: a network has no tables, a formula no pools. Whoever doubts one certificate needs to
read the lines that ran for it and no others, because what did not run has had no say. `headsmith verify FILE --trusted
LISTING` writes them down.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from headsmith.verify import verify

KERNEL = Path(__file__).parent.parent / "kernel"
SMALL = KERNEL.parent / "small_kernel"

CALLED = {
    "every file": "lines that every file loads",
    "all": "lines of the kernel, for all kinds of models",
    "statements": "lines that check statements of another kind, for their files alone",
    "small": "lines of the small kernel",
}


def code_lines(path: Path) -> set[int]:
    """The numbers of the lines of a module that are code."""
    text = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return {number for number, line in lines if line.strip() and not line.strip().startswith("#")} - prose


def _name(path: Path) -> str:
    """A module of the kernel by its place in it: core/check.py."""
    return path.relative_to(KERNEL).as_posix()


def trusted() -> dict[str, int]:
    """The kernel's modules, with their lines."""
    return {_name(path): len(code_lines(path)) for path in sorted(KERNEL.rglob("*.py"))}


def groups() -> dict[str, list[str]]:
    """The modules that are loaded for every file, under "core"; and for each special rule, by the name of the module
    that is loaded only where a file needs it, that module and all that is loaded with it. A rule that nothing else in
    the kernel loads checks statements of another kind: what a file beside the proof says."""
    always, elsewhere = {}, set[str]()
    for path in KERNEL.rglob("*.py"):
        tree = ast.parse(path.read_text())
        always[_name(path)] = {name for node in tree.body for name in _imported(node, path)}
        elsewhere |= {name for node in ast.walk(tree) for name in _imported(node, path)} - always[_name(path)]

    def loaded(start: str) -> set[str]:
        found, todo = set[str](), {start}
        while todo:
            found |= todo
            todo = {name for each in todo for name in always[each]} - found
        return found

    found = {"core": sorted({"core/__init__.py"} | loaded("__init__.py") | loaded("__main__.py"))}
    apart = {name for name in always if name.startswith("rules/") and name != "rules/__init__.py"}
    elsewhere |= apart - {*found["core"]} - {name for each in always.values() for name in each}
    for name in sorted(elsewhere, key=lambda each: len(loaded(each)), reverse=True):
        if not any(name in group for group in found.values()):
            found[Path(name).stem] = sorted(loaded(name) - {*found["core"]})
    found["core"].append("rules/__init__.py")
    return found


def figures() -> dict[str, int]:
    """The lines of code that every file loads; of all rules about models; of what checks statements of another kind,
    which no other module of the kernel imports; and of the small kernel."""
    counted, found = trusted(), groups()
    trees = [(path, ast.parse(path.read_text())) for path in KERNEL.rglob("*.py")]
    imported = {name for path, tree in trees for node in ast.walk(tree) for name in _imported(node, path)}
    apart = {name for name in counted if name.startswith("rules/") and name not in {*imported, "rules/__init__.py"}}
    small = sum(len(code_lines(path)) for path in SMALL.rglob("*.py"))
    core, statements = (sum(counted[name] for name in names) for names in (found["core"], apart))
    return {"every file": core, "all": sum(counted.values()) - statements, "statements": statements, "small": small}


def _imported(node: ast.AST, path: Path) -> set[str]:
    """The modules of the kernel that a statement of the module at `path` imports."""
    if not isinstance(node, ast.ImportFrom) or not node.level:
        return set()
    package = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
    modules = [package.with_suffix(".py")] if node.module and not package.is_dir() else []
    modules += [package / f"{each.name}.py" for each in node.names if package.is_dir()]
    return {_name(module) for module in modules}


def ran_for(file: str | Path) -> dict[str, set[int]]:
    """The kernel's modules that took part in the check of a file or folder, with the numbers of their lines that ran,
    those included that ran when the module was loaded. Raises what `verify` raises."""
    ran: dict[str, set[int]] = {str(path): set() for path in KERNEL.rglob("*.py")}

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        lines = ran.get(frame.f_code.co_filename)
        if lines is None:
            return None
        lines.add(frame.f_lineno)
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        verify(file)
    finally:
        sys.settrace(before)
    return {_name(Path(name)): _with_loading(Path(name), lines) for name, lines in sorted(ran.items()) if lines}


def listing(ran: Mapping[str, set[int]]) -> str:
    """The lines that ran, module by module, with their numbers; docstrings are left in the modules."""
    pages = []
    for name, lines in ran.items():
        text = (KERNEL / name).read_text().splitlines()
        shown = [f"{number:5}  {text[number - 1]}".rstrip() for number in sorted(lines)]
        pages.append("\n".join([f"kernel/{name}: {len(lines)} lines", *shown, ""]))
    return "\n".join(pages)


def _with_loading(path: Path, ran: set[int]) -> set[int]:
    """The lines of a module that ran, each with all lines of its statement, and what runs when the module is loaded:
    all that is outside of functions, and the heads of the functions that ran."""
    found: set[int] = set()

    def visit(body: list[ast.stmt], loading: bool) -> None:
        for node in body:
            lines, inner = _lines([node]), _inner(node)
            if isinstance(node, ast.FunctionDef):
                if ran & lines:
                    found.update(_lines(node.decorator_list), range(node.lineno, node.body[0].lineno))
                    visit(node.body, loading=False)
            elif loading or ran & lines:
                found.update(lines - _lines(inner))
                visit(inner, loading)

    visit(ast.parse(path.read_text()).body, loading=True)
    return found & code_lines(path)


def _lines(nodes: Iterable[ast.stmt | ast.expr]) -> set[int]:
    return {number for each in nodes for number in range(each.lineno, (each.end_lineno or each.lineno) + 1)}


def _inner(node: ast.stmt) -> list[ast.stmt]:
    """The statements inside of a statement."""
    parts = (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ()))
    return [each for part in parts for name in ("body", "orelse", "finalbody") for each in getattr(part, name, ())]


if __name__ == "__main__":
    counted = trusted()
    for name, modules in groups().items():
        lines = {module.removesuffix(".py"): counted[module] for module in modules}
        needed = "that every file needs" if name == "core" else f"more, where a file needs the rule {name}"
        print(f"{sum(lines.values()):6}  lines {needed}: {', '.join(f'{m} {n}' for m, n in lines.items())}")
    print(f"{sum(counted.values()):6}  lines of code in {len(counted)} modules")
    for name, count in figures().items():
        print(f"{count:6}  {CALLED[name]}")
