"""Functions written in Python, read as expressions: called once with symbols in place of numbers."""
