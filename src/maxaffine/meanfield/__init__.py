"""Exact mean-field theory of a softmax attention layer on single-location regression."""
