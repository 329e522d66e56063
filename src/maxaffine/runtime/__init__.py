"""How a layer is run: dense, blocked, factorised."""
