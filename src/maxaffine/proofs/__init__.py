"""Theorems about a stored layer, one file per theorem, and the certificates they fill."""
