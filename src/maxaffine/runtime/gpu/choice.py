"""Which kernel runs a layer on a CUDA device, in which dtype, and why; nothing here needs a device or PyTorch."""

from maxaffine.core.errors import Refused
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.runtime.gpu.tables import Polynomials, polynomials
from maxaffine.runtime.gpu.windows import LookupProgram, lookup_program


def choose(
    layer: Layer | GroupedLayer, dtype: str, tolerance: float, asked: str | None = None
) -> tuple[str, str, Polynomials | LookupProgram]:
    """The kernel's name, the reason and its program; Refused where none takes the layer, or not the one asked for."""
    if layer.grouped:
        if asked == "windowed":
            raise Refused("spectral layers have no window.")
        made = polynomials(layer, dtype, tolerance)
        return "collapsed", f"{made.multiplications} multiply-adds per query instead of {layer.tokens} exponentials", made
    if asked == "collapsed":
        raise Refused("only spectral layers collapse.")
    found = lookup_program(layer, dtype)
    return "windowed", f"{found.gathers} of {layer.keys.count} keys per query", found
