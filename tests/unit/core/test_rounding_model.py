"""The rounding model in closed form: what enters eta, and that nothing can be left out."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import DTYPES, dtype_of, gamma, numpy_dtype
from maxaffine.heads.lookup.build import build_grid
from maxaffine.heads.lookup.plan import GridPlan
from maxaffine.heads.lookup.prove_grid import certify_grid, runtime_rounding
from maxaffine.layer.keys import AxisKeys, Coordinates, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.proofs.rounding import coordinate_error, is_unit_grid, offset_error, rounding_of
from maxaffine.runtime import chooser
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target


def grid(dtype="float32", counts=(64, 64), rho=20.0, low=0.0, text="sin(x)+cos(y)"):
    box = ma.Box(x=(low, low + 1), y=(low, low + 1))
    target = Target.of(text, box)
    return build_grid(GridPlan("E1", counts, rho, math.nan), target, dtype), target


def test_unit_roundoffs_and_gamma_are_the_textbooks():
    assert (DTYPES["float64"].unit, DTYPES["float32"].unit) == (2**-53, 2**-24)
    assert gamma(10, 2**-53) == pytest.approx(10 * 2**-53, rel=1e-14)
    assert gamma(2**60, 2**-53) == math.inf
    assert numpy_dtype("float32") == np.float32
    with pytest.raises(BadInput, match="float64"):
        dtype_of("float8")


def test_coordinates_of_a_real_query_are_off_by_its_rounding_and_no_less():
    # x rounded to float64 (u |x|), centred and scaled: the bound must grow with the distance from the origin.
    near, far = (coordinate_error(grid("float64", low=low)[0])[1] for low in (0.0, 1e6))
    assert np.all(far >= 64 * 2**-53 * 1e6)
    assert np.all(near <= 64 * 12 * 2**-53)
    single = coordinate_error(grid("float32")[0])[1]
    assert np.all(single >= 32 * 2**-24)


@pytest.mark.parametrize("runtime", ["dense", "blocked", "factorised"])
def test_eta_holds_every_term_of_the_model(runtime):
    layer, _ = grid()
    u, E = 2**-24, 2
    size, error = coordinate_error(layer)
    a, b = 31.5, 31.5**2 / 2
    axes = 1 if runtime == "factorised" else E
    query = layer.sharpness * axes * a * float(error[0])
    logit = layer.sharpness * gamma(3, u) * axes * (a * float(size[0]) + b)
    softmax = u * (150 * math.log(2) + 8)
    assert rounding_of(layer, runtime).eta >= query + logit + softmax


def test_any_runtime_is_the_worst_of_all():
    layer, _ = grid()
    every = [rounding_of(layer, runtime) for runtime in chooser.available(layer)]
    worst = rounding_of(layer)
    for part in ("eta", "summation", "stray", "joint"):
        assert getattr(worst, part) == max(getattr(one, part) for one in every)


def test_the_summation_counts_keys_that_can_be_heard_and_not_all():
    few, many = grid(counts=(8, 8))[0], grid(counts=(512, 512))[0]
    assert rounding_of(many, "dense").summation < 4 * rounding_of(few, "dense").summation
    blunt = grid(counts=(512, 512), rho=0.01)[0]
    assert rounding_of(blunt, "dense").summation > 100 * rounding_of(many, "dense").summation


def test_keys_that_are_not_a_uniform_grid_are_recognised():
    layer, _ = grid("float64", (4, 4))
    assert is_unit_grid(layer)
    assert offset_error(layer) == 0.0
    sites = np.arange(4) - 1.5

    def other(slopes=sites, offsets=-sites * sites / 2, scale=1.0):
        axis = AxisKeys(slopes, offsets)
        coordinates = Coordinates(layer.coordinates.centre, layer.coordinates.matrix * scale)
        return Layer(coordinates, ProductKeys((axis, axis)), 20.0, layer.values, layer.low, layer.high, layer.inputs)

    assert is_unit_grid(other())
    assert not is_unit_grid(other(slopes=sites * 1.0001))
    assert not is_unit_grid(other(slopes=sites + 0.5))
    assert not is_unit_grid(other(offsets=-sites * sites / 2 + np.array([0.1, 0, 0, 0])))
    assert not is_unit_grid(other(scale=1.01))  # cells too small to cover the box


def test_the_rounding_part_of_a_certificate_holds_eta_storage_and_summation():
    layer, target = grid(text="1000 + sin(x) + cos(y)")
    certificate = certify_grid(layer, target, Evidence(lipschitz=np.ones(2)), "E1")
    rounding = rounding_of(layer)
    stored = 0.4 * 2**-24 * 1000  # some of 4,096 values is rounded by almost half an ulp
    assert certificate.parts["rounding"] >= runtime_rounding(layer, rounding) + stored
    assert runtime_rounding(layer, rounding) >= rounding.summation * 1000


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_small_values_count_the_underflow_of_their_products(dtype):
    tiny = DTYPES[dtype].tiny
    layer, _ = grid(dtype, (4, 4), text="0*x + 0*y")
    assert runtime_rounding(layer, rounding_of(layer)) >= 4 * tiny
