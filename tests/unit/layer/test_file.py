"""Files: the same bytes for the same input, whole or not at all, and every foreign or broken file refused with a sentence."""

import errno
import json
import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import maxaffine as ma
from maxaffine.core import container, records
from maxaffine.core.container import HEADER_LIMIT, container_bytes, content_hash, read_container
from maxaffine.core.errors import BadInput

BOX = ma.Box(x=(-1, 1))


@pytest.fixture(scope="module")
def layer():
    return ma.compile("sin(3*x), x", BOX, error=0.3, method="lookup")


@pytest.fixture
def path(layer, tmp_path):
    where = tmp_path / "layer.safetensors"
    layer.save(where)
    return where


def refused(path):
    """The sentence with which both readers refuse the file, and nothing but a sentence."""
    with pytest.raises(BadInput) as one:
        ma.load(path)
    with pytest.raises(BadInput) as two:
        read_container(path)
    assert str(one.value) == str(two.value)
    assert str(one.value).endswith(".")
    return str(one.value)


def parts(data):
    """Header and tensor bytes of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


# -- writing


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_same_input_gives_the_same_bytes(dtype, tmp_path):
    first, second = (ma.compile("sin(3*x), x", BOX, error=0.3, dtype=dtype, method="lookup") for _ in range(2))
    assert first.to_bytes() == second.to_bytes()
    first.save(tmp_path / "a.safetensors")
    ma.load(tmp_path / "a.safetensors").save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes() == first.to_bytes()


def test_a_loaded_layer_says_and_computes_the_same(layer, path):
    again = ma.load(path)
    x = np.linspace(-1, 1, 101)
    assert np.array_equal(again(x), layer(x))
    assert (again.tokens, again.bound, again.error, again.dtype) == (layer.tokens, layer.bound, layer.error, layer.dtype)
    assert again.certificate == layer.certificate
    assert again.observed == layer.observed
    assert again.target.text == layer.target.text
    assert again.box == layer.box
    assert again.file == str(path)


def test_a_file_of_a_callable_loads_and_its_layer_runs(tmp_path):
    made = ma.compile(lambda X: np.sin(X[:, 0]), BOX, error=0.2, trace=False, lipschitz=[1.0], method="lookup")
    made.save(tmp_path / "f.safetensors")
    again = ma.load(tmp_path / "f.safetensors")
    assert np.array_equal(again([0.1, 0.2]), made([0.1, 0.2]))
    assert again.certificate.kind == "proved"


def test_two_input_and_sequence_layers_survive_their_files(tmp_path):
    boxes = ma.Box.sequence(d=1, n=2, low=-1, high=1), ma.Box([-1.0], [1.0])
    target = ma.Target.of("x11*x, x12", boxes, output_shape=(1, 2))
    made = ma.compile(target, error=0.9, method="lookup")
    made.save(tmp_path / "f.safetensors")
    again = ma.load(tmp_path / "f.safetensors")
    q, k = np.array([[[0.1, -0.3]], [[0.5, 0.9]]]), np.array([[0.2], [0.7]])
    assert np.array_equal(again(q, k), made(q, k))
    assert again(q, k).shape == (2, 1, 2)


def test_the_record_holds_no_time_and_no_path(path, tmp_path):
    text = json.dumps(read_container(path)[1])
    assert str(tmp_path) not in text
    assert "seconds" not in text


def test_a_failure_in_the_middle_leaves_the_old_file_and_no_other(layer, path, monkeypatch):
    before = path.read_bytes()

    def half(where: Path, data: bytes) -> None:
        with where.open("wb") as handle:
            handle.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", half)
    other = ma.compile("cos(x)", BOX, error=0.3, method="lookup")
    with pytest.raises(BadInput, match="No space left"):
        other.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_an_interruption_in_the_middle_leaves_the_old_file_and_no_other(layer, path, monkeypatch, failure):
    before = path.read_bytes()

    def half(where: Path, data: bytes) -> None:
        with where.open("wb") as handle:
            handle.write(data[:10])
        raise failure

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(failure):
        layer.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_failing_rename_or_flush_leaves_the_old_file_and_no_other(layer, path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.EIO, "Input/output error")

    for name in ("fsync",):
        monkeypatch.setattr(records.os, name, full)
        with pytest.raises(BadInput, match="nothing was changed"):
            layer.save(path)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match="nothing was changed"):
        layer.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("where", ["missing/layer.safetensors", "."])
def test_a_folder_that_is_missing_or_stands_in_the_way_is_named(layer, tmp_path, where):
    with pytest.raises(BadInput, match="folder"):
        layer.save(tmp_path / where)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(layer, tmp_path):
    with pytest.raises(BadInput, match="cannot write"):
        layer.save("/proc/layer.safetensors")


# -- reading


def test_a_missing_file_a_folder_and_a_device_are_refused(tmp_path):
    assert "cannot read" in refused(tmp_path / "nothing.safetensors")
    assert "folder" in refused(tmp_path)
    assert "not a safetensors file" in refused("/dev/null")


def test_a_file_cut_anywhere_is_refused(path):
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    cuts = sorted({0, 1, 7, 8, 9, len(data) - 1, *rng.integers(0, len(data), size=60).tolist()})
    for cut in cuts:
        path.write_bytes(data[:cut])
        refused(path)
    path.write_bytes(data + b"\0")
    assert "cut short or padded" in refused(path)


def test_a_flipped_bit_anywhere_is_refused(path):
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in {*range(8), *rng.integers(0, len(data), size=250).tolist()}:
        broken = bytearray(data)
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        try:
            tensors, record = read_container(path)
        except BadInput as sentence:
            assert str(sentence).endswith(".")
            continue
        # A space in the header may change without changing what it says.
        assert content_hash(tensors, record) == record["hash"]
        before = container_bytes(tensors, record)
        assert parts(before)[1] == parts(data)[1]


def test_random_bytes_and_other_formats_are_refused(tmp_path):
    rng = np.random.default_rng(2)
    path = tmp_path / "junk"
    for size in (0, 1, 8, 9, 100, 5000):
        path.write_bytes(rng.bytes(size))
        refused(path)
    for junk in (b"PK\x03\x04" + b"\0" * 100, b"\x93NUMPY\x01\0v\0{}", b"\x80\x04\x95" + b"x" * 50, b"{}", b"x,y\n1,2\n" * 9):
        path.write_bytes(junk)
        refused(path)


def test_a_safetensors_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"weight": np.zeros((3, 3))}))
    assert "something else" in refused(path)
    path.write_bytes(save({"weight": np.zeros((3, 3))}, metadata={"format": "pt"}))
    assert "something else" in refused(path)
    path.write_bytes(save({"weight": np.zeros(3, dtype=np.int64)}))
    assert "does not write" in refused(path)
    path.write_bytes(save({"a": np.zeros(3)}, metadata={"maxaffine": "not json"}))
    assert "not JSON" in refused(path)
    path.write_bytes(save({"a": np.zeros(3)}, metadata={"maxaffine": "{}"}))
    assert "record" in refused(path)
    path.write_bytes(save({"a": np.zeros(3)}, metadata={"maxaffine": '{"hash":"x","format":99}'}))
    assert "format 99" in refused(path)


@pytest.mark.parametrize("length", [HEADER_LIMIT + 1, 2**40, 2**63, 2**64 - 1])
def test_an_absurd_header_length_is_refused_before_anything_is_read(path, length):
    data = path.read_bytes()
    path.write_bytes(struct.pack("<Q", length) + data[8:])
    assert "header" in refused(path)


BOMBS = {
    "negative offset": {"dtype": "F64", "shape": [1], "data_offsets": [-8, 0]},
    "backward offsets": {"dtype": "F64", "shape": [1], "data_offsets": [8, 0]},
    "absurd shape": {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 8]},
    "negative shape": {"dtype": "F64", "shape": [-1, -1], "data_offsets": [0, 8]},
    "shape that wraps": {"dtype": "F64", "shape": [2**32, 2**32], "data_offsets": [0, 0]},
    "empty shape entry": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]},
    "float shape": {"dtype": "F64", "shape": [1.0], "data_offsets": [0, 8]},
    "bool offsets": {"dtype": "F64", "shape": [1], "data_offsets": [False, 8]},
    "three offsets": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8, 16]},
    "no offsets": {"dtype": "F64", "shape": [1]},
    "unknown dtype": {"dtype": "F128", "shape": [1], "data_offsets": [0, 16]},
    "dtype that is no text": {"dtype": ["F64"], "shape": [1], "data_offsets": [0, 8]},
    "shape that is no list": {"dtype": "F64", "shape": 1, "data_offsets": [0, 8]},
    "not an object": 5,
    "null": None,
    "deep shape": {"dtype": "F64", "shape": [1] * 1000, "data_offsets": [0, 8]},
    "beyond the end": {"dtype": "F64", "shape": [10**6], "data_offsets": [0, 8 * 10**6]},
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_that_lies_about_its_tensors_is_refused(path, name):
    header, body = parts(path.read_bytes())
    path.write_bytes(join({**header, "values": BOMBS[name]}, body))
    refused(path)
    path.write_bytes(join({"__metadata__": header["__metadata__"], "values": BOMBS[name]}, b"\0" * 8))
    refused(path)


def test_names_that_are_doubled_odd_or_too_many_are_refused(path):
    header, body = parts(path.read_bytes())
    text = json.dumps(header)
    doubled = text[:-1] + ', "values": ' + json.dumps(header["values"]) + "}"
    path.write_bytes(join(doubled.encode(), body))
    refused(path)
    for name in ("../../etc/passwd", "", "a" * 1000, "Values", "keys.0.slopes.x.y", "\u0000", "__proto__"):
        entry = {"dtype": "F64", "shape": [1], "data_offsets": [len(body), len(body) + 8]}
        path.write_bytes(join({**header, name: entry}, body + b"\0" * 8))
        refused(path)
    many = {f"t.{i}": {"dtype": "F64", "shape": [1], "data_offsets": [8 * i, 8 * i + 8]} for i in range(300)}
    path.write_bytes(join({"__metadata__": header["__metadata__"], **many}, b"\0" * 2400))
    refused(path)


def test_overlapping_tensors_and_holes_between_them_are_refused(path):
    header, body = parts(path.read_bytes())
    names = [name for name in header if name != "__metadata__"]
    first, second = sorted(names, key=lambda name: header[name]["data_offsets"])[:2]
    path.write_bytes(join({**header, second: header[first]}, body))
    refused(path)
    moved = {name: {**header[name], "data_offsets": [at + 8 for at in header[name]["data_offsets"]]} for name in names}
    path.write_bytes(join({**header, **moved}, b"\0" * 8 + body))
    refused(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1, 2]", '"text"', "null", "{" * 5000, '{"a": NaN}', "\xff\xfe"])
def test_a_header_that_is_no_object_is_refused(path, text):
    path.write_bytes(join(text.encode("latin-1"), b""))
    refused(path)


def test_a_record_nested_too_deep_is_refused(path):
    header, body = parts(path.read_bytes())
    header["__metadata__"]["maxaffine"] = "[" * 100_000
    path.write_bytes(join(header, body))
    refused(path)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_even_with_a_sound_hash(layer, path, number):
    tensors, record = layer._record()
    values = np.array(tensors["values"])
    values.reshape(-1)[0] = number
    path.write_bytes(container_bytes({**tensors, "values": values}, record))
    assert "not finite" in refused(path)


def test_an_edited_record_is_refused_by_its_hash(path):
    header, body = parts(path.read_bytes())
    text = header["__metadata__"]["maxaffine"]
    header["__metadata__"]["maxaffine"] = text.replace("sin(3*x)", "sin(2*x)")
    path.write_bytes(join(header, body))
    assert "hash" in refused(path)


def _rehashed(layer, path, change):
    tensors, record = layer._record()
    record = json.loads(json.dumps(record))
    tensors = dict(tensors)
    change(tensors, record)
    path.write_bytes(container_bytes(tensors, record))
    with pytest.raises(BadInput) as caught:
        ma.load(path)
    return str(caught.value)


REHASHED = {
    "no layer": lambda t, r: r.pop("layer"),
    "no target": lambda t, r: r.pop("target"),
    "no certificate": lambda t, r: r.pop("certificate"),
    "an unknown dtype": lambda t, r: r["layer"].update(dtype="float8"),
    "another dtype": lambda t, r: r["layer"].update(dtype="float32"),
    "a sharpness of zero": lambda t, r: r["layer"].update(sharpness=0.0),
    "a negative sharpness": lambda t, r: r["layer"].update(sharpness=-3.0),
    "a sharpness in words": lambda t, r: r["layer"].update(sharpness="sharp"),
    "inputs that hold no numbers": lambda t, r: r["layer"].update(inputs=[[2, 2]]),
    "inputs in words": lambda t, r: r["layer"].update(inputs="ab"),
    "keys of another kind": lambda t, r: r["layer"].update(keys="listed"),
    "a missing tensor": lambda t, r: t.pop("values"),
    "a surplus tensor": lambda t, r: t.update(more=np.zeros(2)),
    "values of another shape": lambda t, r: t.update(values=np.ascontiguousarray(t["values"][:-1])),
    "keys of another shape": lambda t, r: t.update({"keys.0.slopes": np.ascontiguousarray(t["keys.0.slopes"][:-1])}),
    "a box of another shape": lambda t, r: t.update({"box.low": np.zeros(2)}),
    "an empty box": lambda t, r: t.update({"box.low": np.array(t["box.high"])}),
    "another box": lambda t, r: t.update({"box.low": np.array(t["box.low"]) - 1}),
    "a malformed target": lambda t, r: r["target"].update(text="sin("),
    "an import for a target": lambda t, r: r["target"].update(text='__import__("os")'),
    "a target with another output": lambda t, r: r["target"].update(text="x"),
    "an error in words": lambda t, r: r.update(error="small"),
    "a cost in words": lambda t, r: r.update(cost="much"),
    "an observation that is none": lambda t, r: r.update(observed=None),
}


@pytest.mark.parametrize("name", REHASHED)
def test_a_record_that_was_edited_and_hashed_again_is_refused_where_it_makes_no_layer(layer, path, name):
    assert "does not hold" in _rehashed(layer, path, REHASHED[name])


def test_a_file_over_the_size_limit_is_refused_unread(path, monkeypatch):
    monkeypatch.setattr(container, "FILE_LIMIT", 100)
    refused(path)
