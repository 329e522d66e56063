"""Spectral heads: tokens, bounds and seconds for the targets that the project promises; prints a table.

    python benchmarks/spectral.py [--quick]
"""

import sys
import time
from dataclasses import dataclass

import maxaffine as ma

PI = 3.141592653589793


@dataclass(frozen=True)
class Row:
    """A target, an error, and at most how many tokens it may take (None: not promised)."""

    text: str
    box: ma.Box
    error: float
    most: int | None
    dtype: str = "float64"
    ratio: float = 1.3  # certified / observed


def _box(names: str, low: float, high: float) -> ma.Box:
    return ma.Box(**dict.fromkeys(names, (low, high)))


FRANKE = (
    "0.75*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)
ERRORS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
PROMISES = (
    ("sin(x)+cos(y)", _box("xy", -PI, PI), (16, 20, 26, 34, 42), 1.3),
    ("sin(x)*cos(y)", _box("xy", -PI, PI), (49, 81, 169, 256, 400), 1.3),
    (FRANKE, _box("xy", 0, 1), (121, 484, 961, 1444, 1936), 1.3),
    ("exp(-x**2-y**2-z**2)", _box("xyz", -2, 2), (343, 1331, 3375, 6859, None), 1.6),
    ("1/(1+25*x**2)", _box("x", -1, 1), (18, 32, 48, 64, 84), 1.3),
)
SINES = "+".join(f"sin({i}*x{i})" for i in range(1, 21))
TABLE = [
    Row(text, box, error, most, ratio=ratio)
    for text, box, tokens, ratio in PROMISES
    for error, most in zip(ERRORS, tokens, strict=True)
    if most is not None
] + [
    Row("tanh(5*(x+y))", _box("xy", -1, 1), 1e-6, 40),
    Row("exp(-(x-y)**2)", _box("xy", -1, 1), 1e-6, 16),
    Row("x*y", _box("xy", -1, 1), 1e-8, 16),
    Row(SINES, ma.Box(**{f"x{i}": (-1, 1) for i in range(1, 21)}), 1e-6, 600, ratio=2.0),
    Row("exp(-(x1**2+x2**2+x3**2+x4**2+x5**2+x6**2))", ma.Box(**{f"x{i}": (-1, 1) for i in range(1, 7)}), 1e-6, None, ratio=4.0),
    Row("sin(x)+cos(y)", _box("xy", -PI, PI), 1e-4, None, "float32", 4.0),
    Row(FRANKE, _box("xy", 0, 1), 1e-4, None, "float32", 6.0),
    Row("sin(x)+cos(y)", _box("xy", -PI, PI), 5e-2, None, "bfloat16", 4.0),
]


def run(row: Row) -> tuple[ma.Compiled, float]:
    """The layer of a row and the seconds it took."""
    begun = time.perf_counter()
    layer = ma.compile(row.text, row.box, error=row.error, dtype=row.dtype, require="proved")
    return layer, time.perf_counter() - begun


def main() -> int:
    """Print the table; 1 where a promise is not kept."""
    quick, broken = "--quick" in sys.argv[1:], 0
    widths = {"error": 7, "dtype": 9, "tokens": 8, "most": 6, "bound": 10, "observed": 10, "ratio": 6, "s": 6}
    print(f"{'target':40}", *(f"{name:>{width}}" for name, width in widths.items()))
    for row in TABLE:
        if quick and row.error < 1e-6:
            continue
        name = row.text if len(row.text) <= 40 else row.text[:37] + "..."
        try:
            layer, seconds = run(row)
        except ma.Refused as refusal:
            print(f"{name:40} {row.error:7.0e} {row.dtype:>9} refused: {refusal}")
            broken += 1
            continue
        ratio = layer.bound / layer.observed.error if layer.bound and layer.observed.error else float("nan")
        kept = (row.most is None or layer.tokens <= row.most) and ratio <= row.ratio and layer.certificate.kind == "proved"
        broken += not kept
        print(
            f"{name:40} {row.error:7.0e} {row.dtype:>9} {layer.tokens:8,} {row.most or '':>6} {layer.bound:10.3e} "
            f"{layer.observed.error:10.3e} {ratio:6.3f} {seconds:6.2f}{'' if kept else '  <-- not kept'}"
        )
    print("every promise kept" if not broken else f"{broken} not kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
