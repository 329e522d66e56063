"""The words of the expression grammar: functions with their numbers of arguments, their NumPy names, and constants."""

UNARY = (
    "abs", "sign", "floor", "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos",
    "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "sinc", "exprel",
)  # fmt: skip
"""Functions of one argument that are operations of an expression."""

ALIASES = {
    "absolute": "abs", "fabs": "abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "power": "pow", "ln": "log", "expit": "sigmoid",
    "multiply": "mul", "true_divide": "divide",
}  # fmt: skip
"""Other names, mostly NumPy's, for the same functions."""

ARITIES: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(UNARY, (1, 1)),
    "atan2": (2, 2), "pow": (2, 2), "hypot": (2, 2), "min": (1, None), "max": (1, None), "clip": (3, 3), "relu": (1,
    1),
    "ceil": (1, 1), "square": (1, 1), "reciprocal": (1, 1), "exp2": (1, 1), "log2": (1, 1), "log10": (1, 1),
    "add": (2, 2), "subtract": (2, 2), "mul": (2, 2), "divide": (2, 2), "negative": (1, 1),
    "where": (3, 3), "piecewise": (3, None), "float": (1, 1),
}  # fmt: skip
"""Least and greatest number of arguments of every function (None: any number)."""

CONSTANTS = ("pi", "e")
"""Names of numbers, standing for the true real numbers."""

WORDS = ("and", "or", "not")
"""Words that join comparisons."""

FUNCTIONS = tuple(sorted(set(ARITIES) | set(ALIASES)))
"""Every name that can be called."""

RESERVED = frozenset(CONSTANTS) | frozenset(WORDS)
"""Names that a variable cannot have; a function's name is one, as it is a function before a parenthesis only."""
