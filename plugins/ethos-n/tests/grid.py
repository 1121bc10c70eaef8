# SPDX-License-Identifier: Apache-2.0
"""Thousands of operations at and around the limits of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from intarsia_ethos_n.network import (
    Network,
    NetworkOperation,
    NetworkQuantization,
    NetworkTensor,
    Shape,
)

SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
EDGES = (1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 31, 32, 64, 112, 224, 416, 417, 418, 640, 2047, 4096)
DEPTHS = (1, 3, 4, 8, 15, 16, 17, 64, 255, 256, 1024, 7168, 7169, 12288, 12289, 16384, 16385, 32769)
SCALES = (1e-3, 0.05, 0.5, 1.0, 3.0, 130.0)


class Cases:
    """Makes random operations; each has tensors of its own."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.tensors: dict[str, NetworkTensor] = {}
        self.operations: list[NetworkOperation] = []

    def pick(self, *choices: object) -> object:
        return self.random.choice(choices)

    def rarely(self, rare: object, usual: object, chance: float = 0.06) -> object:
        return rare if self.random.random() < chance else usual

    def tensor(self, shape: Shape, dtype: str, quantization: NetworkQuantization) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = NetworkTensor(shape, dtype, quantization)
        return name

    def numbers(self, dtype: str) -> NetworkQuantization:
        zero = self.random.choice((0, 127) if dtype == "s8" else (0, 128, 255))
        zero = self.rarely(300, zero, 0.02)
        return NetworkQuantization(int(str(zero)), (self.random.choice(SCALES),))

    def shape(self, most: int = 2**22) -> Shape:
        while True:
            height = self.random.choice(EDGES)
            width = self.random.choice((height, height, self.random.choice(EDGES)))
            depth = self.random.choice(DEPTHS)
            if height * width * depth <= most:
                return int(str(self.rarely(2, 1, 0.02))), height, width, depth

    def dtype(self) -> str:
        return str(self.rarely("s32", self.pick("u8", "s8"), 0.02))

    def data(self) -> tuple[str, Shape, str]:
        shape, dtype = self.shape(), self.dtype()
        return self.tensor(shape, dtype, self.numbers(dtype)), shape, dtype

    def add(self, kind: str, inputs: tuple[str, ...], output: str, **attrs: object) -> None:
        self.operations.append(NetworkOperation(kind, inputs, output, attrs))

    def padding(self) -> tuple[int, int, int, int]:
        one = self.random.choice((0, 0, 0, 1, 1, 2, 3, 7, 8))
        other = self.random.choice((one, one, 0, 1))
        return self.random.choice(((one,) * 4, (0, one, 0, one), (one, other, one, other)))

    def weighted(self, kind: str) -> None:
        data, shape, dtype = self.data()
        n, height, width, depth = shape
        down, across = self.random.choice(SIDES), self.random.choice(SIDES)
        across = int(str(self.pick(down, down, across)))
        strides = self.random.choice(((1, 1), (1, 1), (2, 2), (2, 2), (1, 2), (3, 3)))
        padding = self.padding()
        rows = height + padding[0] + padding[1] - down
        columns = width + padding[2] + padding[3] - across
        if rows < 0 or columns < 0:
            return
        outputs = self.random.choice((1, 8, 16, 17))
        if kind == "transpose-convolution":
            rows = (height - 1) * strides[1] + down - padding[0] - padding[1]
            columns = (width - 1) * strides[0] + across - padding[2] - padding[3]
            if rows < 1 or columns < 1:
                return
        if kind == "depthwise":
            multiplier = int(str(self.rarely(2, 1, 0.1)))
            weight_shape, outputs, axis = (down, across, depth, multiplier), depth * multiplier, 2
        else:
            weight_shape, axis = (down, across, depth, outputs), 3
        many = self.random.random() < 0.3
        scales = tuple(self.random.choice((0.01, 0.02)) for _ in range(weight_shape[axis]))
        by = NetworkQuantization(0, scales if many else scales[:1], axis if many else -1)
        weights = self.tensor(weight_shape, str(self.pick("u8", "s8")), by)
        products = tuple(_float32_product(self.tensors[data], scale) for scale in by.scales)
        if self.random.random() < 0.05:
            products = tuple(product * 1.01 for product in products)
        given = NetworkQuantization(0, products, 3 if many else -1)
        if many and kind == "depthwise" and weight_shape[3] != 1:
            return
        bias = self.tensor((1, 1, 1, outputs), "s32", given)
        result = (n, rows // strides[1] + 1, columns // strides[0] + 1, outputs)
        if kind == "transpose-convolution":
            result = (n, rows, columns, outputs)
        scale = self.random.choice((1e-8, 0.5, 1.0, 2.0))
        output = self.tensor(result, dtype, NetworkQuantization(0, (scale,)))
        self.add(kind, (data, weights, bias), output, padding=padding, stride=strides)

    def connected(self) -> None:
        dtype = self.dtype()
        depth = self.random.choice(DEPTHS)
        shape = self.random.choice(((1, 1, 1, depth), (1, 1, 1, depth), (1, 2, 2, 4)))
        depth = shape[1] * shape[2] * shape[3]
        data = self.tensor(shape, dtype, self.numbers(dtype))
        outputs = self.random.choice((1, 10, 64))
        many = self.random.random() < 0.1
        by = NetworkQuantization(0, (0.01,) * outputs if many else (0.01,), 3 if many else -1)
        weights = self.tensor((1, 1, depth, outputs), "s8", by)
        product = _float32_product(self.tensors[data], 0.01) * (
            1.5 if self.random.random() < 0.1 else 1
        )
        bias = self.tensor((1, 1, 1, outputs), "s32", NetworkQuantization(0, (product,)))
        scale = self.random.choice((1e-8, 1.0))
        output = self.tensor((1, 1, 1, outputs), dtype, NetworkQuantization(0, (scale,)))
        self.add("fully-connected", (data, weights, bias), output)

    def binary(self, kind: str) -> None:
        a, shape, dtype = self.data()
        other = self.random.choice(
            (shape, shape, (shape[0], 1, 1, shape[3]), (shape[0], shape[1] + 1, *shape[2:]))
        )
        second = str(self.rarely("s8", dtype))
        b = self.tensor(other, second, self.numbers(second))
        result = tuple(max(pair) for pair in zip(shape, other, strict=True))
        self.add(kind, (a, b), self.tensor(result, dtype, self.numbers(dtype)))

    def relu(self) -> None:
        data, shape, dtype = self.data()
        low, high = self.random.choice(((0, 6), (-128, 127), (5, 5), (9, 3)))
        output = self.tensor(shape, dtype, self.tensors[data].quantization)
        self.add("relu", (data,), output, lower=low, upper=high)

    def leaky(self) -> None:
        data, shape, dtype = self.data()
        output = self.tensor(shape, dtype, self.numbers(dtype))
        alpha = self.random.choice((0.0, 0.1, 0.99, 1.0, 1.5))
        self.add("leaky-relu", (data,), output, alpha=alpha)

    def curve(self, kind: str) -> None:
        data, shape, dtype = self.data()
        signed = dtype == "s8"
        wanted = (1 / 256, -128 if signed else 0) if kind == "sigmoid" else (1 / 128, 0)
        wanted = wanted if kind == "sigmoid" or signed else (1 / 128, 128)
        scale, zero = wanted if self.random.random() < 0.7 else (0.5, wanted[1])
        self.add(kind, (data,), self.tensor(shape, dtype, NetworkQuantization(zero, (scale,))))

    def requantize(self) -> None:
        data, shape, dtype = self.data()
        to = str(self.pick(dtype, "u8", "s8"))
        self.add("requantize", (data,), self.tensor(shape, to, self.numbers(to)))

    def mean(self) -> None:
        dtype, size = self.dtype(), self.random.choice((6, 7, 7, 8, 8, 9))
        width = int(str(self.rarely(7, size)))
        data = self.tensor((1, size, width, 16), dtype, self.numbers(dtype))
        output = self.tensor((1, 1, 1, 16), dtype, self.tensors[data].quantization)
        self.add("mean", (data,), output)

    def pooling(self) -> None:
        data, shape, dtype = self.data()
        n, height, width, depth = shape
        way = str(self.pick("max", "max", "avg"))
        across = self.random.choice((1, 2, 3, 4, 5, 7, 8, 9, 10, 17, 18))
        down = int(str(self.rarely(3, across, 0.1)))
        if way == "avg" and self.random.random() < 0.4:
            across, down = width, height
        strides = self.random.choice(((1, 1), (2, 2), (2, 2), (1, 2), (3, 3)))
        padding = self.padding()
        if self.random.random() < 0.4:
            half = across // 2
            rest = across - 1 - half
            padding = self.random.choice(((half, rest, half, rest), (rest, half, rest, half)))
        rows = height + padding[0] + padding[1] - down
        columns = width + padding[2] + padding[3] - across
        if rows < 0 or columns < 0:
            return
        result = (n, rows // strides[1] + 1, columns // strides[0] + 1, depth)
        output = self.tensor(result, dtype, self.tensors[data].quantization)
        self.add(
            "pooling",
            (data,),
            output,
            size=(across, down),
            stride=strides,
            padding=padding,
            type=way,
        )

    def reshape(self) -> None:
        data, shape, dtype = self.data()
        whole = shape[1] * shape[2] * shape[3]
        to = self.random.choice(((1, 1, 1, whole), (1, shape[1], 1, shape[2] * shape[3])))
        self.add("reshape", (data,), self.tensor(to, dtype, self.tensors[data].quantization))

    def concatenation(self) -> None:
        data, shape, dtype = self.data()
        axis = self.random.choice((0, 1, 2, 3, 3))
        other = self.tensor(shape, dtype, self.numbers(dtype))
        result = [2 * size if d == axis else size for d, size in enumerate(shape)]
        output = self.tensor(_shape(result), dtype, self.numbers(dtype))
        self.add("concatenation", (data, other), output, axis=axis)

    def split(self) -> None:
        data, shape, dtype = self.data()
        axis = int(str(self.rarely(0, self.pick(1, 2, 3), 0.1)))
        first = shape[axis] // 2
        sizes = self.random.choice(((first, shape[axis] - first), (shape[axis],), (1, 1)))
        if 0 in sizes:
            return
        result = [sizes[0] if d == axis else size for d, size in enumerate(shape)]
        output = self.tensor(_shape(result), dtype, self.tensors[data].quantization)
        self.add("split", (data,), output, axis=axis, sizes=sizes, part=0)

    def transpose(self) -> None:
        data, shape, dtype = self.data()
        order = [0, *self.random.sample((1, 2, 3), 3)]
        if self.random.random() < 0.05:
            order = self.random.choice(([1, 0, 2, 3], [0, 1, 1, 2]))
        output = self.tensor(
            _shape([shape[axis] for axis in order]), dtype, self.tensors[data].quantization
        )
        self.add("transpose", (data,), output, order=tuple(order))

    def space_to_depth(self) -> None:
        data, shape, dtype = self.data()
        block = self.random.choice((1, 2, 2, 3))
        n, height, width, depth = shape
        result = (n, height // block, width // block, depth * block**2)
        if 0 in result:
            return
        output = self.tensor(result, dtype, self.tensors[data].quantization)
        self.add("space-to-depth", (data,), output, block=block)

    def depth_to_space(self) -> None:
        data, shape, dtype = self.data()
        block = self.random.choice((2, 2, 3))
        if shape[3] % (block * block):
            return
        result = (shape[0], shape[1] * block, shape[2] * block, shape[3] // block**2)
        output = self.tensor(result, dtype, self.tensors[data].quantization)
        self.add("depth-to-space", (data,), output, block=block)

    def resize(self) -> None:
        data, shape, dtype = self.data()
        grown = [self.random.choice((2 * size, 2 * size - 1, 3 * size)) for size in shape[1:3]]
        output = self.tensor((shape[0], *grown, shape[3]), dtype, self.numbers(dtype))
        way = str(self.pick("nearest", "bilinear"))
        self.add("resize", (data,), output, algorithm=way)

    def makers(self) -> Iterator[Callable[[], None]]:
        for kind in ("convolution", "convolution", "depthwise", "depthwise"):
            yield lambda kind=kind: self.weighted(kind)
        for _ in range(2):
            yield lambda: self.weighted("transpose-convolution")
        for kind in ("addition", "multiplication"):
            yield lambda kind=kind: self.binary(kind)
        for kind in ("sigmoid", "tanh"):
            yield lambda kind=kind: self.curve(kind)
        yield from (self.pooling, self.pooling, self.pooling, self.connected, self.relu)
        yield from (self.leaky, self.requantize, self.mean, self.reshape, self.concatenation)
        yield from (self.depth_to_space, self.resize, self.split, self.transpose)
        yield from (self.transpose, self.space_to_depth)


def _shape(sizes: list[int]) -> Shape:
    return sizes[0], sizes[1], sizes[2], sizes[3]


def _float32_product(data: NetworkTensor, scale: float) -> float:
    import numpy as np

    return float(np.float32(data.quantization.scale) * np.float32(scale))


def grid(seed: int, rounds: int) -> Network:
    """Return a network that is only a list of operations, ``rounds`` of each kind at most."""
    cases = Cases(seed)
    for make in list(cases.makers()):
        for _ in range(rounds):
            make()
    return Network(cases.tensors, (), tuple(cases.operations), (), ())
