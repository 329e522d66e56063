"""Trained heads as max-affine partitions of their queries."""

from maxaffine.inspection.head import HeadInspection, inspect

__all__ = ["HeadInspection", "inspect"]
