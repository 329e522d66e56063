"""Direct forms: adversarial points against balls, statements and files, what is refused and why, and proofs that can fail."""

from pathlib import Path

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.balls import precision
from maxaffine.core.errors import BadInput, Refused
from maxaffine.expression.expression import Expression
from maxaffine.proofs import direct_table
from maxaffine.proofs.direct import alone, direct
from maxaffine.proofs.direct_columns import Columns
from maxaffine.runtime import direct as steps
from maxaffine.runtime.direct import in_numpy
from maxaffine.target.target import Target

LINE, PLANE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1))
FRANKE = (
    "0.75*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)
CASES = [
    ("abs(sin(7*x))", LINE, 2e-7),
    ("sqrt(x+1)", LINE, 1e-4),
    ("sin(200000*x)", LINE, 1e-9),
    ("exp(600*x)", ma.Box(x=(-3, 0)), 1e-9),
    ("tanh(40*x)", LINE, 1e-7),
    ("tanh(9000*x)+sigmoid(-8000*x)", LINE, 1e-9),
    ("cbrt(x+1.01)", LINE, 1e-6),
    ("atan(1000*x)", LINE, 1e-6),
    ("1/(1+25*x**2)", LINE, 1e-12),
    ("max(x,y)", PLANE, 1e-8),
    ("abs(x+2*y-.3)*cos(x)", PLANE, 1e-6),
    ("(abs(x)+abs(y))*exp(x*y)", PLANE, 1e-4),
    ("exp(-((x-.3)**2+(y+.2)**2)/.0008)", PLANE, 1e-4),
    ("max(x**2+y**2,.5)", PLANE, 1e-4),
    (FRANKE, ma.Box(x=(0, 1), y=(0, 1)), 1e-6),
    ("sqrt(x*y)", ma.Box(x=(0, 1), y=(0, 1)), 1e-6),
    ("cos(3*x)**5*sinh(y)-log(2+x*y)", PLANE, 1e-11),
]  # fmt: skip


def sites(program: steps.Program, box: ma.Box) -> np.ndarray:
    """Random points, corners, kinks and places where a number of half turns, of powers of two or of a bin changes; neighbours."""
    rng = np.random.default_rng(1)
    D = box.dimension
    x = box.sample(300, rng)
    corners = np.stack(np.meshgrid(*[(a, b, 0.0) for a, b in zip(box.low, box.high, strict=True)]), -1).reshape(-1, D)
    kinks = [np.pi * k / 7 for k in range(-2, 3)]
    turns = [np.pi * (k + 0.5) / 7 for k in range(-2, 3)] + [np.log(2.0) * (k + 0.5) / 600 for k in range(-40, 1)]
    edges = []
    for kind, _, _, _, at, _ in program.rows.tolist():
        if kind == steps.TABLE:
            low, scale, bins = program.numbers[at : at + 3]
            places = low + np.arange(bins + 1) / scale
            edges += [*places[::8] / 40, *places[::16] - 1.01, *places[::64] / 1000]
    special = np.clip(np.array([*kinks, *turns, *edges])[:, None] * np.ones(D), box.low, box.high)
    if D == 2:
        x = np.concatenate([x, np.stack([x[:40, 0], x[:40, 0]], 1), np.stack([x[:40, 0], (0.3 - x[:40, 0]) / 2], 1)])
        angle = np.linspace(0, 7, 40)
        x = np.concatenate([x, np.sqrt(0.5) * np.stack([np.cos(angle), np.sin(angle)], 1)])
    found = np.concatenate([x, corners, special])
    found = np.concatenate([found, np.nextafter(found, np.inf), np.nextafter(found, -np.inf)])
    return np.clip(found, box.low, box.high)


@pytest.mark.parametrize(("text", "box", "allowed"), CASES)
def test_no_error_exceeds_the_bound_at_kinks_edges_and_ends(text, box, allowed):
    expression = Target.of(text, box).expression
    made = direct(expression, box.low, box.high, allowed, True)
    assert 0.0 < made.bound <= allowed
    x = sites(made.program, box)
    found, seen = in_numpy(made.program, x)[:, 0], 0.0
    half = 2.0**-53 * (1 - 2.0**-20)
    with precision(200):
        for row, value in zip(x, found, strict=True):
            for shift in (0.0, half):  # the number itself, and a real number that is rounded to it
                exact = expression.enclose_ball([flint.acb(flint.arb(float(v)) * (1 - shift)) for v in row])[0]
                if exact.is_finite():
                    seen = max(seen, float(abs(exact.real - float(value)).mid()))
    assert seen <= made.bound


def test_the_route_states_the_forms_own_bound_and_files_give_the_same_bits(tmp_path: Path):
    layer = ma.compile("abs(sin(7*x))*exp(y)", PLANE, error=1e-4)
    said = layer.statement("direct")
    assert said.bound is not None and said.bound <= layer.bound and dict(said.parts) == {"direct": said.bound}
    assert "direct" in layer.runtimes() and "direct" in {one.route for one in layer.statements()}
    assert layer.certificate_for("direct").bound == said.bound
    x = PLANE.sample(3000, np.random.default_rng(0))
    wanted = layer(x, runtime="direct")
    assert np.abs(wanted - np.abs(np.sin(7 * x[:, 0])) * np.exp(x[:, 1])).max() <= said.bound
    layer.save(tmp_path / "f.safetensors")
    again = ma.load(tmp_path / "f.safetensors")
    assert "not checked" in again.statement("direct").why
    assert np.array_equal(again(x, runtime="direct"), wanted)
    assert again.check().passed
    assert np.array_equal(again(x, runtime="direct"), wanted) and again.statement("direct").bound == said.bound


def test_a_layer_in_float32_counts_the_rounding_of_its_answers():
    layer = ma.compile("abs(x)*3", LINE, error=1e-4, dtype="float32")
    x = LINE.sample(2000, np.random.default_rng(0))
    found = layer(x, runtime="direct")
    away = np.abs(found.astype(np.float64) - 3 * np.abs(x[:, 0])).max()
    assert found.dtype == np.float32 and 1e-8 < away <= layer.statement("direct").bound <= layer.bound


def test_several_outputs_are_within_the_largest_bound():
    layer = ma.compile("abs(x), sin(3*x)*y, max(x, y)", PLANE, error=1e-3)
    x = PLANE.sample(2000, np.random.default_rng(0))
    wanted = np.stack([np.abs(x[:, 0]), np.sin(3 * x[:, 0]) * x[:, 1], x.max(axis=1)], 1)
    assert np.abs(layer(x, runtime="direct") - wanted).max() <= layer.statement("direct").bound <= layer.bound


@pytest.mark.parametrize(
    ("text", "box", "why"),
    [
        ("where(x > 0, 1, 0)", LINE, "may jump"),
        ("sign(x)", LINE, "may jump"),
        ("cbrt(x)", LINE, "bounded slope"),
        ("exp(700*x)", ma.Box(x=(0, 1)), "more than 690"),
        ("sin(10000000*x)", LINE, "more than 800,000"),
        ("log(x)", ma.Box(x=(-1, 1)), "defined on the whole box"),
    ],
)
def test_what_has_no_form_says_why(text, box, why):
    with pytest.raises(Refused, match=why):
        direct(Expression.parse(text, box.names), box.low, box.high, 1e-3, True)


def test_layers_without_a_form_say_why():
    step = ma.compile("where(x > 0.3, 1, 0)", LINE, error=1e-3, gap=1e-2)
    assert "may jump" in step.statement("direct").why and "direct" not in step.runtimes()
    with pytest.raises(BadInput, match="may jump"):
        step(np.zeros(3), runtime="direct")
    integral = ma.compile("abs(x)", LINE, error=1e-2, norm=1)
    assert "sup norm" in integral.statement("direct").why
    opaque = ma.compile(lambda x: np.array([abs(float(v)) for v in x[:, 0]]), LINE, error=0.3, lipschitz=2.0)
    assert "no formula" in opaque.statement("direct").why


def test_no_points_one_point_and_two_threads_are_answered_alike():
    layer = ma.compile("abs(x+2*y-.3)*cos(x)", PLANE, error=1e-3)
    x = PLANE.sample(150_000, np.random.default_rng(0))
    whole = layer(x, runtime="direct", threads=1)
    assert np.array_equal(layer(x, runtime="direct", threads=2), whole)
    assert layer(x[:0], runtime="direct").shape == (0,)
    assert layer(x[7], runtime="direct") == whole[7] and layer(x=x[7, 0], y=x[7, 1], runtime="direct") == whole[7]
    with pytest.raises(BadInput, match="outside"):
        layer(np.array([1.1, 0.0]), runtime="direct")


def test_tensors_of_a_cpu_are_told_to_come_as_arrays():
    torch = pytest.importorskip("torch")
    with pytest.raises(BadInput, match="CUDA device"):
        ma.compile("abs(x)", LINE, error=1e-2)(torch.zeros(3), runtime="direct")


def test_a_table_with_a_wrong_coefficient_is_not_proved():
    g, allowed = alone(Target.of("tanh(x)", LINE).expression.nodes[-1]), 1e-6
    scale = 16 / 2.0
    made = direct_table.fitted(g, -1.0, scale, 16, 0.5 * allowed)
    assert made is not None and direct_table.proved(g, -1.0, scale, made, allowed) <= allowed
    for place in ((0, -1), (7, 0), (15, -2)):
        wrong = made.copy()
        wrong[place] += 64 * allowed  # seen at half a bin as that over 2^degree
        assert direct_table.proved(g, -1.0, scale, wrong, allowed) > allowed


def test_a_table_near_a_pole_is_refused():
    with pytest.raises(Refused):
        direct_table.table(alone(Target.of("tan(x)", LINE).expression.nodes[-1]), -1.57079, 1.57079632, 1e-9)


def test_every_rounding_of_a_sum_is_counted():
    made = Columns()
    a, b = made.load(0, 1.0, 0.0), made.load(1, 1e6, 1e-9)
    total = made.added(a, b, 3.0)
    assert total.error >= 3e-9 + 2.0**-53 * (3e6 + 3e6) and total.size == 3e6 + 1.0
    assert made.added(a, b, 3.0).place == total.place  # the same instruction is made once


def test_errors_of_arguments_are_passed_on_at_the_steepest_slope():
    made = Columns()
    a, b = made.load(0, 2.0, 1e-3), made.load(1, 3.0, 1e-4)
    table = direct_table.table(alone(Target.of("tanh(x)", LINE).expression.nodes[-1]), -2.0, 2.0, 1e-9)
    wave, sure, steep = made.wave(a, True, 1e-9), made.exponential(a, 2.0, 1e-9), made.tabled(a, table)
    assert wave.error >= 1e-3 and sure.error >= 1e-3 * np.exp(2.0) and steep.error >= 1e-3
    assert made.arctangent(a, 1e-9).error >= 1e-3 and made.tangent(a, 1e-9).error >= 1e-3
    assert made.multiplied(a, b).error >= 2.0 * 1e-4 + 3.0 * 1e-3 + 1e-7
    assert made.divided(b, a, 0.5, 6.0).error >= (1e-4 + 6.0 * 1e-3) / (0.5 - 1e-3)
    assert made.root(a, 0.0, 1.5).error >= np.sqrt(1e-3) and made.root(a, 1.0, 1.5).error >= 1e-3 / 2.0
    assert made.power(a, 3).error >= 3 * 4.0 * 1e-3 and made.extreme(a, b, True).error == 1e-3
    with pytest.raises(Refused, match="reach 0"):
        made.divided(b, a, 1e-3, 6.0)
