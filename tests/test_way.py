"""The compiler is a way that a newcomer can walk: a product, traced from the call to the certificate, visits few
modules, and seldom goes from one room to another. So does a program over sequences. A room is a folder of the package,
or a module beside them; the rooms of plan/ that have a subject of their own count for themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import pytest

MOST_MODULES, MOST_CHANGES = 63, 490
MOST_MODULES_BESIDE_THE_KERNEL, MOST_CHANGES_BESIDE_THE_KERNEL = 42, 365
MOST_CHANGES_OF_A_PROGRAM = 1230

OWN = ("plan/fit", "plan/circuits", "plan/analysis", "plan/rewrite", "plan/evidence")

TRACE = """
import json, sys
from pathlib import Path
import headsmith as hs
import headsmith.compile
import headsmith.sequence.compiled

root = str(Path(hs.__file__).parent) + "/"
visited = []

def note(frame, event, _):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root) and frame.f_code.co_name != "<module>":
        visited.append(name[len(root):])

sys.setprofile(note)
{call}
sys.setprofile(None)
print(json.dumps(visited))
"""

PRODUCT = 'hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6)'
PROGRAM = "hs.compile_sequence(lambda x: hs.tokens.sort(x[:, 0]), tokens=4, domain=(0, 10))"


def modules_of(call: str) -> list[str]:
    """The modules of the functions that a call calls, in their order."""
    trace = TRACE.replace("{call}", call)
    done = subprocess.run([sys.executable, "-c", trace], capture_output=True, text=True, check=True)
    visited: list[str] = json.loads(done.stdout)
    return visited


def room_of(module: str) -> str:
    return next((room for room in OWN if module.startswith(f"{room}/")), module.partition("/")[0])


def changes(modules: list[str]) -> int:
    """How often the way enters a room, the first one included."""
    return 1 + sum(before != after for before, after in pairwise(map(room_of, modules)))


@pytest.fixture(scope="module")
def product() -> list[str]:
    return modules_of(PRODUCT)


def test_a_product_visits_few_modules_and_seldom_changes_rooms(product: list[str]) -> None:
    assert len({*product}) <= MOST_MODULES, sorted({*product})
    assert changes(product) <= MOST_CHANGES


def test_beside_the_kernel_it_visits_fewer(product: list[str]) -> None:
    beside = [module for module in product if room_of(module) != "kernel"]
    assert len({*beside}) <= MOST_MODULES_BESIDE_THE_KERNEL, sorted({*beside})
    assert changes(beside) <= MOST_CHANGES_BESIDE_THE_KERNEL


def test_a_program_seldom_changes_rooms() -> None:
    assert changes(modules_of(PROGRAM)) <= MOST_CHANGES_OF_A_PROGRAM
