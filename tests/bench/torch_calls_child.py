# SPDX-License-Identifier: Apache-2.0
"""Compiles a module with a backend of torch.compile and prints what calls cost, in seconds.

``PYTHON tests/bench/torch_calls_child.py BACKEND MODULE``: ``first`` is the first call, ``size``
the median of first calls of four more sizes, ``call`` that of later calls, ``eager`` that of calls
of the module itself.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

torch: Any = importlib.import_module("torch")
nn = torch.nn


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after) for _ in range(3)])
        self.short = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.norms[2](self.short(x)))


class Layer(nn.Module):
    """A layer of a transformer; with keys and values of earlier steps, a decoder's."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, mask: Any = None, cache: Any = None) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x)))), (k, v)


class Encoder(nn.Module):
    """A small BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 128), nn.Embedding(512, 128)
        self.layers = nn.ModuleList([Layer(128, 4) for _ in range(4)])

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x, _ = layer(x, mask[:, None, None, :])
        return x


class Decoder(nn.Module):
    """One step of a decoder of four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 128), nn.Embedding(512, 128)
        self.layers = nn.ModuleList([Layer(128, 4) for _ in range(4)])

    def forward(self, ids: Any, caches: Any) -> Any:
        past = caches[0][0].shape[2]
        x = self.words(ids) + self.places(torch.arange(past, past + ids.shape[1]))
        grown: list[Any] = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, None, cache)
            grown.append(cache)
        return x @ self.words.weight.T, grown


class Recurrent(nn.Module):
    """Two layers of GRU, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(64, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0])


def _resnet() -> Any:
    stem = nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    sizes = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    blocks = [part for a, b, s in sizes for part in (Block(a, b, s), Block(b, b, 1))]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def _caches(past: int) -> list[tuple[Any, Any]]:
    return [(torch.randn(1, 4, past, 32), torch.randn(1, 4, past, 32)) for _ in range(4)]


def _mlp() -> Any:
    wide = nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.ReLU()
    return nn.Sequential(*wide, nn.Linear(512, 10), nn.Softmax(-1))


CASES: dict[str, tuple[Callable[[], Any], Callable[[int], Sequence[Any]], Sequence[int]]] = {
    "headers": (nn.Tanh, lambda n: (torch.randn(n),), (3,)),
    "mlp": (_mlp, lambda n: (torch.randn(n, 256),), (8, 3, 17, 33, 64)),
    "bert": (
        Encoder,
        lambda n: (torch.randint(0, 1000, (2, n)), torch.ones(2, n, dtype=torch.bool)),
        (16, 24, 33, 48, 61),
    ),
    "resnet": (_resnet, lambda n: (torch.randn(1, 3, n, n),), (128, 160, 131, 144, 190)),
    "gru": (Recurrent, lambda n: (torch.randn(n, 12, 64),), (2, 3, 5, 8, 13)),
    "decoder": (
        Decoder,
        lambda n: (torch.zeros(1, 1, dtype=torch.int64), _caches(n)),
        (8, 9, 10, 11, 12),
    ),
}
"""What makes a module, what makes its arguments, and sizes."""


def main(backend: str, name: str) -> None:
    """Measure, and print the results as JSON."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make, arguments, sizes = CASES[name]
    model = make().eval()
    options = {"target": "llvm", "threads": 1, "fallback": False}
    chosen = {"options": options} if backend == "intarsia" else {}
    fast = torch.compile(model, backend=backend, dynamic=True, **chosen)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        news = [_seconds(fast, arguments(size), model) for size in sizes]
        last = arguments(sizes[-1])
        times: dict[str, list[float]] = {"call": [], "eager": []}
        for _ in range(25):
            times["call"].append(_seconds(fast, last))
            times["eager"].append(_seconds(model, last))
    rows = {"first": news[0], "size": statistics.median(news[1:] or news)}
    print(json.dumps({**rows, **{who: statistics.median(row) for who, row in times.items()}}))


def _seconds(run: Callable[..., Any], given: Sequence[Any], expected: Any = None) -> float:
    start = time.perf_counter()
    found = run(*given)
    took = time.perf_counter() - start
    if expected is not None:
        torch.testing.assert_close(found, expected(*given), rtol=1e-3, atol=1e-4)
    return took


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
