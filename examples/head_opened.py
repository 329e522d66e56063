"""A trained head, opened up: it has taught itself the Voronoi diagram.

Every token of a sequence carries a point p, a value v and a question q, another point of the same square.  Its answer should be
the value of the token whose point lies nearest to its question.  One softmax head is trained on examples of this; nobody tells it
about distances.  Then it is opened with `ma.inspect`, and its weights are read.

What to expect: |q - p|^2 = |q|^2 - 2 (q . p - |p|^2 / 2), and |q|^2 is the same for all tokens.  So "nearest" means "largest
q . p - |p|^2 / 2": one affine function of q per token, and the partition they cut is the Voronoi diagram of the points.  The head

    softmax_j( beta (q . p_j - |p_j|^2 / 2) )

answers softly, the sharper the larger beta.  If training finds it, W_Q^T W_K must hold beta where q meets p, -beta/2 where the
constant meets |p|^2, and zero elsewhere.

    python examples/head_opened.py [--out FOLDER]
"""

import argparse
import textwrap
from pathlib import Path

import numpy as np
import torch

import maxaffine as ma

TOKENS, WIDTH, STEPS = 12, 4, 900
FEATURES = ("p_x", "p_y", "|p|^2", "v", "q_x", "q_y")


def sequences(count: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (count, TOKENS, 6), the right answers, and which token is nearest to each question."""
    p, q = 2 * torch.rand(2, count, TOKENS, 2, generator=rng) - 1
    v = torch.randn(count, TOKENS, 1, generator=rng)
    nearest = torch.cdist(q, p).argmin(dim=2)
    return torch.cat([p, p.square().sum(dim=2, keepdim=True), v, q], dim=2), v[..., 0].gather(1, nearest), nearest


class Head(torch.nn.Module):
    """One attention head as everybody writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = torch.nn.Linear(6, WIDTH), torch.nn.Linear(6, WIDTH)
        self.value = torch.nn.Linear(6, 1)

    def logits(self, X: torch.Tensor) -> torch.Tensor:
        return self.query(X) @ self.key(X).transpose(1, 2) / WIDTH**0.5

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(self.logits(X), dim=2) @ self.value(X))[..., 0]


def bilinear(head: Head) -> np.ndarray:
    """The logit as a form in the asking token (rows: FEATURES and 1) and the answering one (columns: FEATURES).

    What does not depend on the answering token is left out: softmax does not see it."""
    asks = torch.cat([head.query.weight, head.query.bias[:, None]], dim=1)
    return (asks.T @ head.key.weight / WIDTH**0.5).detach().double().numpy()


def train(head: Head, rng: torch.Generator) -> list[float]:
    """Adam on fresh sequences; returns how sharply q meets p after every step."""
    betas = []
    optimiser = torch.optim.Adam(head.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        X, y, _ = sequences(64, rng)
        loss = (head(X) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        form = bilinear(head)
        betas.append((form[4, 0] + form[5, 1]) / 2)
    return betas


def judge(head: Head, rng: torch.Generator) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """On 1,000 new sequences: mean squared error; per question, whether the leading key is the nearest point, how far the
    question is from the face between the two nearest points, and how far these are from each other."""
    X, y, nearest = sequences(1000, rng)
    with torch.no_grad():
        loss, right = float((head(X) - y).square().mean()), head.logits(X).argmax(dim=2) == nearest
    away, order = torch.cdist(X[..., 4:], X[..., :2]).sort(dim=2)
    pair = torch.gather(X[..., None, :, :2].expand(-1, TOKENS, -1, -1), 2, order[..., :2, None].expand(-1, -1, -1, 2))
    apart = (pair[:, :, 0] - pair[:, :, 1]).norm(dim=2)
    face = (away[..., 1].square() - away[..., 0].square()) / (2 * apart)
    return loss, right.numpy(), face.numpy(), apart.numpy()


def numpy_of(linear: torch.nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy()


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    head, rng = Head(), torch.Generator().manual_seed(0)
    before, found, _, _ = judge(head, rng)
    betas = train(head, rng)
    after, right, face, apart = judge(head, rng)
    print(f"untrained  squared error {before:.3f}, the leading key is the nearest point for {100 * found.mean():.1f}%")
    print(f"trained    squared error {after:.3f}, the leading key is the nearest point for {100 * right.mean():.1f}%")

    # The weights.
    form = bilinear(head)
    beta = betas[-1]
    average = np.array([0, 0, 2 / 3, 0, 0, 0, 1])  # means of (p, |p|^2, v, q, 1): what a token asks besides its question
    half = (average @ form)[2] / beta
    rest = form.copy()
    rest[[4, 5, 2, 6], [0, 1, 2, 2]] = 0.0
    print("\nasks \\ answers " + "".join(f"{name:>9}" for name in FEATURES))
    for name, row in zip((*FEATURES, "1"), form, strict=True):
        print(f"{name:>14} " + "".join(f"{number:9.2f}" for number in row))
    print(f"read off   beta = {beta:.1f};  the coefficient of |p|^2 is {half:.3f} beta (Voronoi: -0.5);")
    print(f"           everything else is at most {np.abs(rest).max() / beta:.4f} beta")

    # The same head as a max-affine partition of its queries, with the package's own instruments.
    (W_Q, b_Q), (W_K, b_K), (W_V, b_V) = (numpy_of(linear) for linear in (head.query, head.key, head.value))
    X, _, _ = sequences(40, rng)
    seen = ma.inspect(W_Q, W_K, W_V, X.double().numpy(), b_Q=b_Q, b_K=b_K, b_V=b_V, name="the trained head")
    print("\n" + seen.explain())
    seen.draw(out / "head_opened_inspect.png")

    # Its cells in the plane of questions, for one sequence, beside the true Voronoi diagram of that sequence's points.
    tokens = X[0].double().numpy()
    pieces = tokens @ form.T  # (answering token, what the asking token contributes)
    learnt = ma.MaxAffine(pieces[:, 4:6], pieces @ average)
    voronoi = ma.MaxAffine.from_power_diagram(tokens[:, :2])
    side = np.linspace(-1, 1, 301)
    plane = np.stack(np.meshgrid(side, side), axis=-1)
    agree = float((learnt.argmax(plane) == voronoi.argmax(plane)).mean())
    print(f"\ncells      learnt and true cells agree on {100 * agree:.1f}% of the square of questions")

    gap, reach = float(np.median(apart)), float(np.median(face))
    strip, wrong = 2 / (beta * gap), 1 - right.mean()
    words = f"""In words: the head asks with its question, answers with its point, and charges |p|^2 / 2 for points far out.
    That is the Voronoi diagram, and next to nothing else is in the weights. beta is the inverse temperature; it was
    {betas[99]:.0f} after 100 steps, {betas[299]:.0f} after 300 and is {beta:.0f} after {STEPS}. The two points nearest to a
    question are typically {gap:.2f} apart, so that across the face between their cells the logits part at a rate of
    beta * {gap:.2f} = {beta * gap:.0f} per unit: within {strip:.2f} of the face the head blends the two values (its leading
    weight is below 88%), beyond that it looks one up. A question is typically {reach:.2f} from the face; the {100 * wrong:.1f}%
    where a wrong key leads are typically {np.median(face[~right]):.4f} from it. The value weight is {W_V[0, 3]:.2f}, above 1:
    it makes up for what blending takes away."""
    print("\n" + textwrap.fill(" ".join(words.split()), 120))
    draw(learnt, voronoi, tokens, plane, form, out / "head_opened.png")
    print(f"figures    {out / 'head_opened.png'}, {out / 'head_opened_inspect.png'}")

    assert after < 0.2 * before and right.mean() > 0.97, "the head has not learnt to look up"
    assert abs(half + 0.5) < 0.02 and np.abs(rest).max() < 0.03 * beta, "the weights are not those of a Voronoi diagram"
    assert agree > 0.96, "the cells are not those of the Voronoi diagram"


def draw(
    learnt: ma.MaxAffine, voronoi: ma.MaxAffine, tokens: np.ndarray, plane: np.ndarray, form: np.ndarray, path: Path
) -> None:
    """What the head decides, how sure it is, and why."""
    from matplotlib.figure import Figure

    from maxaffine.report.style import CURVES, INK, look

    box = ma.Box(x=(-1, 1), y=(-1, 1))
    scores = learnt.pieces(plane)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    leading = 1.0 / weights.sum(axis=-1)
    with look():
        figure = Figure(figsize=(13.0, 4.3), layout="constrained")
        cells, sure, why = figure.subplots(1, 3, width_ratios=(1, 1.18, 1.18))
        for j, polygon in enumerate(learnt.polygons(box)):
            if len(polygon):
                cells.fill(*polygon.T, facecolor=CURVES[j % 7], alpha=0.25, edgecolor="white", lw=1.5)
        for axes in (cells, sure):
            for polygon in voronoi.polygons(box):
                axes.fill(*polygon.T, fill=False, edgecolor=INK, lw=0.9, ls=(0, (4, 3)))
            axes.plot(*tokens[:, :2].T, "o", ms=5, color=INK, mec="white")
            axes.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1), xlabel="q_x", ylabel="q_y")
        cells.set_title("Learnt cells; dashed: Voronoi diagram")
        image = sure.imshow(leading, origin="lower", extent=(-1, 1, -1, 1), cmap="cividis", vmin=0.3, vmax=1)
        sure.set_title("How sure: the leading weight")
        figure.colorbar(image, ax=sure, shrink=0.9)
        limit = np.abs(form).max()
        image = why.imshow(form, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect=6 / 7)
        for (i, j), number in np.ndenumerate(form):
            shade = "white" if abs(number) > 0.6 * limit else INK
            why.text(j, i, f"{number:.1f}".replace("-0.0", "0.0"), ha="center", va="center", fontsize=8, color=shade)
        why.set(title="Why: the bilinear form of the logits", xlabel="answering token", ylabel="asking token")
        why.set_xticks(range(6), FEATURES)
        why.set_yticks(range(7), (*FEATURES, "1"))
        figure.colorbar(image, ax=why, shrink=0.9)
        figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the figures")
    main(parser.parse_args().out)
