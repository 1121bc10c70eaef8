# SPDX-License-Identifier: Apache-2.0
"""Modules whose inputs change their sizes from call to call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

torch: Any = importlib.import_module("torch")
nn = torch.nn
functions = torch.nn.functional


class Attention(nn.Module):
    """Self-attention with a padding mask, or a causal one."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functions.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Encoder(nn.Module):
    """Embeddings, masked attention and a feed-forward layer, as BERT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.attention, self.norm = Attention(16, 2), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, ids, mask):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(places))
        x = self.norm(x + self.attention(x, mask[:, None, None, :] > 0))
        return self.norm(x + self.down(functions.gelu(self.up(x)))).mean(1)


class SpelledAttention(nn.Module):
    """Attention spelled out, with an additive mask of the lower triangle."""

    def forward(self, q, k, v):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        length = q.shape[2]
        mask = torch.full((length, length), float("-inf")).triu(1)
        return torch.softmax(scores + mask, -1) @ v


class Pictures(nn.Module):
    """Convolutions, pools and resizing, for pictures of any size, with writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm, self.group = nn.BatchNorm2d(8), nn.GroupNorm(2, 8)
        self.deep, self.last = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(16, 4, 1)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = functions.relu(self.norm(self.first(x)), inplace=True)
        z = functions.silu(self.group(self.deep(functions.max_pool2d(y, 2))))
        z = functions.interpolate(z, size=y.shape[-2:], mode="nearest")
        return self.last(torch.cat([y, z], 1))


class Classifier(nn.Module):
    """A residual block, and the mean of all places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        y = self.first(x)
        y = y + self.second(functions.relu(y))
        return self.head(functions.adaptive_avg_pool2d(y, 1).flatten(1))


class Recurrent(nn.Module):
    """A layer over a sequence for batches of any size."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.layer = kind(6, 8, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0])


class Bags(nn.Module):
    """Means of embeddings, for bags of one size and for bags between offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 5, mode="mean")
        self.sums = nn.EmbeddingBag(30, 5, mode="sum")

    def forward(self, ids, flat, offsets):
        return self.bag(ids), self.sums(flat, offsets)


class Windows(nn.Module):
    """Sizes of the input as numbers, slices from the end, and reductions."""

    def forward(self, x):
        half = x.shape[0] // 2
        parts = x[half:], x[:half].flip(0), x[-2:] * x.shape[0]
        mean = x.mean(0, keepdim=True)
        return torch.cat(parts), (x - mean).square().sum(0), x.cumsum(0)[::2], x.shape[0] + 1


class Chosen(nn.Module):
    """Places that are computed: the largest, gathered and scattered."""

    def forward(self, x):
        values, places = x.topk(2, 1)
        best = x.gather(1, places)
        marks = torch.zeros_like(x).scatter(1, places, values)
        return best + values, marks, x[torch.arange(x.shape[0]), x.argmax(1)]


class Layer(nn.Module):
    """A step of a decoder: it appends to the keys and values that it is given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, keys, values):
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = functions.scaled_dot_product_attention(q, keys, values)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width)), keys, values


class Decoder(nn.Module):
    """A decoder of two layers with caches of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(40, 16), nn.Embedding(64, 16)
        self.layers = nn.ModuleList([Layer(16, 2) for _ in range(2)])

    def forward(self, ids, caches):
        past = caches[0][0].shape[2]
        x = self.words(ids) + self.places(torch.arange(past, past + ids.shape[1]))
        grown = []
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            x, keys, values = layer(x, keys, values)
            grown.append((keys, values))
        return x @ self.words.weight.T, grown


def _ids(*shape: int) -> Any:
    return torch.randint(0, 30, shape)


Case = tuple[Callable[[], Any], Callable[[int], Sequence[Any]], Sequence[int]]

CASES: dict[str, Case] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Softmax(-1)),
        lambda n: (torch.randn(n, 8),),
        (3, 7, 2, 16, 33),
    ),
    "encoder": (
        Encoder,
        lambda n: (_ids(3, n), torch.arange(n).expand(3, n) < torch.tensor([[n], [2], [n - 1]])),
        (5, 9, 16, 33, 60),
    ),
    "causal": (
        lambda: Attention(16, 2, True),
        lambda n: (torch.randn(2, n, 16),),
        (3, 4, 9, 20, 31),
    ),
    "spelled": (
        SpelledAttention,
        lambda n: tuple(torch.randn(2, 2, n, 8) for _ in range(3)),
        (3, 4, 8, 17, 25),
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        lambda n: (torch.randn(2, n, 16),),
        (4, 5, 11, 20, 29),
    ),
    "pictures": (Pictures, lambda n: (torch.randn(1, 3, n, n + 3),), (9, 12, 17, 21, 26)),
    "classifier": (Classifier, lambda n: (torch.randn(2, 3, n + 1, n),), (8, 9, 13, 16, 21)),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda n: (torch.randn(n, 5, 6),), (2, 3, 5, 8, 13)),
    "gru": (lambda: Recurrent(nn.GRU), lambda n: (torch.randn(n, 5, 6),), (2, 3, 5, 8, 13)),
    "bags": (
        Bags,
        lambda n: (_ids(n, 3), _ids(2 * n), torch.arange(n) * 2),
        (4, 5, 7, 10, 16),
    ),
    "windows": (Windows, lambda n: (torch.randn(n, 4),), (6, 7, 10, 15, 24)),
    "chosen": (Chosen, lambda n: (torch.randn(n, 6),), (3, 5, 8, 12, 19)),
}
"""Modules with what makes their arguments, and sizes to make them of."""
