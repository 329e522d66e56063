"""Where keys go: max-affine partitions, methods and their cost."""
