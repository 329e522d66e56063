"""Trained heads as partitions: numbers of a head, checkpoints of strangers, and the command."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

import maxaffine as ma
from maxaffine.core.errors import BadInput
from maxaffine.inspection.model import inspect_model
from maxaffine.inspection.transformer import Model
from maxaffine.inspection.weights import read_weights
from maxaffine.report.diagnosis import diagnose, softmax

torch = pytest.importorskip("torch")
F = torch.nn.functional


def bert(folder: Path, rng: np.random.Generator, width: int = 16, layers: int = 2, prefix: str = "", **config: object) -> Path:
    def made(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    tensors = {"embeddings.word_embeddings.weight": made(40, width), "embeddings.position_embeddings.weight": made(12, width),
               "embeddings.token_type_embeddings.weight": made(2, width)}  # fmt: skip
    norms = ["embeddings.LayerNorm"]
    for i in range(layers):
        stem = f"encoder.layer.{i}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            tensors |= {f"{stem}{name}.weight": 3 * made(width, width), f"{stem}{name}.bias": made(width)}
        tensors |= {f"{stem}intermediate.dense.weight": made(24, width), f"{stem}intermediate.dense.bias": made(24)}
        tensors |= {f"{stem}output.dense.weight": made(width, 24), f"{stem}output.dense.bias": made(width)}
        norms += [stem + "attention.output.LayerNorm", stem + "output.LayerNorm"]
    for stem in norms:
        tensors |= {stem + ".weight": 1 + made(width), stem + ".bias": made(width)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({prefix + name: value for name, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 4, "layer_norm_eps": 1e-12, **config}))
    return folder


def gpt2(folder: Path, rng: np.random.Generator, width: int = 16) -> Path:
    def made(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / 4).astype(np.float32)

    tensors = {"transformer.wte.weight": made(40, width), "transformer.wpe.weight": made(12, width)}
    for i in range(2):
        for name, (a, b) in {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width), "mlp.c_fc": (width, 24),
                             "mlp.c_proj": (24, width)}.items():  # fmt: skip
            tensors |= {f"transformer.h.{i}.{name}.weight": made(a, b), f"transformer.h.{i}.{name}.bias": made(b)}
        for name in ("ln_1", "ln_2"):
            tensors |= {f"transformer.h.{i}.{name}.weight": 1 + made(width), f"transformer.h.{i}.{name}.bias": made(width)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"n_head": 4}))
    return folder


def peer(weights, ids, kind: str, prefix: str = ""):  # type: ignore[no-untyped-def]
    """The same forward pass by torch's own layer norm, gelu and scaled dot product attention."""

    def t(name: str):  # type: ignore[no-untyped-def]
        return torch.tensor(weights[prefix + name])

    def norm(x, stem: str, eps: float):  # type: ignore[no-untyped-def]
        return F.layer_norm(x, x.shape[-1:], t(stem + ".weight"), t(stem + ".bias"), eps)

    def attend(q, k, v, causal: bool):  # type: ignore[no-untyped-def]
        q, k, v = (a.reshape(len(ids), 4, -1).transpose(0, 1) for a in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(0, 1).reshape(len(ids), -1)

    if kind == "gpt2":
        h = t("wte.weight")[ids] + t("wpe.weight")[: len(ids)]
        for i in range(2):
            s = f"h.{i}."
            q, k, v = (norm(h, s + "ln_1", 1e-5) @ t(s + "attn.c_attn.weight") + t(s + "attn.c_attn.bias")).chunk(3, dim=-1)
            h = h + attend(q, k, v, True) @ t(s + "attn.c_proj.weight") + t(s + "attn.c_proj.bias")
            inner = F.gelu(norm(h, s + "ln_2", 1e-5) @ t(s + "mlp.c_fc.weight") + t(s + "mlp.c_fc.bias"), approximate="tanh")
            h = h + inner @ t(s + "mlp.c_proj.weight") + t(s + "mlp.c_proj.bias")
        return h.numpy()
    h = t("embeddings.word_embeddings.weight")[ids] + t("embeddings.position_embeddings.weight")[: len(ids)]
    h = norm(h + t("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm", 1e-12)
    for i in range(2):
        s = f"encoder.layer.{i}."
        names = [f"{s}attention.self.{n}" for n in ("query", "key", "value")]
        q, k, v = (F.linear(h, t(n + ".weight"), t(n + ".bias")) for n in names)
        out = F.linear(attend(q, k, v, False), t(s + "attention.output.dense.weight"), t(s + "attention.output.dense.bias"))
        h = norm(h + out, s + "attention.output.LayerNorm", 1e-12)
        inner = F.gelu(F.linear(h, t(s + "intermediate.dense.weight"), t(s + "intermediate.dense.bias")))
        h = norm(h + F.linear(inner, t(s + "output.dense.weight"), t(s + "output.dense.bias")), s + "output.LayerNorm", 1e-12)
    return h.numpy()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_the_forward_pass_is_that_of_torch(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    folder = bert(tmp_path, rng, prefix="bert.") if kind == "bert" else gpt2(tmp_path, rng)
    weights, config = read_weights(folder)
    ids = [5, 9, 2, 17, 33, 9]
    last = list(Model.of(weights, config).inputs([ids]))[-1][1][0]
    expected = peer(weights, ids, kind, "bert." if kind == "bert" else "transformer.")
    assert np.abs(last - expected).max() < 1e-12


def test_a_head_of_a_checkpoint_attends_as_torch_does(tmp_path: Path) -> None:
    folder = bert(tmp_path, np.random.default_rng(0))
    weights, _ = read_weights(folder)
    found = inspect_model(folder, ids=[[5, 9, 2, 17, 33, 9]])
    assert len(found.heads) == 8
    h = next(Model.of(weights, {"num_attention_heads": 4}).inputs([[5, 9, 2, 17, 33, 9]]))[1][0]
    mha = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        stem = "encoder.layer.0.attention.self."
        mha.in_proj_weight.copy_(torch.tensor(np.concatenate([weights[f"{stem}{n}.weight"] for n in ("query", "key", "value")])))
        mha.in_proj_bias.copy_(torch.tensor(np.concatenate([weights[f"{stem}{n}.bias"] for n in ("query", "key", "value")])))
        x = torch.tensor(h)[None]
        expected = mha(x, x, x, average_attn_weights=False)[1][0].numpy()
    for head in range(4):
        assert np.abs(found.heads[head].sequences[0].weights - expected[head]).max() < 1e-12


def test_a_hard_lookup_is_seen_as_one_and_a_uniform_head_is_not() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 8))
    hard = ma.inspect(400 * np.eye(8), np.eye(8), np.eye(8), X)
    soft = ma.inspect(1e-3 * np.eye(8), np.eye(8), np.eye(8), X)
    assert hard.near_hard and hard.hard_error < 0.05 and hard.effective_keys < 1.3
    assert not soft.near_hard and abs(soft.effective_keys - 20) < 0.1 and soft.relative_entropy > 0.999
    assert hard.inverse_temperature > 1e3 * soft.inverse_temperature
    assert {s.name for s in soft.signatures if s.fired} == {"fuzzy"}


def test_the_inverse_temperature_is_proportional_to_the_logits() -> None:
    X = np.random.default_rng(2).normal(size=(3, 12, 6))
    one, two = (ma.inspect(c * np.eye(6), np.eye(6), np.eye(6), X) for c in (0.5, 1.0))
    assert two.inverse_temperature == pytest.approx(2 * one.inverse_temperature)
    assert two.margins[1] == pytest.approx(2 * one.margins[1])


def test_the_slice_of_the_power_diagram_has_the_leader_of_points_in_the_plane() -> None:
    X = np.random.default_rng(5).normal(size=(15, 5))
    found = ma.inspect(np.eye(5), np.eye(5), np.eye(5), X)
    pieces, points, axes = found.slice()
    lifted = X.mean(axis=0) + points @ axes
    whole = found.partition()
    assert np.array_equal(pieces.argmax(points), whole.argmax(lifted))


def test_a_causal_head_sees_no_later_key() -> None:
    found = ma.inspect(np.eye(4), np.eye(4), np.eye(4), np.random.default_rng(0).normal(size=(7, 4)), causal=True)
    assert np.array_equal(np.triu(found.sequences[0].weights, 1), np.zeros((7, 7)))
    assert found.keys == pytest.approx(4.0)


def test_sharpening_by_the_advised_factor_reaches_the_weight() -> None:
    logits = np.random.default_rng(0).normal(size=(200, 30)) * 0.3
    fuzzy = diagnose(logits)[0]
    factor = float(fuzzy.advice.split(" by ")[1].split(" ")[0])
    assert fuzzy.fired and np.median(softmax(factor * logits).max(axis=1)) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dead", {"logits": np.where(np.arange(10) < 5, 0.0, -50.0) * np.ones((8, 1)) + np.eye(8, 10)}),
        ("saturated", {"logits": 1e6 + np.random.default_rng(0).normal(size=(5, 6)), "dtype": "float32"}),
        ("coarse", {"logits": np.eye(6) * 9, "values": np.arange(6.0)[:, None], "error": 0.1}),
        ("outside", {"logits": np.eye(6) * 9, "sites": np.arange(6.0)[:, None] * 5, "queries": np.linspace(0, 1, 6)[:, None]}),
    ],
)
def test_every_signature_fires_where_it_should(name: str, arguments: dict[str, object]) -> None:
    fired = {signature.name for signature in diagnose(**arguments) if signature.fired}  # type: ignore[arg-type]
    assert name in fired


def test_a_sound_head_has_no_signature() -> None:
    places = np.linspace(0, 1, 20)[:, None]
    found = diagnose(-2000 * (places - places.T) ** 2, np.sin(3 * places), sites=places, queries=places)
    assert len(found) == 5 and not any(signature.fired for signature in found)


def shard(path: Path, header: object, data: bytes = b"\0" * 8) -> Path:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_files_of_strangers_are_refused_with_a_sentence(tmp_path: Path) -> None:
    good = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    absurd = {"a": {**good["a"], "shape": [2**39, 2**39]}}
    cases = [
        (tmp_path / "model.bin", "pickle"),
        (tmp_path / "absent.safetensors", "hf download NAME"),
        ("some/model", "hf download some/model config.json model.safetensors tokenizer.json --local-dir model`"),
        (shard(tmp_path / "shape.safetensors", absurd), "does not match"),
        (shard(tmp_path / "past.safetensors", {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}), "does not match"),
        (shard(tmp_path / "json.safetensors", b"{nonsense"), "not JSON"),
        (shard(tmp_path / "foreign.safetensors", good), "not a supported checkpoint"),
        (shard(tmp_path / "rotary.safetensors", {"model.layers.0.self_attn.q_proj.weight": good["a"]}), "rotary"),
    ]
    (tmp_path / "model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    (tmp_path / "renamed.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    cases += [(tmp_path / "renamed.safetensors", "pickle"), (tmp_path / "long.safetensors", "header")]
    for path, words in cases:
        result = CliRunner().invoke(_app(), [str(path), "--tokens", "1,2"])
        assert isinstance(result.exception, BadInput) and words in str(result.exception), (path, result.exception)


def _app():  # type: ignore[no-untyped-def]
    from maxaffine.cli.inspect import app

    return app


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "sub/part.safetensors", 5])
def test_an_index_may_not_leave_its_folder(tmp_path: Path, name: object) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BadInput, match="plain name"):
        read_weights(tmp_path)


def test_a_model_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = bert(tmp_path, np.random.default_rng(0))
    with pytest.raises(BadInput, match="--max-bytes"):
        read_weights(folder, max_bytes=1000)


def test_a_folder_of_pickles_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(BadInput, match="pickles"):
        read_weights(tmp_path)


def test_the_command_reports_all_heads_and_draws_one(tmp_path: Path) -> None:
    folder = bert(tmp_path / "model", np.random.default_rng(0))
    listed = CliRunner().invoke(_app(), [str(folder), "--tokens", "1,2,3,4", "--json", "--figure", str(tmp_path / "all.png")])
    assert listed.exit_code == 0 and len(json.loads(listed.stdout)["heads"]) == 8
    assert (tmp_path / "all.png").stat().st_size > 10_000
    one = CliRunner().invoke(_app(), [str(folder), "--tokens", "1,2,3,4", "--layer", "1", "--head", "3", "--figure",
                                      str(tmp_path / "one.png")])  # fmt: skip
    assert one.exit_code == 0 and "inverse temperature" in one.stdout and (tmp_path / "one.png").stat().st_size > 10_000
    for wrong in (["--layer", "2"], ["--head", "4"]):
        refused = CliRunner().invoke(_app(), [str(folder), "--tokens", "1,2,3,4", *wrong])
        assert isinstance(refused.exception, BadInput) and "does not exist" in str(refused.exception)


@pytest.mark.parametrize("bad", [{"W_K": np.eye(3)}, {"X": np.ones((4, 3))}, {"X": np.full((4, 4), np.nan)}, {"b_Q": np.ones(3)}])
def test_shapes_that_do_not_belong_together_are_refused(bad: dict[str, object]) -> None:
    given: dict[str, object] = {"W_Q": np.eye(4), "W_K": np.eye(4), "W_V": np.eye(4), "X": np.ones((4, 4)), **bad}
    with pytest.raises(BadInput):
        ma.inspect(**given)  # type: ignore[arg-type]
