"""Routes on trial: every way to run a layer, its error maximised, against what is stated of it."""
