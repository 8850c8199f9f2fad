"""Attempts to break certificates: forged files, rewritten circuits, roundings pushed the worst way; the self-test."""
