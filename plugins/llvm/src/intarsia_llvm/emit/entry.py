# SPDX-License-Identifier: Apache-2.0
"""Exported functions: ``__tvm_ffi_main`` carries out the call plan; one more for each kernel."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_loops.codegen.arguments import dlpack_code
from intarsia_runtime.artifact.plan import (
    Argument,
    CallPlan,
    CopyStep,
    KernelStep,
    Place,
    RegionStep,
    TensorSpec,
)
from intarsia_runtime.size import numbers

from .checks import Statics
from .open_sizes import Frame
from .writer import Declarations, Writer

_SIGNATURE = "(ptr %handle, ptr %args, i32 %n, ptr %result)"
_TENSOR_BYTES = 48  # sizeof(DLTensor)


def emit_wrapper(function: PrimFunc, statics: Statics, declarations: Declarations) -> str:
    """Return ``__tvm_ffi_<name>``, which checks its tensors and calls the kernel."""
    w = Writer(declarations)
    called = tuple(
        (f"{function.name}: buffer '{b.name}'", TensorSpec(b.name, b.shape, b.dtype))
        for b in function.params
    )
    data = _checked(w, "%args", "%n", 0, called, statics, behind=len(function.sizes))
    args = [f"ptr {_data(w, data, number)}" for number in range(len(called))]
    for number in range(len(called), len(called) + len(function.sizes)):
        slot = w.emit(f"getelementptr i8, ptr %args, i64 {16 * number + 8}")
        args.append("i64 " + w.emit(f"load i64, ptr {slot}, align 8"))
    w.do(f"call void @{function.name}({', '.join(args)})")
    return _exported(f"__tvm_ffi_{function.name}", w)


def _exported(name: str, w: Writer) -> str:
    body = [*w.allocas, *w.lines, "  ret i32 0", "}", ""]
    return "\n".join([f"define i32 @{name}{_SIGNATURE} #0 {{", "start:", *body])


def _checked(
    w: Writer,
    args: str,
    count: str,
    skip: int,
    called: Sequence[tuple[str, TensorSpec]],
    statics: Statics,
    *,
    behind: int = 0,
) -> str:
    """Return from the function unless the arguments fit; else give the array of data pointers."""
    bad, counted, good = w.fresh_label(), w.fresh_label(), w.fresh_label()
    w.do(f"%count.ok = icmp eq i32 {count}, {len(called) + skip + behind}")
    w.do(f"br i1 %count.ok, label %{counted}, label %{bad}")
    w.start_block(bad)
    w.do("%count.bad = call i32 @intarsia.fail(ptr @intarsia.error.count)")
    w.do("ret i32 %count.bad")
    w.start_block(counted)
    data = w.alloca("ptr", max(1, len(called)), 8)
    rows = statics.descriptors(tuple(called)) if called else "null"
    tensors = w.emit(f"getelementptr [16 x i8], ptr {args}, i64 {skip}")
    status = w.emit(
        f"call i32 @intarsia.check(ptr {tensors}, ptr {rows}, i64 {len(called)}, ptr {data})"
    )
    fits = w.emit(f"icmp eq i32 {status}, 0")
    refuse = w.fresh_label()
    w.do(f"br i1 {fits}, label %{good}, label %{refuse}")
    w.start_block(refuse)
    w.do("ret i32 -1")
    w.start_block(good)
    return data


def _data(w: Writer, array: str, number: int) -> str:
    slot = w.emit(f"getelementptr ptr, ptr {array}, i64 {number}")
    return w.emit(f"load ptr, ptr {slot}, align 8")


def emit_main(module: TensorModule, statics: Statics, declarations: Declarations) -> str:
    """Return ``__tvm_ffi_main(context, inputs..., outputs...)``."""
    main = _Main(Writer(declarations), module.plan, statics)
    main.write()
    return _exported("__tvm_ffi_main", main.w)


class _Main(Struct):
    w: Writer
    plan: CallPlan
    statics: Statics
    arguments: str = ""
    context: str = ""
    packed: str = ""
    tensors: str = ""
    none: str = ""
    shapes: str = ""
    frame: Frame | None = None

    def write(self) -> None:
        plan = self.plan
        called = [(f"input '{spec.name}'", spec) for spec in plan.inputs]
        called += [(f"output '{spec.name}'", spec) for spec in plan.outputs]
        self.arguments = _checked(self.w, "%args", "%n", 1, called, self.statics)
        slot = self.w.emit("getelementptr i8, ptr %args, i64 8")
        self.context = self.w.emit(f"load ptr, ptr {slot}, align 8")
        regions = [step for step in plan.steps if isinstance(step, RegionStep)]
        widest = max([len(s.args) for s in regions], default=0)
        if widest:
            behind = max(len(step.sizes) for step in regions)
            self.packed = self.w.alloca("i64", 2 * (widest + behind), 16)
            self.tensors = self.w.alloca("i64", _TENSOR_BYTES // 8 * widest, 16)
            self.none = self.w.alloca("i64", 2, 16)
        if plan.open is not None:
            entry = self._context(1 + len(plan.constants) + 2 * len(plan.regions))
            self.frame = Frame(self.w, entry, plan.open)
            most = max([sum(len(a.shape) for a in s.args) for s in regions], default=0)
            self.shapes = self.w.alloca("i64", most, 8) if most else ""
        for step in plan.steps:
            self._step(step)

    def _step(self, step: KernelStep | RegionStep | CopyStep) -> None:
        if isinstance(step, KernelStep):
            args = [f"ptr {self._pointer(arg)}" for arg in step.args]
            if self.frame is not None:
                args += [f"i64 {self.frame.variable(name)}" for name in step.sizes]
            self.w.do(f"call void @{step.function}({', '.join(args)})")
        elif isinstance(step, RegionStep):
            self._region(step)
        else:
            w = self.w
            copy = w.declarations.use("void", "llvm.memcpy.p0.p0.i64", ("ptr", "ptr", "i64", "i1"))
            target, source = self._pointer(step.destination), self._pointer(step.source)
            size = step.source.bytes if self.frame is None else self.frame.value(step.source.bytes)
            w.do(f"call void {copy}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def _context(self, number: int) -> str:
        return _data(self.w, self.context, number)

    def _pointer(self, arg: Argument) -> str:
        """Return the address of an argument's data."""
        match arg.place:
            case Place.INPUT:
                return _data(self.w, self.arguments, arg.index)
            case Place.OUTPUT:
                return _data(self.w, self.arguments, len(self.plan.inputs) + arg.index)
            case Place.CONSTANT:
                return self._context(1 + arg.index)
            case Place.WORKSPACE:
                base = self._context(0)
                offset = arg.index if self.frame is None else self.frame.offset(arg.index)
                return self.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _region(self, step: RegionStep) -> None:
        """Call a region; its tensors are described on the stack."""
        w = self.w
        behind = 0
        for number, arg in enumerate(step.args):
            tensor = w.emit(f"getelementptr i8, ptr {self.tensors}, i64 {number * _TENSOR_BYTES}")
            self._describe(tensor, arg, self._shape(arg, behind))
            behind += len(arg.shape)
            self._pack(number, 7, f"ptr {tensor}")
        for number, name in enumerate(step.sizes, start=len(step.args)):
            assert self.frame is not None  # of open plans alone
            self._pack(number, 1, f"i64 {self.frame.variable(name)}")
        first = 1 + len(self.plan.constants) + 2 * step.region
        function, handle = self._context(first), self._context(first + 1)
        w.do(f"store [2 x i64] zeroinitializer, ptr {self.none}, align 8")
        count = len(step.args) + len(step.sizes)
        values = f"ptr {handle}, ptr {self.packed}, i32 {count}, ptr {self.none}"
        status = w.emit(f"call i32 {function}({values})")
        failed, good = w.fresh_label(), w.fresh_label()
        fine = w.emit(f"icmp eq i32 {status}, 0")
        w.do(f"br i1 {fine}, label %{good}, label %{failed}")
        w.start_block(failed)
        w.do("ret i32 -1")
        w.start_block(good)

    def _pack(self, number: int, kind: int, value: str) -> None:
        """Fill in an argument of a region: a number of its type, and the value."""
        w = self.w
        packed = w.emit(f"getelementptr i8, ptr {self.packed}, i64 {16 * number}")
        w.do(f"store i64 {kind}, ptr {packed}, align 8")
        slot = w.emit(f"getelementptr i8, ptr {packed}, i64 8")
        w.do(f"store {value}, ptr {slot}, align 8")

    def _shape(self, arg: Argument, behind: int) -> str:
        """Return the address of a shape; one of open sizes is written ``behind`` others."""
        if len(numbers(arg.shape)) == len(arg.shape) or self.frame is None:
            return self.statics.shape(arg.shape)
        w = self.w
        start = w.emit(f"getelementptr i64, ptr {self.shapes}, i64 {behind}")
        for axis, size in enumerate(arg.shape):
            slot = w.emit(f"getelementptr i64, ptr {start}, i64 {axis}")
            w.do(f"store i64 {self.frame.value(size)}, ptr {slot}, align 8")
        return start

    def _describe(self, tensor: str, arg: Argument, shape: str) -> None:
        """Fill in a DLTensor."""
        w = self.w
        dtype = dlpack_code(arg.dtype) | arg.dtype.bits << 8 | 1 << 16
        fields = (
            (0, f"ptr {self._pointer(arg)}"),
            (8, "i64 1"),
            (16, f"i32 {len(arg.shape)}"),
            (20, f"i32 {dtype}"),
            (24, f"ptr {shape}"),
            (32, "ptr null"),
            (40, "i64 0"),
        )
        for offset, value in fields:
            slot = w.emit(f"getelementptr i8, ptr {tensor}, i64 {offset}")
            w.do(f"store {value}, ptr {slot}, align 4")
