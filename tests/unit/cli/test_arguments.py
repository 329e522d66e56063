"""What users write on the command line: boxes, numbers, sizes, paths, and dashes that are not options."""

import math
from pathlib import Path

import pytest

from maxaffine.cli import arguments
from maxaffine.core.errors import BadInput


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("-.5", -0.5), ("1e3", 1e3), ("pi", math.pi), ("-pi", -math.pi), ("2*pi", 2 * math.pi),
     ("sqrt(2)", math.sqrt(2)), (" 1/4 ", 0.25), ("-2**2", -4.0), ("e", math.e)],
)  # fmt: skip
def test_numbers_are_constant_expressions(text, value):
    assert arguments.constant(text, "`error`") == value


@pytest.mark.parametrize("text", ["", "x", "1,2", "1/0", "sqrt(-1)", "__import__('os')", "1 2", "(", "x" * 200])
def test_what_is_not_a_number_is_named(text):
    with pytest.raises(BadInput, match="`error`"):
        arguments.constant(text, "`error`")


def test_a_box_is_read_by_name():
    box = arguments.box(["x=-pi:pi,y=0:2*pi"])
    assert box.names == ("x", "y")
    assert list(box.low) == [-math.pi, 0.0] and list(box.high) == [math.pi, 2 * math.pi]


def test_several_boxes_are_one_and_edges_may_hold_commas():
    box = arguments.box(["x=0:max(1,2)", "y=-1:1"])
    assert box.names == ("x", "y") and list(box.high) == [2.0, 1.0]


def test_a_range_names_many_variables():
    box = arguments.box(["x1..x20=-1:1,t=0:1"])
    assert box.names == (*(f"x{i}" for i in range(1, 21)), "t")
    assert arguments.box(["layer2_9..layer2_11=0:1"]).names == ("layer2_9", "layer2_10", "layer2_11")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "empty"), (",", "empty"), ("x", "`x`"), ("x=1", "`x=1`"), ("x=0:1:2", "`x=0:1:2`"), ("x=:1", "`x=:1`"),
        ("x=a:1", "'a'"), ("x=0:1,x=0:1", "`x`"), ("x=1:0", "inverted"), ("x=1:1", "empty"), ("x=0:inf", "finite"),
        ("x=nan:1", "finite"), ("2x=0:1", "`2x`"), ("x1..y3=0:1", "x1..y3"), ("x..y=0:1", "x..y"),
        ("x3..x1=0:1", "x3..x1"), ("x1..x10001=0:1", "x1..x10001"), ("x1..x99999999999999999999=0:1", "x1.."), ("=0:1", "``"),
    ],
)  # fmt: skip
def test_a_bad_box_is_refused_by_name(text, named):
    with pytest.raises(BadInput) as failure:
        arguments.box([text])
    assert named in str(failure.value)


def test_lists_of_numbers():
    assert arguments.numbers("1,2*pi, 3", "`lipschitz`") == [1.0, 2 * math.pi, 3.0]
    with pytest.raises(BadInput, match="empty entry"):
        arguments.numbers("1,,2", "`lipschitz`")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("2GiB", 2 << 30), ("500MB", 500_000_000), ("1e9", 10**9), ("1.5 kib", 1536), ("3K", 3072), ("7B", 7)],
)
def test_sizes(text, value):
    assert arguments.size_in_bytes(text, "`max_bytes`") == value


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1parsec", "1e400", "nan", "1.2.3", "1e30"])
def test_bad_sizes_are_named(text):
    with pytest.raises(BadInput, match="`max_bytes`"):
        arguments.size_in_bytes(text, "`max_bytes`")


def test_paths_are_checked_before_any_work(tmp_path: Path):
    good = tmp_path / "f.safetensors"
    assert arguments.output_path(str(good), "--out", (".safetensors",)) == good
    (tmp_path / "folder.safetensors").mkdir()
    for bad in (tmp_path / "f.pt", tmp_path / "none" / "f.safetensors", tmp_path / "folder.safetensors", tmp_path / "f"):
        with pytest.raises(BadInput, match="--out"):
            arguments.output_path(str(bad), "--out", (".safetensors",))


def test_a_target_is_an_expression_with_a_box_or_a_name_of_the_gallery():
    text, box = arguments.target("sin(x)", ["x=0:1"])
    assert text == "sin(x)" and box is not None and box.names == ("x",)
    entry, nowhere = arguments.target("franke", [])
    assert entry.name == "franke" and nowhere is None
    other, where = arguments.target("franke", ["x=0:.5,y=0:.5"])
    assert other.name == "franke" and where is not None
    variable, _ = arguments.target("step", ["step=0:1"])  # a variable of the box comes before the gallery
    assert variable == "step"


@pytest.mark.parametrize(("text", "named"), [("sin(x)", "--box"), ("frnke", "franke"), ("zzzzzz", "maxaffine gallery")])
def test_a_target_without_a_box_is_told_what_it_lacks(text, named):
    with pytest.raises(BadInput) as failure:
        arguments.target(text, [])
    assert text in str(failure.value) and named in str(failure.value)
