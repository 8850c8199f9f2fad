"""Models to try things on: networks, programs, scenes, models that carry their proofs."""
