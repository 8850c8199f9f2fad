"""Rules that few files need: each is loaded for the files that ask for it, and for no others."""
