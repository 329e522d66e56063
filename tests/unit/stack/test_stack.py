"""Stacks: cutting, the theorem, the file, the checker, and what does not go with them."""

import copy
import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import checker
from maxaffine.checker.proved import NotProved
from maxaffine.checker.same_function import doubt_same
from maxaffine.core import deadline
from maxaffine.core.container import container_bytes, read_container, write_container
from maxaffine.core.deadline import OutOfTime
from maxaffine.core.errors import BadInput, Refused
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.request import request_of
from maxaffine.runtime import parallel
from maxaffine.stack import evaluate, saved
from maxaffine.stack import search as stack_search
from maxaffine.stack.cut import REWRITES, STYLES, cut
from maxaffine.stack.ridges import Uncut
from maxaffine.structure.stacked import AffineMap, composed, rebuilt
from maxaffine.target.target import Target

FOUR = {"x": (1, 2), "y": (1, 3), "z": (-1, 1), "w": (0.5, 4)}
FORMULAS = (
    "x*y*z*w",
    "sqrt(x*y)*exp(-w)/(x + w)",
    "log(x/y)*(1 + z**2/w)",
    "max(x*z, y - w) + min(z, x*y) + abs(x - y)",
    "tanh(0.3*x - 2*z + 0.1) - sigmoid(y*w)",
    "x**y + atan2(y, x) + 2*pi*z/3",
    "exp(-0.2*sqrt(x**2 + y**2 + w**2)) + e",
    "(x*y + z)*(x*y + w)/(x*y)",
)


@pytest.fixture(scope="module")
def stack():
    return ma.compile("exp(-w)*x*y/(x + w) + tanh(3*z - x)", FOUR, error=1e-4, layers="auto")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("text", FORMULAS)
def test_the_nodes_put_into_one_another_are_the_formula(text, style):
    target = Target.of(text, FOUR)
    try:
        cutting = cut(target.expression, target.box, style)
    except Uncut as nothing:
        assert style.partition(", ")[2] in REWRITES and "there are no" in str(nothing)
        return
    count = len(cutting.names)
    plan = cutting.plan([0] * count, [(0,) * len(one) for one in cutting.arguments], [0] * count)
    graph = Graph()
    together = Expression.of_graph("", target.box.names, graph, (composed(plan, graph),))
    x = target.box.sample(200, np.random.default_rng(1))
    assert np.allclose(together.evaluate(x), target.expression.evaluate(x), rtol=1e-11, atol=1e-12)


def test_denominators_that_divide_terms_of_another_are_multiplied_into_it():
    target = Target.of("z/(log(x + y)*(1 + w/(x*log(x + y))))", FOUR)
    cutting = cut(target.expression, target.box, "lean, cleared")
    assert [one.text for one in cutting.functions].count("log(u)") == 1
    assert not any("1/log" in one.text for one in cutting.functions)
    graph = Graph()
    count = len(cutting.names)
    plan = cutting.plan([0] * count, [(0,) * len(one) for one in cutting.arguments], [0] * count)
    both = (rebuilt(graph, target.expression, [graph.variable(i) for i in range(4)]), composed(plan, graph))
    one, other = (Expression.of_graph("", target.box.names, graph, (place,)) for place in both)
    doubt_same(one, other, target.box.low, target.box.high)  # the checker's own canonical forms


def test_factors_are_cancelled_and_common_ones_taken_out():
    target = Target.of("sqrt(z**2 + 1)*x*y/(w*x*y + w*x*y*exp(-z)**2)", FOUR)
    cutting = cut(target.expression, target.box, "lean, gathered")
    assert not any("x" in one.text for row in cutting.arguments for one in row)
    assert {one.text for one in cutting.functions} == {"1/u", "sqrt(u**2 + 1)*(1/(exp(-2*u) + 1))", "u*w"}


def test_affine_parts_are_free_and_equal_nodes_are_shared():
    target = Target.of("sin(x + y) + 3*x - 7 + sin(x + y)*w", FOUR)
    cutting = cut(target.expression, target.box, "lean")
    assert [one.text for one in cutting.functions] == ["sin(u)", "u*w"]


def test_conditions_on_several_directions_are_not_cut():
    target = Target.of("where(x < y, z*w, 1)", FOUR)
    with pytest.raises(Uncut):
        cut(target.expression, target.box, "lean")


def test_the_bound_holds_where_it_is_searched_and_the_checker_proves_it_again(stack):
    assert stack.observed.error <= stack.bound <= 1e-4
    verdict = stack.check()
    assert verdict.passed and verdict.bound <= 1.2 * stack.bound
    assert stack.layers == max(node.layer for node in stack.nodes) >= 2
    assert sum(node.share for node in stack.nodes) <= 1.0
    assert stack.tokens == sum(node.tokens for node in stack.nodes)


def test_every_node_stays_within_what_the_theorem_says_when_heads_err_as_much_as_they_may(stack):
    """Exact nodes, each moved by its beta towards the worse side: the answer moves by at most sum W beta, and by much of it."""
    x = stack.box.sample(2000, np.random.default_rng(3))
    exact = stack.target.values(x)[:, 0, 0]
    worst, rng = 0.0, np.random.default_rng(4)
    for _ in range(30):
        signs = rng.choice([-1.0, 1.0], size=len(stack.nodes))
        known = list(x.T)
        for node, told, sign in zip(stack.plan.nodes, stack.nodes, signs, strict=True):
            rows = np.stack([row(known) for row in node.maps], axis=1)
            known.append(node.function.evaluate(rows)[:, 0] + sign * told.beta)
        worst = max(worst, float(np.abs(stack.plan.result(known) - exact).max()))
    assert 0.3 * stack.bound < worst <= stack.bound


def test_a_saved_stack_answers_bit_by_bit_and_is_stated_until_it_is_checked(stack, tmp_path):
    path = tmp_path / "s.safetensors"
    stack.save(path)
    again = ma.load(path)
    x = stack.box.sample(50, np.random.default_rng(0))
    assert isinstance(again, ma.Stack) and (again(x) == stack(x)).all()
    assert again(x[7]) == stack(x)[7]
    assert again.standing == "stated" and "not checked" in again.statement().why
    assert ma.check(path).passed and again.check().passed and again.standing == "checked"
    assert again.to_bytes() == stack.to_bytes()


def _lower_error(record, tensors):
    record["error"] = float(record["certificate"]["bound"]) / 3


def _smaller_bound(record, tensors):
    parts = record["certificate"]["parts"]
    record["certificate"]["parts"] = {name: part / 2 for name, part in parts.items()}
    record["certificate"]["bound"] = math.fsum(record["certificate"]["parts"].values())


def _other_target(record, tensors):
    record["target"]["text"] += " + 1e-3*x"


def _other_function(record, tensors):
    node = next(one for one in record["stack"]["nodes"] if one["function"] == "tanh(u)")
    node["function"] = "sin(u)"


def _other_scale(record, tensors):
    node = record["stack"]["nodes"][-1]
    node["scales"] = [s + 1 for s in node["scales"]]


def _other_arguments(record, tensors):
    node = record["stack"]["nodes"][-1]
    node["arguments"][0] += " + 1e-3"


def _wider_box(record, tensors):
    record["target"]["box"]["high"][3] *= 2


def _other_value(record, tensors):
    name = next(n for n in tensors if n.startswith("head.0.") and "values" in n)
    tensors[name] = tensors[name] * 1.01


def _self_reading(record, tensors):
    node = record["stack"]["nodes"][0]
    node["arguments"][0] = node["name"]


def _foreign_tensor(record, tensors):
    tensors["head.99.values"] = np.zeros(2)


def _literal(record, tensors):
    record["literal"]["float64"] = {"bound": record["certificate"]["bound"] / 3}


def _no_size(record, tensors):
    del record["certificate"]["details"]["largest"]


LIES = (
    _lower_error, _smaller_bound, _other_target, _other_function, _other_scale, _other_arguments, _wider_box, _other_value,
    _self_reading, _foreign_tensor, _literal, _no_size,
)  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=lambda one: one.__name__)
def test_forged_stacks_are_refused(stack, lie, tmp_path):
    tensors, record = saved.record_of(stack)
    record, tensors = copy.deepcopy(record), dict(tensors)
    lie(record, tensors)
    path = tmp_path / "forged.safetensors"
    write_container(path, tensors, record)
    try:
        verdict = checker.check(*read_container(path))
    except BadInput:
        return
    assert not verdict.passed, verdict.reason


def test_a_stack_is_drawn_and_told_node_by_node(stack, tmp_path):
    stack.draw(tmp_path / "s.png")
    assert (tmp_path / "s.png").stat().st_size > 10_000
    told = stack.explain()
    assert all(f"{node.name} = {node.function}" in told for node in stack.nodes) and "dominates" in told
    assert str(stack.tokens) in stack.summary() and stack.cite()


def test_the_size_that_rounding_to_float32_rests_on_is_proved_again():
    stack = ma.compile("1000*abs(sin(3*x) + abs(y)) + 2000*abs(y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-4, layers=3)
    x = stack.box.sample(4000, np.random.default_rng(1))
    seen = np.abs(stack(x).astype(np.float32) - stack.target.values(x)[:, 0, 0]).max()
    assert stack.bound < seen <= stack.statement("tensors", "float32").bound
    tensors, record = saved.record_of(stack)
    assert checker.check(tensors, record).passed
    record = copy.deepcopy(record)
    record["certificate"]["details"]["largest"] /= 10  # the statement would be exceeded
    verdict = checker.check(tensors, record)
    assert not verdict.passed and "another size" in verdict.reason


def test_the_record_of_a_stack_is_canonical(stack):
    assert container_bytes(*saved.record_of(stack)) == stack.to_bytes()


def test_tensors_give_what_arrays_give(stack):
    torch = pytest.importorskip("torch")
    x = stack.box.sample(20, np.random.default_rng(5))
    t = torch.tensor(x, requires_grad=True)
    out = stack(t)
    assert np.allclose(out.detach().numpy(), stack(x), rtol=0, atol=2 * stack.bound)
    out.sum().backward()
    assert t.grad.shape == t.shape
    with pytest.raises(BadInput):
        stack(t + 100.0)


def test_nodes_that_are_constant_on_the_box_may_err():
    box = {"x": (0, 1), "y": (10, 40), "z": (1, 2), "t": (0, 1)}
    made = ma.compile("sqrt(max(x - y, 0) + z + t) + x*y*z", box, error=1e-4, layers=9)
    assert "max(u, 0)" in [node.function for node in made.nodes] and made.check().passed


def test_the_checker_takes_the_lesser_of_weights_forwards_and_backwards():
    # forwards the two ways from x*y to the output are added as if they did not nearly cancel
    box = {"x": (-1, 1), "y": (-1, 1), "z": (-0.01, 0.01)}
    made = ma.compile("exp(sin(3*x*y)/10 + z) - sin(3*x*y)/10", box, error=1e-4, layers=9)
    assert made.check().passed


@pytest.mark.parametrize("layers", [0, 1.5, "many", True, None])
def test_layers_must_be_a_number_or_auto(layers):
    with pytest.raises(BadInput, match="layers"):
        ma.compile("x*y", {"x": (0, 1), "y": (0, 1)}, error=1e-3, layers=layers)


def test_what_a_stack_cannot_serve_is_said():
    with pytest.raises(Refused, match="expressions"):
        ma.compile(lambda x: x[:, 0], {"x": (0, 1)}, error=0.1, layers=3, trace=False)
    with pytest.raises(BadInput, match="one expression with commas"):
        ma.compile(["x*y", "x*z"], FOUR, error=1e-3, layers="auto")
    with pytest.raises(Refused, match="compile every output by itself"):
        ma.compile("x*y*z/(x + w), x*w", FOUR, error=1e-3, layers=3)
    with pytest.raises(Refused, match=r"float64 \(`dtype` is float32\); leave `dtype` out"):
        ma.compile("x*y*z/(x + w)", FOUR, error=1e-3, layers=3, dtype="float32")
    with pytest.raises(Refused, match="No stack either: stacks are stored in float64"):
        ma.compile("x*y*z/(x + w)", FOUR, error=1e-6, layers="auto", dtype="float32")
    with pytest.raises(BadInput, match="method"):
        ma.compile("x*y", {"x": (0, 1), "y": (0, 1)}, error=1e-3, layers=3, method="spectral")
    with pytest.raises(Refused, match="more than `layers`"):
        ma.compile("x*y*z/(x + w)", FOUR, error=1e-3, layers=2)
    with pytest.raises(Refused, match="finite"):
        ma.compile("1/(x - y)*z*w", FOUR, error=1e-3, layers=9)


def test_heads_that_float64_does_not_hold_are_refused_before_they_are_searched(monkeypatch):
    request = request_of("x*y", {"x": (0, 1), "y": (0, 1)}, error=1e-3)
    monkeypatch.setattr(stack_search, "one_layer", None)  # is not called
    with pytest.raises(Refused, match="float64 does not hold 2e-14 of a function of size 1") as refusal:
        stack_search.head_compiler(request)("u*w", ma.Box(u=(0, 1), w=(-1, 1)), 2e-14)
    assert 1e-13 < refusal.value.nearest_error < 1e-12


def test_a_refusal_of_one_layer_says_what_a_stack_would_take():
    text = "S*(0.5+0.5*erf((log(S/K)+r*T)/(s*sqrt(T))))"
    box = {"S": (80, 120), "K": (80, 120), "r": (0.01, 0.05), "s": (0.1, 0.4), "T": (0.25, 2)}
    with pytest.raises(Refused, match=r"A stack is foreseen: \d layers of about \d+ tokens") as refusal:
        ma.compile(text, box, error=1e-4, relative=True)
    assert refusal.value.remedy == {"layers": "auto"}


def test_constants_of_affine_maps_are_enclosed():
    row = AffineMap.of(Expression.parse("2*pi*y - x/3 + sqrt(2)", ("x", "y")))
    assert row.indices == (0, 1)
    assert row.exact_weights.lo[0] < -1 / 3 + 1e-16 and (row.exact_weights.lo <= row.weights).all()
    with pytest.raises(BadInput, match="affine"):
        AffineMap.of(Expression.parse("x*y", ("x", "y")))


def test_maxima_are_written_as_one_direction():
    graph = Graph()
    x, y = graph.variable(0), graph.variable(1)
    place = rebuilt(graph, Expression.parse("max(x, y)", ("x", "y")), (x, y))
    assert place == graph.add(y, graph.apply("max", graph.subtract(x, y), graph.zero))


def test_the_attack_finds_nothing_above_a_bound_refuses_every_forged_record_and_goes_on_where_it_stopped(tmp_path):
    from maxaffine.attack.stacks import attack_stacks

    record = tmp_path / "attack.jsonl"
    attack_stacks(ma.compile, 1, seed=5, operations=8, each=None, record=record)
    before = record.read_text()
    tally = attack_stacks(ma.compile, 2, seed=5, operations=8, each=None, record=record)
    assert record.read_text().startswith(before) and [row.number for row in tally.rows] == [0, 1]
    assert tally.violations == [] and len(tally.stacks) == 2 and all(row.lies > 0 and not row.unconfirmed for row in tally.stacks)
    assert all(0.0 < ratio <= 1.0 for row in tally.stacks for ratio in (row.worst, row.worst_moved, row.worst_literal))
    assert max(row.worst_moved for row in tally.stacks) > 0.4  # a search that finds nothing is no search
    assert all(3 <= len(row.box) <= 20 and 5 <= row.operations <= 8 for row in tally.rows)
    record.write_text("{}")
    with pytest.raises(BadInput, match="record"):
        attack_stacks(ma.compile, 2, seed=5, record=record)


def test_literal_blocks_stay_within_their_statement_as_matrices_modules_and_onnx(stack, tmp_path):
    pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    from maxaffine.export.write import onnx_answers
    from maxaffine.stack.blocks import run

    x = np.concatenate([stack.box.sample(500, np.random.default_rng(6)), [stack.observed.at, stack.box.low, stack.box.high]])
    exact = stack.target.values(x)[:, 0, 0]
    assert len(stack.matrices()) == stack.layers and stack.statement("matrices").bound <= 1.01 * stack.bound
    module = stack.to_torch()
    assert all(isinstance(block.attention, torch.nn.MultiheadAttention) for block in module.blocks)
    (row,) = stack.to_onnx(tmp_path / "s.onnx")
    answers = {
        "matrices": run(stack, x),
        "multihead": module(torch.tensor(x)).detach().numpy(),
        "onnx": onnx_answers((tmp_path / "s.onnx").read_bytes(), "float64", ((4, 1),))(x),
    }
    for route, found in answers.items():
        assert np.abs(found - exact).max() <= stack.statement(route).bound, route
        assert np.abs(found - stack(x)).max() < 1e-8  # the same stack: only rounded differently
    assert row.statement.bound == stack.statement("onnx").bound
    stack.export("mha", tmp_path / "s.safetensors")
    with pytest.raises(BadInput, match="to"):
        stack.export("csv", tmp_path / "s.csv")


def test_a_module_of_a_stack_withdraws_its_statement_and_learns_only_where_it_is_told_to(stack):
    torch = pytest.importorskip("torch")
    plain, tuned = stack.to_torch(), stack.to_torch(trainable=True)
    assert not any(p.requires_grad for p in plain.parameters()) and plain.statement.bound == tuned.statement.bound
    x = torch.tensor(stack.box.sample(50, np.random.default_rng(0)))
    assert torch.equal(plain(x), tuned(x).detach())
    zeros = {name: p.detach() == 0 for name, p in tuned.named_parameters() if name.endswith(("before.weight", "last.weight"))}
    optimiser = torch.optim.SGD([p for p in tuned.parameters() if p.requires_grad], lr=1e-3)
    (tuned(x) - 1.01 * plain(x)).square().mean().backward()
    optimiser.step()
    assert not tuned.statement.covered and plain.statement.covered and not torch.equal(plain(x), tuned(x))
    assert all((dict(tuned.named_parameters())[name][where] == 0).all() for name, where in zeros.items())
    again = stack.to_torch()
    again.load_state_dict(tuned.state_dict())
    assert not again.statement.covered and torch.equal(again(x), tuned(x))
    narrow = stack.to_torch().float()
    assert not narrow.statement.covered and "float32" in str(narrow.statement)
    assert (narrow(x.float()) - plain(x)).abs().max() < 1e-3 and narrow(x.float()).dtype == torch.float32


def test_a_tanh_network_of_torch_has_two_tokens_per_unit():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    made = ma.compile(net, {"x1": (-1, 1), "x2": (-1, 1), "x3": (0, 2)}, error=1e-6, layers="auto")
    assert (made.layers, made.tokens) == (2, 24) and made.check().passed
    x = made.box.sample(100, np.random.default_rng(0))
    assert np.abs(made(x) - net(torch.tensor(x)).detach().numpy()[:, 0]).max() <= made.bound + 1e-12


def test_a_query_has_the_same_bits_alone_in_a_batch_and_on_several_threads(stack, monkeypatch):
    x = stack.box.sample(3000, np.random.default_rng(5))
    whole = stack(x)
    assert np.array_equal(whole, stack.values(x)[-1]) and whole[7] == stack(x[7])
    monkeypatch.setattr(evaluate, "LEAST", 256)
    monkeypatch.setattr(evaluate, "CACHED", 1)
    monkeypatch.setattr(parallel, "SHARE", 1)
    assert parallel.shares(len(x), 10**9, 3) == 3
    for threads in (1, 3):
        assert np.array_equal(stack(x, threads=threads), whole)
    apart = [x.T[i] for i in range(4)]  # node after node, each by its own call
    for node in stack.plan.nodes:
        rows = [np.ldexp(row(apart), -s) for row, s in zip(node.maps, node.scales, strict=True)]
        apart.append(np.ldexp(stack.heads[node.head](np.stack(rows, axis=1), outside="clamp"), node.lift))
    assert np.array_equal(stack.plan.result(apart), whole)


@pytest.mark.parametrize("text", ["x + 2*y - pi*z", "3.5", "w"])
@pytest.mark.parametrize("layers", ["auto", 4])
def test_an_affine_formula_is_one_layer(text, layers):
    made = ma.compile(text, FOUR, error=1e-6, layers=layers)
    assert isinstance(made, ma.Compiled) and made.check().passed
    with pytest.raises(Refused):
        ma.compile(f"1e20*x + {text}", FOUR, error=1e-6, layers=layers)


def test_the_time_of_a_stack_is_that_of_its_heads_and_what_is_proved_by_then_is_kept(monkeypatch):
    plain, made, late, done = stack_search.one_layer, stack_search.made, [], []

    def one(request, *rest):
        found = plain(request, *rest)
        if late:
            monkeypatch.setattr(deadline.time, "monotonic", lambda: late[0])  # the first head took all the time
        return found

    def cutting(*given):
        done.append(given)
        if len(done) != 1:
            raise OutOfTime
        return made(*given)

    monkeypatch.setattr(stack_search, "one_layer", one)
    monkeypatch.setattr(stack_search, "made", cutting)
    monkeypatch.setattr(stack_search, "WORTH", 1e3)
    monkeypatch.setattr(stack_search, "_tokens", lambda heads: 1e9)
    text, ask = "x*y*w/((x - 3)**2 + (z - 2)**2)", {"error": 1e-3, "layers": 9, "run": ma.Run(max_seconds=500)}
    stack = ma.compile(text, FOUR, **ask)
    assert "was over" in stack.tried[-1] and stack.bound <= 1e-3 and "a smaller stack may exist" in stack.explain()
    with pytest.raises(Refused, match=r"no stack is proved to 0\.001 yet: no heads of one of"):
        ma.compile(text, FOUR, **ask)
    done.clear()
    late.append(deadline.time.monotonic() + 600)
    with pytest.raises(Refused, match=r"no stack is proved to 0\.001 yet: 1 head of one of"):
        ma.compile(text, FOUR, **ask)


def test_a_cutting_whose_identity_the_checker_does_not_show_is_left_out(monkeypatch):
    plain, seen = stack_search.doubt_identity, []

    def doubt(plan, target):
        seen.append(plan)
        if len(seen) == 1:
            raise NotProved("not shown.")
        plain(plan, target)

    monkeypatch.setattr(stack_search, "doubt_identity", doubt)
    monkeypatch.setattr(stack_search, "WORTH", 1e3)
    made = ma.compile("x*y*w/((x - 3)**2 + (z - 2)**2)", FOUR, error=1e-3, layers=9)
    assert made.tried[0].endswith("not shown.") and made.check().passed
