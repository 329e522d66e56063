"""A table of four million densities of water, compressed into a layer of one kilobyte.

The density of liquid water over temperature and pressure comes from the international standard for industrial use, IAPWS-IF97,
region 1 (International Association for the Properties of Water and Steam, R7-97(2012), equation 7 and table 2; www.iapws.org).
It is tabulated on 2,000 x 2,000 points in float64, 32 MB, and `ma.compile` makes one softmax attention head of the table.  The
error is proved at every one of the four million entries, by evaluating the stored layer there, rounding included.  Between the
entries a table says nothing, and neither does the certificate; there the formula is still known, and the error is observed.

    python examples/water_density.py [--out FOLDER]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.interpolate import RegularGridInterpolator

import maxaffine as ma

ENTRIES, ERROR = 2000, 1e-5  # kg/m^3; the density is about 1,000 kg/m^3, so that is eight digits

# The terms of IF97's region 1 that depend on pressure: exponents I, J and coefficient n.
TERMS = (
    (1, -9, 0.28319080123804e-3), (1, -7, -0.60706301565874e-3), (1, -1, -0.18990068218419e-1), (1, 0, -0.32529748770505e-1),
    (1, 1, -0.21841717175414e-1), (1, 3, -0.52838357969930e-4), (2, -3, -0.47184321073267e-3), (2, 0, -0.30001780793026e-3),
    (2, 1, 0.47661393906987e-4), (2, 3, -0.44141845330846e-5), (2, 17, -0.72694996297594e-15), (3, -4, -0.31679644845054e-4),
    (3, 0, -0.28270797985312e-5), (3, 6, -0.85205128120103e-9), (4, -5, -0.22425281908000e-5), (4, -2, -0.65171222895601e-6),
    (4, 10, -0.14341729937924e-12), (5, -8, -0.40516996860117e-6), (8, -11, -0.12734301741641e-8), (8, -6, -0.17424871230634e-9),
    (21, -29, -0.68762131295531e-18), (23, -31, 0.14478307828521e-19), (29, -38, 0.26335781662795e-22),
    (30, -39, -0.11947622640071e-22), (31, -40, 0.18228094581404e-23), (32, -41, -0.93537087292458e-25),
)  # fmt: skip


def density(T: np.ndarray, p: np.ndarray) -> np.ndarray:
    """kg/m^3 of liquid water at T (K) and p (MPa):  1/rho = R T / p* dgamma/dpi,  pi = p / p*,  tau = 1386 K / T."""
    pi, tau = p / 16.53, 1386.0 / T
    slope = sum(-n * i * (7.1 - pi) ** (i - 1) * (tau - 1.222) ** j for i, j, n in TERMS)
    return 16.53e6 / (461.526 * T * slope)


def fastest(call: Callable[[], object], rounds: int = 9) -> float:
    """Seconds of the fastest of some runs, after one that does not count."""
    call()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    # The standard's own check values (table 5): specific volume at three states.
    for T, p, volume in ((300, 3, 0.100215168e-2), (300, 80, 0.971180894e-3), (500, 3, 0.120241800e-2)):
        assert abs(density(np.array(T), np.array(p)) * volume - 1) < 1e-8

    T = np.linspace(273.15, 373.15, ENTRIES)  # 0 to 100 degrees Celsius
    p = np.linspace(0.2, 100.0, ENTRIES)  # MPa; liquid everywhere
    rho = density(T[:, None], p)
    table = ma.Table([T, p], rho, names=["T", "p"], name="density of water")
    print(f"table      {ENTRIES:,} x {ENTRIES:,} densities from {rho.min():.1f} to {rho.max():.1f} kg/m^3, {rho.nbytes:,} bytes")

    start = time.perf_counter()
    layer = ma.compile(table, error=ERROR)
    seconds = time.perf_counter() - start
    file = out / "water_density.safetensors"
    layer.save(file)  # the checker evaluates the layer at all entries once more, by code of its own
    stored, kept = layer.weights.nbytes, file.stat().st_size
    print(f"layer      one softmax head, {layer.tokens} tokens, compiled in {seconds:.1f} s")
    print(f"{layer.certificate.kind:<10} error <= {layer.bound:.2e} kg/m^3 at every one of the {rho.size:,} entries")
    print(f"bytes      {stored:,} in keys and values, {rho.nbytes / stored:,.0f} times fewer than the table;")
    print(f"           {kept:,} in the file with its certificate, {rho.nbytes / kept:,.0f} times fewer")

    rng = np.random.default_rng(0)
    x = rng.uniform([T[0], p[0]], [T[-1], p[-1]], size=(200_000, 2))
    truth = density(*x.T)
    linear = RegularGridInterpolator((T, p), rho)
    contenders = {"the layer": lambda: layer(x), "SciPy, linear": lambda: linear(x), "the formula": lambda: density(*x.T)}
    print(f"\nbetween the entries, {len(x):,} random points   worst error observed   points a second   bytes")
    sizes = {"the layer": stored, "SciPy, linear": rho.nbytes, "the formula": 24 * len(TERMS)}
    worst, rates = {}, {}
    for name, call in contenders.items():
        worst[name], rates[name] = float(np.abs(call() - truth).max()), len(x) / fastest(call)
        print(f"{name:<45}   {worst[name]:20.2e}   {rates[name]:15,.0f}   {sizes[name]:,}")

    draw(layer, T, p, rho, out / "water_density.png")
    print(f"\nfigure     {out / 'water_density.png'}")

    assert layer.certificate.kind == "proved" and layer.bound <= ERROR
    assert rho.shape == (2000, 2000) and rho.dtype == np.float64 and rho.nbytes >= 1000 * kept > 1000 * stored
    every = np.stack(np.meshgrid(T[::37], p[::37], indexing="ij"), axis=-1).reshape(-1, 2)
    assert np.abs(ma.load(file)(every) - rho[::37, ::37].ravel()).max() <= layer.bound, "the file does not keep what is proved"
    assert worst["the layer"] <= 2 * ERROR, "the layer is much worse between the entries than at them"


def draw(layer: ma.Compiled, T: np.ndarray, p: np.ndarray, rho: np.ndarray, path: Path) -> None:
    """The table, and what the layer makes of it."""
    from matplotlib.figure import Figure

    from maxaffine.report.style import look

    some = slice(None, None, 8)
    points = np.stack(np.meshgrid(T[some], p[some], indexing="ij"), axis=-1)
    wrong = layer(points.reshape(-1, 2)).reshape(points.shape[:2]) - rho[some, some]
    with look():
        figure = Figure(figsize=(11.0, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        celsius = T[some] - 273.15
        image = left.pcolormesh(celsius, p[some], rho[some, some].T, cmap="viridis", rasterized=True)
        lines = left.contour(celsius, p[some], rho[some, some].T, levels=range(960, 1050, 10), colors="white", linewidths=0.8)
        left.clabel(lines, fmt="%d", fontsize=7)
        left.set(title=f"Density of water, kg/m^3: {rho.nbytes / 1e6:.0f} MB", xlabel="temperature, °C", ylabel="pressure, MPa")
        figure.colorbar(image, ax=left)
        image = right.pcolormesh(celsius, p[some], wrong.T, cmap="RdBu_r", vmin=-layer.bound, vmax=layer.bound, rasterized=True)
        right.set(
            title=f"Error of {layer.tokens} tokens in {layer.weights.nbytes} bytes, proved <= {layer.bound:.1e}",
            xlabel="temperature, °C", ylabel="pressure, MPa",
        )  # fmt: skip
        figure.colorbar(image, ax=right)
        figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the layer and the figure")
    main(parser.parse_args().out)
