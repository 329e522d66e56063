"""A layer as an ONNX model that keeps the structure: the softmax of NumPy's runtimes, operation by operation, in float64.

    x  ->  float64  ->  clip to the box  ->  x - centre  ->  sum over groups of F_g  ->  the dtype asked for

Product keys have one softmax per direction, clusters two levels (runtime/two_level.py), and no token is listed.  Listed keys
have one softmax over all.  Numbers are the stored ones, widened; inputs are widened before anything is done with them and the
output is rounded once.  A hard layer leaves as its softmax.

ONNX Runtime takes liberties with constants of a single number: it drops an addend or a factor that float32 cannot tell from zero
or one (NoopElimination), and rounds a factor beside a MatMul to float32 (MatMulScaleFusion).  Such numbers meet the points as
rows as long as the batch, `Fast.by`.

Inside, the batch is the last axis: arrays are (clusters, keys, batch), with one cluster where keys are a product, so that every
operation runs along contiguous rows of points.  Needs the extra ``maxaffine[onnx]``.
"""

import math
from functools import partial, reduce
from typing import Any

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.budget import size
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_dtype
from maxaffine.export.onnx_model import Graph
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import AnyGroup, Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer
from maxaffine.runtime.two_level import SKIP, Family, families

LARGEST = (1 << 31) - (1 << 20)  # bytes of a model: protobuf ends at 2 GiB
AXES_AS_INPUT = 18  # from this opset on ReduceMax takes its axes as an input, as ReduceSum always did


def build_fast(
    layer: AnyLayer, output: tuple[int, ...], shapes: Any, dtype: str, opset: int, semantics: dict[str, Any]
) -> Any:
    """The model, checked by onnx's own checker; inputs and output in `dtype`, float64 in between."""
    needed = 8 * (layer.nbytes // layer.itemsize)  # about
    if needed > LARGEST:
        raise Refused(f"the layer has {size(needed)} of numbers in float64, and an ONNX model holds at most {size(LARGEST)}.")
    from onnx import TensorProto

    graph = Fast(dtype, opset, np.float64)
    points = graph.points(shapes)
    wide = points if dtype == "float64" else graph("Cast", points, to=int(TensorProto.DOUBLE))
    inside = graph("Transpose", graph.inside(wide, layer.low, layer.high), perm=[1, 0])  # (D, B)
    graph.zeros = graph("MatMul", graph.const(np.zeros((1, layer.dimension))), inside)
    total = _parts(graph, layer, inside) if layer.several else _alone(graph, layer, inside)
    rows = graph("Transpose", total, perm=[1, 0])
    return graph.model(rows if dtype == "float64" else graph("Cast", rows, to=graph.kind), output, semantics)


class Fast(Graph):
    """A graph whose nodes and constants name themselves; `zeros` is a row (1, B) of them."""

    zeros: str

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node."""
        return self.node(op, *inputs, out=f"{op.lower()}_{len(self.nodes)}", **attributes)

    def const(self, array: Any, of: Any = None) -> str:
        """A constant."""
        return self.constant(f"constant_{len(self.constants)}", array, of)

    def by(self, op: str, name: str, array: AnyArray) -> str:
        """`op` (Add, Sub, Mul or Div) with a constant second; none with the single number that changes nothing."""
        if array.size > 1:
            return self(op, name, self.const(array))
        if array.item() == (1.0 if op in ("Mul", "Div") else 0.0):
            return name
        return self(op, name, self("Sub", self.const(array), self.zeros))

    def reduce(self, op: str, of: str, axis: int, keep: bool = True) -> str:
        """ReduceMax or ReduceSum along one axis."""
        if op == "ReduceMax" and self.opset < AXES_AS_INPUT:
            return self(op, of, axes=[axis], keepdims=int(keep))
        return self(op, of, self.const([axis], np.int64), keepdims=int(keep))

    def shaped(self, name: str, *shape: int) -> str:
        """The same numbers in another shape."""
        return self("Reshape", name, self.const(shape, np.int64))

    def split(self, name: str, parts: int, each: int) -> list[str]:
        """(F, parts * each, B) as that many (F, each, B)."""
        if parts == 1:
            return [name]
        from onnx import helper

        names = [f"{name}_{i}" for i in range(parts)]
        self.nodes.append(helper.make_node("Split", [name, self.const([each] * parts, np.int64)], names, axis=1))
        return names

    def sum(self, names: list[str]) -> str:
        """From the left."""
        return reduce(partial(self, "Add"), names)

    def rows(self, matrix: AnyArray, away: str) -> list[str]:
        """The coordinates matrix @ away, one (1, B) for every row."""
        found = []
        for row in matrix:
            used = np.flatnonzero(row) if row.any() else np.arange(1)
            part = away if len(used) == len(row) else self("Gather", away, self.const(used, np.int64), axis=0)
            part = self.by("Mul", part, row[used, None])
            found.append(part if len(used) == 1 else self.reduce("ReduceSum", part, 0))
        return found


def _alone(graph: Fast, layer: Layer | GroupedLayer, inside: str) -> str:
    """F(x) of points (D, B), (d_out n_out, B)."""
    away = graph.by("Sub", inside, layer.centre[:, None])
    return _groups(graph, layer, away) if layer.grouped else _lookup(graph, layer, away)


def _parts(graph: Fast, layer: OutputsLayer, inside: str) -> str:
    """Layers side by side: the answers of every part below one another, put in order or added up, (d_out n_out, B)."""
    order, found = [e for part in layer.parts for e in part.entries], []
    for part in layer.parts:
        found.append(_alone(graph, part.layer, graph("Gather", inside, graph.const(part.variables, np.int64), axis=0)))
    whole = graph("Concat", *found, axis=0)
    if layer.adds:
        return graph("MatMul", graph.const(layer.mixing()), whole)
    places = [order.index(entry) for entry in range(len(order))]
    return graph("Gather", whole, graph.const(places, np.int64), axis=0)


def _groups(graph: Fast, layer: GroupedLayer, away: str) -> str:
    """F(x) of a grouped layer, (K, B)."""
    parts = [] if layer.tilt is None else [graph("MatMul", graph.const(layer.tilt), away)]
    return graph.sum([graph.zeros, *parts, *(_group(graph, layer, group, away) for group in layer.groups)])  # with a batch


def _group(graph: Fast, layer: GroupedLayer, group: AnyGroup, away: str) -> str:
    """F_g(x), (K, B)."""
    if group.factored:
        values = [_group(graph, layer, factor, away) for factor in group.factors]
        return graph.by("Add", reduce(partial(graph, "Mul"), values), group.shift[:, None])
    z = graph.rows(group.matrix, away)
    if group.clustered:
        return _clusters(graph, families(group, compute_dtype(layer.dtype)), group, z)
    return _product(graph, group, z) if group.factors is None else _factors(graph, group, z)


def _lookup(graph: Fast, layer: Layer, away: str) -> str:
    """F(x) of a lookup, (d_out n_out, B)."""
    matrix, sharpness = layer.coordinates.matrix, layer.sharpness
    t = graph.rows(matrix, away)
    shape, values = layer.keys.shape, layer.values.reshape(1, *layer.keys.shape, -1)
    slopes = None if layer.slopes is None else layer.slopes.reshape(*values.shape, -1)
    if layer.keys.is_product:
        axes = [AxisKeys(_wide(a.slopes)[None], sharpness * _wide(a.offsets)[None]) for a in layer.keys.axes]
        scale = np.array([[sharpness]])
        soft = [_exponentials(graph, _logits(graph, graph.by("Mul", z, scale), axis)) for z, axis in zip(t, axes, strict=True)]
        return _quotient(graph, _mixed(graph, [w for _, w, _ in soft], shape, t, values, slopes), [norm for *_, norm in soft])
    z = graph("MatMul", graph.const(matrix), away)
    logits = graph("MatMul", graph.const(sharpness * _wide(layer.keys.slopes)[None]), z)
    logits = graph.by("Add", logits, sharpness * _wide(layer.keys.offsets)[None, :, None])
    _, weights, norm = _exponentials(graph, logits)
    return _quotient(graph, _mixed(graph, [weights], shape, t, values, slopes), [norm])


def _product(graph: Fast, group: Group, z: list[str]) -> str:
    """F_g of product keys, (K, B)."""
    assert group.values is not None
    slopes = None if group.slopes is None else group.slopes[None]
    return _quotient(graph, *_head(graph, z, _stacked(group), group.values[None], slopes)[1:])


def _quotient(graph: Fast, answer: str, norms: list[str]) -> str:
    """What one head answers, (K, B)."""
    return graph("Squeeze", reduce(partial(graph, "Div"), norms, answer), graph.const([0], np.int64))


def _factors(graph: Fast, group: Group, z: list[str]) -> str:
    """F_g where the values are a sum of products over blocks of directions, (1, B); complex ones are two rows of real ones."""
    assert group.factors is not None
    keys, product = _stacked(group), ("", "")
    for b, (cut, factor) in enumerate(zip(group.block_slices, group.factors, strict=True)):
        soft = [_exponentials(graph, _logits(graph, one, axis)) for one, axis in zip(z[cut], keys[cut], strict=True)]
        weights, norms = [weight for _, weight, _ in soft], [norm for *_, norm in soft]
        found = ["", ""]
        for part, values in enumerate((factor, None if group.imaginary is None else group.imaginary[b])):
            if values is not None:
                mixed = _mixed(graph, weights, values.shape[:-1], z[cut], values[None], None)  # (1, R, B)
                found[part] = reduce(partial(graph, "Div"), norms, mixed)
        product = _times(graph, product, (found[0], found[1])) if product[0] else (found[0], found[1])
    return graph.reduce("ReduceSum", graph("Squeeze", product[0], graph.const([0], np.int64)), 0)


def _times(graph: Fast, left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str]:
    """The product of real numbers ("" for the imaginary part), or of complex ones in two parts."""
    times = partial(graph, "Mul")
    (a, b), (c, d) = left, right
    if not b:
        return times(a, c), ""
    return graph("Sub", times(a, c), times(b, d)), graph("Add", times(a, d), times(b, c))


def _clusters(graph: Fast, held: tuple[Family, ...], group: ClusterGroup, z: list[str]) -> str:
    """F_g of clusters, (K, B): exp(A - max A) of every cluster times what its head answers, over the same times its norm."""
    heads, scores = [], []
    for family in held:
        affine = family.values.reshape(*family.values.shape[:-1], group.outputs, -1)  # c, then G
        t = [_local(graph, one, family.origin[:, e], family.radius[:, e]) for e, one in enumerate(z)]
        keys = [AxisKeys(slopes, offsets) for slopes, offsets in family.keys]
        tops, answer, norms = _head(graph, t, keys, affine[..., 0], affine[..., 1:] if family.affine else None)
        if len(group.clusters) == 1:
            return _quotient(graph, answer, norms)
        heads.append((answer, norms))
        sites = _wide(group.site_slopes[family.members])
        grown = [graph.by("Mul", one, sites[:, e, None, None]) for e, one in enumerate(z)]
        site = graph.by("Add", graph.sum(grown), group.site_offsets[family.members, None, None])
        scores.append(graph.sum([site, *tops]))
    tops = [graph.reduce("ReduceMax", score, 0) for score in scores]
    top = graph("Max", *tops) if len(tops) > 1 else tops[0]  # (1, 1, B)
    above, below = [], []
    for family, score, (answer, norms) in zip(held, scores, heads, strict=True):
        mass = _mass(graph, graph("Sub", score, top), family)
        above.append(graph.reduce("ReduceSum", graph("Mul", mass, answer), 0, keep=False))
        for norm in norms:
            mass = graph("Mul", mass, norm)
        below.append(graph.reduce("ReduceSum", mass, 0, keep=False))
    return graph("Div", graph.sum(above), graph.sum(below))


def _mass(graph: Fast, behind: str, family: Family) -> str:
    """exp(behind), (F, 1, B), and zero where the runtime leaves a cluster out."""
    floor = graph.const(math.log(SKIP) - 1e-9 - sum(math.log(slopes.shape[1]) for slopes, _ in family.keys))
    mass = graph("Exp", graph("Max", behind, floor))  # exp is slow where it underflows
    return graph("Where", graph("GreaterOrEqual", behind, floor), mass, graph.const(0.0))


def _local(graph: Fast, z: str, origin: AnyArray, radius: AnyArray) -> str:
    """t = (z - origin) / radius, (F, 1, B), or (1, B) where all clusters have z itself."""
    moved = graph.by("Sub", z, origin[:, None, None]) if origin.any() else z
    return graph.by("Div", moved, radius[:, None, None]) if (radius != 1.0).any() else moved


def _head(
    graph: Fast, t: list[str], keys: list[AxisKeys], values: AnyArray, slopes: AnyArray | None
) -> tuple[list[str], str, list[str]]:
    """What F heads of equal shape say at t: their largest logits, sum_j w_j v_j(t) (F, K, B), and the sums of their weights.

    Keys are (F, p_e), values (F, p_1, .., p_E, K), slopes (.., K, E).  A direction of one key has the weight one.
    """
    tops, weights, norms = [], [], []
    for one, axis in zip(t, keys, strict=True):
        if axis.slopes.shape[1] > 1:
            top, weight, norm = _exponentials(graph, _logits(graph, one, axis))
            tops.append(top)
            weights.append(weight)
            norms.append(norm)
            continue
        weights.append("")
        if axis.slopes.any() or axis.offsets.any():
            tops.append(_logits(graph, one, axis))
    shape = tuple(axis.slopes.shape[1] for axis in keys)
    return tops, _mixed(graph, weights, shape, t, values, slopes), norms


def _logits(graph: Fast, t: str, axis: AxisKeys) -> str:
    """(F, p, B) of keys (F, p)."""
    return graph.by("Add", graph.by("Mul", t, axis.slopes[:, :, None]), axis.offsets[:, :, None])


def _exponentials(graph: Fast, logits: str) -> tuple[str, str, str]:
    """Of logits (F, p, B): the largest (F, 1, B), exp(logit - largest) (F, p, B) and its sum (F, 1, B)."""
    top = graph.reduce("ReduceMax", logits, 1)
    weights = graph("Exp", graph("Sub", logits, top))
    return top, weights, graph.reduce("ReduceSum", weights, 1)


def _mixed(
    graph: Fast, weights: list[str], shape: tuple[int, ...], t: list[str], values: AnyArray, slopes: AnyArray | None
) -> str:  # fmt: skip
    """sum_j w_j (c_j + G_j t), (F, K, B): values (F, *shape, K) contracted with (F, p_e, B), the longest direction first.

    Directions without weights ("") have one key.  (F, K, 1) where nothing depends on the point.
    """
    F, K = values.shape[0], values.shape[-1]
    parts, lean = [_wide(values)], []
    for e in range(0 if slopes is None else slopes.shape[-1]):
        part = _wide(slopes[..., e])  # type: ignore[index]
        if part.any():
            parts.append(part)
            lean.append(e)
    order = sorted((e for e, weight in enumerate(weights) if weight), key=lambda e: shape[e])
    singles = [e for e in range(len(shape)) if e not in order]
    table = np.stack(parts, axis=-1)  # (F, *shape, K, parts)
    table = table.transpose(0, table.ndim - 1, table.ndim - 2, *(1 + e for e in (*singles, *order)))
    if not order:
        names = [graph.const(table[:, i].reshape(F, K, 1)) for i in range(len(parts))]
    else:
        first = order.pop()
        mixed = graph("MatMul", graph.const(table.reshape(F, -1, shape[first])), weights[first])
        left = len(parts) * K * math.prod(shape[e] for e in order)
        while order:
            e = order.pop()
            left //= shape[e]
            cube = graph.shaped(mixed, F, left, shape[e], -1)
            product = graph("Mul", cube, graph("Unsqueeze", weights[e], graph.const([1], np.int64)))
            mixed = graph.reduce("ReduceSum", product, 2, keep=False)
        names = graph.split(mixed, len(parts), K)
    answer = names[0]
    for e, name in zip(lean, names[1:], strict=True):
        answer = graph("Add", answer, graph("Mul", name, t[e]))
    return answer


def _stacked(group: Group) -> list[AxisKeys]:
    """The keys of a group as those of one head: (1, N_e)."""
    return [AxisKeys(axis.slopes[None], axis.offsets[None]) for axis in group.axes]


def _wide(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)
