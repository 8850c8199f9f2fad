"""Errors, boxes, intervals with outward rounding, and ball arithmetic."""
