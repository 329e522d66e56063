"""A layer as a pure function of PyTorch tensors, differentiable in everything: the NumPy runtimes' operations, all in float64.

    F(x) = evaluate(structure, tensors, x),      tensors named as in the saved file (layer/file.py)

Product keys have one softmax per direction, clusters two levels (runtime/two_level.py); x and every stored number are widened to
float64, exactly, and nothing is rounded to a smaller dtype before the caller does so.  Normalisers are summed in a tree, as the
certificates count.  Queries stand along the last axis, so that maxima and sums over keys are sums of long rows.

Nothing but tensor operations: autograd, `torch.compile` and `torch.func` pass through it, and any of the tensors (keys, values,
slopes, even coordinates) may be parameters.  Shifts by a maximum cancel and have no gradient.  A cluster whose mass is below
exp(FLOOR) answers at its origin, so that what it would say far away, a number times nothing, is nothing in every derivative.
Needs the extra ``maxaffine[torch]``.
"""

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch

from maxaffine.layer import file as layer_file
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.runtime.grouped import BRANCH
from maxaffine.runtime.torch_structure import FamilyStructure, GroupStructure, Structure

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]
Factor = tuple[Tensor, Tensor | None]  # real and imaginary part

COORDINATES = ("box.low", "box.high", "coordinates.centre", "coordinates.matrix", ".matrix", ".origins", ".radii", ".shapes",
               ".shift")  # fmt: skip
WORKSPACE = 1 << 30  # bytes that the intermediate results of a chunk of queries may take on a device
CACHE = 4 << 20  # and on the CPU, where what stays in the cache is faster
SHORTEST = 1024  # queries of a chunk at least, where WORKSPACE allows: values are read and operations begun once for all of them
STACKED = 16  # blocks of factors beyond which those of one direction and of as many keys are computed together
FLOOR = -700.0  # scores behind the largest by more: e^FLOOR is far below SKIP of runtime/two_level.py, and no subnormal number


def tensors_of(layer: AnyLayer, device: Any = None, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The layer's tensors by their stable names: keys and values in `dtype`, coordinates in float64."""
    arrays, _ = layer_file.to_tensors(layer)
    found = {}
    for name, array in arrays.items():
        if name.startswith("sites."):  # of a hard layer: its softmax has keys of its own
            continue
        wide = np.array(array, dtype=np.float64)
        exact = name.endswith(COORDINATES)
        found[name] = torch.from_numpy(wide).to(device=device, dtype=torch.float64 if exact else dtype)
    return found


def evaluate(structure: Structure, tensors: Tensors, x: Tensor) -> Tensor:
    """F(x) for points (B, D) of the box, of any dtype: (B, d_out, n_out) in float64."""
    if structure.parts:
        return _parts(structure, tensors, x)
    numbers = {name: tensor.to(torch.float64) for name, tensor in tensors.items()}
    away = x.to(torch.float64).T - numbers["coordinates.centre"][:, None]  # (D, B)
    out = (_grouped if structure.groups else _lookup)(structure, numbers, away)
    return out.T.reshape(x.shape[0], structure.d_out, structure.n_out)


def _parts(structure: Structure, tensors: Tensors, x: Tensor) -> Tensor:
    """Layers side by side: the answers of every part, put into their places and added up."""
    found: list[Tensor | None] = [None] * (structure.d_out * structure.n_out)
    for p, part in enumerate(structure.parts):
        answer = evaluate(part.structure, _of_part(tensors, p), x[:, list(part.variables)])
        for k, e, sign in part.writes:
            signed, so_far = sign * answer[:, k, 0], found[e]
            found[e] = signed if so_far is None else so_far + signed
    return torch.stack([one for one in found if one is not None], dim=1).reshape(x.shape[0], structure.d_out, structure.n_out)


def _of_part(tensors: Tensors, p: int) -> Tensors:
    prefix = f"part.{p}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def in_chunks(structure: Structure, tensors: Tensors, x: Tensor) -> Tensor:
    """`evaluate` for so many queries at a time that their intermediate results stay small."""
    each = bytes_per_query(structure, tensors)
    step = max(1, WORKSPACE // each)
    if x.device.type == "cpu":
        step = min(step, max(SHORTEST, CACHE // each))
    if x.shape[0] <= step:
        return evaluate(structure, tensors, x)
    numbers = {name: tensor.to(torch.float64) for name, tensor in tensors.items()}
    return torch.cat([evaluate(structure, numbers, part) for part in x.split(step)])


def tree_sum(terms: Tensor, dim: int) -> Tensor:
    """The sum along an axis in a tree of BRANCH terms per level, so that the rounding grows with log N, not with N."""
    while terms.shape[dim] > BRANCH:
        count = terms.shape[dim]
        whole = count // BRANCH
        level = terms.narrow(dim, 0, whole * BRANCH).unflatten(dim, (whole, BRANCH)).sum(dim + 1)
        rest = count - whole * BRANCH
        terms = torch.cat([level, terms.narrow(dim, count - rest, rest).sum(dim, keepdim=True)], dim) if rest else level
    return terms.sum(dim)


def contract(weights: list[Tensor], values: Tensor) -> Tensor:
    """values (.., N_1, .., N_E, rest) with weights (.., N_e, B), where .. is a batch of clusters or nothing: (.., rest, B)."""
    lead, (count, *_) = weights[0].shape[:-2], weights[0].shape[-2:]
    partial = values.reshape(*lead, count, -1).transpose(-1, -2) @ weights[0]
    for alpha in weights[1:]:
        count = alpha.shape[-2]
        partial = (partial.unflatten(-2, (count, -1)) * alpha.unsqueeze(-2)).sum(-3)
    return partial


def _softmax(logits: Tensor) -> Tensor:
    """Over keys, (.., N, B)."""
    mass = torch.exp(logits - logits.detach().amax(-2, keepdim=True))
    return mass / tree_sum(mass, mass.ndim - 2).unsqueeze(-2)


def _lookup(structure: Structure, numbers: Tensors, away: Tensor) -> Tensor:
    """Product or listed keys, scaled as runtime/softmax.py does: (d_out n_out, B)."""
    z, values, slopes = numbers["coordinates.matrix"] @ away, numbers["values"], numbers.get("value_slopes")
    scaled, sharpness = z * structure.sharpness, structure.sharpness
    if "keys.slopes" in numbers:  # listed
        weights = [_softmax(numbers["keys.slopes"] @ scaled + sharpness * numbers["keys.offsets"][:, None])]
    else:
        weights = [
            _softmax(numbers[f"keys.{e}.slopes"][:, None] * row + sharpness * numbers[f"keys.{e}.offsets"][:, None])
            for e, row in enumerate(scaled)
        ]
    return _mixed(weights, values, slopes, z)


def _mixed(weights: list[Tensor], values: Tensor, slopes: Tensor | None, z: Tensor) -> Tensor:
    """sum_j w_j (c_j + G_j z): (K, B)."""
    out = contract(weights, values)
    return out if slopes is None else out + (contract(weights, slopes).unflatten(0, (-1, z.shape[0])) * z).sum(1)


def _grouped(structure: Structure, numbers: Tensors, away: Tensor) -> Tensor:
    """The sum over the groups, and the tilt: (K, B)."""
    parts = [numbers["tilt"] @ away] if "tilt" in numbers else []
    parts += [_group(group, numbers, f"group.{g}.", away) for g, group in enumerate(structure.groups)]
    return reduce(torch.add, parts)


def _group(group: GroupStructure, numbers: Tensors, prefix: str, away: Tensor) -> Tensor:
    """One group, or the product of its factors and the shift: (K, B)."""
    if group.factors:
        values = [_group(factor, numbers, f"{prefix}factor.{b}.", away) for b, factor in enumerate(group.factors)]
        return reduce(torch.mul, values) + numbers[prefix + "shift"]
    z = numbers[prefix + "matrix"] @ away
    return _clusters(group.families, numbers, prefix, z) if group.families else _product(numbers, prefix, z)


def _product(numbers: Tensors, prefix: str, z: Tensor) -> Tensor:
    """One softmax per direction, then values or factors."""
    if f"{prefix}0.factor" in numbers:
        return reduce(_times, _factors(numbers, prefix, z))[0].sum(0, keepdim=True)
    weights = [_weights(numbers, f"{prefix}{e}.", row) for e, row in enumerate(z)]
    return _mixed(weights, numbers[prefix + "values"], numbers.get(prefix + "value_slopes"), z)


def _weights(numbers: Tensors, name: str, row: Tensor) -> Tensor:
    """The softmax (N, B) of one direction."""
    return _softmax(numbers[name + "slopes"][:, None] * row + numbers[name + "offsets"][:, None])


def _factors(numbers: Tensors, prefix: str, z: Tensor) -> list[Factor]:
    """What every block of directions says, (R, B); of many directions with a factor each, those of as many keys together."""
    E, found = z.shape[0], []
    firsts = [e for e in range(E) if f"{prefix}{e}.factor" in numbers]
    for first, after in zip(firsts, [*firsts[1:], E], strict=True):
        if len(firsts) <= STACKED or after > first + 1:
            weights = [_weights(numbers, f"{prefix}{e}.", z[e]) for e in range(first, after)]
            real, imaginary = (numbers.get(f"{prefix}{first}.{part}") for part in ("factor", "imaginary"))
            assert real is not None
            found.append((contract(weights, real), None if imaginary is None else contract(weights, imaginary)))
    single = [e for e, after in zip(firsts, [*firsts[1:], E], strict=True) if len(firsts) > STACKED and after == e + 1]
    alike: dict[int, list[int]] = {}
    for e in single:
        alike.setdefault(len(numbers[f"{prefix}{e}.slopes"]), []).append(e)
    return [*found, *(_stacked(numbers, prefix, z, listed) for listed in alike.values())]


def _stacked(numbers: Tensors, prefix: str, z: Tensor, listed: list[int]) -> Factor:
    """The product of the factors of directions of as many keys each, from their tensors side by side: (R, B)."""

    def beside(part: str) -> Tensor:
        return torch.stack([numbers[f"{prefix}{e}.{part}"] for e in listed])

    rows = z[listed[0] : listed[-1] + 1] if listed == list(range(listed[0], listed[-1] + 1)) else z[listed]
    weights = _softmax(beside("slopes")[:, :, None] * rows[:, None] + beside("offsets")[:, :, None])  # (n, N, B)
    real = beside("factor").transpose(1, 2) @ weights
    imaginary = beside("imaginary").transpose(1, 2) @ weights if f"{prefix}{listed[0]}.imaginary" in numbers else None
    product: Factor = real, imaginary
    while (count := len(product[0])) > 1:  # by halves: few operations of many rows
        half = count // 2
        product = _joined(_times(_cut(product, 0, half), _cut(product, half, 2 * half)), _cut(product, 2 * half, count))
    return product[0][0], None if product[1] is None else product[1][0]


def _cut(factor: Factor, first: int, last: int) -> Factor:
    return factor[0][first:last], None if factor[1] is None else factor[1][first:last]


def _joined(factor: Factor, rest: Factor) -> Factor:
    if len(rest[0]) == 0:
        return factor
    (a, b), (c, d) = factor, rest
    return torch.cat([a, c]), None if b is None or d is None else torch.cat([b, d])


def _times(left: Factor, right: Factor) -> Factor:
    """The product of real numbers, or of complex ones in two parts."""
    (a, b), (c, d) = left, right
    return (a * c, None) if b is None or d is None else (a * c - b * d, a * d + b * c)


def _clusters(families: tuple[FamilyStructure, ...], numbers: Tensors, prefix: str, z: Tensor) -> Tensor:
    """Two levels: sum_k exp(A_k - max A) (sum_j w_kj v_kj(t)) / sum_k exp(A_k - max A) prod_e W_ke, as runtime/two_level.py."""
    sites = numbers[prefix + "sites.slopes"] @ z + numbers[prefix + "sites.offsets"][:, None]  # (C, B)
    local, scores = [], []
    for family in families:
        score = family.members(sites)
        places: list[Tensor] = []
        logits: list[Tensor | None] = []
        origins, radii = (family.members(numbers[prefix + name]) for name in ("origins", "radii"))
        for e, rows in enumerate(family.keys):
            t = (z[e] - origins[:, e, None]) / radii[:, e, None]  # (F, B)
            slopes, offsets = (rows(numbers[f"{prefix}keys.{e}.{name}"])[:, :, None] for name in ("slopes", "offsets"))
            logit = slopes * t[:, None] + offsets  # (F, p_e, B)
            if family.shape[e] == 1:  # one key: its weight is one
                score = score + logit[:, 0]
                logits.append(None)
            else:
                top = logit.detach().amax(1)
                score = score + top
                logits.append(logit - top[:, None])
            places.append(t)
        scores.append(score)
        local.append((places, logits))
    every = torch.cat(scores)
    behind = every - every.detach().amax(0)
    above, below, first = None, [], 0
    for family, (places, logits) in zip(families, local, strict=True):
        mine = behind[first : first + family.count]
        first += family.count
        answer, norm = _heads(family, numbers, prefix, places, logits, mine.detach() >= FLOOR)
        mass = torch.exp(mine)
        added = (mass[:, None] * answer).sum(0)  # (K, B)
        above = added if above is None else above + added
        below.append(mass if norm is None else mass * norm)
    assert above is not None
    return above / tree_sum(torch.cat(below), 0)


def _heads(
    family: FamilyStructure, numbers: Tensors, prefix: str, places: list[Tensor], logits: list[Tensor | None], near: Tensor
) -> tuple[Tensor, Tensor | None]:
    """sum_j w_j v_j(t) (F, K, B) and prod_e W_e (F, B), None where it is one; at the origin where a cluster is not near."""
    values = family.tokens(numbers[prefix + "values"])[..., None]  # (F, P, K, 1)
    if prefix + "value_slopes" in numbers:
        values = torch.cat([values, family.tokens(numbers[prefix + "value_slopes"])], dim=-1)
    F, width = family.count, values.shape[-1]
    weights: list[Tensor] = []
    norm: Tensor | None = None
    for logit in logits:
        if logit is not None:
            weights.append(torch.exp(torch.where(near[:, None], logit, 0.0)))
            total = tree_sum(weights[-1], 1)
            norm = total if norm is None else norm * total
    if weights:
        mixed = contract(weights, values.reshape(F, *(n for n in family.shape if n > 1), -1))
    else:
        mixed = values.reshape(F, -1, 1)
    mixed = mixed.unflatten(1, (-1, width))  # (F, K, width, B)
    answer = mixed[:, :, 0]
    for e, t in enumerate(places[: width - 1]):
        answer = answer + mixed[:, :, 1 + e] * torch.where(near, t, 0.0)[:, None]
    return answer, norm


def bytes_per_query(structure: Structure, tensors: Tensors) -> int:
    """Bytes per query that the intermediate results take, about."""
    if structure.parts:
        return max(bytes_per_query(part.structure, _of_part(tensors, p)) for p, part in enumerate(structure.parts))
    if "keys.offsets" in tensors:
        return 32 * len(tensors["keys.offsets"])
    if not structure.groups:
        return 32 * _partial(tensors["values"], tensors.get("value_slopes"))
    return 32 * max(1, sum(_numbers(one, tensors, f"group.{g}.", structure.d_out) for g, one in enumerate(structure.groups)))


def _numbers(group: GroupStructure, tensors: Tensors, prefix: str, d_out: int) -> int:
    """Intermediate results of one group per query, about."""
    if group.factors:
        return sum(_numbers(factor, tensors, f"{prefix}factor.{b}.", d_out) for b, factor in enumerate(group.factors))
    E = len(tensors[prefix + "matrix"])
    if group.families:
        outputs = d_out * (1 + E if prefix + "value_slopes" in tensors else 1)
        return sum(
            family.count * (sum(family.shape) + math.prod(family.shape) // max(family.shape) * outputs + 2 + E)
            for family in group.families
        )
    if f"{prefix}0.factor" in tensors:
        sizes = {e: tensors[f"{prefix}{e}.factor"].shape for e in range(E) if f"{prefix}{e}.factor" in tensors}
        parts, plain = (2 if f"{prefix}0.imaginary" in tensors else 1), all(len(shape) == 2 for shape in sizes.values())
        more = 0 if plain and parts == 1 and E <= STACKED else sum(math.prod(shape[1:]) for shape in sizes.values())
        return sum(len(tensors[f"{prefix}{e}.slopes"]) for e in range(E)) + parts * more
    return _partial(tensors[prefix + "values"], tensors.get(prefix + "value_slopes"))


def _partial(values: Tensor, slopes: Tensor | None) -> int:
    return int(sum(values.shape) + values.numel() // len(values) * (1 if slopes is None else 1 + slopes.shape[-1]))
