"""The studio and its pages, in a real browser."""
