"""The proof kernel: it re-derives a stored model's error from its weights and its target, and trusts no other
number."""
