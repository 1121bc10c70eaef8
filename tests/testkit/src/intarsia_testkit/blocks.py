# SPDX-License-Identifier: Apache-2.0
"""Building blocks of graphs: calls from tensors of one type to the same type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.support import Code, SupportTable
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError

from .cases.case import random_array

DTYPES = (
    *(DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64),
    *(DType.INT8, DType.INT32, DType.UINT8, DType.INT64, DType.BOOL),
)
SHAPES = ((1, 4, 6, 6), (4, 6), (24,))
LARGE = ((4, 8, 128, 128), (1, 16, 128, 128))
"""Large enough for several threads."""

DEEP = ((1, 64, 8, 8), (64, 96))
"""With weights that repay a layout of their own."""


@dataclass(frozen=True, eq=False)
class NetworkBlock:
    """An operator with its attributes and weights.

    Attributes:
        name: The operator.
        arity: How many of its first operands are tensors of the graph: 1 or 2.
        weights: The operands behind those.
        attrs: Its attributes.
    """

    name: str
    arity: int = 1
    weights: tuple[np.ndarray, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def apply(self, *args: Expr, at: str = "") -> Call:
        """A call named ``at`` in the model."""
        op = OPERATORS[self.name]
        operands = (*args[: self.arity], *(constant(weight) for weight in self.weights))
        return call(op, *operands, attrs=op.Attrs(**self.attrs), span=Span(at, self.name))


@dataclass(frozen=True, eq=False)
class NetworkBlocks:
    """What random graphs are made of.

    Attributes:
        type: Type of every tensor.
        taken: Blocks that the accelerator takes.
        refused: Blocks that it refuses; the fallback computes them.
    """

    type: TensorType
    taken: tuple[NetworkBlock, ...]
    refused: tuple[NetworkBlock, ...]

    def random(self, seed: int) -> np.ndarray:
        """A tensor of the type, of small values."""
        rng = np.random.default_rng(seed)
        return random_array(rng, self.type.static_shape, self.type.dtype.value, -1.0, 1.0)


def candidates(type_: TensorType) -> list[NetworkBlock]:
    """Blocks whose type rule accepts tensors of ``type_`` and gives ``type_`` back."""
    rng = np.random.default_rng(42)
    shape, dtype = type_.static_shape, type_.dtype.value

    def weight(*size: int, low: float = -0.4, high: float = 0.4) -> np.ndarray:
        return random_array(rng, size, dtype, low, high)

    plain = [name for name in OPERATORS if name not in ("copy", "reshape")]
    found = [NetworkBlock(name) for name in plain] + [NetworkBlock(name, 2) for name in plain]
    found += [
        NetworkBlock(name, 1, (weight(*shape[-1:]),)) for name in ("add", "multiply", "maximum")
    ]
    found += [NetworkBlock("clip", attrs={"min": -1.0, "max": 1.0})]
    for axis in range(len(shape)):
        found += [NetworkBlock(name, attrs={"axis": axis}) for name in ("nn.softmax", "cumsum")]
        found.append(NetworkBlock("flip", attrs={"axes": (axis,)}))
    last = len(shape) - 1
    scale, shift = weight(shape[-1], low=0.5, high=1.0), weight(shape[-1])
    found.append(NetworkBlock("nn.layer_norm", 1, (scale, shift), {"axis": last, "epsilon": 0.01}))
    if len(shape) >= 2:
        found.append(NetworkBlock("matmul", 1, (weight(shape[-1], shape[-1]),)))
        vectors = [weight(shape[1]) for _ in range(3)]
        variance = weight(shape[1], low=0.5, high=2.0)
        found.append(NetworkBlock("nn.batch_norm", 1, (*vectors, variance), {"epsilon": 0.01}))
    if len(shape) == 4:
        found += _windows(shape[1], weight)
    if len(shape) == 4 and type_.dtype in (DType.INT8, DType.UINT8):
        found += _quantized(shape[1], dtype, weight)
    return [block for block in found if _closed(block, type_)]


def _quantized(channels: int, dtype: str, weight: Any) -> list[NetworkBlock]:
    """Blocks on quantized tensors, all of one scale and zero point."""
    one = (np.asarray(0.02, np.float32), np.asarray(3, dtype))
    square = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    point = {**square, "padding": ((0, 0), (0, 0))}
    pool = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "kernel": (3, 3)}
    bias = np.arange(channels, dtype=np.int32)
    found = [NetworkBlock("qnn.avg_pool", 1, (*one, *one), pool)]
    for attrs, size in ((square, 3), (point, 1)):
        kernel = weight(channels, channels, size, size, low=-9.0, high=9.0)
        scaled = (*one, kernel, np.asarray(0.01, np.float32), np.asarray(0, dtype), *one, bias)
        found.append(NetworkBlock("qnn.conv", 1, scaled, attrs))
    return found


def _windows(channels: int, weight: Any) -> list[NetworkBlock]:
    square = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    point = {**square, "padding": ((0, 0), (0, 0))}
    kernel = weight(channels, channels, 3, 3)
    bias = weight(channels)
    return [
        NetworkBlock("nn.conv", 1, (kernel,), {**square, "groups": 1}),
        NetworkBlock("nn.conv", 1, (kernel, bias), {**square, "groups": 1}),
        NetworkBlock("nn.conv", 1, (weight(channels, channels, 1, 1),), {**point, "groups": 1}),
        NetworkBlock("nn.conv", 1, (weight(channels, 1, 3, 3),), {**square, "groups": channels}),
        NetworkBlock("nn.max_pool", attrs={**square, "kernel": (3, 3)}),
        NetworkBlock("nn.avg_pool", attrs={**square, "kernel": (3, 3)}),
    ]


def _closed(block: NetworkBlock, type_: TensorType) -> bool:
    try:
        made = block.apply(*(Var(f"x{i}", type_) for i in range(block.arity)))
    except (IntarsiaError, TypeError):  # the type rule, or attributes that must be given
        return False
    return made.type == type_


def choose_blocks(table: SupportTable | None) -> NetworkBlocks:
    """Return the blocks of the tensor type for which the accelerator takes most.

    Args:
        table: What it takes; ``None`` for a backend, which takes all.
    """
    best: NetworkBlocks | None = None
    for dtype in DTYPES:
        for shape in SHAPES:
            made = _judged(TensorType(shape, dtype), table)
            if best is None or len(made.taken) > len(best.taken):
                best = made
        if best is not None and len(best.taken) >= 2:
            break
    assert best is not None
    return best


def other_blocks(
    blocks: NetworkBlocks, table: SupportTable | None, shapes: Sequence[tuple[int, ...]]
) -> NetworkBlocks:
    """The blocks of the same element type for tensors of other shapes.

    Of the shapes the first of which anything is taken; the blocks themselves if there is none.
    """
    every = (_judged(TensorType(shape, blocks.type.dtype), table) for shape in shapes)
    return next((made for made in every if made.taken), blocks)


def _judged(type_: TensorType, table: SupportTable | None) -> NetworkBlocks:
    every = candidates(type_)
    if table is None:
        return NetworkBlocks(type_, tuple(every), ())
    params = (Var("x", type_), Var("y", type_))
    calls = [block.apply(*params, at=f"n{i}") for i, block in enumerate(every)]
    verdicts = annotate(Function(params, make_tuple(calls)), [("subject", table)]).verdicts
    taken = [b for b, c in zip(every, calls, strict=True) if verdicts[c][0].code is Code.OK]
    refused = [b for b in every if b not in taken]
    return NetworkBlocks(type_, tuple(taken), tuple(refused))


def random_graph(
    blocks: NetworkBlocks, choices: Sequence[tuple[int, int, int]], outputs: Sequence[int]
) -> IRModule:
    """Build a graph of blocks.

    Args:
        blocks: What to build with; two of three calls are taken ones.
        choices: For each call a block and two operands, counted back from the end.
        outputs: Values that are results, counted back from the end.
    """
    params = (Var("x", blocks.type), Var("y", blocks.type))
    pool: list[Expr] = list(params)
    for number, (which, a, b) in enumerate(choices):
        own = blocks.refused if which % 3 == 2 and blocks.refused else blocks.taken
        block = own[which // 3 % len(own)]
        args = (pool[-1 - a % len(pool)], pool[-1 - b % len(pool)])
        pool.append(block.apply(*args, at=f"n{number}"))
    results = list(dict.fromkeys(pool[-1 - o % len(pool)] for o in outputs))
    body = results[0] if len(results) == 1 else make_tuple(results)
    return IRModule.from_function(Function(params, body))


def sample_graph(blocks: NetworkBlocks) -> IRModule:
    """A graph with several regions: three taken calls, one refused, three taken, twice."""
    kinds = [3 * i if i % 4 != 3 else 3 * i + 2 for i in range(15)]
    return random_graph(blocks, [(kind, 0, 1 + i % 3) for i, kind in enumerate(kinds)], (0, 3))


def plain_graphs(blocks: NetworkBlocks, length: int) -> list[IRModule]:
    """A chain of taken calls, and each kind of heavy call alone: what a plugin may give back.

    Of each kind the call with the largest weights.
    """
    chains = [[number] for number in _heavy(blocks)] + [[*range(length)]]
    return [_chain(blocks, numbers) for numbers in chains]


def heavy_graph(blocks: NetworkBlocks) -> IRModule:
    """A chain of one call of each heavy kind, the one with the largest weights.

    A backend takes all operators, of which :func:`sample_graph` has the first fifteen: none heavy.
    """
    return _chain(blocks, _heavy(blocks))


def _heavy(blocks: NetworkBlocks) -> list[int]:
    """The number of one block of each heavy kind, that with the largest weights."""
    by_weights = sorted(enumerate(blocks.taken), key=_weight_bytes)
    return [*{block.name: number for number, block in by_weights if _is_anchor(block)}.values()]


def _chain(blocks: NetworkBlocks, numbers: Sequence[int]) -> IRModule:
    return random_graph(blocks, [(3 * number, 0, 1) for number in numbers], (0,))


def _weight_bytes(numbered: tuple[int, NetworkBlock]) -> int:
    return sum(weight.nbytes for weight in numbered[1].weights)


def _is_anchor(block: NetworkBlock) -> bool:
    return OPERATORS[block.name].kind is OpKind.ANCHOR
