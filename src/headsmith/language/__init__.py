"""Targets and the source graph that states them exactly."""
