"""Breaks of callables: where a function that is known by its values alone has kinks and jumps; seen, never proved."""
