"""A graph as another one that computes the same: fused, collected into layers, without what is fixed."""
