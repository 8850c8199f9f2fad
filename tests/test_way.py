"""The compiler is a way that a newcomer can walk: a product, traced from the call to the certificate, visits few
modules, and seldom goes from one room (a folder of the package, or a module beside them) to another."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

MOST_MODULES, MOST_CHANGES = 63, 590

TRACE = """
import json, sys
from pathlib import Path
import headsmith as hs
import headsmith.compile

root = str(Path(hs.__file__).parent) + "/"
visited = []

def note(frame, event, _):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root) and frame.f_code.co_name != "<module>":
        visited.append(name[len(root):])

sys.setprofile(note)
hs.compile("x*y", {"x": (-1, 1), "y": (-1, 1)}, error=1e-6)
sys.setprofile(None)
print(json.dumps(visited))
"""


def test_a_product_visits_few_modules_and_seldom_changes_rooms() -> None:
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, check=True)
    visited = json.loads(done.stdout)
    rooms = [name.partition("/")[0] for name in visited]
    assert len({*visited}) <= MOST_MODULES, sorted({*visited})
    assert 1 + sum(before != after for before, after in pairwise(rooms)) <= MOST_CHANGES
