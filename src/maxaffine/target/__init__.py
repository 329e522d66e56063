"""What to say: boxes, expressions, targets and the facts known about them."""
