"""Constructive ReLU approximators of functions of one variable: one family a file, each with its inequality."""

from headsmith.circuits.fragment import Fragment
from headsmith.circuits.options import options
from headsmith.circuits.registry import build

__all__ = ["Fragment", "build", "options"]
