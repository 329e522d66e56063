"""Products of functions of one direction each: taken apart exactly, planned, stored and proved factor by factor, refused."""

import functools
import itertools
import re
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.domain import Domain
from maxaffine.attack.search import worst_point
from maxaffine.checker import check
from maxaffine.cli.app import main
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput, Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.axis.fit import Library
from maxaffine.heads.composite.products_prove import certify_products, excess
from maxaffine.runtime import chooser
from maxaffine.structure.products import product_of
from maxaffine.structure.sums import sum_of

SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))
CORNER = ma.Box(x=(0, 1), y=(0, 2))
CUBE = ma.Box(x=(-1, 1), y=(-1, 1), z=(-1, 1))


def parsed(text, box=SQUARE):
    return Expression.parse(text, box.names)


@functools.cache
def compiled(text, error, box=SQUARE, method="products", dtype="float64"):
    return ma.compile(text, box, error=error, method=method, dtype=dtype)


# ---------------------------------------------------------------------- the factors


@pytest.mark.parametrize(
    ("text", "box", "switching"),
    [
        ("abs(x*y)", SQUARE, [True, True]),
        ("abs(sin(7*x))*exp(y)+2*x-1", SQUARE, [True, False]),
        ("exp(-abs(x)-abs(y))", SQUARE, [True, True]),
        ("sqrt((x+1)*(y+1))", SQUARE, [True, True]),
        ("sqrt(2*x**3*y/(1+y))", CORNER, [True, True]),
        ("sqrt(x**2*y)", CORNER, [False, True]),  # abs(x) is x there
        ("(x*y)**0.4 - y/3", CORNER, [True, True]),
        ("cbrt(x*(y-.3))", SQUARE, [True, True]),
        ("(x+y)*abs(x-2*y)", SQUARE, [False, True]),
        ("max(x,0)*y/(1.5+x)", SQUARE, [True, False]),
        ("abs(x)*abs(sin(3*y))*exp(z)+.25", CUBE, [True, True, False]),
    ],
)
def test_a_product_is_taken_apart_exactly(text, box, switching):
    found = product_of(parsed(text, box), box)
    assert list(found.switching) == switching
    x = box.sample(300, np.random.default_rng(0))
    total = np.ones(len(x))
    for factor in found.factors:
        direction = np.array([float(c) for c in factor.direction])
        total = total * factor.h.evaluate((x @ direction)[:, None])[:, 0]
    total = total + x @ np.array([float(c) for c in found.slopes]) + float(found.constant)
    assert np.abs(total - parsed(text, box).evaluate(x)[:, 0]).max() < 1e-14


@pytest.mark.parametrize(
    "text", ["sin(x)+cos(y)", "abs(x)*y+x*y", "sqrt(x*y)", "abs(x*y+.5)", "x", "exp(x*y)", "sqrt(2+x)*cos(x*y)", "(x*y)**0.5"]
)
def test_what_is_no_product_is_none(text):
    """On a box where x and y change their signs the root of their product is not the product of their roots."""
    assert product_of(parsed(text), SQUARE) is None


def test_sums_have_products_among_their_parts():
    found = sum_of(parsed("sqrt(x)*sin(y)+x*y+x**2+2-y/3", CORNER), CORNER)
    kinds = [(group.dimension, found.is_product(n)) for n, group in enumerate(found.parts)]
    assert kinds == [(2, True), (2, False), (1, False)] and found.constant == 2 and found.slopes == (0, Fraction(-1, 3))
    product = found.product(0, CORNER)
    assert product.constant == 2 and product.slopes == found.slopes and product.switching == (True, False)
    assert sum_of(parsed("sqrt(x)*cos(x*y)+y", CORNER), CORNER) is None


# ---------------------------------------------------------------------- constant values


@pytest.mark.parametrize(("affine", "count"), [(True, 1), (False, 2)])
def test_constant_values_follow_a_line_by_keys_that_hardly_differ(affine, count):
    library = Library(1e-6, 1.0, "float64", affine)
    assert library.polish(lambda t: 3.0 * t - 1.0, 0.0, 1.0, count, 1e-6).error <= 1e-6
    fit = library.polish(lambda t: 3.0 * t - 1.0, 0.0, 1.0, count, 1e-6)
    assert affine or (not np.any(fit.slopes) and np.abs(fit.values).max() > 100)


# ---------------------------------------------------------------------- the layer


def test_the_layer_is_the_product_of_its_factors():
    layer = compiled("abs(sin(7*x))*exp(y)+2*x-1", 1e-2)
    plan = layer.prove.args[1]
    x = SQUARE.sample(500, np.random.default_rng(0))
    product = np.ones(len(x))
    for factor in layer.weights.groups[0].factors:
        product = product * chooser.evaluate(replace(layer.weights, groups=(factor,), tilt=None), x)[:, 0, 0]
    assert np.abs(product + 2 * x[:, 0] - 1 - layer(x)).max() < 1e-11
    assert layer.tokens == np.prod([factor.cells for factor in plan.factors])
    assert sum(any(cell.fit.slopes.any() for cell in factor.parts) for factor in plan.factors) == 1


@pytest.mark.parametrize(
    ("text", "box", "error", "most"),
    [
        ("abs(sin(7*x))*exp(y)", SQUARE, 1e-2, 48),
        ("abs(sin(7*x))*exp(y)", SQUARE, 1e-4, 96),
        ("sqrt(x*y)", CORNER, 1e-2, 80),
        ("(x+y)*abs(x-y)", SQUARE, 1e-6, 4),
        ("abs(x)*abs(sin(3*y))*exp(z)+.25", CUBE, 1e-2, 72),
        ("sqrt(x)*sin(y)+x*y+x**2+2-y/3", CORNER, 1e-2, 24),
        ("abs(x)*y+abs(y)*x+1", SQUARE, 1e-4, 8),
    ],
)
def test_products_are_proved_with_few_tokens(text, box, error, most):
    layer = compiled(text, error, box)
    assert layer.method == "products" and layer.certificate.kind == "proved"
    assert layer.bound <= error and layer.tokens <= most and layer.observed.error <= layer.bound
    found = worst_point(layer.weights, layer.target, np.random.default_rng(1), "two-level", Domain((), True))
    assert 0.1 * layer.bound < found.error <= layer.bound


def test_the_literal_layer_is_proved_too():
    for text in ("(x+y)*abs(x-y)", "abs(x)*y+abs(y)*x+1"):
        layer = compiled(text, 1e-4)
        statement = layer.certificate_for("dense")
        assert layer.bound < statement.bound < 2e-4
        found = worst_point(layer.weights, layer.target, np.random.default_rng(1), "dense", Domain((), True))
        assert found.error <= statement.bound


def test_float32_by_two_levels():
    layer = compiled("abs(sin(7*x))*exp(y)", 1e-3, dtype="float32")
    assert layer.weights.dtype == "float32" and layer.bound <= 1e-3
    found = worst_point(layer.weights, layer.target, np.random.default_rng(0), "two-level", Domain((), True))
    assert found.error <= layer.bound


def test_files_survive_and_exports_agree(tmp_path):
    layer = compiled("abs(sin(7*x))*exp(y)+2*x-1", 1e-2)
    layer.save(tmp_path / "f.safetensors")
    again = ma.load(tmp_path / "f.safetensors")
    x = SQUARE.sample(200, np.random.default_rng(0))
    assert np.array_equal(again(x), layer(x)) and check(*again._record()).passed
    torch = pytest.importorskip("torch")
    module = layer.to_torch()
    assert np.abs(module(torch.tensor(x)).numpy().reshape(-1) - layer(x).reshape(-1)).max() < 1e-9


# ---------------------------------------------------------------------- factors and their combinations


def group_of(layer):
    (group,) = layer.weights.groups
    return group


def with_factor(layer, number, change):
    """The layer with the clusters of one factor changed."""
    group = group_of(layer)
    factors = list(group.factors)
    factors[number] = replace(factors[number], clusters=tuple(change(cluster) for cluster in factors[number].clusters))
    return replace(layer.weights, groups=(replace(group, factors=tuple(factors)),))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_literal_layer_lists_the_combinations(dtype):
    """Slopes side by side, offsets added up, values multiplied and shifted: every token of every combination, once."""
    layer = compiled("abs(sin(7*x))*exp(y)+2*x-1", 1e-2, dtype=dtype)
    group = group_of(layer)
    listed, values = group.listed(), group.listed_values()
    assert layer.tokens == group.count == len(listed[0]) == np.prod([factor.count for factor in group.factors])
    row, x = 0, SQUARE.sample(50, np.random.default_rng(0))
    away = x - layer.weights.centre
    own = [(factor, away @ factor.matrix.T) for factor in group.factors]
    for cells in itertools.product(*(range(n) for n in group.cluster_counts)):
        parts = []
        for (factor, z), k in zip(own, cells, strict=True):
            one = replace(factor, clusters=(factor.clusters[k],), site_slopes=factor.site_slopes[k : k + 1],
                          site_offsets=factor.site_offsets[k : k + 1])  # fmt: skip
            (slopes, offsets), (c, G) = one.listed(), one.listed_values()
            parts.append((z @ slopes.T + offsets, c[:, 0] + z @ G[:, 0].T))
        for tokens in itertools.product(*(range(part[0].shape[1]) for part in parts)):
            logit = sum(part[0][:, j] for part, j in zip(parts, tokens, strict=True))
            value = group.shift + np.prod([part[1][:, j] for part, j in zip(parts, tokens, strict=True)], axis=0)
            z = away @ group.matrix.T
            assert z @ listed[0][row] + listed[1][row] == pytest.approx(logit, rel=1e-12, abs=1e-9)
            assert values[0][row, 0] + z @ values[1][row, 0] == pytest.approx(value, rel=1e-11, abs=1e-9)
            row += 1
    assert row == layer.tokens


def test_attention_weights_are_those_of_all_combinations():
    layer = compiled("abs(x)*abs(sin(3*y))*exp(z)+.25", 1e-2, CUBE)
    x = CUBE.sample(40, np.random.default_rng(0))
    weights = layer.attention(x)
    assert weights.shape == (40, layer.tokens) and weights.sum(axis=1) == pytest.approx(1.0)
    c, G = group_of(layer).listed_values()
    z = (x - layer.weights.centre) @ group_of(layer).matrix.T
    values = c[:, 0] + z @ G[:, 0].T
    assert (weights * values).sum(axis=1) == pytest.approx(layer(x), abs=1e-9)


def test_moved_values_of_a_factor_cost_what_they_are_off_by():
    layer = compiled("abs(sin(7*x))*exp(y)", 1e-2)
    plan = layer.prove.args[1]
    rng = np.random.default_rng(0)
    for number in (0, 1):
        for scale in (1e-6, 1e-3):
            other = with_factor(
                layer, number, lambda cluster, scale=scale: replace(cluster, values=cluster.values * (1 + scale * rng.random()))
            )
            bound = certify_products(other, plan, 1e-2).bound
            assert worst_point(other, layer.target, np.random.default_rng(0), "two-level", Domain((), True)).error <= bound
    doubled = with_factor(layer, 1, lambda cluster: replace(cluster, values=2.0 * cluster.values, slopes=2.0 * cluster.slopes))
    assert certify_products(doubled, plan, 1e-2).bound >= np.e


def test_another_shift_costs_what_it_is_off_by():
    layer = compiled("abs(sin(7*x))*exp(y)+2*x-1", 1e-2)
    group = group_of(layer)
    other = replace(layer.weights, groups=(replace(group, shift=group.shift + 1e-3),))
    bound = certify_products(other, layer.prove.args[1], 1e-2).bound
    assert bound - layer.bound == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda group: replace(group, factors=group.factors[:1]), "at least two"),
        (lambda group: replace(group, shift=np.zeros(2)), "shift"),
        (lambda group: replace(group, shift=np.array([np.nan])), "shift"),
        (lambda group: replace(group, factors=group.factors[:1] * 2), "at most one"),
    ],
)
def test_groups_that_are_no_products_are_refused(change, why):
    layer = compiled("abs(sin(7*x))*exp(y)", 1e-2)
    leaning = [any(np.any(c.slopes) for c in factor.clusters) for factor in group_of(layer).factors]
    group = group_of(layer) if leaning[0] else replace(group_of(layer), factors=group_of(layer).factors[::-1])
    with pytest.raises(BadInput, match=why):
        replace(layer.weights, groups=(change(group),))


def test_factors_of_another_plan_are_refused():
    layer, other = compiled("abs(sin(7*x))*exp(y)", 1e-2), compiled("abs(x)*abs(sin(3*y))*exp(z)+.25", 1e-2, CUBE)
    with pytest.raises(Refused, match="those of its plan"):
        certify_products(layer.weights, other.prove.args[1], 1e-2)
    axis = ma.compile("abs(x)", SQUARE, error=1e-2, method="axis")
    with pytest.raises(Refused, match="one product"):
        certify_products(axis.weights, layer.prove.args[1], 1e-2)


# ---------------------------------------------------------------------- files of all combinations


@pytest.mark.parametrize("name", ["format1_product", "format1_sum_of_products"])
def test_files_of_all_combinations_are_refused_with_the_command_that_makes_them_anew(name, tmp_path, capsys):
    """They were written before files held factors; what the sentence says to do is done."""
    path = Path(__file__).parent / "files" / f"{name}.safetensors"
    with pytest.raises(BadInput, match="combinations") as refused:
        ma.load(path)
    with pytest.raises(BadInput, match="combinations"):
        check(*read_container(path))
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    command = re.search(r"maxaffine (compile .* --out) FILE", said).group(1)
    assert command in str(refused.value)
    new = tmp_path / "anew.safetensors"
    assert main([*shlex.split(command), str(new)]) == 0
    assert main(["check", str(new)]) == 0
    assert ma.load(new).target.text == read_container(path)[1]["target"]["text"]


def test_the_excess_of_a_product():
    rng = np.random.default_rng(0)
    for _ in range(20):
        base, more = rng.uniform(0, 2, 3), rng.uniform(0, 1e-3, 3)
        exact = np.prod((base + more).astype(np.longdouble)) - np.prod(base.astype(np.longdouble))
        assert exact <= excess(list(base), list(more)) <= exact * (1 + 1e-9)


# ---------------------------------------------------------------------- refusals and the driver


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sign(x-.1)*exp(y)", "jumps"),
        ("sin(x)+cos(y)", "no product"),
        ("abs(x)*cos(x*y)", "no product"),
    ],
)
def test_refusals_say_why(text, why):
    with pytest.raises(Refused, match=why):
        ma.compile(text, SQUARE, error=1e-2, method="products")


def test_auto_takes_products_where_they_have_the_fewest_tokens():
    layer = ma.compile("abs(sin(7*x))*exp(y)", SQUARE, error=1e-2)
    assert layer.method == "products" and layer.tokens <= 48
    assert ma.compile("sin(x)*cos(y)", SQUARE, error=1e-3).method == "spectral"
