"""One head kind a file: its weights, its lemma, its derivation."""
