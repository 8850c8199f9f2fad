"""Random scenes and questions, and a brute-force oracle that reads the question's text by itself.

The oracle shares no code with the package.
"""

from __future__ import annotations

import random
from typing import Any

Scene = list[dict[str, Any]]
COLOURS, SHAPES = ["red", "green", "blue"], ["cube", "ball", "cone"]
LINKS = ["left of", "right of", "same colour as", "same shape as"]


def random_scene(rng: random.Random, objects: int, positions: int = 5) -> Scene:
    return [
        {"colour": rng.choice(COLOURS), "shape": rng.choice(SHAPES), "position": rng.randrange(positions)}
        for _ in range(rng.randint(0, objects))
    ]


def random_set(rng: random.Random, depth: int, links: list[str] = LINKS) -> str:
    """A set with `depth` operations in a chain."""
    words = [rng.choice(COLOURS)] if rng.random() < 0.6 else []
    words += [rng.choice(SHAPES)] if rng.random() < 0.6 or not words else []
    return " ".join(words) + (f" {rng.choice(links)} the {random_set(rng, depth - 1, links)}" if depth > 1 else "")


def holds(thing: dict[str, Any], words: list[str], link: str | None, anchor: dict[str, Any] | None) -> bool:
    if not all(word in thing.values() for word in words):
        return False
    if link is None:
        return True
    assert anchor is not None
    if link == "left of":
        return bool(thing["position"] < anchor["position"])
    if link == "right of":
        return bool(thing["position"] > anchor["position"])
    return bool(thing[link.split()[1]] == anchor[link.split()[1]])


def brute(text: str, scene: Scene) -> list[dict[str, Any]] | None:
    """The objects of a set, innermost set first; None if a set that should have one object has not."""
    for link in LINKS:
        text = text.replace(f"{link} the", f"| {link} |")
    pieces = [piece.strip() for piece in text.split("|")]
    sets, links = [piece.split() for piece in pieces[::2]], [*pieces[1::2], None]
    members: list[dict[str, Any]] = []
    for words, link in zip(reversed(sets), reversed(links), strict=True):
        if link is not None and len(members) != 1:
            return None
        anchor = members[0] if link else None
        members = [thing for thing in scene if holds(thing, words, link, anchor)]
    return members


def brute_answer(question: str, scene: Scene) -> Any:
    """The answer, or None where the scene does not answer the question."""
    if question.startswith("count "):
        found = brute(question.removeprefix("count "), scene)
        return None if found is None else len(found)
    if question.startswith("more "):
        found_sets = [brute(text, scene) for text in question.removeprefix("more ").split(" than ")]
        if None in found_sets:
            return None
        first, second = (len(found or ()) for found in found_sets)
        return "equal" if first == second else "more" if first > second else "fewer"
    if question.startswith("most of "):
        texts = question.removeprefix("most of ").split(", ")
        found_sets = [brute(text, scene) for text in texts]
        if None in found_sets:
            return None
        counts = [len(found or ()) for found in found_sets]
        return texts[counts.index(max(counts))] if counts.count(max(counts)) == 1 else None
    group, _, text = question.partition(" of the ")
    found = brute(text, scene)
    return str(found[0][group]) if found is not None and len(found) == 1 else None
