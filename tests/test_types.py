"""Editors and mypy see the types of the public names, although these are found on first use."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import headsmith as hs

SOURCE = Path(hs.__file__)
USER = """
import headsmith as hs

model = hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3)
reveal_type(model)
reveal_type(model.certificate.error)
reveal_type(model.bill.heads)
reveal_type(hs.Network([([[1.0]], [0.0])]))
model.certificate.wrong
hs.no_such_name
"""


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE.parent / "py.typed").exists()


def test_what_type_checkers_read_is_what_is_public() -> None:
    assert list(hs.__all__) == sorted(hs.__all__)
    for statement in ast.parse(SOURCE.with_suffix(".pyi").read_text()).body:
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            assert alias.asname == alias.name
            assert alias.name in hs.__all__
            home = importlib.import_module(str(statement.module))
            module = f"{statement.module}.{alias.name}"
            assert getattr(hs, alias.name) is getattr(home, alias.name, sys.modules.get(module)), alias.name


@pytest.mark.parametrize("room", sorted(set(hs.__all__) & {path.stem for path in SOURCE.parent.iterdir()}))
def test_a_room_does_not_hide_the_name_that_it_shares(room: str) -> None:
    """Whoever imports headsmith.plan, the room, and then calls hs.plan, calls the function."""
    program = (
        f"import headsmith.{room}, headsmith as hs; import types; assert not isinstance(hs.{room}, types.ModuleType)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow  # mypy reads the whole package
def test_mypy_sees_the_types(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(USER)
    root = SOURCE.parents[2]
    command = [sys.executable, "-m", "mypy", str(user)]
    found = subprocess.run(
        [*command, "--config-file", str(root / "pyproject.toml")], cwd=root, capture_output=True, text=True, check=False
    ).stdout
    assert 'Revealed type is "headsmith.model.Compiled"' in found, found
    assert found.count('Revealed type is "float"') == 1
    assert found.count('Revealed type is "int"') == 1
    assert 'Revealed type is "headsmith.language.network.Network"' in found
    assert 'has no attribute "wrong"' in found
    assert '"no_such_name"' in found
