"""One error for all outputs of a target, or one for each of them."""

from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput, Refused
from maxaffine.target.target import Target


def errors_of(error: Any, target: Target, pointwise: bool = False) -> tuple[Any, tuple[float, ...] | None]:
    """The smallest error, and where they differ those of all entries, row by row; each still to be checked as a number."""
    if error is None or isinstance(error, str) or np.ndim(error) == 0:
        return error, None
    try:
        given = np.asarray(error, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"`error` (={error!r:.60}) must be a positive number, or one for every output.") from None
    count = target.d_out * target.n_out
    flat = given.ndim == 1 and 1 in (target.d_out, target.n_out)
    if given.size != count or not (flat or given.shape in (target.output_shape, (target.d_out, target.n_out))):
        told = f"{count} output{'' if count == 1 else 's'}" + (f", {target.d_out} x {target.n_out}" if target.n_out > 1 else "")
        raise BadInput(f"`error` has the shape {given.shape}, and the target has {told}: give one number, or one each.")
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise BadInput(f"`error` (={error!r:.60}) must be positive finite numbers; ask for errors such as 1e-3.")
    if pointwise:
        raise Refused('`relative` (="pointwise") takes one `error` for all outputs.')
    each = tuple(float(one) for one in given.ravel())
    return min(each), None if len(set(each)) == 1 else each
