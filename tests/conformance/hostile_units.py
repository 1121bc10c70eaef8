# SPDX-License-Identifier: Apache-2.0
"""Good artifacts, one for each format of unit that this machine can open.

Where the vendor's compiler or device is missing, the unit is written by hand: its loader is the
plugin's own.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from unittest.mock import patch

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import intarsia
from intarsia.driver.artifact import Artifact as Built
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import KindRow, Manifest
from intarsia.plugin import (
    CompiledUnit,
    Constant,
    Region,
    Role,
    Support,
    SupportRow,
    SupportTable,
    Target,
    TargetKind,
    hookimpl,
    op,
)
from intarsia_arm_acl.stamp import FORMAT as ACL_FORMAT
from intarsia_arm_acl.stamp import unit_stamp
from intarsia_ir.graph.expr import Function, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.tir.module import Lowered, TensorModule
from intarsia_ir.tir.space import Tuned
from intarsia_llvm.codegen import tir_codegen
from intarsia_loops.lower import lower
from intarsia_tensorrt.signature import FILE, PLAN_FILE, SCHEMA, EngineBorder, EngineSignature
from intarsia_testkit.qdq_models import channelled_residual_net, residual_net

Loops: TypeAlias = Callable[[TensorModule, Target], CompiledUnit]
Regions: TypeAlias = Callable[[Region], CompiledUnit]


def float_model() -> ModelProto:
    """Every kind of primitive that dnnl has in float32, and what surrounds them."""
    dice = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(dice.normal(size=shape).astype(np.float32), name)

    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w1", "b1"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        make("LRN", ["c"], ["l"], size=3),
        make("PRelu", ["l", "slope"], ["r"]),
        make("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Conv", ["p", "w2"], ["d"], kernel_shape=[1, 1]),
        make("Add", ["d", "p"], ["s"]),
        make("ConvTranspose", ["s", "w4"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
        make("AveragePool", ["t"], ["a"], kernel_shape=[3, 3], strides=[2, 2]),
        make("Split", ["a"], ["a1", "a2"], axis=1, num_outputs=2),
        make("Concat", ["a2", "a1"], ["k"], axis=1),
        make("Transpose", ["k"], ["n"], perm=[0, 2, 3, 1]),
        make("LayerNormalization", ["n", "g1", "g2"], ["o"]),
        make("ReduceMean", ["o", "axes"], ["q"], keepdims=0),
        make("Gemm", ["q", "w3", "b3"], ["m"]),
        make("Softmax", ["m"], ["y"]),
    ]
    weights = [
        *(weight("w1", 16, 8, 3, 3), weight("b1", 16), weight("slope", 16, 1, 1)),
        *(weight("w2", 16, 16, 1, 1), weight("w4", 16, 16, 2, 2), weight("w3", 16, 10)),
        *(weight("b3", 10), weight("g1", 16), weight("g2", 16)),
        numpy_helper.from_array(np.array([1, 2], np.int64), "axes"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def program_model() -> ModelProto:
    """A model with a step that is not compiled, of strings: a program for the ``vm`` executor."""
    make = helper.make_node
    nodes = [
        make("Relu", ["x"], ["r"]),
        *_by_strings("r", "u"),
        make("Unique", ["u"], ["v"]),
        make("Exp", ["v"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["U"])
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _by_strings(source: str, result: str) -> list[NodeProto]:
    """Write numbers as text and read them again: strings are not compiled."""
    write = helper.make_node("Cast", [source], [f"{source}_text"], to=TensorProto.STRING)
    read = helper.make_node("Cast", [f"{source}_text"], [result], to=TensorProto.FLOAT)
    return [write, read]


def open_program_model() -> ModelProto:
    """A program with compiled pieces of open sizes before and behind strings."""
    make = helper.make_node
    nodes = [
        make("Relu", ["x"], ["r"]),
        *_by_strings("r", "part"),
        make("MatMul", ["part", "w"], ["m"]),
        make("Softmax", ["m"], ["y"], axis=0),
    ]
    weight = numpy_helper.from_array(np.random.default_rng(3).random((5, 7), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "S", 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "S", 7])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def counted_model() -> ModelProto:
    """A model that counts: a plan of two stages."""
    make = helper.make_node
    nodes = [
        make("NonZero", ["x"], ["i"]),
        make("Transpose", ["i"], ["j"], perm=[1, 0]),
        make("GatherND", ["x", "j"], ["k"]),
        make("Relu", ["k"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def open_sizes_model() -> ModelProto:
    """A model of open sizes: a plan with slots, guards, and kernels that take sizes."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["a"]),
        make("Softmax", ["a"], ["b"], axis=-1),
        make("Transpose", ["b"], ["c"], perm=[0, 2, 1]),
        make("MatMul", ["b", "c"], ["d"]),
        make("Concat", ["d", "z"], ["e"], axis=2),
        make("Slice", ["e", "one", "last", "one"], ["f"]),
        make("ReduceMean", ["f", "one"], ["m"], keepdims=0),
        make("Pad", ["m", "pads"], ["y"], mode="reflect"),
    ]
    weights = [
        numpy_helper.from_array(np.random.default_rng(2).random((6, 9), np.float32), "w"),
        *(numpy_helper.from_array(np.array(v, np.int64), n) for n, v in _INTEGERS.items()),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "S", 6]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", "S", "T"]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "U"])
    graph = helper.make_graph(nodes, "g", inputs, [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


_INTEGERS = {"one": [1], "last": [1 << 62], "pads": [0, 1, 0, 1]}


def control_flow_model() -> ModelProto:
    """A plan with stages, a branch and a loop."""
    make = helper.make_node
    nodes = [
        make("Relu", ["x"], ["r"]),
        make("Compress", ["r", "keep"], ["k"], axis=0),
        make("MatMul", ["k", "w"], ["m"]),
        make("Softmax", ["m"], ["s"], axis=0),
        make("If", ["flag"], ["b"], then_branch=_branch("Neg"), else_branch=_branch("Abs")),
        make("Loop", ["turns", "flag", "b"], ["y"], body=_body()),
    ]
    weight = numpy_helper.from_array(np.random.default_rng(3).random((5, 7), np.float32), "w")
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5]),
        helper.make_tensor_value_info("keep", TensorProto.BOOL, ["N"]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("turns", TensorProto.INT64, []),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["K", 7])
    graph = helper.make_graph(nodes, "g", inputs, [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _branch(kind: str) -> GraphProto:
    """A branch that reads a value of the graph around it."""
    result = helper.make_tensor_value_info(kind, TensorProto.FLOAT, ["K", 7])
    return helper.make_graph([helper.make_node(kind, ["s"], [kind])], kind, [], [result])


def _body() -> GraphProto:
    """A turn of a loop that carries one value, and goes on."""
    make, info = helper.make_node, helper.make_tensor_value_info
    nodes = [make("Tanh", ["carried"], ["next"]), make("Identity", ["go"], ["on"])]
    inputs = [
        info("turn", TensorProto.INT64, []),
        info("go", TensorProto.BOOL, []),
        info("carried", TensorProto.FLOAT, ["K", 7]),
    ]
    outputs = [info("on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, ["K", 7])]
    return helper.make_graph(nodes, "body", inputs, outputs)


def small_model() -> ModelProto:
    """Two products with weights, and a Tanh between them."""
    dice = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(dice.normal(size=shape).astype(np.float32), name)
        for name, shape in (("w1", (10, 6)), ("w2", (6, 9)))
    ]
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w1"], ["a"]),
        make("Tanh", ["a"], ["b"]),
        make("MatMul", ["b", "w2"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 9])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Nothing to set."""


class Products:
    """An accelerator that takes matrix products; what compiles them is given."""

    def __init__(self, *, loops: Loops | None = None, region: Regions | None = None) -> None:
        self.kind = TargetKind("products", Role.ACCELERATOR, NoOptions)
        self.loops = loops
        self.region = region

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [self.kind]

    @hookimpl
    def annotate(self, target: Target) -> SupportTable:
        return SupportTable((SupportRow("matmul", op("matmul"), lambda match: Support.yes()),))

    @hookimpl
    def relay_codegen(self, region: Region, target: Target) -> CompiledUnit | None:
        return None if self.region is None else self.region(region)

    @hookimpl
    def lower(
        self,
        main: Function,
        regions: Sequence[Region],
        target: Target,
        alignment: int,
        tuned: Tuned | None,
        name: str,
    ) -> Lowered:
        return lower(main, regions, target=target, alignment=alignment, tuned=tuned, name=name)

    @hookimpl
    def tir_codegen(self, module: TensorModule, target: Target) -> CompiledUnit:
        assert self.loops is not None
        return self.loops(module, target)


def with_products(hooks: Products) -> Built:
    """Compile the small model with its products on an accelerator."""
    row = KindRow("products", Role.ACCELERATOR, "products")
    manifest = Manifest("products", ">=2.0,<3", "", "", (row,), (), ())
    host = Host(local=[LocalPlugin(manifest, hooks, "intarsia-products")])
    return intarsia.build(small_model(), target="products, llvm", plan="greedy", host=host)


def native_loops() -> Built:
    """Regions that a compiler of loops made native code of, with plans of their own."""
    llvm = Host().target("llvm").fallback

    def compile_loops(module: TensorModule, target: Target) -> CompiledUnit:
        return tir_codegen(module, llvm)

    return with_products(Products(loops=compile_loops))


def engine() -> Built:
    """Regions of TensorRT around something that is no engine."""

    def borders(name: str, types: Sequence[TensorType]) -> tuple[EngineBorder, ...]:
        rows = ((t.dtype.value, t.static_shape) for t in types)
        return tuple(EngineBorder(f"{name}_{n}", *row) for n, row in enumerate(rows))

    def compile_region(region: Region) -> CompiledUnit:
        inputs = borders("input", [tensor_type(one) for one in region.function.params])
        outputs = borders("output", [tensor_type(one) for one in region.function.outputs])
        signature = EngineSignature("tensorrt", "10.0", "sm_80", inputs, outputs, {})
        files = {FILE: signature.to_json(), PLAN_FILE: b"no engine"}
        return CompiledUnit(region.name, "tensorrt", files, format=SCHEMA)

    return with_products(Products(region=compile_region))


_ACL = """
#include <stdint.h>
#include <string.h>
struct tensor { void *data; int32_t device[2], ndim; uint8_t code, bits; uint16_t lanes;
                int64_t *shape, *strides; uint64_t byte_offset; };
struct any { int32_t type; uint32_t padding; struct tensor *tensor; };
const uint64_t intarsia_acl_stamp = UINT64_C(STAMP);
static float sum;
void *intarsia_acl_open(const float *const *weights, int32_t count, int32_t threads, char *why,
                        uint64_t size) {
    for (int32_t n = 0; n < WEIGHTS; ++n) sum += weights[0][n];
    return &sum;
}
int intarsia_acl_call(void *unit, const struct any *values, int32_t count, void *result) {
    for (int32_t n = 0; n < OUTPUTS; ++n) ((float *)values[1].tensor->data)[n] = sum;
    return 0;
}
const char *intarsia_acl_error(void *unit) { return ""; }
void intarsia_acl_close(void *unit) {}
"""


def arm_library() -> Built:
    """Regions as those of Arm Compute Library, with code for this machine and without it."""

    def compile_region(region: Region) -> CompiledUnit:
        function = region.function
        (weight,) = (arg.data for arg in region.calls()[0].args if isinstance(arg, Constant))
        types = [[(t.dtype.value, t.static_shape) for t in map(tensor_type, side)]
                 for side in (function.params, function.outputs)]  # fmt: skip
        stamp = unit_stamp(*types, [(weight.dtype.name, weight.shape)])
        sizes = {"STAMP": stamp, "WEIGHTS": weight.size, "OUTPUTS": np.prod(types[1][0][1])}
        text = _ACL
        for name, value in sizes.items():
            text = text.replace(name, str(value))
        with TemporaryDirectory() as folder:
            path = Path(folder, "lib.so")
            command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
            subprocess.run(command, input=text.encode(), check=True)
            files = {"lib.so": path.read_bytes()}
        constants = {f"{region.name}.0": weight}
        return CompiledUnit(region.name, "arm_acl", files, constants, format=ACL_FORMAT)

    return with_products(Products(region=compile_region))


def unlinked() -> Built:
    """Machine code that nothing linked, since there is no linker."""
    find = importlib.util.find_spec

    def without_zig(name: str, package: str | None = None) -> object:
        return None if name == "ziglang" else find(name, package)

    with patch.dict("os.environ", PATH=""), patch("importlib.util.find_spec", without_zig):
        return intarsia.build(float_model(), target="llvm")


def compiled(
    model: Callable[[], ModelProto], target: str, executor: str | None = None
) -> Callable[[], Built]:
    """Return what compiles a model with what is installed."""
    return lambda: intarsia.build(model(), target=target, plan="greedy", executor=executor)


FORMATS: dict[str, tuple[Callable[[], Built], str]] = {
    "shared-library": (compiled(float_model, "llvm"), "shared-library"),
    "llvm-object": (unlinked, "llvm-object"),
    "c": (compiled(float_model, "c"), "shared-library"),
    "dnnl": (compiled(float_model, "dnnl -min-gain=0, llvm"), "dnnl"),
    "dnnl-int8": (compiled(residual_net, "dnnl -min-gain=0, llvm"), "dnnl"),
    "ethos-u": (
        compiled(channelled_residual_net, "ethos-u -simulate, llvm"),
        "ethos-u-simulator",
    ),
    "ethos-n": (
        compiled(lambda: channelled_residual_net("uint8"), "ethos-n -simulate, llvm"),
        "ethos-n-simulator",
    ),
    "onnx-program": (compiled(program_model, "llvm", "vm"), "onnx-program"),
    "counted": (compiled(counted_model, "llvm"), "shared-library"),
    "control-flow": (compiled(control_flow_model, "llvm"), "shared-library"),
    "open-program": (compiled(open_program_model, "llvm"), "onnx-program"),
    "open-sizes": (compiled(open_sizes_model, "llvm"), "shared-library"),
    "cuda-emulated": (compiled(float_model, "cuda -emulate"), "cuda"),
    "opencl": (compiled(float_model, "opencl"), "opencl"),
    "loops": (native_loops, "shared-library"),
    "tensorrt": (engine, "tensorrt"),
    "arm_acl": (arm_library, "arm_acl"),
}
"""Format of unit to what makes an artifact of it, and the loader that one of its units has."""

NEEDS_CC = ("c", "cuda-emulated", "arm_acl")
