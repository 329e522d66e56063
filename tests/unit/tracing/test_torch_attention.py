"""Softmax attention of torch becomes expressions with its values; with masks, in several heads, as nn.MultiheadAttention."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.tracing.source import target_of

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
BOX = ma.Box(**{f"x{i}": (-1, 1) for i in range(1, 5)})


def tokens(X):
    """(B, 4) as three tokens of two numbers each."""
    return torch.stack([X[:, :2], X[:, 2:], X[:, 1:3]], dim=1)


def fixed(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Heads(nn.Module):
    """Attention of the tokens to themselves or to fixed ones, then one number."""

    def __init__(self, heads, own, first=True, bias=True):
        super().__init__()
        torch.manual_seed(1)
        self.attention = nn.MultiheadAttention(2, heads, batch_first=first, bias=bias, dtype=torch.float64)
        self.own, self.first, self.last = own, first, nn.Linear(2, 1, dtype=torch.float64)
        self.register_buffer("context", fixed(4, 2))

    def forward(self, X):
        query = tokens(X)
        context = query if self.own else self.context[None].expand(len(X), -1, -1)
        if not self.first:
            query, context = query.transpose(0, 1), context.transpose(0, 1)
        found = self.attention(query, context, context)[0]
        return self.last(found[:, 1] if self.first else found[1])[:, 0]


CASES = {
    "self": lambda X: F.scaled_dot_product_attention(tokens(X), tokens(X), tokens(X)).sum((1, 2)),
    "fixed keys": lambda X: F.scaled_dot_product_attention(X[:, None, :2], fixed(5, 2), fixed(5, 3))[:, 0, 1],
    "scale": lambda X: F.scaled_dot_product_attention(tokens(X), tokens(X), tokens(X), scale=2.0)[:, 2, 0],
    "causal": lambda X: F.scaled_dot_product_attention(tokens(X), tokens(X), tokens(X), is_causal=True)[:, 1, 0],
    "mask of truth": lambda X: F.scaled_dot_product_attention(
        tokens(X), tokens(X), tokens(X), attn_mask=torch.tensor([[True, False, True]] * 3)
    )[:, 2, 1],
    "mask of numbers": lambda X: F.scaled_dot_product_attention(
        tokens(X), tokens(X), tokens(X), attn_mask=torch.tensor([[0.5, -torch.inf, -1.0]] * 3, dtype=X.dtype)
    )[:, 2, 1],
    "two heads": Heads(2, True).eval(),
    "one head, fixed tokens": Heads(1, False).eval(),
    "tokens first, no bias": Heads(2, True, False, False).eval(),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_is_read(case):
    function = CASES[case]
    target = target_of(function, BOX)
    assert target.expression is not None, target.traced
    x = BOX.sample(200, np.random.default_rng(0))
    with torch.no_grad():
        wanted = function(torch.tensor(x)).numpy()
    assert np.allclose(target.values(x)[:, 0, 0], wanted, rtol=1e-12, atol=1e-12)


def test_dropout_and_masks_that_move_are_not_read():
    random = nn.MultiheadAttention(2, 1, dropout=0.5, batch_first=True, dtype=torch.float64)
    moving = {
        "dropout": lambda X: random(tokens(X), tokens(X), tokens(X))[0].sum((1, 2)),
        "depends on the point": lambda X: F.scaled_dot_product_attention(
            tokens(X), tokens(X), tokens(X), attn_mask=torch.stack([X[:, :3]] * 3, dim=1)
        ).sum((1, 2)),
    }
    for why, function in moving.items():
        target = target_of(function, BOX)
        assert target.expression is None and why in target.traced.why


def test_multihead_attention_becomes_a_stack():
    made = ma.compile(Heads(1, False).eval(), BOX, error=1e-2, layers="auto")
    assert isinstance(made, ma.Stack) and made.check().passed and made.observed.error <= made.bound <= 1e-2
