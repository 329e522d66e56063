"""Planes of callables: found where they are, not found where a function is smooth, and layers on their regions."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.heads.breaks.hyperplanes import NoPlanes, find_planes
from maxaffine.heads.breaks.segments import breaks_of, noise_of, random_segments
from maxaffine.target.target import Target


def box(D=2, low=-1.0, high=1.0):
    return ma.Box([low] * D, [high] * D)


def seen(f, D=2, error=1e-4, where=None):
    return find_planes(Target.of(f, where or box(D)), error, 64)


# ---------------------------------------------------------------------- planes


SIX = np.array([1, 2, -1, 0.5, 0.25, 1])
PLANES = {
    "a kink": (lambda x: np.abs(x[:, 0] + 2 * x[:, 1] - 0.3) * np.cos(x[:, 0]), 2, [("1", "2", "-3/10")], 2),
    "one side zero": (lambda x: np.maximum(x[:, 0] + x[:, 1] - 0.3, 0) * np.sin(3 * x[:, 1]), 2, [("1", "1", "-3/10")], 2),
    "a small corner": (lambda x: np.maximum(x[:, 0] + x[:, 1] - 1.7, 0) + np.sin(x[:, 0]), 2, [("1", "1", "-17/10")], 2),
    "a jump": (lambda x: np.sign(x[:, 0] - 0.3 * x[:, 1]) * (1 + x[:, 1] ** 2), 2, [("1", "-3/10", "0")], 2),
    "second derivative": (lambda x: np.maximum(x[:, 0] + x[:, 1] - 0.3, 0) ** 2, 2, [("1", "1", "-3/10")], 2),
    "crossing": (lambda x: np.abs(x[:, 0] * x[:, 1]), 2, [("0", "1", "0"), ("1", "0", "0")], 4),
    "half planes": (lambda x: x.max(axis=1), 3, [("0", "1", "-1", "0"), ("1", "-1", "0", "0"), ("1", "0", "-1", "0")], 6),
    "six variables": (lambda x: np.maximum(x @ SIX - 0.2, 0), 6, [("1", "2", "-1", "1/2", "1/4", "1", "-1/5")], 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANES)
def test_planes_are_found_exactly(kind):
    f, D, planes, regions = PLANES[kind]
    found = seen(f, D)
    assert sorted(found.planes) == sorted(tuple(Fraction(c) for c in plane) for plane in planes)
    assert len(found.regions) == regions
    assert {sheet.kind for sheet in found.sheets} == {"jump" if kind == "a jump" else "kink"}
    assert all(sheet.breaks >= D + 2 for sheet in found.sheets)


def test_slopes_are_the_jump_of_the_gradient():
    found = seen(lambda x: np.abs(x[:, 0] + 2 * x[:, 1] - 0.3) * np.cos(x[:, 0]))
    assert 2.0 <= found.sheets[0].slope <= 2.5  # f_+ - f_- = 2 h cos(x)


def test_planes_without_small_rationals():
    normal = np.array([np.pi / 7, np.e / 3])
    found = seen(lambda x: np.abs(x @ normal - 0.1234567891234) * np.exp(x[:, 0]))
    plane = np.array([float(c) for c in found.planes[0]])
    np.testing.assert_allclose(plane / plane[1], np.array([*normal, -0.1234567891234]) / normal[1], rtol=1e-12)


def test_boxes_that_are_not_square():
    where = ma.Box([0.0, 5.0], [3.0, 5.01])
    found = seen(lambda x: np.abs(x[:, 0] - 100 * (x[:, 1] - 5.003)) * np.cos(x[:, 0]), where=where)
    a, b, c = (float(v) for v in found.planes[0])
    assert b / a == pytest.approx(-100, rel=1e-10) and c / a == pytest.approx(500.3, rel=1e-10)


def test_several_kinds_of_planes():
    found = seen(lambda x: np.sign(x[:, 0] - 0.3) * (1 + x[:, 1]) + np.abs(x[:, 0] - x[:, 1]))
    kinds = dict(zip(found.planes, (sheet.kind for sheet in found.sheets), strict=True))
    assert kinds == {(1, 0, Fraction(-3, 10)): "jump", (1, -1, 0): "kink"}
    assert [found.planes[i] for i in found.jumps] == [(1, 0, Fraction(-3, 10))]
    assert "2 planes (1 of kinks and 1 of jumps)" in found.how_found() and "no plane is proved" in found.how_found()


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (lambda x: np.maximum(np.sin(3 * x[:, 0]), x[:, 1]), "no common plane"),
        (lambda x: np.abs(x[:, 0] - 0.2) + np.maximum(np.sin(3 * x[:, 0]), x[:, 1]), "no common plane"),
        (lambda x: np.maximum((x**2).sum(axis=1), 0.5), "no common plane"),
        (lambda x: np.sqrt(np.abs(x[:, 0] - 0.3 * x[:, 1])), "cusps"),
    ],
)
def test_other_breaks_are_not_called_planes(f, said):
    with pytest.raises(NoPlanes, match=said):
        seen(f)


# ---------------------------------------------------------------------- smooth functions

SMOOTH = {
    "gentle": lambda x: np.sin(3 * x[:, 0]) * np.exp(x[:, 1]),
    "constant": lambda x: 0.0 * x[:, 0] + 1.0,
    "affine": lambda x: 0.3 * x[:, 0] + 7 * x[:, 1],
    "tanh 100": lambda x: np.tanh(100 * (x[:, 0] + x[:, 1])),
    "tanh 1e4": lambda x: np.tanh(1e4 * (x[:, 0] + x[:, 1])),
    "tanh 1e6": lambda x: np.tanh(1e6 * (x[:, 0] + x[:, 1])),
    "sqrt 1e-4": lambda x: np.sqrt(1e-4 + (x[:, 0] + x[:, 1]) ** 2),
    "sqrt 1e-8": lambda x: np.sqrt(1e-8 + (x[:, 0] + x[:, 1]) ** 2),
    "sqrt 1e-12": lambda x: np.sqrt(1e-12 + (x[:, 0] + x[:, 1]) ** 2),
    "softplus": lambda x: np.logaddexp(0, 1e4 * (x[:, 0] - x[:, 1])) / 1e4,
    "log cosh": lambda x: np.log(np.cosh(50 * (x[:, 0] + 0.5 * x[:, 1]))),
    "bump .02": lambda x: np.exp(-(x**2).sum(axis=1) / 0.0004),
    "bump .005": lambda x: np.exp(-((x - 0.2) ** 2).sum(axis=1) / 0.000025),
    "ring": lambda x: np.exp(-(((x**2).sum(axis=1) - 0.25) / 0.01) ** 2),
    "atan ring": lambda x: np.arctan(1000 * ((x**2).sum(axis=1) - 0.5)),
    "cone": lambda x: np.sqrt((x**2).sum(axis=1)),
    "waves": lambda x: np.sin(60 * x[:, 0] * x[:, 1]),
    "pole": lambda x: 1 / (2.0001 - x[:, 0] - x[:, 1]),
    "growth": lambda x: np.exp(20 * (x[:, 0] + x[:, 1])),
    "float32": lambda x: np.sin(3 * x[:, 0].astype(np.float32)) * np.exp(x[:, 1].astype(np.float32)),
    "noisy": lambda x: np.sin(x[:, 0]) + 1e-9 * np.sin(1e12 * x[:, 1]),
}


@pytest.mark.parametrize("kind", SMOOTH)
@pytest.mark.parametrize("error", [1e-2, 1e-6])
def test_no_false_planes_and_few_values(kind, error):
    asked = []

    def f(x):
        asked.append(len(x))
        return np.asarray(SMOOTH[kind](x), dtype=np.float64)

    for seed in range(3):
        asked.clear()
        with pytest.raises(NoPlanes, match="segments"):
            find_planes(Target.of(f, box()), error, 64, seed)
        assert sum(asked) < 40_000  # a few hundredths of a second


def test_breaks_lie_where_they_are():
    def f(x):
        return np.abs(x[:, 0] + 2 * x[:, 1] - 0.3) * np.cos(x[:, 0])

    rng = np.random.default_rng(4)
    noise = noise_of(f, 2, rng)
    found = breaks_of(random_segments(f, 2, 60, rng), 16, noise, 1e-6)
    assert len(found) > 20
    assert np.abs(found.x @ [1.0, 2.0] - 0.3).max() < 1e-13
    np.testing.assert_allclose(found.kinks, 2 * np.abs(found.along @ [1.0, 2.0]) * np.cos(found.x[:, 0]), rtol=1e-6)
    assert noise < 1e-12 < noise_of(SMOOTH["float32"], 2, rng)


# ---------------------------------------------------------------------- layers

LAYERS = {
    "kink 1e-2": ("a kink", 1e-2, {}, 6, "regions"),
    "kink 1e-6": ("a kink", 1e-6, {}, 18, "regions"),
    "one side 1e-4": ("one side zero", 1e-4, {}, 20, "regions"),
    "jump": ("a jump", 1e-4, {"gap": 1e-6}, 6, "regions"),
    "jump in L_1": ("a jump", 1e-3, {"norm": 1}, 6, "regions"),
    "second derivative": ("second derivative", 1e-4, {}, 18, "regions"),
    "crossing": ("crossing", 1e-4, {}, 12, "regions"),
    "float32": ("a kink", 1e-3, {"dtype": "float32"}, 12, "regions"),
    "maximum of three": ("half planes", 1e-8, {}, 3, "piecewise"),
    "six variables": ("six variables", 1e-6, {}, 2, "piecewise"),
}


@functools.cache
def compiled(kind):
    f, error, options, _, method = LAYERS[kind]
    return ma.compile(PLANES[f][0], box(PLANES[f][1]), error=error, method=method, trace=False, **options)


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_hold_at_fresh_points(kind):
    f, error, options, most, method = LAYERS[kind]
    layer = compiled(kind)
    assert layer.method == method and layer.tokens <= most
    assert layer.certificate.kind == "none" and layer.bound is None and layer.observed.error <= error
    rng = np.random.default_rng(77)
    D = PLANES[f][1]
    x = [rng.uniform(-1, 1, (20_000, D))]
    for plane in PLANES[f][2]:
        a, c = np.array([float(Fraction(v)) for v in plane[:-1]]), float(Fraction(plane[-1]))
        start = rng.uniform(-1, 1, (4000, D))
        foot = start - np.outer((start @ a + c) / (a @ a), a)
        x.append(foot + np.outer(rng.choice([-1, 1], 4000) * 10.0 ** rng.uniform(-8, -1, 4000), a))
    x = np.concatenate(x)
    x = x[np.abs(x).max(axis=1) <= 1]
    if "gap" in options:
        a, c = np.array([float(Fraction(v)) for v in plane[:-1]]), float(Fraction(plane[-1]))
        x = x[np.abs(x @ a + c) >= options["gap"] * np.linalg.norm(a)]
    away = np.abs(layer(x) - PLANES[f][0](x))
    if "norm" in options:
        assert 4.0 * away[:20_000].mean() <= error
    else:
        assert away.max() <= 1.05 * error


def test_how_planes_were_found_is_said_and_kept(tmp_path):
    layer = compiled("kink 1e-2")
    assert "one plane of kinks was fitted to" in layer.explain() and "no plane is proved" in layer.explain()
    assert layer.plan["seen"]["planes"][0]["plane"] == ["1", "2", "-3/10"]
    layer.save(tmp_path / "kink.safetensors")
    again = ma.load(tmp_path / "kink.safetensors")
    x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    assert np.array_equal(again(x), layer(x)) and again.plan["seen"] == layer.plan["seen"]


def test_auto_finds_the_planes_and_repeats_itself():
    f = PLANES["a kink"][0]
    one, two = (ma.compile(f, box(), error=1e-2, trace=False) for _ in range(2))
    assert one.method == "regions" and one.tokens <= 6
    assert np.array_equal(one.weights.groups[0].site_slopes, two.weights.groups[0].site_slopes)
    pairs = zip(*(m.weights.groups[0].clusters for m in (one, two)), strict=True)
    assert all(np.array_equal(a.values, b.values) for a, b in pairs)


def test_jumps_need_a_gap_or_an_integral():
    with pytest.raises(Refused, match=r"seems to jump where x1 - 0\.3 x2 = 0.*norm=1.*gap=1e-06"):
        ma.compile(PLANES["a jump"][0], box(), error=1e-2, trace=False)


def test_jumps_smaller_than_the_error_are_no_reason_to_refuse():
    def f(x):
        return np.sin(x[:, 0]) + 1e-3 * np.sign(x[:, 1] - 0.2)

    layer = ma.compile(f, box(), error=5e-2, trace=False)
    assert layer.observed.error <= 5e-2
    with pytest.raises(Refused, match=r"x2 - 0\.2 = 0"):
        ma.compile(f, box(), error=5e-4, trace=False)


def test_nothing_is_proved_of_a_callable():
    with pytest.raises(Refused, match="not proved for callables"):
        ma.compile(PLANES["a kink"][0], box(), error=1e-2, trace=False, method="regions", require="proved")
    with pytest.raises(Refused, match="not proved for callables"):
        ma.compile(PLANES["a kink"][0], box(), error=1e-2, trace=False, method="regions", lipschitz=[3.0, 3.0])


def test_regions_of_equal_pieces_are_merged():
    layer = ma.compile(lambda x: np.abs(x).max(axis=1), box(3), error=1e-3, method="piecewise", trace=False)
    assert layer.tokens == 6  # of 24 regions between 6 planes
    x = np.random.default_rng(3).uniform(-1, 1, (20_000, 3))
    assert np.abs(layer(x) - np.abs(x).max(axis=1)).max() <= 1e-3


def test_gap_is_kept_to_the_very_edge():
    layer = compiled("jump")
    y = np.linspace(-1, 1, 801)
    for side in (-1, 1):
        x = np.stack([0.3 * y + side * 1.00001e-6 * math.hypot(1, 0.3), y], axis=1)
        assert np.abs(layer(x) - PLANES["a jump"][0](x)).max() <= 1e-4
