"""The command line: thin commands that parse, call and print."""

from headsmith.cli.group import commands, main

__all__ = ["commands", "main"]
