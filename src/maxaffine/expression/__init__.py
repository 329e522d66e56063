"""The language of expressions: grammar, graph, evaluation, enclosures, derivatives."""
