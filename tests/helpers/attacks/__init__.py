"""Attempts to break a certificate: searches for the worst input, changed models, forged files."""
