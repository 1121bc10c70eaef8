# SPDX-License-Identifier: Apache-2.0
"""Every primitive with every post-operation, in every layout, against the definitions.

A case is a function of one or two operators of the model, compiled as one region as any other. Its
inputs are put into layouts that other primitives of a region leave values in.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from intarsia_dnnl.assembly import Assembly
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.packed import PackedLayout
from intarsia_dnnl.primitives import build_node
from intarsia_dnnl.program import FILE, PrimitiveProgram, parse_program
from intarsia_dnnl.region import LoadedPrimitives
from intarsia_dnnl.sdk import Dnnl, longs
from intarsia_dnnl.target import DnnlOptions
from intarsia_ir.graph.expr import Constant, Expr, Function, tensor_type
from intarsia_runtime.loading import LoadRequest
from intarsia_testkit.expressions import apply, expected, fresh, function_of, number, var, weight

from .regions import region_of, request_for, verdicts

Shape = tuple[int, ...]
Chain = Callable[[Expr], Expr]

LAYOUTS = ("plain", "channels-last", "blocked8", "blocked16", "swapped")
"""DnnlRow-major; channels innermost; blocks of 8 or 16 of them; the last two axes swapped."""


# Layouts ----------------------------------------------------------------------------------------


def describe(dnnl: Dnnl, layout: str, shape: Shape, dtype: int) -> int | None:
    """Describe a layout by its name; ``None`` if there is no such for the shape."""
    rank = len(shape)
    if layout == "plain":
        return dnnl.plain(shape, dtype)
    if layout == "channels-last":
        return _ordered(dnnl, shape, dtype, (0, *range(2, rank), 1)) if rank > 2 else None
    if layout == "swapped":
        return _ordered(dnnl, shape, dtype, (*range(rank - 2), rank - 1, rank - 2))
    tag = _blocked_tags(dnnl.path).get((rank, int(layout.removeprefix("blocked"))))
    if tag is None:
        return None
    return dnnl.make("memory_desc_create_with_tag", rank, longs(shape), dtype, tag)


def _ordered(dnnl: Dnnl, shape: Shape, dtype: int, order: Shape) -> int:
    return dnnl.permuted(dnnl.plain([shape[axis] for axis in order], dtype), order)


@cache
def _blocked_tags(_path: object) -> Mapping[tuple[int, int], int]:
    """Find the library's numbers of blocked layouts, by rank and size of a block."""
    dnnl, found = Dnnl(), {}
    for rank, tag in itertools.product((3, 4, 5), range(2, 1000)):
        sizes = (32, 32, *(3,) * (rank - 2))
        made = dnnl.try_make("memory_desc_create_with_tag", rank, longs(sizes), 3, tag)
        layout = dnnl.layout(made) if made is not None else None
        for size in (8, 16):
            if layout is not None and layout == _blocked(sizes, size):
                found.setdefault((rank, size), tag)
    dnnl.close()
    return found


def _blocked(shape: Shape, size: int) -> PackedLayout:
    strides, step = [0] * len(shape), size
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis] // (size if axis == 1 else 1)
    return PackedLayout(shape, tuple(strides), shape, ((1, size),))


class InLayouts(LoadedPrimitives):
    """A region whose inputs are first brought into layouts of the case's."""

    def __init__(
        self, program: PrimitiveProgram, request: LoadRequest, layouts: tuple[str, ...]
    ) -> None:
        self._layouts = layouts
        super().__init__(program, request)

    def _build(
        self, program: PrimitiveProgram, request: LoadRequest, narrow: frozenset[int] | None
    ) -> Assembly:
        assembly = Assembly(self._dnnl, program, request.constants, build_node, narrow)
        for value, layout in zip(program.inputs, self._layouts, strict=True):
            kind = assembly.dtypes[value]
            desc = describe(self._dnnl, layout, assembly.shapes[value], kind)
            if desc is not None:
                assembly.values[value] = assembly.in_layout(assembly.values[value], desc)
        for node in program.nodes:
            build_node(assembly, node)
        assembly.commit()
        return assembly


# What is computed -------------------------------------------------------------------------------


def _window(rank: int, size: int, *, stride: int = 1) -> dict[str, Any]:
    low = size // 2
    return {
        "strides": (stride,) * rank,
        "padding": ((low, size - 1 - low),) * rank,
        "dilation": (1,) * rank,
    }


def _conv(outputs: int, size: int, *, name: str = "nn.conv", groups: int = 1) -> Chain:
    def make(x: Expr) -> Expr:
        channels, rank = sizes(x)[1], len(sizes(x)) - 2
        many = outputs or channels
        shape = (many, channels // groups) if name == "nn.conv" else (channels, many // groups)
        weights = weight(*shape, *(size,) * rank)
        return apply(name, x, weights, **_window(rank, size), groups=groups)

    return make


def _depthwise(x: Expr) -> Expr:
    channels, rank = sizes(x)[1], len(sizes(x)) - 2
    weights = weight(channels, 1, *(3,) * rank)
    return apply("nn.conv", x, weights, **_window(rank, 3), groups=channels)


def _pool(name: str, size: int, stride: int) -> Chain:
    def make(x: Expr) -> Expr:
        rank = len(sizes(x)) - 2
        return apply(name, x, kernel=(size,) * rank, **_window(rank, size, stride=stride))

    return make


def _resize(mode: str, factor: int) -> Chain:
    rule = {"coordinate_mode": "asymmetric", "nearest_mode": "floor"}
    if mode == "linear":
        rule = {"coordinate_mode": "half_pixel"}

    def make(x: Expr) -> Expr:
        shape = sizes(x)
        return apply(
            "nn.resize",
            x,
            sizes=(*shape[:2], *(size * factor for size in shape[2:])),
            scales=(1.0, 1.0, *(float(factor) for _ in shape[2:])),
            mode=mode,
            **rule,
        )

    return make


def _reduced(name: str, axes: Callable[[int], Shape]) -> Chain:
    return lambda x: apply(name, x, axes=axes(len(sizes(x))), keepdims=True)


def _norm(x: Expr) -> Expr:
    last = len(sizes(x)) - 1
    size = sizes(x)[-1]
    return apply("nn.layer_norm", x, weight(size), weight(size, seed=2), axis=last, epsilon=1e-2)


def _batch_norm(x: Expr) -> Expr:
    size = sizes(x)[1]
    numbers = [weight(size, seed=seed, positive=seed > 2) for seed in range(1, 5)]
    return apply("nn.batch_norm", x, *numbers, epsilon=1e-3)


def _prelu(full: bool) -> Chain:
    def make(x: Expr) -> Expr:
        shape = sizes(x)
        return apply(
            "nn.prelu", x, weight(*(shape if full else (shape[1], *(1,) * (len(shape) - 2))))
        )

    return make


BASES: Mapping[str, Chain] = {
    "conv1": _conv(0, 1),
    "conv3": _conv(0, 3),
    "conv1to17": _conv(17, 1),
    "conv1to3": _conv(3, 1),
    "depthwise": _depthwise,
    "deconv3": _conv(0, 3, name="nn.conv_transpose"),
    "max_pool3": _pool("nn.max_pool", 3, 1),
    "max_pool2": _pool("nn.max_pool", 2, 2),
    "avg_pool3": _pool("nn.avg_pool", 3, 1),
    "global_mean": _reduced("mean", lambda rank: tuple(range(2, rank))),
    "global_max": _reduced("max", lambda rank: tuple(range(2, rank))),
    "sum_last": _reduced("sum", lambda rank: (rank - 1,)),
    "mean_channels": _reduced("mean", lambda _: (1,)),
    "prod_last": _reduced("prod", lambda rank: (rank - 1,)),
    "nearest2": _resize("nearest", 2),
    "nearest3": _resize("nearest", 3),
    "linear2": _resize("linear", 2),
    "relu": lambda x: apply("nn.relu", x),
    "tanh": lambda x: apply("tanh", x),
    "multiply": lambda x: apply("multiply", x, weight(*sizes(x))),
    "add_channels": lambda x: apply(
        "add", x, weight(sizes(x)[1], *(1,) * (len(sizes(x)) - 2), seed=3)
    ),
    "softmax1": lambda x: apply("nn.softmax", x, axis=1),
    "softmax_last": lambda x: apply("nn.softmax", x, axis=len(sizes(x)) - 1),
    "log_softmax": lambda x: apply("nn.log_softmax", x, axis=len(sizes(x)) - 1),
    "layer_norm": _norm,
    "batch_norm": _batch_norm,
    "lrn": lambda x: apply("nn.lrn", x, size=5, alpha=0.01, beta=0.75, bias=1.5),
    "prelu": _prelu(False),
    "prelu_full": _prelu(True),
    "concat": lambda x: apply("concatenate", x, var("z", *sizes(x)), axis=1),
    "concat_last": lambda x: apply("concatenate", x, x, axis=len(sizes(x)) - 1),
    "slice": lambda x: apply(
        "strided_slice",
        x,
        begin=(0, sizes(x)[1] // 2, *(1 for _ in sizes(x)[2:])),
        end=sizes(x),
        strides=(1,) * len(sizes(x)),
    ),
    "transpose": lambda x: apply("transpose", x, axes=(0, *range(2, len(sizes(x))), 1)),
    "matmul": lambda x: apply("matmul", x, weight(sizes(x)[-1], 17)),
    "matmul16": lambda x: apply("matmul", x, weight(sizes(x)[-1], 16)),
    "attention": lambda x: apply("matmul", x, var("z", *sizes(x)), transpose_b=True),
}
"""Name of a primitive, with its size, to what makes it of a value."""


def sizes(x: Expr) -> Shape:
    """Return the static shape of an expression."""
    return tensor_type(x).static_shape


def _function(name: str, **attrs: Any) -> Chain:
    return lambda y: apply(name, y, **attrs)


def _with(name: str, shape_of: Callable[[Shape], Shape], *, constant: bool = True) -> Chain:
    def make(y: Expr) -> Expr:
        shape = shape_of(sizes(y))
        if name == "divide":
            return apply(name, y, weight(*shape, positive=True))
        return apply(name, y, weight(*shape) if constant else var("w", *shape))

    return make


def _joined(*chains: Chain) -> Chain:
    def make(y: Expr) -> Expr:
        for chain in chains:
            y = chain(y)
        return y

    return make


def _full(shape: Shape) -> Shape:
    return shape


def _channels(shape: Shape) -> Shape:
    return tuple(size if axis == 1 else 1 for axis, size in enumerate(shape))


def _rows(shape: Shape) -> Shape:
    return (*(1,) * (len(shape) - 1), shape[-1])


def _spatial(shape: Shape) -> Shape:
    return (1, 1, *shape[2:])


def _image(shape: Shape) -> Shape:
    return (1, *shape[1:])


def _image_channels(shape: Shape) -> Shape:
    return (*shape[:2], *(1,) * (len(shape) - 2))


def _one(shape: Shape) -> Shape:
    return (1,) * len(shape)


_relu, _add = _function("nn.relu"), _with("add", _full, constant=False)

ELTWISE: Mapping[str, Chain] = {
    **{
        name: _function(name)
        for name in (
            *("nn.relu", "tanh", "sigmoid", "exp", "abs", "negative", "round"),
            *("nn.hard_swish", "nn.softplus", "nn.silu", "nn.mish", "nn.gelu"),
        )
    },
    "sqrt": _joined(_function("abs"), _function("sqrt")),
    "leaky": _function("nn.leaky_relu", alpha=0.1),
    "elu": _function("nn.elu", alpha=0.7),
    "hard_sigmoid": _function("nn.hard_sigmoid", alpha=0.2, beta=0.5),
    "clip": _function("clip", min=-0.5, max=0.75),
    "plus": lambda y: apply("add", y, number(0.5)),
    "square": lambda y: apply("power", y, number(2.0)),
}
BINARY: Mapping[str, Chain] = {
    "add full": _add,
    "mul full": _with("multiply", _full, constant=False),
    "sub full": _with("subtract", _full, constant=False),
    "add full constant": _with("add", _full),
    "mul channels": _with("multiply", _channels),
    "div channels": _with("divide", _channels),
    "sub channels variable": _with("subtract", _channels, constant=False),
    "mul image channels": _with("multiply", _image_channels, constant=False),
    "add rows": _with("add", _rows),
    "mul rows variable": _with("multiply", _rows, constant=False),
    "mul spatial": _with("multiply", _spatial, constant=False),
    "add image": _with("add", _image, constant=False),
    "mul one": _with("multiply", _one, constant=False),
}
CHAINS: Mapping[str, Chain] = {
    "relu add": _joined(_relu, _add),
    "add relu": _joined(_add, _relu),
    "sigmoid mul": _joined(_function("sigmoid"), BINARY["mul full"]),
    "mul channels add rows relu": _joined(BINARY["mul channels"], BINARY["add rows"], _relu),
    "add image mul channels": _joined(BINARY["add image"], BINARY["mul channels"]),
    "square add plus": _joined(ELTWISE["square"], _add, ELTWISE["plus"]),
    "sum": lambda y: apply("add", y, apply("tanh", var("w", *sizes(y)))),
    "sum relu": _joined(lambda y: apply("add", y, apply("abs", var("w", *sizes(y)))), _relu),
}
POSTS: Mapping[str, Chain] = {"": lambda y: y, **ELTWISE, **BINARY, **CHAINS}
"""Name of what is done to the result of a primitive, to what makes it."""

SHAPES: tuple[Shape, ...] = (
    *((1, channels, 5, 7) for channels in (1, 3, 8, 16, 17, 32)),
    *((2, channels, 6, 5) for channels in (3, 16, 17, 24)),
    *((1, 16, 16, 16), (1, 8, 1, 1), (2, 16, 1, 1), (1, 16, 1, 9), (2, 8, 4, 1)),
    *((1, channels, 11) for channels in (1, 3, 8, 17, 64)),
    *((2, 16, 1), (1, 64, 64), (2, 16, 33)),
    *((1, 3, 3, 4, 5), (2, 16, 3, 2, 5), (1, 8, 1, 3, 3), (1, 17, 2, 3, 3)),
    *((5, 7), (1, 16), (3, 32), (16, 1)),
)


@dataclass(frozen=True)
class Case:
    """A function, and the layouts of its inputs."""

    base: str
    post: str
    shape: Shape
    layouts: tuple[str, str]
    mode: str = "strict"

    @property
    def id(self) -> str:
        """Name it in a report."""
        size = "x".join(map(str, self.shape))
        return f"{self.base}+{self.post}-{size}-{'-'.join(self.layouts)}-{self.mode}"

    def function(self, *, exact: bool = False) -> Function | None:
        """Return the function; ``None`` if there is none, or the plugin does not take it."""
        try:
            body = POSTS[self.post](BASES[self.base](var("x", *self.shape)))
        except Exception:  # a type rule: no such operator on this shape
            return None
        if isinstance(body, Constant) or not all(verdicts(body, exact=exact).values()):
            return None
        return function_of(body)


def sampled(count: int, seed: int = 0, mode: str = "strict") -> Iterator[Case]:
    """Draw cases, of every primitive with every post-operation as many."""
    for base, post in itertools.product(BASES, POSTS):
        r = random.Random(f"{seed} {base} {post}")
        two = "full" in post or "sum" in post or base in ("concat", "attention")
        for _ in range(count):
            shape = r.choice(SHAPES)
            layouts = LAYOUTS if len(shape) > 2 else ("plain", "swapped")
            other = r.choice(layouts) if two else "plain"
            yield Case(base, post, shape, (r.choice(layouts), other), mode)


@dataclass(frozen=True)
class Result:
    """What became of a case.

    Attributes:
        implementations: Names of the kernels.
        wrong: Number of elements that are not what the definition gives.
        of: Number of elements.
        detail: The first of them.
    """

    implementations: tuple[str, ...]
    wrong: int
    of: int
    detail: str = ""


SPECIAL: Mapping[str, tuple[float, ...]] = {
    "nan": (np.nan,),
    "inf": (np.inf, -np.inf),
    "zero": (0.0, -0.0, 1e-40, -1e-40),
}


def run(case: Case, *, special: str = "") -> Result | None:
    """Run a case against the definitions; ``None`` if the plugin does not take it."""
    function = case.function(exact=bool(special))
    if function is None:
        return None
    names = {"x": case.layouts[0], "z": case.layouts[1], "w": case.layouts[1]}
    layouts = tuple(names[param.name] for param in function.params)
    arrays = [_data(sizes(param), i, special=special) for i, param in enumerate(function.params)]
    (wanted,) = expected(function, arrays)
    options = {"fpmath_mode": case.mode, "special": "exact" if special else "library"}
    kernels, found = in_layouts(function, layouts, arrays, np.dtype(np.float32), **options)
    return _compared(kernels, found, wanted, case.mode)


def in_layouts(
    function: Function,
    layouts: tuple[str, ...],
    arrays: list[np.ndarray],
    dtype: np.dtype[Any],
    **options: Any,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Run a function of one result with its inputs in layouts.

    Returns:
        The names of the kernels, and the result.
    """
    unit = compile_region(region_of(function), DnnlOptions(prepack=False, **options))
    request = request_for(function, unit)
    region = InLayouts(parse_program(unit.files[FILE]), request, layouts)
    try:
        found = np.full(request.outputs[0].shape, 113, dtype)
        region.run(*arrays, found)
        return region.implementations, found
    finally:
        region.close()


def _data(shape: Shape, seed: int, *, special: str) -> np.ndarray:
    data = fresh(*shape, seed=seed)
    if special:
        r = np.random.default_rng([seed, *shape])
        places = r.random(shape) < 0.1
        data[places] = r.choice(SPECIAL[special], int(places.sum()))
    return data


def _compared(names: tuple[str, ...], found: np.ndarray, wanted: np.ndarray, mode: str) -> Result:
    relative = 1e-4 if mode == "strict" else 0.1  # in bfloat16, of what may be a small difference
    finite = wanted[np.isfinite(wanted)]
    absolute = relative * max(1.0, float(np.abs(finite).max(initial=0))) if finite.size else 0.0
    if mode == "strict":
        absolute = min(absolute, 1e-2)
    with np.errstate(all="ignore"):
        right = np.isclose(found, wanted, rtol=relative, atol=absolute, equal_nan=True)
    places = np.flatnonzero(~right)
    detail = ""
    if places.size:
        first = places[0]
        detail = f"[{first}] {found.flat[first]} is not {wanted.flat[first]}"
    return Result(names, int(places.size), wanted.size, detail)
