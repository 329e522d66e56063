"""Stored numbers moved for the attack: values, slopes, sites, keys, radii, origins, tilt, shift, matrix, centre and bonus.

Numbers that are equal stay equal and zeros stay zero in most moves, so that the structure which proofs rely on (shared keys,
single tokens) survives and they have something to speak about; some moves break it.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

Tensors = dict[str, Any]

# what a name of a tensor ends in, by what is moved
KINDS = {
    "values": ("values", ".factor", ".imaginary"),
    "slopes": ("value_slopes",),
    "sites": ("sites.slopes", "sites.offsets"),
    "keys": ("keys.0.slopes", "keys.0.offsets", "keys.1.slopes", "keys.1.offsets", "keys.2.slopes", "keys.2.offsets"),
    "radii": ("radii",),
    "origins": ("origins",),
    "tilt": ("tilt",),
    "shift": (".shift",),
    "matrix": ("matrix",),
    "centre": ("coordinates.centre",),
}
PRODUCT = re.compile(r"(part\.\d+\.)?group\.\d+\.\d+\.(slopes|offsets)")


def kinds(tensors: Mapping[str, Any]) -> list[str]:
    """The kinds of numbers that a layer of these tensors has."""
    return [kind for kind in KINDS if names(tensors, kind)]


def names(tensors: Mapping[str, Any], kind: str) -> list[str]:
    """The tensors of one kind."""
    found = [name for name in tensors if name.endswith(KINDS[kind])]
    return found + [name for name in tensors if kind == "keys" and PRODUCT.fullmatch(name)]


def moved(tensors: Mapping[str, Any], record: Mapping[str, Any], rng: np.random.Generator) -> tuple[Tensors, dict[str, Any], str]:
    """Tensors and record with some numbers moved, and what was done."""
    made: Tensors = {name: np.array(tensor) for name, tensor in tensors.items()}
    told = copy.deepcopy(dict(record))
    available = kinds(tensors)
    picked = [str(kind) for kind in rng.permutation(available)[: 1 if rng.random() < 0.6 else len(available)]]
    if len(picked) > 1:  # the centre and the matrix are what most proofs are strictest about
        picked = [kind for kind in picked if kind not in ("matrix", "centre")]
    scale = 10.0 ** rng.uniform(-13.0, -0.5)
    if told["plan"].get("plan") == "products" and rng.random() < 0.4:
        return _one_factor(made, told, scale, rng)
    if told["plan"].get("plan") == "curved maximum" and rng.random() < 0.6:
        return _with_scores(made, told, scale, rng)
    if told["plan"].get("sums") and rng.random() < 0.25:
        return _one_sum(made, told, scale, rng)
    how = str(rng.choice(["every", "every", "additive", "one", "swap", "steeper"]))
    for kind in picked:
        shared: dict[float, float] = {}
        for name in names(tensors, kind):
            wide = made[name].astype(np.float64)
            made[name] = _changed(wide, kind, how, scale, rng, shared).astype(made[name].dtype)
    if how == "steeper" and "sites" in picked:
        factor = float(rng.choice([0.5, 2.0, 4.0, 1.0 - scale, 1.0 + scale]))
        for name in names(tensors, "sites"):
            made[name] = (tensors[name].astype(np.float64) * factor).astype(made[name].dtype)
        for plan in _plans(told):
            if "steepness" in plan:
                plan["steepness"] = [factor * float(v) for v in plan["steepness"]]
            if "sharpness" in plan:
                plan["sharpness"] = factor * float(plan["sharpness"])
    if float(told["layer"].get("bonus") or 0.0) > 0.0 and rng.random() < 0.2:
        told["layer"]["bonus"] = max(0.0, float(told["layer"]["bonus"]) * rng.uniform(0.2, 1.3))
        picked.append("bonus")
    return made, told, f"{how} {'+'.join(picked)} by {scale:.1e}"


def _one_factor(
    made: Tensors, told: dict[str, Any], scale: float, rng: np.random.Generator
) -> tuple[Tensors, dict[str, Any], str]:
    """A product with the values of one factor moved, values and slopes of a token alike."""
    e = int(rng.integers(len(told["plan"]["factors"])))
    noise = 1.0 + scale * rng.normal(size=len(made[f"group.0.factor.{e}.values"]))
    for name, axes in (("values", 1), ("value_slopes", 2)):
        tensor = made[f"group.0.factor.{e}.{name}"]
        made[f"group.0.factor.{e}.{name}"] = (tensor.astype(np.float64) * noise.reshape(-1, *(1,) * axes)).astype(tensor.dtype)
    return made, told, f"factor {e} by {scale:.1e}"


def _one_sum(made: Tensors, told: dict[str, Any], scale: float, rng: np.random.Generator) -> tuple[Tensors, dict[str, Any], str]:
    """A sum of exponentials of the record moved: numbers that the layer's factors are said to be."""
    one = told["plan"]["sums"][int(rng.integers(len(told["plan"]["sums"])))]
    kind = str(rng.choice(["constant", "coefficients", "exponents", "ends"]))
    noise = 1.0 + scale * rng.normal(size=np.shape(one[kind]))
    one[kind] = (np.array(one[kind], dtype=float) * noise).tolist()
    return made, told, f"{kind} of a sum of exponentials by {scale:.1e}"


def _with_scores(
    made: Tensors, told: dict[str, Any], scale: float, rng: np.random.Generator
) -> tuple[Tensors, dict[str, Any], str]:
    """Tokens whose scores are their values times a number, with both moved alike: all tokens, or one."""
    values, lean = (made[f"group.0.{name}"].astype(np.float64) for name in ("values", "value_slopes"))
    most = int(np.abs(values[:, 0]).argmax())
    factor = float(made["group.0.sites.offsets"].astype(np.float64)[most] / values[most, 0])
    chosen = np.ones(len(values)) if rng.random() < 0.5 else np.arange(len(values)) == rng.integers(len(values))
    values[:, 0] += scale * chosen * rng.normal(size=len(values))
    lean[:, 0, 0] += scale * chosen * rng.normal(size=len(values))
    for name, wide in (("values", values), ("value_slopes", lean)):
        made[f"group.0.{name}"] = wide.astype(made[f"group.0.{name}"].dtype)
    for name, wide in (("sites.offsets", made["group.0.values"][:, 0]), ("sites.slopes", made["group.0.value_slopes"][:, 0])):
        made[f"group.0.{name}"] = (factor * wide.astype(np.float64)).astype(made[f"group.0.{name}"].dtype)
    return made, told, f"values with their scores by {scale:.1e}"


def _changed(wide: Any, kind: str, how: str, scale: float, rng: np.random.Generator, shared: dict[float, float]) -> Any:
    """`shared` holds the noise of numbers seen before, so that equal ones stay equal across tensors."""
    if wide.size == 0:
        return wide
    size = float(np.abs(wide).max()) or 1.0
    known, places = np.unique(wide, return_inverse=True)
    places = places.reshape(wide.shape)
    if how == "one":  # one number (and its equals, where zeros and shared keys must stay)
        noise = np.zeros(len(known))
        noise[rng.integers(len(known))] = rng.normal()
        if kind in ("values", "slopes"):
            out = wide.copy()
            out.flat[rng.integers(out.size)] += scale * size * rng.normal()
            return out
        return wide + scale * np.abs(wide) * noise[places]
    if how == "swap" and kind in ("values", "slopes"):
        out = wide.copy()
        i, j = rng.integers(out.size, size=2)
        out.flat[i], out.flat[j] = wide.flat[j], wide.flat[i]
        return out
    if kind in ("values", "slopes", "tilt") and how == "additive":
        return wide + scale * size * rng.normal(size=wide.shape) * (np.abs(wide) > 0 if rng.random() < 0.5 else 1.0)
    noise = np.array([shared.setdefault(float(v), float(rng.normal())) for v in known])
    if kind in ("values", "slopes"):
        noise = rng.normal(size=wide.shape)
        return wide * (1.0 + scale * noise)
    return wide * (1.0 + scale * noise[places])


def promised(record: Mapping[str, Any], error: float, rng: np.random.Generator) -> dict[str, Any]:
    """The record with another error promised, in the certificate's own words otherwise."""
    told = dict(record)
    told["error"] = float(error * rng.choice([0.7, 1.02, 1.1, 1.5, 4.0, 30.0]))
    return told


def narrowed(record: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The record with another gap about jumps, where it names one."""
    told = copy.deepcopy(dict(record))
    gap = told["certificate"]["scope"].get("gap")
    if gap is None or rng.random() < 0.5:
        return told
    changed = gap * float(rng.choice([0.9, 0.5, 0.1, 3.0]))
    for plan in _plans(told):
        plan["gap"] = changed
    for certificate in (told["certificate"], *told["certificate"].get("within", [])):
        if certificate["scope"].get("gap") is not None:
            certificate["scope"]["gap"] = changed
    return told


def _plans(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The plan of a layer and those of its parts."""
    plan = record["plan"]
    return [plan, *(part["plan"] for part in plan.get("parts", []))]
