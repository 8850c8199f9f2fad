"""The published schema of circuit.json says what is in it: circuits of every kind of model are checked against it."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest

import headsmith as hs

over = hs.tokens
SCHEMA = json.loads((files("headsmith.inside") / "circuit.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool}


def faults(schema: dict[str, Any], value: Any, where: str = "$") -> list[str]:
    """What is wrong with a value, by the part of JSON Schema that the schema uses."""
    if "$ref" in schema:
        return faults(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], value, where)
    if "anyOf" in schema:
        return [] if any(not faults(each, value, where) for each in schema["anyOf"]) else [f"{where}: none of anyOf"]
    types = schema.get("type", list(TYPES))
    types = types if isinstance(types, list) else [types]
    if value is None and ("null" in types or "type" not in schema):
        return []
    allowed = tuple(kind for name in types if name != "null" for kind in [TYPES[name]])
    flat = tuple(each for kind in allowed for each in (kind if isinstance(kind, tuple) else (kind,)))
    if not isinstance(value, flat) or (isinstance(value, bool) and bool not in flat):
        return [f"{where}: {type(value).__name__}"]
    found = [f"{where}: {value!r}" for name in ("const",) if name in schema and value != schema[name]]
    found += [f"{where}: {value!r}"] if "enum" in schema and value not in schema["enum"] else []
    found += [f"{where}: {value!r}"] if "pattern" in schema and not re.search(schema["pattern"], value) else []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
        for name, each in value.items():
            rest = schema.get("additionalProperties", True)
            if name in known or isinstance(rest, dict):
                found += faults(known.get(name, rest), each, f"{where}.{name}")
            elif rest is False:
                found.append(f"{where}: {name} is too much")
    if isinstance(value, list) and "items" in schema:
        found += [
            fault for place, each in enumerate(value) for fault in faults(schema["items"], each, f"{where}[{place}]")
        ]
    return found


@pytest.mark.parametrize(
    "made",
    [
        lambda: hs.compile("relu(x - y) + x*y*z", (-1, 1), 1e-3),
        lambda: hs.compile("max(x, y, -x)", (-1, 1), 1e-3, recipe="maxout"),
        lambda: hs.compile_sequence(lambda x: over.sort(x), tokens=3, domain=(-1, 1), error=1e-3),
        lambda: hs.compile("relu(x)*y", (-1, 1), 1e-3).disguise(3),
        lambda: hs.compile("relu(x) + relu(y)", (-1, 1), 1e-3, attention="hardmax"),
    ],
    ids=["formula", "pieces", "sequence", "disguise", "hardmax"],
)
def test_circuits_follow_the_schema(made: Any) -> None:
    circuit = json.loads(json.dumps(made().circuit()))
    assert faults(SCHEMA, circuit) == []
    circuit["version"] = 3
    circuit["nodes"]["input"].pop("in_graph")
    assert len(faults(SCHEMA, circuit)) == 2
