"""Sequence programs: targets that map the tokens of a sequence to the tokens of another."""
