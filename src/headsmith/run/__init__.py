"""Executing a transformer."""
