"""Image data: formats, packings, damage, synthetic stand-ins, and downloads from a server that misbehaves."""

import gzip
import hashlib
import io
import json
import lzma
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from maxaffine.cli.app import main
from maxaffine.core.errors import BadInput, Refused
from maxaffine.lab.data import DataSource, catalogue, choose, describe, download, files, locate
from maxaffine.lab.data.catalogue import DATASETS, Download

TOYS = Path(__file__).with_name("toys")

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = DATASETS["mnist"].content
*CIFAR_TRAIN, CIFAR_TEST = DATASETS["cifar10"].content


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No data but what a test makes."""
    monkeypatch.delenv("MAXAFFINE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(TOYS))


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def tiny(name, seed=0):
    """The files of a data set of 30 training and 10 test images, and its arrays."""
    rng = np.random.default_rng(seed)
    shape = DATASETS[name].shape
    train, test = (rng.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (30, 10))
    train_labels, test_labels = (rng.integers(0, 10, n, dtype=np.uint8) for n in (30, 10))
    if name != "cifar10":
        content = {
            TRAIN_IMAGES: idx(train[..., 0]), TRAIN_LABELS: idx(train_labels),
            TEST_IMAGES: idx(test[..., 0]), TEST_LABELS: idx(test_labels),
        }  # fmt: skip
    else:
        content = {file: batch(train[6 * i : 6 * i + 6], train_labels[6 * i : 6 * i + 6]) for i, file in enumerate(CIFAR_TRAIN)}
        content[CIFAR_TEST] = batch(test, test_labels)
    return content, (train, train_labels, test, test_labels)


def batch(images, labels):
    return b"".join(bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels, strict=True))


PACKINGS = {
    "plain": lambda folder, name, data: (folder / name).write_bytes(data),
    "gz": lambda folder, name, data: (folder / f"{name}.gz").write_bytes(gzip.compress(data)),
    "xz": lambda folder, name, data: (folder / f"{name}.xz").write_bytes(lzma.compress(data)),
}


def lay_out(folder, name, packing="gz", seed=0):
    home = folder / name
    home.mkdir(parents=True)
    content, arrays = tiny(name, seed)
    if packing == "archive":
        (home / "cifar-10-binary.tar.gz").write_bytes(archive(content))
    else:
        for file, data in content.items():
            PACKINGS[packing](home, file, data)
    return arrays


def archive(content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for file, data in content.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "packing"),
    [(name, packing) for name in DATASETS for packing in PACKINGS] + [("cifar10", "archive")],
)
def test_images_and_labels_come_back_from_every_packing(name, packing, tmp_path):
    arrays = lay_out(tmp_path, name, packing)
    found = locate([name], tmp_path).load(name)
    for got, wanted in zip((found.train_images, found.train_labels, found.test_images, found.test_labels), arrays, strict=True):
        assert got.dtype == np.uint8 and np.array_equal(got, wanted)
    assert found.name == name and not found.synthetic and not found.published
    content, _ = tiny(name)
    assert found.checksums == {file: hashlib.sha256(data).hexdigest() for file, data in content.items()}


def test_the_catalogue_recognises_the_published_files(tmp_path, monkeypatch):
    lay_out(tmp_path, "mnist")
    content, _ = tiny("mnist")
    sums = {file: hashlib.sha256(data).hexdigest() for file, data in content.items()}
    monkeypatch.setitem(DATASETS, "mnist", catalogue.DataSet(**{**DATASETS["mnist"].__dict__, "content": sums}))
    source = DataSource(str(tmp_path))
    assert source.load("mnist").published
    assert describe(source, ["mnist"])["mnist"]["origin"] == "published files"


def damaged(folder, change):
    lay_out(folder, "mnist", "plain")
    path = folder / "mnist" / TRAIN_IMAGES
    path.write_bytes(change(path.read_bytes()))
    return folder


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data[:-1], "holds 23,519"),
        (lambda data: b"\x01" + data[1:], "is not an idx file"),
        (lambda data: data[:3], "is not an idx file"),
        (lambda data: idx(np.zeros((30, 28, 27), np.uint8)), "28 x 27 x 1"),
        (lambda data: idx(np.zeros((29, 28, 28), np.uint8)), "29 training images and 30 labels"),
    ],
)
def test_a_damaged_idx_file_is_a_sentence(change, sentence, tmp_path):
    with pytest.raises(BadInput, match=sentence):
        DataSource(str(damaged(tmp_path, change))).load("mnist")


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_cut_packed_file_is_a_sentence(suffix, pack, tmp_path):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(pack(bytes(range(256)) * 40)[:-12])
    with pytest.raises(BadInput, match="cut short or damaged"):
        files.unpack(path, "x")


def test_a_cut_batch_and_a_foreign_archive_are_sentences(tmp_path):
    with pytest.raises(BadInput, match="whole records"):
        files.cifar(bytes(3072), "batch")
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(archive({"other.bin": b"x"}))
    with pytest.raises(BadInput, match="has no member"):
        files.unpack(path, CIFAR_TEST)


def test_a_label_above_nine_is_refused(tmp_path):
    lay_out(tmp_path, "mnist", "plain")
    (tmp_path / "mnist" / TEST_LABELS).write_bytes(idx(np.full(10, 11, np.uint8)))
    with pytest.raises(BadInput, match="test label 11"):
        DataSource(str(tmp_path)).load("mnist")


def test_data_are_looked_for_where_the_user_says_then_the_variable_then_the_cache(tmp_path, monkeypatch):
    assert locate(["mnist"]) is None
    lay_out(tmp_path / "cache" / "maxaffine" / "data", "mnist")
    assert locate(["mnist"]).folder == str(tmp_path / "cache" / "maxaffine" / "data")
    lay_out(tmp_path / "variable", "mnist")
    monkeypatch.setenv("MAXAFFINE_DATA", str(tmp_path / "variable"))
    assert locate(["mnist"]).folder == str(tmp_path / "variable")
    lay_out(tmp_path / "given", "mnist")
    assert locate(["mnist"], tmp_path / "given").folder == str(tmp_path / "given")
    with pytest.raises(BadInput, match=r"`--data` .* lacks cifar10: CIFAR-10 is read from cifar10/"):
        locate(["mnist", "cifar10"], tmp_path / "given")
    with pytest.raises(BadInput, match="is not a folder"):
        locate(["mnist"], tmp_path / "nowhere")


def test_a_quick_run_makes_data_up_and_says_so_and_a_full_run_does_neither():
    heard = []
    source = choose(["mnist"], None, True, heard.append, download=lambda names: pytest.fail("a quick run downloaded"))
    assert source.synthetic and len(heard) == 1 and heard[0].startswith("SYNTHETIC DATA: mnist")
    with pytest.raises(Refused, match=r"needs MNIST, CIFAR-10, .* --download to fetch and verify them \(182 MB\)"):
        choose(["mnist", "cifar10"], None, False, heard.append)


@pytest.mark.parametrize("name", DATASETS)
def test_synthetic_images_are_of_the_format_of_their_set_and_can_be_learned(name):
    found, again = DataSource(None).load(name), DataSource(None).load(name)
    assert found.synthetic and not found.published and found.train_images.dtype == np.uint8
    assert found.train_images.shape == (4000, *DATASETS[name].shape) and found.checksums == again.checksums
    train, test = (images.reshape(len(images), -1) / 255.0 for images in (found.train_images, found.test_images))
    centres = np.stack([train[found.train_labels == k].mean(axis=0) for k in range(10)])
    nearest = ((centres**2).sum(axis=1) - 2 * test @ centres.T).argmin(axis=1)
    assert 0.6 < np.mean(nearest == found.test_labels) <= 1.0
    assert len(set(np.unique(found.train_labels))) == 10


def test_a_quick_run_without_data_says_synthetic_in_output_figure_and_record(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["lab", "run", "lab_toy:LOOKING", "--quick", "--out", str(folder)]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("SYNTHETIC DATA") == 2 and "SYNTHETIC data" in shown.out
    record = json.loads((folder / "record.json").read_text())
    assert record["synthetic"] is True
    assert {entry["origin"] for entry in record["card"]["open data"].values()} == {"SYNTHETIC"}
    from matplotlib.image import imread

    stamped = imread(folder / "figure.png")
    red = np.all(np.abs(stamped[:10, :, :3] - [0xB0 / 255, 0, 0x20 / 255]) < 0.02, axis=-1)
    assert 0.5 < red.mean() < 1.0 and red[:, :5].all() and red[:, -5:].all()  # a banner whose words are not cut off
    assert main(["lab", "keep", str(folder), "--results", str(tmp_path / "results")]) == 2
    assert "used synthetic data" in capsys.readouterr().err


def test_real_and_synthetic_data_are_never_mixed_in_one_folder(tmp_path, capsys):
    for name in ("mnist", "cifar10"):
        lay_out(tmp_path / "data", name)
        lay_out(tmp_path / "other", name, seed=1)
    folder = tmp_path / "run"
    assert main(["lab", "run", "lab_toy:LOOKING", "--data", str(tmp_path / "data"), "--out", str(folder)]) == 0
    record = json.loads((folder / "record.json").read_text())
    assert record["synthetic"] is False and "other files" in record["card"]["open data"]["mnist"]["origin"]
    assert record["card"]["splits"]["available"]["mnist"] == "30 training and 10 test images"
    journal = folder / "results.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    assert main(["lab", "run", "lab_toy:LOOKING", "--data", str(tmp_path / "other"), "--out", str(folder)]) == 2
    assert "the data differ" in capsys.readouterr().err


def test_a_full_run_without_data_offers_the_download(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "run", "lab_toy:LOOKING"]) == 2
    assert "--download" in capsys.readouterr().err


# -- downloads ---------------------------------------------------------------------------------------------------------


@contextmanager
def server(contents, cuts=(), ranges=True):
    """Serve bytes by path; the first answers are cut after that many bytes."""
    left, asked = list(cuts), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Range")))
            if self.path not in contents:
                self.send_error(404)
                return
            data, begin = contents[self.path], 0
            if ranges and self.headers.get("Range"):
                begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            stop = begin + left.pop(0) if left else len(data)
            self.wfile.write(data[begin:stop])
            self.close_connection = True

        def log_message(self, *arguments):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", asked
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


BODY = bytes(range(256)) * 1000


def wanted(base, body=BODY, name="x.bin"):
    return Download(name, f"{base}/x.bin", len(body), hashlib.md5(body, usedforsecurity=False).hexdigest())


def test_a_download_is_verified_kept_and_not_fetched_again(tmp_path):
    with server({"/x.bin": BODY}) as (base, asked):
        path = download.fetch(wanted(base), tmp_path)
        assert path.read_bytes() == BODY and not (tmp_path / "x.bin.part").exists()
        assert download.fetch(wanted(base), tmp_path) == path
    assert len(asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_is_resumed_where_it_stopped(tmp_path, ranges):
    heard = []
    with server({"/x.bin": BODY}, cuts=[100_000, 50_000], ranges=ranges) as (base, asked):
        assert download.fetch(wanted(base), tmp_path, heard.append).read_bytes() == BODY
    assert asked[1] == ("/x.bin", "bytes=100000-") and len(asked) == 3
    assert (asked[2][1] == "bytes=150000-") == ranges
    assert "cut after 100,000 of 256,000 bytes" in heard[0]


def test_a_download_stopped_by_the_user_goes_on_in_the_next_run(tmp_path):
    (tmp_path / "x.bin.part").write_bytes(BODY[:70_000])
    with server({"/x.bin": BODY}) as (base, asked):
        assert download.fetch(wanted(base), tmp_path).read_bytes() == BODY
    assert asked == [("/x.bin", "bytes=70000-")]


def test_a_wrong_checksum_throws_the_download_away(tmp_path):
    other = bytes(len(BODY))
    with server({"/x.bin": other}) as (base, _), pytest.raises(Refused, match="not the published"):
        download.fetch(wanted(base), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_part_is_thrown_away_and_the_next_run_starts_anew(tmp_path):
    (tmp_path / "x.bin.part").write_bytes(bytes(70_000))
    with server({"/x.bin": BODY}) as (base, _):
        with pytest.raises(Refused, match="not the published"):
            download.fetch(wanted(base), tmp_path)
        assert download.fetch(wanted(base), tmp_path).read_bytes() == BODY


def test_a_file_longer_than_published_is_refused(tmp_path):
    with server({"/x.bin": BODY + b"more"}) as (base, _), pytest.raises(Refused, match="more than the published"):
        download.fetch(wanted(base), tmp_path)


def test_a_server_that_keeps_cutting_or_is_not_there_is_given_up_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    with server({"/x.bin": BODY}, cuts=[10_000] + [0] * 20) as (base, asked):
        with pytest.raises(Refused, match=r"10,000 of 256,000 bytes are kept; the same command resumes it"):
            download.fetch(wanted(base), tmp_path)
        assert len(asked) == 1 + download.TRIES
    with server({}) as (base, asked):
        with pytest.raises(Refused, match="cannot download"):
            download.fetch(wanted(base), tmp_path)
        assert len(asked) == 1
    with pytest.raises(Refused, match="cannot download"):
        download.fetch(wanted(base), tmp_path)  # nobody listens there any more


def test_a_run_with_download_fetches_what_is_missing_into_the_cache(tmp_path, monkeypatch, capsys):
    contents, _ = tiny("mnist")
    packed = {f"/mnist/{file}.gz": gzip.compress(data) for file, data in contents.items()}
    entries = tuple(
        Download(f"{f}.gz", "http://unused", len(d), hashlib.md5(d, usedforsecurity=False).hexdigest())
        for f, d in ((path.split("/")[2].removesuffix(".gz"), data) for path, data in packed.items())
    )
    monkeypatch.setitem(DATASETS, "mnist", catalogue.DataSet(**{**DATASETS["mnist"].__dict__, "downloads": entries}))
    with server(packed) as (base, asked):
        monkeypatch.setenv("MAXAFFINE_DATA_URL", base)
        command = ["lab", "run", "lab_toy:LOOKING", "--set", "datasets=mnist", "--download", "--out", str(tmp_path / "run")]
        assert main(command) == 0, capsys.readouterr().err
    assert len(asked) == 4
    assert locate(["mnist"]).folder == str(tmp_path / "cache" / "maxaffine" / "data")
