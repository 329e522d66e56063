"""Norms under noise: do the norms of W_K and W_Q fall as the training images get noisier, and is blur the reason?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Row, Unit
from maxaffine.lab.norms_judgement import seeds_of, table, verdict

if TYPE_CHECKING:
    from maxaffine.lab.noised_images import Images
    from maxaffine.lab.training import Trainer

Array = NDArray[np.float64]

VARIANTS = {
    "primary": "raw pixels in [0, 1], noise drawn once per image, Adam without weight decay",
    "c1": "control C1: inputs divided by sqrt(1 + sigma^2 dim / E|x|^2), so that noise does not make them larger",
    "c4": "control C4: labels flipped at the ratio of the level, clean inputs",
    "c3": "control C3: W_V, W_O and the feed-forward net frozen at the sigma = 0 solution; W_Q, W_K trained from the start again",
    "redrawn": "noise redrawn each epoch",
    "adamw": "AdamW with weight decay 0.01 on every weight",
    "standardised": "pixels standardised channel by channel with clean training statistics, noise added afterwards",
    "c5": "control C5: the dictionary task, where the best inverse temperature is 1 / sigma^2",
}


def levels_of(parameters: Parameters) -> Array:
    """The noise levels: 0 to `highest` in equal steps."""
    return np.linspace(0.0, float(parameters["highest"]), int(parameters["levels"]))


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One unit per variant, data set and seed; the controls have `control_seeds` seeds at most."""
    found = []
    for variant in VARIANTS:
        if variant not in parameters["variants"]:
            continue
        seeds = seeds_of(variant, parameters)
        for dataset in ("dictionary",) if variant == "c5" else tuple(parameters["datasets"]):
            for seed in range(seeds):
                found.append({"id": f"{variant}-{dataset}-{seed}", "variant": variant, "dataset": dataset, "seed": seed})
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Train all levels of one variant, data set and seed as one stack, and measure every level."""
    from maxaffine.lab.training import matrix_products

    with matrix_products(bool(parameters["tf32"])):
        return _dictionary(unit, parameters, context) if unit["variant"] == "c5" else _images(unit, parameters, context)


def _settings(parameters: Parameters, decay: float) -> Any:
    from maxaffine.lab.training import Training

    return Training(
        int(parameters["epochs"]), int(parameters["batch"]), float(parameters["rate"]), decay, bool(parameters["capture"])
    )


def _load(unit: Unit, parameters: Parameters, context: Context) -> tuple[Images, bool, tuple[int, ...]]:
    from maxaffine.lab.noised_images import prepare

    assert context.data is not None
    images = context.data.load(str(unit["dataset"]))
    count = int(parameters["images"]) or len(images.train_images)
    prepared = prepare(
        str(unit["dataset"]),
        (images.train_images[:count], images.train_labels[:count]),
        (images.test_images[:count], images.test_labels[:count]),
        unit["variant"] == "standardised",
        context.device,
    )
    return prepared, bool(images.synthetic), images.train_images.shape[1:]


def _train(trainer: Trainer, epochs: int, context: Context, noise: Any = None) -> dict[str, Array]:
    """All epochs; the Frobenius norms of W_Q and W_K before the first and after each."""
    from maxaffine.lab.stacked import frobenius

    traces = [[frobenius(trainer.weights[name]) for name in ("query", "key")]]
    for epoch in range(epochs):
        if noise is not None and epoch:
            noise(epoch)
        loss = trainer.epoch(epoch)
        traces.append([frobenius(trainer.weights[name]) for name in ("query", "key")])
        context.report("mean training loss", float(loss.mean()))
    return {name: np.array([trace[i] for trace in traces]) for i, name in enumerate(("query_by_epoch", "key_by_epoch"))}


def _images(unit: Unit, parameters: Parameters, context: Context) -> Result:
    from maxaffine.lab.noised_images import Noise, clean, flipped, noised, scales, shape_of
    from maxaffine.lab.stacked import NAMES, initial_weights, measure, norms, objective, stack
    from maxaffine.lab.training import Trainer

    variant, seed = str(unit["variant"]), int(unit["seed"])
    levels = levels_of(parameters)
    data, synthetic, image = _load(unit, parameters, context)
    shape = shape_of(str(unit["dataset"]), image)
    start = initial_weights(shape, seed)
    weights = stack(start, len(levels), context.device)
    settings = _settings(parameters, 0.01 if variant == "adamw" else 0.0)
    scale = scales(levels, data.energy_per_number) if variant == "c1" else None
    redraw = None
    if variant == "c4":
        import torch

        labels = torch.from_numpy(flipped(data.train_labels.cpu().numpy(), levels, seed)).to(context.device)
        feed = clean(data.train, labels, len(levels), None)
    else:
        noise = Noise(data.train, seed)
        redraw = noise.redraw if variant == "redrawn" else None
        feed = noised(data.train, data.train_labels, noise.tensor, levels, scale)
    trained: tuple[str, ...] = NAMES
    if variant == "c3":
        alone = stack(start, 1, context.device)
        calm = Trainer(alone, objective(alone, clean(data.train, data.train_labels, 1, None)), len(data.train), seed, settings)
        for epoch in range(settings.epochs):
            context.report("training loss without noise", float(calm.epoch(epoch)[0]))
        for name in NAMES[2:]:
            weights[name] = alone[name].detach().expand_as(weights[name]).contiguous()
        trained = NAMES[:2]
    chunk = 1000 if context.device == "cuda" else 200
    before = {**norms(weights), **measure(weights, feed, min(len(data.train), 2000), chunk)}
    trainer = Trainer(weights, objective(weights, feed), len(data.train), seed, settings, trained)
    traces = _train(trainer, settings.epochs, context, redraw)
    seen = measure(weights, feed, len(data.train), chunk)
    test = measure(weights, clean(data.test, data.test_labels, len(levels), scale), len(data.test), chunk)
    after = norms(weights)
    values = {
        **after,
        **{f"{name}_ratio": after[name] / before[name] for name in ("query_frobenius", "key_frobenius", "product_frobenius")},
        **{f"train_{name}": column for name, column in seen.items()},
        **{f"start_{name}": before[name] for name in ("logit_std", "entropy")},
        **{f"test_{name}": column for name, column in test.items()},
    }
    facts = {
        "synthetic": synthetic,
        "captured": trainer.captured,
        "train_images": len(data.train),
        "test_images": len(data.test),
        "parameters_per_level": sum(w.size for w in start.values()),
    }
    return Result({**facts, "sigma": _plain(levels), **_columns(values)}, traces)


def _dictionary(unit: Unit, parameters: Parameters, context: Context) -> Result:
    from maxaffine.lab.dictionary import Task, dictionary, measure, start
    from maxaffine.lab.stacked import norms
    from maxaffine.lab.training import Trainer

    seed = int(unit["seed"])
    levels = levels_of(parameters)
    book = dictionary(int(parameters["entries"]), 2, seed)
    samples = int(parameters["images"]) or 60_000
    task = Task(book, levels, samples, seed, context.device)
    weights = start(book, 8, len(levels), seed, context.device)
    before = norms(weights)
    trainer = Trainer(weights, task.objective(weights), samples, seed, _settings(parameters, 0.0))
    traces = _train(trainer, int(parameters["epochs"]), context, task.draw)
    task.draw(1_000_000)
    after = norms(weights)
    values = {
        **after,
        **{f"{name}_ratio": after[name] / before[name] for name in after},
        **{f"train_{name}": column for name, column in measure(weights, task).items()},
    }
    facts = {"synthetic": False, "captured": trainer.captured, "train_images": samples}
    return Result({**facts, "sigma": _plain(levels), **_columns(values)}, traces)


def _plain(column: Array) -> list[float]:
    """Eight digits, more than float32 training decides."""
    return [float(f"{value:.8g}") for value in column]


def _columns(values: Mapping[str, Array]) -> dict[str, list[float]]:
    return {name: _plain(column) for name, column in values.items()}


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """The figure: norms against noise, and what the controls leave of it."""
    from maxaffine.lab.norms_figure import draw as paint

    paint(results, parameters, path)


PROTOCOL = """\
**Open in the paper.** Its body adds "the coefficient multiplying the standard Gaussian noise", 0 to 0.72 by 0.03, to the
images; its caption speaks of an "injected label-noise ratio". Input noise is taken as meant (primary), label flips are
control C4. Tokenisation, widths, optimiser, batch, epochs, seeds, pixel scaling and the kind of norm are not given there and
were chosen here before the first run.

**Data.** The official training sets of MNIST, Fashion-MNIST (60,000) and CIFAR-10 (50,000), all images; the official test
sets for clean accuracy only. Pixels in [0, 1]; x~ = x + sigma xi without clipping, xi standard normal, drawn once per image
from the seed and shared by all 25 levels.

**Model.** Tokens are patches, 7 x 7 (16 tokens of 49 numbers; CIFAR-10: 4 x 4 x 3, 64 tokens of 48). Q, K, V = W_Q T, W_K T,
W_V T with 64 rows and no bias, A = softmax(K^T Q / 8) over keys, O = W_O V A, then Linear - ReLU - Linear to 10 classes, 128
wide (MNIST), 256 (Fashion-MNIST) or 512 (CIFAR-10). No positional code (the flattening keeps the order), no residual, no
layer norm. Cross-entropy.

**Training.** Adam (0.9, 0.999), learning rate 1e-3, constant, no weight decay, batches of 256, 20 epochs, a new order each
epoch with the incomplete last batch left out. Xavier-uniform start, zero biases. For one seed the start, the batch order and
the noise are the same at all levels; 25 levels are trained as one stack whose members never see each other. Float32; on a GPU
TensorFloat-32 products where the parameter `tf32` is true.

**Measured at the end**, per data set, level and seed: Frobenius and spectral norms of W_Q and W_K, |W_K^T W_Q|_F, ratios to
the start, mean entropy of attention and the standard deviation of its logits over keys (both on the noised training images
and on clean test images), training loss and accuracy, clean test accuracy. Norms after every epoch are kept as tensors.

**Variants.** `redrawn`: noise drawn anew each epoch. `adamw`: decoupled weight decay 0.01 on every weight. `standardised`:
channel-wise standardised pixels. `c1`: inputs divided by sqrt(1 + sigma^2 dim / E|x|^2), one factor per level, also in the
clean test. C2 is the standard deviation of logits, reported everywhere. `c3`: W_V, W_O and the feed-forward net frozen at
what training without noise reached, W_Q and W_K trained again from their start. `c4`: labels replaced by another class,
uniformly, with probability 0 to 0.72, clean inputs. `c5`: a dictionary of 64 entries in the plane, where the best inverse
temperature is 1 / sigma^2, trained by the same Adam for as many steps on fresh samples; only W_Q and W_K are learned.

**On a CPU**: `--set images=10000 --set epochs=5 --seeds 3` (hours for all variants; `--set variants=primary,c1` for the two
that decide).
"""

RULE = """\
Primary run, curves averaged over seeds. `reproduced` if Spearman's correlation of sigma with |W_K|_F and with |W_Q|_F is at
most -0.9 on all three data sets, otherwise `not reproduced`. A reproduced decline counts as a sign of partition blur only if
it survives control C1 in the standard deviation of the attention logits: Spearman at most -0.9 on all three data sets. If it
does not survive there, and in C1 some norm on some data set does not decline either (Spearman above -0.9), the outcome is
`reproduced, but explained by the growth of the inputs under noise`. Synthetic data, missing primary units or missing data
sets: `incomplete`.
"""

EXPERIMENT = Experiment(
    name="norms-under-noise",
    version=1,
    claim="The norms of W_K and W_Q of a trained attention layer fall monotonically as noise is added to its training data, "
    "on MNIST, Fashion-MNIST and CIFAR-10, because noise blurs the partition.",
    paper="arXiv 2504.19901, Appendix B, Figure 2",
    protocol=PROTOCOL,
    rule=RULE,
    parameters={
        "datasets": ["mnist", "fashion-mnist", "cifar10"],
        "variants": list(VARIANTS),
        "seeds": 5,
        "control_seeds": 3,
        "levels": 25,
        "highest": 0.72,
        "images": 0,  # 0: all of them
        "epochs": 20,
        "batch": 256,
        "rate": 1e-3,
        "entries": 64,
        "tf32": True,
        "capture": True,
    },
    quick={"variants": ["primary", "c1", "c4", "c5"], "seeds": 1, "control_seeds": 1, "levels": 5, "images": 2000, "epochs": 2},
    units=units,
    run=run,
    verdict=verdict,
    draw=draw,
    table=table,
    datasets=("mnist", "fashion-mnist", "cifar10"),
    splits="official training sets for training, official test sets for clean accuracy alone; `images` keeps the first ones "
    "of each; nothing is tuned, so nothing is held out",
)
