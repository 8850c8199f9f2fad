"""The proof of a model: circuits, views, witnesses, written down for the kernel to check."""
