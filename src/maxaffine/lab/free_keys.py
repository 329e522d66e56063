"""Heads with free keys, trained or constructed, in one form: sites, offsets, one inverse temperature, values.

    l_j(z) = R (p_j . z - |p_j|^2 / 2 + beta_j),      F(z) = sum_j softmax_j(l(z)) c_j,      z in [-1, 1]^D

Every head over affine logits a_j . z + b_j has this form with p_j = a_j / R; the sites and offsets are those of its power
diagram.  The constructed heads come from the compiler's own planners, at a number of tokens given beforehand.  Needs torch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

NAMES = ("sites", "offsets", "log_temperature", "values")


@dataclass(frozen=True)
class Function:
    """A target of the gallery on z in [-1, 1]^D, scaled to the range [-1, 1] as seen on samples."""

    name: str
    target: Any
    middle: float
    half: float

    @property
    def dimension(self) -> int:
        """D."""
        return int(self.target.box.dimension)

    def __call__(self, z: Array) -> Array:
        """Values (M,) at points (M, D)."""
        low, high = self.target.box.low, self.target.box.high
        points = np.clip(0.5 * (low + high) + 0.5 * (high - low) * z, low, high)
        return np.asarray((self.target.values(points)[:, 0, 0] - self.middle) / self.half)


def function(name: str) -> Function:
    """The target of that name."""
    from maxaffine.target.gallery import gallery

    target = gallery[name].target
    raw = Function(name, target, 0.0, 1.0)
    seen = raw(np.random.default_rng(0).uniform(-1, 1, (20_000, raw.dimension)))
    return Function(name, target, float(seen.max() + seen.min()) / 2, float(seen.max() - seen.min()) / 2)


def head(slopes: Array, offsets: Array, values: Array) -> dict[str, Array]:
    """The form above of the head with logits a_j . z + b_j; R is chosen so that the sites just fit into the cube."""
    slopes = slopes - (slopes.max(axis=0) + slopes.min(axis=0)) / 2  # a shift common to all keys changes no attention
    temperature = float(np.abs(slopes).max()) or 1.0
    sites = slopes / temperature
    beta = offsets / temperature + 0.5 * (sites**2).sum(axis=1)
    return {"sites": sites, "offsets": beta - beta.mean(), "log_temperature": np.log([temperature]), "values": values}


def lookup(f: Function, side: int) -> dict[str, Array]:
    """The paper's construction: cells of a uniform grid, values at their centres, the sharpness of the sup-norm theorem."""
    from maxaffine.heads.lookup import theorems
    from maxaffine.heads.lookup.build import build_grid
    from maxaffine.heads.lookup.plan import GridPlan

    layer = build_grid(GridPlan("E1", (side,) * f.dimension, theorems.RHO0, np.inf), f.target, "float64")
    slopes, offsets = layer.affine_pieces()
    box = f.target.box
    half, centre = 0.5 * (box.high - box.low), 0.5 * (box.high + box.low)
    values = (layer.values.reshape(-1) - f.middle) / f.half
    return head(layer.sharpness * slopes * half, layer.sharpness * (offsets + slopes @ centre), values)


def spectral(f: Function, side: int) -> dict[str, Array]:
    """The compiler's spectral head on side^D product tokens: its keys per direction, values by its ridge least squares."""
    from maxaffine.heads.spectral.fit import tensor_fit
    from maxaffine.heads.spectral.plan import GroupPlanner
    from maxaffine.structure.groups import whole_group

    box = f.target.box
    planner = GroupPlanner(whole_group(f.target.expression), box.low, box.high, 1e-9 * f.half, "float64")
    axes = tuple(curve.best(side).axis for curve in planner.curves)
    if len(axes) != f.dimension:
        raise BadInput(f"{f.name} does not depend on all of its variables; name a target that does.")
    order = [int(np.flatnonzero([float(c) for c in w])[0]) for w in planner.group.directions]
    reached, _ = tensor_fit(axes, planner.f, 1e-9 * f.half, planner.scale, "float64")
    _, values = tensor_fit(axes, planner.f, reached, planner.scale, "float64")  # no larger values than this error needs
    slopes = np.empty((side**f.dimension, f.dimension))
    slopes[:, order] = np.stack(np.meshgrid(*(axis.keys.slopes for axis in axes), indexing="ij"), axis=-1).reshape(slopes.shape)
    offsets = np.sum(np.meshgrid(*(axis.keys.offsets for axis in axes), indexing="ij"), axis=0)
    return head(slopes, offsets.ravel(), (values.reshape(-1) - f.middle) / f.half)


def scratch(side: int, dimension: int, seed: int) -> dict[str, Array]:
    """A random start: sites uniform in the cube, the width of attention that of a cell, values 0."""
    count = side**dimension
    sites = np.random.default_rng([seed, 11]).uniform(-1, 1, (count, dimension))
    spacing = 2.0 / side
    return {"sites": sites, "offsets": np.zeros(count), "log_temperature": np.log([1 / spacing**2]), "values": np.zeros(count)}


def stack(heads: list[dict[str, Array]], device: str) -> dict[str, Any]:
    """Heads of equal size as float64 tensors (models, ...): constructed values can be large and cancel."""
    return {name: torch.from_numpy(np.array([one[name] for one in heads])).to(device) for name in NAMES}


def attention(weights: dict[str, Any], z: Any) -> Any:
    """Weights of attention (models, B, N) at points (models, B, D)."""
    sites = weights["sites"]
    level = weights["offsets"] - 0.5 * sites.square().sum(dim=2)
    scores = torch.baddbmm(level.unsqueeze(1), z, sites.transpose(1, 2))
    return torch.softmax(scores * weights["log_temperature"].exp().unsqueeze(2), dim=2)


def predict(weights: dict[str, Any], z: Any) -> Any:
    """F (models, B)."""
    return torch.bmm(attention(weights, z), weights["values"].unsqueeze(2)).squeeze(2)


def centres(weights: dict[str, Any], z: Any) -> tuple[Array, Array]:
    """Where every token is attended from, (models, N, D), and the share of tokens that win somewhere, (models,)."""
    with torch.no_grad():
        given = attention(weights, z)
        mass = given.sum(dim=1).clamp_min(1e-300)
        where = torch.bmm(given.transpose(1, 2), z) / mass.unsqueeze(2)
        winners = [len(torch.unique(one)) for one in given.argmax(dim=2)]
    return np.asarray(where.cpu().numpy()), np.array(winners) / given.shape[2]


def matching_distance(first: Array, second: Array) -> float:
    """Root mean square distance of the points (N, D) under the best one-to-one matching."""
    from scipy.optimize import linear_sum_assignment

    squares = ((first[:, None] - second[None]) ** 2).sum(axis=2)
    rows, columns = linear_sum_assignment(squares)
    return float(np.sqrt(squares[rows, columns].mean()))
