"""The attack: random layers, moved numbers, forged files and every route against what is stated of them."""
