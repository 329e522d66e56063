"""The weights: frozen data, the literal matrices, and the file."""
