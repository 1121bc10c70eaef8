# SPDX-License-Identifier: Apache-2.0
"""A grid of operator calls, and a program that asks the library's ``validate()`` about each."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np

from intarsia.plugin.accelerator import sizes
from intarsia_arm_acl.draft import AclDraft
from intarsia_arm_acl.emit import description, headers_of, own_functions, validation
from intarsia_arm_acl.operators.row import AclRow
from intarsia_arm_acl.prelude import ADAPTERS, INCLUDES
from intarsia_arm_acl.support import TABLE
from intarsia_ir.graph.expr import Call, Constant, Expr, Var, constant, tensor_type
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.pattern import Match
from intarsia_ir.graph.walk import count_uses
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_testkit.expressions import apply, number, var, weight

from .emulation import compile_program, emulator
from .regions import integers

_FUNCTIONS = 40
"""Cases of one C++ function; the compiler's time grows faster than a function's length."""


@dataclass(frozen=True)
class Case:
    """One call, and what the plugin says of it.

    Attributes:
        body: The call.
        row: The row that matched.
        match: Where.
        draft: The functions it would become.
    """

    body: Call
    row: AclRow
    match: Match
    draft: AclDraft

    def describe(self) -> str:
        """Return operator, shapes and attributes."""
        shapes = [str(expr.type) for expr in self.match.inputs]
        return f"{self.row.name} {shapes} {self.match.attrs}"


def cases(body: Call) -> Iterator[Case]:
    """Return a case for every row that matches a call and can say what it means."""
    for row in TABLE.rows:
        match = match_pattern(row.pattern, body, count_uses((body,)))
        if match is None or not TABLE.check(row, match):
            continue
        draft = AclDraft("grid")
        for expr in match.inputs:
            if not isinstance(expr, Constant):
                draft.values[expr] = draft.new_tensor(sizes(expr), tensor_type(expr).dtype)
        row.lower(draft, match)
        if draft.steps:
            yield Case(body, row, match, draft)


_LAST_ACTIVATIONS = (
    "ActivationLayerInfo::ActivationFunction::RELU",
    "ActivationLayerInfo::ActivationFunction::LU_BOUNDED_RELU, 6.0f, 0.0f",
    "ActivationLayerInfo::ActivationFunction::LU_BOUNDED_RELU, 0.7f, -0.5f",
)


def fused(found: list[Case], most: int = 60) -> list[Case]:
    """Return cases again with an activation behind them that the plugin fuses; the first of each.

    Args:
        found: Cases that the library takes.
        most: How many of each function, for each activation.
    """
    counts: Counter[tuple[str, str]] = Counter()
    questions: list[Case] = []
    for case in found:
        for text in _LAST_ACTIVATIONS:
            draft = deepcopy(case.draft)
            last = draft.steps[-1]
            if last.activation is None or counts[last.function, text] >= most:
                continue
            result = draft.activate(last.result, text, "activation")
            draft.fuse((result,))
            if draft.steps[-1].activation:
                counts[last.function, text] += 1
                questions.append(replace(case, draft=draft))
    return questions


def ask_library(found: list[Case], folder: Path) -> list[bool]:
    """Return what ``validate()`` says of every function of each case."""
    steps = [step for case in found for step in case.draft.steps]
    lines = [f'#include "{name}"' for name in (*INCLUDES, *headers_of(steps))]
    lines += ["#include <cstdio>", "#include <limits>", "#include <vector>"]
    lines += ["using namespace arm_compute;", ADAPTERS, *own_functions(steps)]
    lines.append(
        "struct T { TensorInfo i; T(const TensorShape &s, DataType t,"
        " const QuantizationInfo &q = QuantizationInfo()) : i(s, 1, t)"
        " { i.set_quantization_info(q); } TensorInfo *info() { return &i; } };"
    )
    lines.append("static void say(bool yes) { std::putchar(yes ? '1' : '0'); }")
    for start in range(0, len(found), _FUNCTIONS):
        lines.append(f"static void part{start}() {{")
        lines += [_question(case) for case in found[start : start + _FUNCTIONS]]
        lines.append("}")
    calls = " ".join(f"part{start}();" for start in range(0, len(found), _FUNCTIONS))
    lines.append(f"int main() {{ {calls} return 0; }}")
    program = compile_program("\n".join(lines), folder / "grid")
    command = [*(emulator() or ()), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout) == len(found)
    return [answer == "1" for answer in done.stdout]


def _question(case: Case) -> str:
    tensors = "".join(
        f"T t{tensor.number}({description(case.draft, tensor)}); " for tensor in case.draft.tensors
    )
    asked = " && ".join(f"bool({validation(step)})" for step in case.draft.steps)
    return f"{{ {tensors} say({asked}); }}"


Maker = Callable[[random.Random], Expr]


def _shape(rng: random.Random, rank: int, largest: int = 9) -> tuple[int, ...]:
    return tuple(rng.choice((1, 2, 3, 4, 5, largest)) for _ in range(rank))


def _windows(rng: random.Random, rank: int) -> dict[str, object]:
    return {
        "strides": tuple(rng.choice((1, 1, 2, 3)) for _ in range(rank)),
        "padding": tuple((rng.randrange(3), rng.randrange(3)) for _ in range(rank)),
        "dilation": tuple(rng.choice((1, 1, 1, 2)) for _ in range(rank)),
    }


def _kernel(rng: random.Random, rank: int) -> tuple[int, ...]:
    square = rng.choice((1, 2, 3, 5, 7))
    return tuple(square if rng.random() < 0.7 else rng.choice((1, 3, 4)) for _ in range(rank))


def convolution(rng: random.Random) -> Expr:
    """Return a convolution: plain, depthwise or grouped, 1 to 3 spatial dimensions."""
    rank = rng.choice((1, 2, 2, 2, 2, 3))
    channels, outputs = rng.choice((1, 2, 4, 6)), rng.choice((1, 2, 3, 4))
    groups = rng.choice((1, channels, channels, 2 if channels % 2 == 0 else 1))
    outputs *= groups
    shape = (rng.choice((1, 2)), channels, *(rng.choice((5, 8, 9)) for _ in range(rank)))
    weights = [weight(outputs, channels // groups, *_kernel(rng, rank))]
    if rng.random() < 0.5:
        weights.append(weight(outputs))
    return apply("nn.conv", var("x", *shape), *weights, groups=groups, **_windows(rng, rank))


def transposed(rng: random.Random) -> Expr:
    """Return a transposed convolution."""
    rank = rng.choice((1, 2, 2, 2))
    channels, outputs = rng.choice((1, 2, 4)), rng.choice((1, 3))
    shape = (rng.choice((1, 2)), channels, *(rng.choice((3, 5, 8)) for _ in range(rank)))
    settings = _windows(rng, rank) | {"dilation": (1,) * rank}
    kernel = weight(channels, outputs, *_kernel(rng, rank))
    return apply("nn.conv_transpose", var("x", *shape), kernel, **settings)


def pool(rng: random.Random) -> Expr:
    """Return a pooling, also l2."""
    settings = {**_windows(rng, 2), "kernel": _kernel(rng, 2), "ceil_mode": rng.random() < 0.4}
    x = var("x", *_shape(rng, 2), *(rng.choice((5, 8, 9, 12)) for _ in range(2)))
    kind = rng.choice(("max", "avg", "l2"))
    if kind == "max":
        return apply("nn.max_pool", x, **settings)
    counted = rng.random() < 0.4
    if kind == "avg":
        return apply("nn.avg_pool", x, **settings, count_include_pad=counted)
    squares = apply("multiply", x, x)
    return apply("sqrt", apply("nn.avg_pool", squares, **settings, count_include_pad=counted))


def reduction(rng: random.Random) -> Expr:
    """Return a reduction along some axes."""
    rank = rng.choice((1, 2, 3, 4, 4, 5, 6))
    axes = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
    name = rng.choice(("sum", "mean", "max", "min", "prod"))
    return apply(name, var("x", *_shape(rng, rank)), axes=axes, keepdims=rng.random() < 0.5)


def binary(rng: random.Random) -> Expr:
    """Return an element-wise function of two operands that broadcast."""
    shape = _shape(rng, rng.choice((1, 2, 3, 4, 5, 6)))
    other = tuple(1 if rng.random() < 0.3 else size for size in shape)[rng.randrange(len(shape)) :]
    names = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "nn.prelu")
    operands = (var("x", *shape), var("y", *other))
    name = rng.choice(names)
    if name != "nn.prelu" and rng.random() < 0.3:
        operands = operands[::-1]
    return apply(name, *operands)


def unary(rng: random.Random) -> Expr:
    """Return an element-wise function of one operand."""
    x = var("x", *_shape(rng, rng.randint(1, 6)))
    names = ("nn.relu", "sigmoid", "tanh", "sqrt", "abs", "nn.hard_swish", "rsqrt", "exp")
    name = rng.choice((*names, "negative", "log", "round", "sin", "clip", "nn.elu"))
    attrs = {"min": -1.0, "max": 2.0} if name == "clip" else {}
    return apply(name, x, **attrs)


def product(rng: random.Random) -> Expr:
    """Return a matrix product: constant or not, batched or not, transposed or not."""
    m, k, n = _shape(rng, 3)
    batch = _shape(rng, rng.choice((0, 0, 1, 2)))
    left, right = rng.random() < 0.3, rng.random() < 0.3
    a = var("x", *batch, *((k, m) if left else (m, k)))
    own = batch if rng.random() < 0.4 else ()
    size = (*own, *((n, k) if right else (k, n)))
    b = weight(*size) if rng.random() < 0.4 else var("y", *size)
    result = apply("matmul", a, b, transpose_a=left, transpose_b=right)
    return apply("add", result, weight(n)) if rng.random() < 0.3 else result


def normalization(rng: random.Random) -> Expr:
    """Return a softmax or a normalization."""
    rank = rng.choice((1, 2, 3, 4, 4, 5))
    shape = _shape(rng, rank)
    x = var("x", *shape)
    name = rng.choice(("nn.softmax", "nn.log_softmax", "batch_norm", "lrn", "layer_norm"))
    axis = rng.randrange(rank)
    if name == "layer_norm":
        return apply("nn.layer_norm", x, weight(*shape[axis:]), axis=axis)
    if name in ("nn.softmax", "nn.log_softmax"):
        return apply(name, x, axis=axis)
    x = var("x", *_shape(rng, 4))
    if name == "lrn":
        return apply("nn.lrn", x, size=rng.choice((1, 2, 3, 5)))
    return apply("nn.batch_norm", x, *(weight(sizes(x)[1], positive=True) for _ in range(4)))


def arrangement(rng: random.Random) -> Expr:
    """Return a transpose, slice, concatenation, pad or resize of elements of any width."""
    rank = rng.choice((1, 2, 3, 4, 4, 4, 5))
    shape = _shape(rng, rank)
    dtype = rng.choice((DType.FLOAT32, DType.FLOAT16, *_BYTES))
    x = var("x", *shape, dtype=dtype)
    match rng.choice(("transpose", "slice", "concatenate", "pad", "resize", "squares", "reshape")):
        case "transpose":
            return apply("transpose", x, axes=rng.choice(list(permutations(range(rank)))))
        case "slice":
            begin = tuple(rng.randrange(size) for size in shape)
            end = tuple(rng.randint(b + 1, s) for b, s in zip(begin, shape, strict=True))
            return apply("strided_slice", x, begin=begin, end=end, strides=(1,) * rank)
        case "concatenate":
            axis = rng.randrange(rank)
            parts = [x]
            for number in range(rng.randint(1, 3)):
                size = rng.randint(1, 4)
                rest = (*shape[:axis], size, *shape[axis + 1 :])
                parts.append(var(f"y{number}", *rest, dtype=dtype))
            return apply("concatenate", *parts, axis=axis)
        case "pad":
            widths = tuple((rng.randrange(3), rng.randrange(3)) for _ in range(rank))
            return apply("nn.pad", x, widths=widths, value=float(rng.randrange(3)))
        case "squares":
            block = rng.choice((2, 3))
            batch, channels, height, width = _shape(rng, 4)
            if rng.random() < 0.5:
                x = var("x", batch, channels * block**2, height, width, dtype=dtype)
                return apply("nn.depth_to_space", x, block=block, mode=rng.choice(("DCR", "CRD")))
            x = var("x", batch, channels, height * block, width * block, dtype=dtype)
            return apply("nn.space_to_depth", x, block=block)
        case "resize":
            image = _shape(rng, 4)
            sizes = (*image[:2], *(n * rng.randint(1, 3) for n in image[2:]))
            linear = {"mode": "linear"}
            nearest = {"coordinate_mode": "asymmetric", "nearest_mode": "floor"}
            rule = rng.choice((linear, nearest))
            dtype = rng.choice((DType.FLOAT32, DType.FLOAT32, *_BYTES))
            return apply("nn.resize", var("x", *image, dtype=dtype), sizes=sizes, **rule)
        case _:
            return apply("reshape", x, shape=tuple(reversed(shape)))


def quantized(rng: random.Random) -> Expr:
    """Return a quantized convolution, product, sum, mean, or what moves integers."""
    dtype, other = rng.choice(_BYTES), rng.choice(_BYTES)
    if rng.random() < 0.8:
        other = dtype
    zero, new_zero = (constant(np.array(3, kind.value)) for kind in (dtype, other))
    data = (number(0.02), zero)
    result = (number(0.05), new_zero)
    kinds = ("conv", "conv", "matmul", "binary", "pool", "mean", "convert", "move", "pick", "back")
    kind = rng.choice((*kinds, "softmax"))
    x = var("x", *_shape(rng, 2), *(rng.choice((5, 8, 9)) for _ in range(2)), dtype=dtype)
    match kind:
        case "conv":
            channels = sizes(x)[1]
            groups = rng.choice((1, channels))
            outputs = groups * rng.choice((1, 2, 3))
            weights = constant(integers(outputs, channels // groups, *_kernel(rng, 2)))
            scale = constant(np.full(rng.choice(((), (outputs,))), 0.01, np.float32))
            filters = (weights, scale, constant(np.zeros((), np.int8)))
            bias = (constant(np.zeros(outputs, np.int32)),) if rng.random() < 0.5 else ()
            settings = _windows(rng, 2)
            return apply("qnn.conv", x, *data, *filters, *result, *bias, groups=groups, **settings)
        case "matmul":
            matrix = constant(integers(sizes(x)[-1], rng.choice((1, 3, 8))))
            filters = (matrix, number(0.01), constant(np.zeros((), np.int8)))
            return apply("qnn.matmul", x, *data, *filters, *result)
        case "binary":
            name = rng.choice(("qnn.add", "qnn.subtract", "qnn.multiply"))
            shape = tuple(1 if rng.random() < 0.2 else size for size in sizes(x))
            return apply(name, x, *data, var("y", *shape, dtype=dtype), *data, *result)
        case "mean":
            axes = tuple(sorted(rng.sample(range(4), rng.randint(1, 4))))
            return apply("qnn.mean", x, *data, *result, axes=axes, keepdims=rng.random() < 0.5)
        case "back":
            weights = constant(integers(sizes(x)[1], rng.choice((1, 3)), *_kernel(rng, 2)))
            weights = constant(weights.data.view(dtype.value))
            settings = _windows(rng, 2) | {"dilation": (1, 1)}
            filters = (weights, number(0.01), zero)
            return apply("qnn.conv_transpose", x, *data, *filters, number(0.05), zero, **settings)
        case "softmax":
            least = constant(np.array(np.iinfo(dtype.value).min, dtype.value))
            fixed = (number(1 / 256), least)
            return apply("qnn.softmax", x, *data, *fixed, axis=rng.choice((1, 3, 3)))
        case "pick":
            clipped = apply("clip", x, min=float(rng.choice((3, 9))), max=float(rng.randint(9, 90)))
            return rng.choice((clipped, apply("max", x, axes=(2, 3))))
        case "pool":
            settings = _windows(rng, 2) | {"kernel": _kernel(rng, 2)}
            return apply("qnn.avg_pool", x, *data, *result, **settings)
        case "convert":
            if rng.random() < 0.4:
                return apply("qnn.requantize", x, *data, *result)
            if rng.random() < 0.5:
                return apply("qnn.dequantize", x, *data)
            return apply("qnn.quantize", var("f", *sizes(x)), number(0.02), zero)
        case _:
            settings = _windows(rng, 2) | {"kernel": _kernel(rng, 2)}
            moves = (
                apply("transpose", x, axes=rng.choice(list(permutations(range(4))))),
                apply("reshape", x, shape=sizes(x)[::-1]),
                apply("concatenate", x, x, axis=rng.randrange(4)),
                apply("nn.max_pool", x, **settings),
            )
            return rng.choice(moves)


_BYTES = (DType.INT8, DType.UINT8)

MAKERS: dict[Maker, int] = {
    convolution: 600,
    transposed: 200,
    pool: 400,
    reduction: 300,
    binary: 400,
    unary: 150,
    product: 300,
    normalization: 300,
    arrangement: 500,
    quantized: 900,
}
"""How many calls of each family the grid tries; some have types that the operator refuses."""


def generate(seed: int = 7) -> list[Case]:
    """Return the grid."""
    rng = random.Random(seed)
    found: list[Case] = []
    for maker, count in MAKERS.items():
        for _ in range(count):
            try:
                body = maker(rng)
            except TypeRuleError:
                continue  # a window larger than the data, and the like
            assert isinstance(body, Call | Var)
            if isinstance(body, Call):
                found.extend(cases(body))
    return found
