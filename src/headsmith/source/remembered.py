"""What is known of a graph is found once: graphs never change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from headsmith.source.graph import Graph

Key = ParamSpec("Key")
Known = TypeVar("Known")


def once_for_graph(function: Callable[Concatenate[Graph, Key], Known]) -> Callable[Concatenate[Graph, Key], Known]:
    """The function of a graph (and of what else is hashable), which remembers its results as long as the graph
    lives. Nobody may change them."""
    found: WeakKeyDictionary[Graph, dict[object, Known]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(graph: Graph, /, *key: Key.args, **named: Key.kwargs) -> Known:
        known = found.setdefault(graph, {})
        place = (key, *sorted(named.items()))
        if place not in known:
            known[place] = function(graph, *key, **named)
        return known[place]

    return remembered
