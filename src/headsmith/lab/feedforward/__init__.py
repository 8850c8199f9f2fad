"""Feed-forward networks for the same targets, to compare attention with: what they are (network.py), how they are built
(build.py), and both side by side (against.py)."""
