"""What proofs assume of the arithmetic below them, in the words that certificates carry."""

EXPONENTIAL = "exp is accurate to 4 ulp in the dtype; sums and products follow IEEE 754 in any order"
LOGARITHM = "exp is accurate to 4 ulp in the dtype, log to 4 ulp in float64; sums and products follow IEEE 754 in any order"
ELEMENTARY = "NumPy's elementary functions are accurate to the ulps stated in core/intervals.py"
CONSTANTS = "constants such as pi are enclosed by NumPy's functions, accurate to the ulps stated in core/intervals.py"
FLINT = "complex balls of python-flint enclose analytic functions; exp and cos of long double numbers are accurate to 4 ulp"
LITERAL_SOFTMAX = "exp is accurate to 32 ulp; sums, products and quotients follow IEEE 754 in any order"
DECLARED = "the declared bounds on ellipses or of a derivative; the callable's returned values are the target's exact values"
CALLABLE = "the callable's returned values are the target's exact values"
ENTRIES = "the entries are the exact float64 numbers of the table that the hash names"
DRAW = (
    "the function says the same whenever it is called with the same point",
    "the points of NumPy's generator are as good as independent and uniform, and the seed was not chosen by their outcome",
    "the layer runs as it ran for the draw, layer(x) with its own runtime",
)
