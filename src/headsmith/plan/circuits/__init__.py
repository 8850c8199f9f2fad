"""Constructive ReLU approximators of functions of one variable: one family a file, each with its inequality."""

from headsmith.plan.circuits.fragment import Fragment
from headsmith.plan.circuits.options import options

__all__ = ["Fragment", "options"]
