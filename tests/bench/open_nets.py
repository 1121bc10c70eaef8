# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
"""The networks of ``open_models.py`` as PyTorch modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS = 1000


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    mixed = torch.softmax(scores, -1) @ v
    batch, heads, length, size = mixed.shape
    return mixed.transpose(1, 2).reshape(batch, length, heads * size)


class Attention(nn.Module):
    """Attention of several heads, with caches if they are given."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden) for _ in range(4))

    def heads_of(self, x: Tensor) -> Tensor:
        """Split the hidden dimension."""
        batch, length, hidden = x.shape
        return x.reshape(batch, length, self.heads, hidden // self.heads).transpose(1, 2)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, keys and values."""
        q, k, v = self.heads_of(self.q(x)), self.heads_of(self.k(x)), self.heads_of(self.v(x))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        return self.out(_attend(q, k, v, mask)), k, v


class Layer(nn.Module):
    """A layer of a transformer; norms first or last."""

    def __init__(self, hidden: int, heads: int, *, first: bool) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads)
        self.one, self.two = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.first = first

    def forward(
        self, x: Tensor, mask: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, keys and values."""
        mixed, k, v = self.attention(self.one(x) if self.first else x, mask, past)
        x = x + mixed if self.first else self.one(x + mixed)
        wide = functional.gelu(self.up(self.two(x) if self.first else x))
        x = x + self.down(wide)
        return (x if self.first else self.two(x)), k, v


class Encoder(nn.Module):
    """MiniLM: four layers of 384."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 384), nn.Embedding(512, 384)
        self.norm = nn.LayerNorm(384)
        self.layers = nn.ModuleList([Layer(384, 12, first=False) for _ in range(4)])
        self.register_buffer("positions", torch.arange(512)[None])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the mean of the tokens that are there."""
        places = self.places(self.positions[:, : ids.shape[1]])
        x = self.norm(self.words(ids) + places)
        hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for layer in self.layers:
            x, _, _ = layer(x, hidden)
        weight = mask[..., None].float()
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


class Decoder(nn.Module):
    """GPT: four layers of 512 with caches, of which a run gets those so far."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 512), nn.Embedding(1024, 512)
        self.layers = nn.ModuleList([Layer(512, 8, first=True) for _ in range(4)])
        self.norm = nn.LayerNorm(512)

    def forward(self, ids: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Return logits and the caches."""
        past, length = caches[0].shape[2], ids.shape[1]
        places = torch.arange(past, past + length)
        x = self.words(ids) + self.places(places)
        allowed = torch.arange(past + length)[None] <= places[:, None]
        mask = torch.where(allowed, 0.0, -10000.0)
        kept: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            x, k, v = layer(x, mask, (caches[2 * number], caches[2 * number + 1]))
            kept += [k, v]
        return (self.norm(x) @ self.words.weight.T, *kept)


class Vit(nn.Module):
    """Four layers of 256 over patches of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 256, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, 256))
        self.places = nn.Parameter(torch.randn(1, 101, 256))
        self.layers = nn.ModuleList([Layer(256, 4, first=True) for _ in range(4)])
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x, _, _ = layer(x)
        return self.head(self.norm(x)[:, 0])


def _conv(inner: int, outer: int, kernel: int, stride: int, groups: int = 1) -> list[nn.Module]:
    made = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [made, nn.BatchNorm2d(outer)]


class Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        convs = [*_conv(inner, outer, 3, stride), nn.ReLU(), *_conv(outer, outer, 3, 1)]
        self.body = nn.Sequential(*convs)
        same = stride == 1 and inner == outer
        self.short = nn.Identity() if same else nn.Sequential(*_conv(inner, outer, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return functional.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    """ResNet-18 of half the channels."""

    def __init__(self) -> None:
        super().__init__()
        parts = [*_conv(3, 32, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        width = 32
        for outer, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
            parts += [Residual(width, outer, stride), Residual(outer, outer, 1)]
            width = outer
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes."""
        return self.head(self.body(x).mean((2, 3)))


class Inverted(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self, inner: int, outer: int, stride: int, *, squeeze: bool) -> None:
        super().__init__()
        wide = inner * 4
        self.up = nn.Sequential(*_conv(inner, wide, 1, 1), nn.Hardswish())
        self.deep = nn.Sequential(*_conv(wide, wide, 3, stride, wide), nn.ReLU6())
        self.less, self.more = nn.Conv2d(wide, wide // 8, 1), nn.Conv2d(wide // 8, wide, 1)
        self.down = nn.Sequential(*_conv(wide, outer, 1, 1))
        self.squeeze, self.same = squeeze, stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's result."""
        y = self.deep(self.up(x))
        if self.squeeze:
            scale = self.more(functional.relu(self.less(functional.adaptive_avg_pool2d(y, 1))))
            y = y * functional.hardsigmoid(scale)
        y = self.down(y)
        return x + y if self.same else y


class MobileNet(nn.Module):
    """Depthwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        parts = [*_conv(3, 16, 3, 2), nn.Hardswish()]
        width = 16
        for outer, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1), (96, 1)):
            parts.append(Inverted(width, outer, stride, squeeze=outer in (40, 96)))
            width = outer
        self.body = nn.Sequential(*parts, *_conv(width, 576, 1, 1), nn.Hardswish())
        self.head = nn.Linear(576, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes."""
        return self.head(functional.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class NextBlock(nn.Module):
    """A depthwise 7x7 convolution, then products of channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's result."""
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """ConvNeXt of half the channels of the smallest."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, 48, 4, 4)]
        width = 48
        for outer, depth in ((48, 2), (96, 2), (192, 3), (384, 1)):
            if outer != width:
                parts.append(nn.Conv2d(width, outer, 2, 2))
            parts += [NextBlock(outer) for _ in range(depth)]
            width = outer
        self.body, self.norm = nn.Sequential(*parts), nn.LayerNorm(width)
        self.head = nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes."""
        return self.head(self.norm(self.body(x).mean((2, 3))))


class Csp(nn.Module):
    """A stage of a YOLO: split, bottlenecks, concatenation."""

    def __init__(self, inner: int, outer: int, depth: int) -> None:
        super().__init__()
        half = outer // 2
        self.into = nn.Sequential(*_conv(inner, outer, 1, 1), nn.SiLU())
        self.steps = nn.ModuleList(
            nn.Sequential(*_conv(half, half, 3, 1), nn.SiLU(), *_conv(half, half, 3, 1), nn.SiLU())
            for _ in range(depth)
        )
        self.out = nn.Sequential(*_conv(half * (2 + depth), outer, 1, 1), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Return the stage's result."""
        parts = list(self.into(x).chunk(2, 1))
        for step in self.steps:
            parts.append(parts[-1] + step(parts[-1]))
        return self.out(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A detector: three scales, pools, upsampling, boxes as distances."""

    def __init__(self) -> None:
        super().__init__()

        def stage(inner: int, outer: int) -> nn.Sequential:
            return nn.Sequential(*_conv(inner, outer, 3, 2), nn.SiLU(), Csp(outer, outer, 1))

        self.stem = nn.Sequential(*_conv(3, 16, 3, 2), nn.SiLU(), stage(16, 32))
        self.three, self.four, self.five = stage(32, 64), stage(64, 128), stage(128, 256)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.pooled = nn.Sequential(*_conv(768, 256, 1, 1), nn.SiLU())
        self.up_four, self.up_three = Csp(384, 128, 1), Csp(192, 64, 1)
        self.heads = nn.ModuleList(nn.Conv2d(width, 4 * 8 + 20, 1) for width in (64, 128, 256))

    def forward(self, x: Tensor) -> Tensor:
        """Return boxes and classes of all places."""
        three = self.three(self.stem(x))
        four = self.four(three)
        five = self.five(four)
        first = self.pool(five)
        five = self.pooled(torch.cat([five, first, self.pool(first)], 1))
        five_up = functional.interpolate(five, scale_factor=2.0, mode="nearest")
        four = self.up_four(torch.cat([five_up, four], 1))
        four_up = functional.interpolate(four, scale_factor=2.0, mode="nearest")
        three = self.up_three(torch.cat([four_up, three], 1))
        heads = zip(self.heads, (three, four, five), strict=True)
        rows = torch.cat([head(part).flatten(2) for head, part in heads], 2)
        boxes, classes = rows.split([32, 20], 1)
        batch, _, places = boxes.shape
        shares = boxes.reshape(batch, 4, 8, places).transpose(1, 2).softmax(1)
        steps = torch.arange(8, dtype=torch.float32).reshape(1, 8, 1, 1)
        return torch.cat([(shares * steps).sum(1), classes.sigmoid()], 1)


class UNet(nn.Module):
    """Group norms, transposed convolutions and a bilinear resize."""

    def __init__(self) -> None:
        super().__init__()

        def twice(inner: int, outer: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inner, outer, 3, 1, 1), nn.GroupNorm(8, outer), nn.SiLU(),
                nn.Conv2d(outer, outer, 3, 1, 1), nn.ReLU(),
            )  # fmt: skip

        self.one, self.two, self.three = twice(1, 32), twice(32, 64), twice(64, 128)
        self.up_two, self.up_one = nn.ConvTranspose2d(128, 64, 2, 2), nn.Conv2d(64, 32, 1)
        self.left_two, self.left_one = twice(128, 64), twice(64, 32)
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the shares of two classes."""
        one = self.one(x)
        two = self.two(functional.max_pool2d(one, 2))
        three = self.three(functional.max_pool2d(two, 2))
        two = self.left_two(torch.cat([self.up_two(three), two], 1))
        up = functional.interpolate(two, scale_factor=2.0, mode="bilinear", align_corners=False)
        one = self.left_one(torch.cat([self.up_one(up), one], 1))
        return torch.softmax(self.head(one), 1)


class Crnn(nn.Module):
    """Convolutions over a line of text, then an LSTM in both directions."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        width = 3
        for outer, pool in ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1)), (192, None)):
            parts += [*_conv(width, outer, 3, 1), nn.ReLU()]
            if pool is not None:
                parts.append(nn.MaxPool2d(pool, pool))
            width = outer
        self.body = nn.Sequential(*parts)
        self.lstm = nn.LSTM(2 * width, 128, bidirectional=True)
        self.head = nn.Linear(256, 97)

    def forward(self, x: Tensor) -> Tensor:
        """Return the characters' logarithms."""
        y = self.body(x)
        batch, channels, rows, columns = y.shape
        y = y.reshape(batch, channels * rows, columns).permute(2, 0, 1)
        return functional.log_softmax(self.head(self.lstm(y)[0]), 2)


class Wav2Vec(nn.Module):
    """Convolutions over sound, then two layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        steps = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
        self.convs = nn.ModuleList(
            nn.Conv1d(1 if n == 0 else 128, 128, kernel, stride, bias=False)
            for n, (kernel, stride) in enumerate(steps)
        )
        self.group = nn.GroupNorm(128, 128)
        self.norm, self.project = nn.LayerNorm(128), nn.Linear(128, 256)
        self.places = nn.Conv1d(256, 256, 15, 1, 7, groups=16)
        self.layers = nn.ModuleList([Layer(256, 4, first=False) for _ in range(2)])
        self.head = nn.Linear(256, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Return the characters."""
        y = x[:, None]
        for number, conv in enumerate(self.convs):
            y = conv(y)
            y = functional.gelu(self.group(y) if number == 0 else y)
        z = self.project(self.norm(y.transpose(1, 2)))
        z = z + functional.gelu(self.places(z.transpose(1, 2))).transpose(1, 2)
        for layer in self.layers:
            z, _, _ = layer(z)
        return self.head(z)


class Vocoder(nn.Module):
    """HiFi-GAN: transposed and dilated convolutions of sound."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, 128, 7, 1, 3)
        self.ups = nn.ModuleList(
            [nn.ConvTranspose1d(128, 64, 16, 8, 4), nn.ConvTranspose1d(64, 32, 8, 4, 2)]
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, 3, 1, apart, apart) for apart in (1, 3, 5))
            for width in (64, 32)
        )
        self.last = nn.Conv1d(32, 1, 7, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sound."""
        y = self.first(x)
        for up, block in zip(self.ups, self.blocks, strict=True):
            y = up(functional.leaky_relu(y, 0.1))
            for conv in block:
                y = y + conv(functional.leaky_relu(y, 0.1))
        return torch.tanh(self.last(functional.leaky_relu(y)))


class LstmTagger(nn.Module):
    """Words, an LSTM of two layers in both directions, tags."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 128)
        self.rnn: nn.Module = nn.LSTM(128, 128, 2, bidirectional=True)
        self.head = nn.Linear(256, 20)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the tags."""
        return self.head(self.rnn(self.words(ids))[0]).softmax(2)


class GruTagger(LstmTagger):
    """The same with a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(128, 128, 2, bidirectional=True)


class Mixer(nn.Module):
    """Element-wise operators, norms, moves and reductions of broadcast operands."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(96)
        self.scale, self.shift = nn.Parameter(torch.randn(96)), nn.Parameter(torch.randn(96))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return some features of each place."""
        gate = torch.sigmoid(y)
        z = self.norm(x * gate + self.shift)
        z = torch.cat([z, functional.gelu(x * self.scale)], -1)
        means = z.mean(1, keepdim=True)
        z = z - means
        batch, length, width = z.shape
        turned = z.reshape(batch, length, 4, width // 4).transpose(1, 2)
        shares = torch.softmax(turned, 2) * turned.abs().sqrt()
        back = shares.transpose(1, 2).reshape(batch, length, width)
        return torch.tanh(back[..., ::2] + back[..., 1::2]) * gate + x.cumsum(1) * 0.01


NETS: Mapping[str, Callable[[], nn.Module]] = MappingProxyType(
    {
        net.__name__: net
        for net in (
            Encoder, Decoder, Vit, ResNet, MobileNet, ConvNext, Yolo, UNet, Crnn, Wav2Vec,
            Vocoder, LstmTagger, GruTagger, Mixer,
        )
    }
)  # fmt: skip
"""Name to class."""
