"""Formulas as stacks of a few attention layers: cut into nodes of one or two directions, one proved head each."""
