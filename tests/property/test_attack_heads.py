"""The attack on every head: a short one each, moved numbers proved anew, and an attack that notices what is wrong."""

import functools
import json
from dataclasses import replace

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack import heads as attack_every
from maxaffine.attack.domain import Domain, domain_of
from maxaffine.attack.heads import Row, attack_heads, table
from maxaffine.attack.moves import kinds, moved, names
from maxaffine.attack.search import Found, exact_error, worst_point
from maxaffine.attack.targets import HEADS, Case
from maxaffine.checker import check
from maxaffine.cli.app import main
from maxaffine.core import balls
from maxaffine.core.errors import BadInput, MaxaffineError, Refused
from maxaffine.expression.expression import Expression
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.runtime import chooser

SIDE = (-1, 1)
SLOW = {  # one small case instead of random ones
    "tree": ("sqrt(.4+x**2+y**2)", "tree", 0.1, "inf"), "curved": ("max(x**2+y**2,.5)", "curved", 0.1, "inf"),
    "spectral, products": ("cos(x)*exp(-y**2)", "spectral", 0.1, "inf"), "products": ("abs(x)*exp(y)", "products", 0.01, "inf"),
    "axis, singular": ("sqrt(x+1)+y/3", "axis", 1e-2, "inf"),
    "spectral": ("sin(3*x)*exp(y/2)", "spectral", 1e-2, "inf"), "sums": ("abs(x-.1)+sin(2*y)", "sums", 1e-3, "inf"),
    "piecewise": ("max(x,y,.3*x-.1)", "piecewise", 1e-3, "inf"), "level": ("where(x**2+y**2<.5,1,0)", "level", 0.6, 1.0),
    "axis, L_p": ("sign(x-.1)*exp(x)", "axis", 0.05, 1.0),
    "regions, L_p": ("sign(x-.3*y)*(1+y**2)", "regions", 0.1, 2.0),
}  # fmt: skip


@functools.cache
def compiled(text, error, method, variables="x", **more):
    return ma.compile(text, ma.Box(**dict.fromkeys(variables, SIDE)), error=error, method=method, **more)


@pytest.mark.parametrize("head", HEADS)
def test_no_point_lies_above_a_bound_of_any_head(head, monkeypatch):
    if head in SLOW:
        text, method, error, norm = SLOW[head]
        monkeypatch.setitem(HEADS, head, lambda rng: Case(text, ma.Box(x=SIDE, y=SIDE), error, "float64", method, norm))
        monkeypatch.setattr(attack_every, "CELLS", 6000)
    (row,) = attack_heads(ma.compile, [head], layers=1, seed=2, moves=2)
    assert row.layers == 1 and row.statements >= 1 and row.moved == 2 and row.points > 1000
    assert row.violations == [] and 0.0 < row.worst <= 1.0
    json.dumps(row.to_json())
    assert head in table([row])


def test_a_bound_that_is_too_small_is_noticed(monkeypatch):
    """A checker that forgets to count something is caught by moved layers."""
    case = Case("abs(x-.1)", ma.Box(x=SIDE), 1e-3, "float64", "axis", "inf")
    monkeypatch.setitem(HEADS, "axis", lambda rng: case)

    def careless(tensors, record):
        verdict = check(tensors, record)
        return type(verdict)(verdict.passed, None if verdict.bound is None else 0.5 * verdict.bound, None, verdict.error, "")

    monkeypatch.setattr(attack_every, "check", careless)
    (row,) = attack_heads(ma.compile, ["axis"], layers=2, moves=4)
    assert row.violations and row.worst_moved > 1.0
    assert {one["what"].split(",")[0] for one in row.violations} == {"checker"}


def test_the_exact_value_is_that_of_the_runtimes():
    rng = np.random.default_rng(0)
    for layer in (compiled("abs(sin(7*x))", 1e-4, "axis").weights, compiled("abs(x-y)*cos(x)", 1e-2, "regions", "xy").weights,
                  compiled("sin(x)+cos(y)+x/3", 1e-6, "spectral", "xy").weights,
                  compiled("exp(-x*x)*cos(y)*tanh(z)", 1e-2, "spectral", "xyz").weights,
                  compiled("max(x,y,.2*x)", 1e-6, "piecewise", "xy").weights):  # fmt: skip
        x = rng.uniform(layer.low, layer.high, (5, layer.dimension))
        got = chooser.evaluate(layer, x)[:, 0, 0]
        with balls.precision(200):
            for point, value in zip(x, got, strict=True):
                (ball,) = exact_value(layer, [flint.arb(float(v)) for v in point])
                assert abs(float(ball.mid()) - value) < 1e-11 and float(ball.rad()) < 1e-30


def test_moves_keep_shapes_dtypes_and_zeros():
    tensors, record = compiled("abs(x-y)*cos(x)", 1e-2, "regions", "xy", dtype="float32")._record()
    assert set(kinds(tensors)) == {"values", "slopes", "sites", "keys", "radii", "origins", "matrix", "centre"}
    assert names(tensors, "keys") == [f"group.0.keys.{e}.{part}" for e in (0, 1) for part in ("slopes", "offsets")]
    rng, told = np.random.default_rng(0), set()
    for _ in range(40):
        made, record_made, what = moved(tensors, record, rng)
        told.add(what.split()[0])
        assert {k: (v.shape, v.dtype) for k, v in made.items()} == {k: (np.shape(v), v.dtype) for k, v in tensors.items()}
        assert not np.any(made["group.0.origins"])
        first, second = np.split(made["group.0.keys.0.slopes"], 2)
        assert np.array_equal(first, second)  # what regions share stays shared
        assert len(record_made["plan"]["steepness"]) == len(record["plan"]["steepness"])
    assert told == {"every", "additive", "one", "swap", "steeper"}


def test_sums_of_exponentials_are_moved_in_the_record_alone_and_the_checker_believes_none_that_is_wrong():
    layer = compiled("1/(2+x**2+y**2+z**2+w**2)", 1e-2, "separated", "xyzw")
    tensors, record = layer._record()
    assert set(kinds(tensors)) == {"values", "keys", "matrix", "centre"}
    rng, told = np.random.default_rng(0), set()
    for _ in range(40):
        made, changed, what = moved(tensors, record, rng)
        if "exponentials" in what:
            assert all(np.array_equal(made[name], tensors[name]) for name in tensors)
        else:
            assert changed["plan"]["sums"] == record["plan"]["sums"]
        bound = check(made, {**changed, "error": 1.0}).bound if "exponentials" in what else None
        x = layer.box.sample(500, rng)
        assert bound is None or bound >= np.abs(layer(x) - layer.target.values(x).ravel()).max()
        told.add("sums" if "exponentials" in what else "numbers")
    assert told == {"sums", "numbers"}


def test_domains_are_read_from_the_scope_of_certificates():
    gapped = compiled("sign(x-.3*y)*(1+y**2)", 1e-2, "regions", "xy", gap=1e-3)
    domain = domain_of(gapped.certificate.scope, gapped.target)
    assert len(domain.strips) == 1 and domain.real
    length = np.hypot(1.0, 0.3)
    x = np.array([[0.3 * 0.5 + 0.9e-3 * length, 0.5], [0.3 * 0.5 + 1.1e-3 * length, 0.5], [0.9, 0.0]])
    assert domain.keeps(x).tolist() == [False, True, True]
    assert [domain.surely(point) for point in x] == [False, True, True]
    step = compiled("sign(x-.1)", 1e-2, "axis", gap=1e-3)
    found = domain_of(step.certificate.scope, step.target)
    assert found.keeps(np.array([[0.1005], [0.1015], [0.0995]])).tolist() == [False, True, False]
    whole = compiled("abs(sin(7*x))", 1e-4, "axis")
    assert domain_of(whole.certificate.scope, whole.target) == Domain((), True)


def test_the_search_finds_the_peak_of_a_kink():
    """A kink of two tokens: W0(1/e) times the jump of the slope over twice the steepness, at both sides of it."""
    layer = compiled("abs(x-.1)", 1e-6, "axis")
    found = worst_point(layer.weights, layer.target, np.random.default_rng(0), "two-level", Domain())
    assert 0.9 * layer.bound < found.error <= layer.bound and abs(found.at[0] - 0.1) < 1e-5
    with balls.precision(200):
        assert exact_error(layer.weights, layer.target, [flint.arb(float(found.at[0]))]) == pytest.approx(found.error, rel=1e-6)


def test_targets_of_every_head_can_be_evaluated():
    rng = np.random.default_rng(1)
    for head, make in HEADS.items():
        served = 0
        for _ in range(12):
            case = make(rng)
            x = case.box.sample(20, rng)
            with np.errstate(all="ignore"):
                served += bool(np.isfinite(Expression.parse(case.text, case.box.names).evaluate(x)).all())
            assert case.error > 0 and (case.gap is None or case.gap > 0)
        assert served >= 8, head


def test_the_command_prints_a_row_per_head(capsys):
    assert main(["attack", "--heads", "regions;axis, gap", "--layers", "1", "--seed", "2", "--seconds", "12"]) == 0
    out = capsys.readouterr().out
    assert "regions" in out and "axis, gap" in out and out.splitlines()[0].startswith("head")
    assert main(["attack", "--heads", "axis", "--layers", "1", "--seed", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads"][0]["head"] == "axis"
    assert main(["attack", "--heads", "nothing", "--layers", "1"]) == 2
    with pytest.raises(BadInput, match="choose among"):
        attack_heads(ma.compile, ["nothing"])


def test_a_spectral_certificate_is_about_the_stored_centre_and_matrix():
    """Found by the attack: the certificate took the centre of its plan for that of the layer."""
    layer = compiled("sin(2*x+y)", 1e-3, "spectral", "xy")
    group = layer.weights.groups[0]
    prove = layer.prove.func
    for other in (
        replace(layer.weights, centre=layer.weights.centre + np.array([0.3, 0.0])),
        replace(layer.weights, groups=(replace(group, matrix=1.1 * group.matrix),)),
    ):
        with pytest.raises(Refused, match="of its plan"):
            prove(other, *layer.prove.args[1:], "factorised")


def test_the_last_rounding_is_that_of_the_layer_not_of_the_target():
    """Found by the attack: a layer far from its target is rounded at its own size."""
    layer = compiled("x/3+y", 1e-2, "piecewise", "xy", dtype="float32")
    far = replace(layer.weights, centre=layer.weights.centre + np.array([0.0, 1e3]))
    bound = layer.prove.func(far, *layer.prove.args[1:], "two-level").bound
    error = worst_point(far, layer.target, np.random.default_rng(0), "two-level", Domain()).error
    assert 0.99 * bound < error <= bound


def test_rows_tell_apart_what_is_compiled_and_what_is_moved():
    row, case = Row("axis"), Case("x", ma.Box(x=SIDE), 0.1, "float64", "axis", "inf")
    row.judge("as compiled, dense", case, 1.0, Found(0.5, (0.0,), 10, "dense"))
    row.judge("checker, one values by 1e-3", case, 1.0, Found(0.7, (0.0,), 5, "dense"))
    assert (row.statements, row.proved, row.points, row.worst, row.worst_moved) == (1, 1, 15, 0.5, 0.7) and not row.violations
    row.judge("checker, one values by 1e-3", case, 0.0, Found(0.7, (0.0,), 5, "dense"))
    assert len(row.violations) == 1 and row.worst_moved == np.inf


def test_refusals_of_moved_layers_are_counted(monkeypatch):
    def refusing(tensors, record):
        raise BadInput("no")

    monkeypatch.setattr(attack_every, "check", refusing)
    (row,) = attack_heads(ma.compile, ["axis"], layers=1, seed=2, moves=2)
    assert row.refused >= 2 and issubclass(BadInput, MaxaffineError)
