"""Scopes in words: which x a certificate speaks of, as a person reads it."""

from maxaffine.core.scope import Scope

INPUTS = {
    "real": "every real x in the box, input rounding included",
    "float64": "every x in the box whose coordinates are float64 numbers",
}


def in_words(scope: Scope) -> str:
    """A scope as the end of a sentence that begins with "for"."""
    if scope.over == "integral":
        rounded = "" if scope.inputs == "real" else ", at x rounded to float64"
        return f"the integral of |layer - target|^p over the box{rounded}"
    if scope.over == "centres":
        return f"every x in the box within {scope.radius:.6g} (Euclidean distance) of one of the {scope.count} centres"
    if scope.over == "entries":
        what = "entries of the table" if scope.kind == "table" else "samples"
        without = f" ({scope.missing:,} missing ones left out)" if scope.missing else ""
        return f"the {scope.count:,} {what} with SHA-256 {scope.sha256}{without} and no other x: nothing is claimed between them"
    if scope.over == "share":
        return "all of the box but a share that a draw limits"
    if scope.over == "nothing":
        return "no x"
    words = INPUTS[scope.inputs]
    if scope.gap is None:
        return words
    how = "Euclidean distance" if scope.measure == "distance" else "in w . x"
    jumps = "the jump" if scope.jumps == 1 else f"one of the {scope.jumps} jumps"
    return f"{words}, except points within {scope.gap:.6g} ({how}) of {jumps} of the target"
