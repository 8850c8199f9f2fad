"""Linear regions of piecewise linear networks: enumerated exactly, counted, bounded and drawn."""
