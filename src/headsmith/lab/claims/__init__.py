"""The claims of the literature, as code that computes each figure and can fail."""
