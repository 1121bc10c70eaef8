# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models with what ONNX's reference evaluator makes of them.

Nodes are drawn one after the other and carried out at once, so each knows the shapes and values it
gets. Sizes may be 0 and 1, axes negative, and a value may go to several nodes and be a result.
Where a small error would become a large one (a comparison, a rounding), operands are integers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSET = 20
FLOATS = tuple(np.dtype(name) for name in ("float32", "float32", "float64", "float16"))
WHOLE = tuple(np.dtype(name) for name in ("int64", "int32", "int8", "uint8"))
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17)
MOST = 20_000  # elements of a value
LARGEST = {2: 1e3, 4: 1e3, 8: 1e6}  # of numbers by their bytes; what is larger loses its digits
SMOOTH = (
    *("Relu", "Elu", "Sigmoid", "HardSwish", "Softplus", "Tanh", "Abs", "Neg", "Erf", "Gelu"),
    *("Sin", "Cos"),
)
SUMS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")


class Discarded(Exception):
    """A node that ONNX does not allow here, or whose result is too large to be compared."""


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor of the model, and what it is for the drawn inputs."""

    name: str
    data: np.ndarray


@dataclass
class Drawing:
    """A model while it is drawn."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    names: int = 0

    def often(self, share: float) -> bool:
        """True in this share of all cases."""
        return bool(self.rng.random() < share)

    def one(self, choices: Sequence[Any]) -> Any:
        """Any of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def array(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """Numbers of few digits."""
        if dtype.kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        low = 0 if dtype.kind == "u" else -9
        scale = 4.0 if dtype.kind == "f" else 1
        return np.asarray(self.rng.integers(low, 10, shape) / scale).astype(dtype)

    def _name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def constant(self, data: object, dtype: object = np.int64) -> Value:
        """A weight, or an operand that a node wants to know beforehand."""
        value = Value(self._name(), np.asarray(data, dtype))
        self.constants.append(numpy_helper.from_array(value.data, value.name))
        return value

    def input(self, shape: Sequence[int], dtype: np.dtype) -> Value:
        """An input of the model."""
        value = Value(self._name(), self.array(shape, dtype))
        self.inputs.append(value)
        self.values.append(value)
        return value

    def other(self, shape: Sequence[int], dtype: np.dtype) -> Value:
        """An operand: some value of that type, a weight or an input."""
        alike = [v for v in self.values if (v.data.shape, v.data.dtype) == (tuple(shape), dtype)]
        if alike and self.often(0.3):
            return self.one(alike)
        if self.often(0.6):
            return self.constant(self.array(shape, dtype), dtype)
        return self.input(shape, dtype)

    def axis(self, rank: int) -> int:
        """One axis of a value, counted from either end."""
        return int(self.rng.integers(-rank, rank))

    def node(self, op: str, *operands: Value, results: int = 1, **attrs: Any) -> Value:
        """Append a node, and carry it out."""
        names = [self._name() for _ in range(results)]
        made = helper.make_node(op, [value.name for value in operands], names, **attrs)
        given = {value.name: value.data for value in operands}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                found = ReferenceEvaluator(_model([made], given, names)).run(None, given)
        except Exception as error:  # the evaluator raises anything
            raise Discarded from error
        arrays = [np.asarray(array) for array in found]
        for array in arrays:
            small = array.dtype.kind != "f" or not array.size
            limit = 0.0 if small else LARGEST[array.dtype.itemsize]
            if array.size > MOST or not (small or np.abs(array).max() < limit):
                raise Discarded
        self.nodes.append(made)
        made_values = [Value(*pair) for pair in zip(names, arrays, strict=True)]
        self.values += made_values
        return made_values[0]


def _model(
    nodes: list[onnx.NodeProto], given: dict[str, np.ndarray], results: Sequence[str]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape
            )
            for name, data in given.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )
    imports = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def elements(d: Drawing, x: Value) -> None:
    """One function of each element, or of each two."""
    shape, dtype = x.data.shape, x.data.dtype
    if dtype.kind == "f" and d.often(0.5):
        d.node(d.one(SMOOTH), x)
        return
    other = [size if d.often(0.6) else 1 for size in shape]
    if d.often(0.2):
        other = [int(d.rng.integers(1, 4)), *other]
    if dtype.kind == "b":
        d.node(d.one(["And", "Or", "Xor"]), x, d.other(other, dtype))
    elif dtype.kind != "f" and d.often(0.5):
        d.node(d.one(["Less", "Equal", "BitwiseXor"]), x, d.other(other, dtype))
    else:
        pair = [x, d.other(other, dtype)]
        d.node(d.one(["Add", "Sub", "Mul", "Max", "Min"]), *(pair if d.often(0.7) else pair[::-1]))


def choices(d: Drawing, x: Value) -> None:
    """One of two by a condition, or another element type."""
    shape, dtype = x.data.shape, x.data.dtype
    if d.often(0.5):
        condition = d.other([size if d.often(0.6) else 1 for size in shape], np.dtype(bool))
        d.node("Where", condition, x, d.other(shape, dtype))
        return
    to = d.one(FLOATS if dtype.kind == "f" else (*FLOATS, *WHOLE, np.dtype(bool)))
    d.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(to))


def statistics(d: Drawing, x: Value) -> None:
    """Sums and what is like sums, over some axes or along one."""
    rank, dtype = x.data.ndim, x.data.dtype
    if dtype.kind != "f" and dtype != np.int64:
        raise Discarded
    if rank and d.often(0.3):
        flags = {"exclusive": int(d.often(0.5)), "reverse": int(d.often(0.5))}
        d.node("CumSum", x, d.constant(d.axis(rank)), **flags)
        return
    axes = [axis - rank * d.often(0.3) for axis in range(rank) if d.often(0.4)]
    op = d.one(SUMS if dtype.kind == "f" else SUMS[2:5])
    d.node(op, x, d.constant(axes), keepdims=int(d.often(0.5)))


def moves(d: Drawing, x: Value) -> None:
    """Elements in another order or shape."""
    shape, rank = x.data.shape, x.data.ndim
    match d.one(["flat", "turn", "unsqueeze", "expand", "tile", "reshape"]):
        case "flat":
            d.node("Flatten", x, axis=int(d.rng.integers(-rank, rank + 1)))
        case "turn" if rank:
            d.node("Transpose", x, perm=[int(axis) for axis in d.rng.permutation(rank)])
        case "unsqueeze":
            d.node("Unsqueeze", x, d.constant([int(d.rng.integers(-rank - 1, rank + 1))]))
        case "expand":
            wide = [size if size != 1 else int(d.rng.integers(1, 5)) for size in shape]
            d.node("Expand", x, d.constant([2, *wide] if d.often(0.4) else wide))
        case "tile" if rank:
            d.node("Tile", x, d.constant(d.rng.integers(1, 3, rank)))
        case _:
            parts = [size for size in shape if size != 1][::-1]
            whole = [-1 if n == 0 and 0 not in parts else size for n, size in enumerate(parts)]
            d.node("Reshape", x, d.constant(whole), allowzero=int(0 in parts))


def places(d: Drawing, x: Value) -> None:
    """A part of the elements, or more around them."""
    shape, rank = x.data.shape, x.data.ndim
    if not rank:
        raise Discarded
    axis = d.axis(rank)
    size = shape[axis]
    match d.one(["slice", "slice", "pad", "split", "concat", "gather", "scatter", "top"]):
        case "slice":
            step = int(d.one([1, 1, 2, 3, -1, -2]))
            start, end = (int(place) for place in d.rng.integers(-size - 1, size + 2, 2))
            d.node("Slice", x, *(d.constant([n]) for n in (start, end, axis, step)))
        case "pad":
            widths = [int(d.rng.integers(0, min(3, max(1, size)))) for size in (*shape, *shape)]
            mode = d.one(["constant", "reflect", "edge"]) if 0 not in shape else "constant"
            d.node("Pad", x, d.constant(widths), mode=mode)
        case "split" if size > 1:
            cut = int(d.rng.integers(1, size))
            d.node("Split", x, d.constant([cut, size - cut]), results=2, axis=axis)
        case "concat":
            more = [*shape]
            more[axis] = int(d.one(SIZES))
            d.node("Concat", x, d.other(more, x.data.dtype), x, axis=axis)
        case "gather" if size:
            chosen = d.rng.integers(-size, size, (int(d.rng.integers(1, 5)),))
            d.node("Gather", x, d.constant(chosen), axis=axis)
        case "scatter" if 0 not in shape:
            order = np.argsort(d.rng.random(shape), axis)
            updates = d.other(shape, x.data.dtype)
            d.node("ScatterElements", x, d.constant(order), updates, axis=axis)
        case "top" if size and x.data.dtype == np.int64:
            count = int(d.rng.integers(1, size + 1))
            d.node("TopK", x, d.constant([count]), results=2, axis=axis, largest=int(d.often(0.5)))
        case _:
            raise Discarded


def products(d: Drawing, x: Value) -> None:
    """A matrix product or a convolution, with what often stands behind it."""
    shape, dtype = x.data.shape, x.data.dtype
    if dtype.kind != "f" or len(shape) < 2 or 0 in shape:
        raise Discarded
    if len(shape) == 2 or d.often(0.4):
        made = d.node("MatMul", x, d.other((shape[-1], int(d.one(SIZES[1:]))), dtype))
        bias = made.data.shape[-1:]
    else:
        groups = shape[1] if d.often(0.3) else 1
        count = int(d.one([1, 2, 4, 8, 17])) * groups
        kernel = [int(min(d.one([1, 2, 3]), size)) for size in shape[2:]]
        strides = [int(d.one([1, 1, 2])) for _ in kernel]
        weight = d.other((count, shape[1] // groups, *kernel), dtype)
        pads = [int(n) for n in d.rng.integers(0, 2, 2 * len(kernel))]
        around = {"auto_pad": "SAME_UPPER"} if d.often(0.3) else {"pads": pads}
        made = d.node("Conv", x, weight, group=groups, strides=strides, **around)
        bias = (count, *(1,) * len(kernel))
    if d.often(0.5):
        made = d.node("Add", made, d.other(bias, dtype))
    if d.often(0.5):
        d.node(d.one(SMOOTH), made)


def norms(d: Drawing, x: Value) -> None:
    """A normalization along an axis, or a pair of quantize and dequantize."""
    shape, dtype = x.data.shape, x.data.dtype
    if dtype != np.float32 or not shape or 0 in shape:
        raise Discarded
    axis = d.axis(len(shape))
    if d.often(0.3) and x in d.inputs:
        scale, zero = d.constant(0.25, np.float32), d.constant(2 * d.rng.integers(50, 60), np.uint8)
        d.node("DequantizeLinear", d.node("QuantizeLinear", x, scale, zero), scale, zero)
    elif d.often(0.5):
        d.node(d.one(["Softmax", "LogSoftmax"]), x, axis=axis)
    else:
        scale = d.constant(d.rng.uniform(0.5, 1.5, shape[axis:]), np.float32)
        d.node("LayerNormalization", x, scale, axis=axis)


MOVES: tuple[Callable[[Drawing, Value], None], ...] = (
    *(elements, elements, elements, choices, statistics),
    *(moves, moves, places, places, products, products, norms),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A model.

    Attributes:
        model: It has two to eight nodes, or some more behind a product.
        inputs: Arrays for it.
        results: What it gives for them.
        narrowest: Bytes of its least precise numbers.
    """

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    results: dict[str, np.ndarray]
    narrowest: int


def draw_model(seed: int) -> Drawn:
    """Return the model of a seed."""
    d = Drawing(np.random.default_rng(seed))
    for _ in range(int(d.rng.integers(1, 3))):
        rank = int(d.one([0, 1, 2, 2, 3, 3, 4, 4, 5]))
        d.input([int(d.one(SIZES)) for _ in range(rank)], d.one((*FLOATS, *FLOATS, *WHOLE)))
    count, tries = int(d.rng.integers(2, 9)), 0
    while len(d.nodes) < count and tries < 50:
        tries += 1
        before = d.values[-1] if d.often(0.6) else d.one(d.values)
        try:
            d.one(MOVES)(d, before)
        except Discarded:
            continue
    made = {name for node in d.nodes for name in node.output}
    results = [value for value in d.values if value.name in made]
    kept = {value.name: value.data for value in (results[-1], d.one(results))}
    given = {value.name: value.data for value in d.inputs}
    model = _model(d.nodes, given, list(kept))
    model.graph.initializer.extend(d.constants)
    sizes = [value.data.itemsize for value in d.values if value.data.dtype.kind == "f"]
    return Drawn(model, given, kept, min(sizes, default=8))
