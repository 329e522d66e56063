"""The words of the expression grammar: functions with their numbers of arguments, their NumPy names, and constants."""

UNARY = (
    "abs", "sign", "floor", "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos",
    "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "sinc", "exprel",
    "gamma", "loggamma", "digamma", "erfc", "erfi", "erfcx", "dawsn", "airy_ai", "airy_aip", "airy_bi", "airy_bip", "expi",
    "exp1", "si", "ci", "fresnel_s", "fresnel_c", "lambertw", "ndtr", "ndtri", "log_ndtr", "softplus",
)  # fmt: skip
"""Functions of one argument that are operations of an expression."""

WITH_NUMBERS = {
    "jv": 1, "yv": 1, "iv": 1, "kv": 1, "polygamma": 1, "gammainc": 1, "gammaincc": 1, "betainc": 2,
}  # fmt: skip
"""Functions whose first arguments are numbers: how many."""

AT_NUMBERS = {
    "j0": ("jv", 0), "j1": ("jv", 1), "y0": ("yv", 0), "y1": ("yv", 1), "i0": ("iv", 0), "i1": ("iv", 1), "k0": ("kv", 0),
    "k1": ("kv", 1), "zeta": ("zeta", 0), "ellipk": ("ellipk", 0), "ellipe": ("ellipe", 0),
}  # fmt: skip
"""Functions of one argument that are others at a number: an order, or which derivative."""

ALIASES = {
    "absolute": "abs", "fabs": "abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "power": "pow", "ln": "log", "expit": "sigmoid",
    "multiply": "mul", "true_divide": "divide",
    "norm_cdf": "ndtr", "norm_ppf": "ndtri", "psi": "digamma",
}  # fmt: skip
"""Other names, mostly NumPy's, for the same functions."""

ARITIES: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(UNARY, (1, 1)),
    **dict.fromkeys(AT_NUMBERS, (1, 1)),
    **{name: (count + 1, count + 1) for name, count in WITH_NUMBERS.items()},
    "beta": (2, 2), "gelu": (1, 1), "silu": (1, 1), "logit": (1, 1),
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
