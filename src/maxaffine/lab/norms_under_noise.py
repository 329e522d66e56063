"""Norms under noise: do the norms of W_K and W_Q fall as the training images get noisier, and is blur the reason?"""

from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab import trends
from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Unit, sweep
from maxaffine.lab.norms_judgement import draw, seeds_of, table, verdict

VARIANTS = ("primary", "c1", "c4", "c3", "redrawn", "adamw", "standardised", "c5")  # the protocol says what they are


def levels_of(parameters: Parameters) -> Array:
    """The noise levels: 0 to `highest` in equal steps."""
    return np.linspace(0.0, float(parameters["highest"]), int(parameters["levels"]))


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One unit per variant, data set and seed; the controls have `control_seeds` seeds at most."""
    found = []
    for variant in (variant for variant in VARIANTS if variant in parameters["variants"]):
        datasets, seeds = ["dictionary"] if variant == "c5" else parameters["datasets"], range(seeds_of(variant, parameters))
        found += sweep("{variant}-{dataset}-{seed}", variant=[variant], dataset=datasets, seed=seeds)
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


def _load(unit: Unit, parameters: Parameters, context: Context) -> tuple[Any, bool, tuple[int, ...]]:
    from maxaffine.lab.noised_images import prepare

    assert context.data is not None
    images = context.data.load(str(unit["dataset"]))
    count = int(parameters["images"]) or len(images.train_images)
    train = images.train_images[:count], images.train_labels[:count]
    test = images.test_images[:count], images.test_labels[:count]
    prepared = prepare(str(unit["dataset"]), train, test, unit["variant"] == "standardised", context.device)
    return prepared, bool(images.synthetic), images.train_images.shape[1:]


def _train(trainer: Any, epochs: int, context: Context, noise: Any = None) -> dict[str, Array]:
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
    from maxaffine.lab.stacked import initial_weights, measure, norms, objective, stack
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
    trained = list(weights)
    if variant == "c3":
        alone = stack(start, 1, context.device)
        calm = Trainer(alone, objective(alone, clean(data.train, data.train_labels, 1, None)), len(data.train), seed, settings)
        for epoch in range(settings.epochs):
            context.report("training loss without noise", float(calm.epoch(epoch)[0]))
        for name in trained[2:]:
            weights[name] = alone[name].detach().expand_as(weights[name]).contiguous()
        trained = trained[:2]  # W_Q and W_K
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
    return _result(facts, {"sigma": levels, **values}, traces)


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
    return _result(facts, {"sigma": levels, **values}, traces)


def _result(facts: dict[str, Any], columns: dict[str, Array], traces: dict[str, Array]) -> Result:
    return Result({**facts, **{name: trends.digits(column) for name, column in columns.items()}}, traces)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
