"""The proof kernel: it re-derives the error of a stored model from its weights and its source graph, and trusts no other number."""
