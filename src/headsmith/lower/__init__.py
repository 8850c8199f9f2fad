"""From a source graph to a transformer: stable gates vanish, affine nodes become registers, gates become heads."""
