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
    ArgumentSource,
    CallPlan,
    RegionStep,
    SizesStep,
    TensorSpec,
    all_steps,
    frame_entry,
    has_loops,
    passed_outputs,
    poll_entry,
)
from intarsia_runtime.size import numbers

from .blocks import Blocks
from .checks import ModuleConstants
from .open_sizes import SizeFrame
from .writer import Declarations, FunctionWriter

_SIGNATURE = "(ptr %handle, ptr %args, i32 %n, ptr %result)"
_TENSOR_BYTES = 48  # sizeof(DLTensor)


def emit_wrapper(function: PrimFunc, statics: ModuleConstants, declarations: Declarations) -> str:
    """Return ``__tvm_ffi_<name>``, which checks its tensors and calls the kernel."""
    w = FunctionWriter(declarations)
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


def _exported(name: str, w: FunctionWriter) -> str:
    body = [*w.allocas, *w.lines, "  ret i32 0", "}", ""]
    return "\n".join([f"define i32 @{name}{_SIGNATURE} #0 {{", "start:", *body])


def _checked(
    w: FunctionWriter,
    args: str,
    count: str,
    skip: int,
    called: Sequence[tuple[str, TensorSpec]],
    statics: ModuleConstants,
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


def _data(w: FunctionWriter, array: str, number: int) -> str:
    slot = w.emit(f"getelementptr ptr, ptr {array}, i64 {number}")
    return w.emit(f"load ptr, ptr {slot}, align 8")


def emit_main(module: TensorModule, statics: ModuleConstants, declarations: Declarations) -> str:
    """Return ``__tvm_ffi_main(context, inputs..., outputs...)``."""
    main = _LlvmMain(FunctionWriter(declarations), module.plan, statics)
    main.write()
    return _exported("__tvm_ffi_main", main.w)


class _LlvmMain(Struct):
    w: FunctionWriter
    plan: CallPlan
    statics: ModuleConstants
    arguments: str = ""
    context: str = ""
    packed: str = ""
    tensors: str = ""
    none: str = ""
    shapes: str = ""
    frame: SizeFrame | None = None
    blocks: Blocks | None = None

    def write(self) -> None:
        plan = self.plan
        called = [(f"input '{spec.name}'", spec) for spec in plan.inputs]
        called += [(f"output '{spec.name}'", spec) for spec in passed_outputs(plan)]
        self.arguments = _checked(self.w, "%args", "%n", 1, called, self.statics)
        slot = self.w.emit("getelementptr i8, ptr %args, i64 8")
        self.context = self.w.emit(f"load ptr, ptr {slot}, align 8")
        regions = [step for step in all_steps(plan.steps) if isinstance(step, RegionStep)]
        widest = max([len(step.args) for step in regions], default=0)
        if widest:
            behind = max(len(step.sizes) for step in regions)
            self.packed = self.w.alloca("i64", 2 * (widest + behind), 16)
            self.tensors = self.w.alloca("i64", _TENSOR_BYTES // 8 * widest, 16)
            self.none = self.w.alloca("i64", 2, 16)
        if plan.open is not None:
            entry = self._context(frame_entry(plan))
            self.frame = SizeFrame(self.w, entry, plan.open)
            most = max([sum(len(a.shape) for a in s.args) for s in regions], default=0)
            self.shapes = self.w.alloca("i64", most, 8) if most else ""
        poll = self._poll if has_loops(plan) else None
        self.blocks = Blocks(self.w, self._pointer, self._region, self._sizes, self.frame, poll)
        self.blocks.write(plan.steps)

    def _context(self, number: int) -> str:
        return _data(self.w, self.context, number)

    def _pointer(self, arg: Argument) -> str:
        """Return the address of an argument's place."""
        match arg.place:
            case ArgumentSource.INPUT:
                return _data(self.w, self.arguments, arg.index)
            case ArgumentSource.OUTPUT:
                return self._output(arg.index)
            case ArgumentSource.CONSTANT:
                return self._context(1 + arg.index)
            case ArgumentSource.WORKSPACE:
                if self.frame is None:
                    base, offset = self._context(0), str(arg.index)
                else:
                    base, offset = self._workspace(arg.index), self.frame.offset(arg.index)
                return self.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _workspace(self, slot: int) -> str:
        """Return the address of the workspace that a slot of an open plan is in."""
        sizes = self.plan.open
        stage = 0 if sizes is None else sizes.stage(sizes.slots[slot])
        return self._context(0 if stage == 0 else self._behind + 2 * stage)

    def _output(self, number: int) -> str:
        sizes, before = self.plan.open, number
        if sizes is not None and sizes.stages:
            if sizes.stage(*self.plan.outputs[number].shape):
                return self._context(self._behind + 2 + 2 * len(sizes.stages) + number)
            before = len(passed_outputs(self.plan, number))
        return _data(self.w, self.arguments, len(self.plan.inputs) + before)

    @property
    def _behind(self) -> int:
        """Number of the first entry of the context behind the frame."""
        return 1 + frame_entry(self.plan)

    def _poll(self) -> None:
        """End the run if the user wants it to."""
        status = self.w.emit(f"call i32 {self._context(poll_entry(self.plan))}()")
        self._go_on_if(self.w.emit(f"icmp ne i32 {status}, 0"))

    def _sizes(self, step: SizesStep) -> None:
        """Read the size variables of a stage, compute what depends on them, and get its memory."""
        w, frame, sizes = self.w, self.frame, self.plan.open
        assert frame is not None
        assert sizes is not None
        assert self.blocks is not None
        for size in step.sizes:
            pointer = self.blocks.address_of(size.argument)
            frame.set_variable(size.name, w.emit(f"load i64, ptr {pointer}, align 8"))
        status = w.emit(f"call i32 @intarsia_plan_sizes_{step.stage}(ptr {frame.address})")
        self._go_on_if(w.emit(f"icmp eq i32 {status}, 0"))
        frame.reach(step.stage)
        self._grow_workspace(step.stage, frame)
        if not step.is_final:
            return
        for number, spec in enumerate(self.plan.outputs):
            if sizes.stage(*spec.shape) == step.stage:
                pointer = self._grown(len(sizes.stages) + 1 + number, frame.value(spec.bytes))
                self._set_context(self._behind + 2 + 2 * len(sizes.stages) + number, pointer)

    def _grow_workspace(self, stage: int, frame: SizeFrame) -> None:
        w, entry = self.w, self._behind + 2 * stage
        needed = frame.bytes(stage)
        room = w.emit(f"ptrtoint ptr {self._context(entry + 1)} to i64")
        more, enough = w.fresh_label(), w.fresh_label()
        w.do(f"br i1 {w.emit(f'icmp ule i64 {needed}, {room}')}, label %{enough}, label %{more}")
        w.start_block(more)
        self._set_context(entry, self._grown(stage, needed))
        self._set_context(entry + 1, w.emit(f"inttoptr i64 {needed} to ptr"))
        w.do(f"br label %{enough}")
        w.start_block(enough)

    def _grown(self, number: int, size: str) -> str:
        """Ask the runtime for memory."""
        grow, state = self._context(self._behind), self._context(self._behind + 1)
        found = self.w.emit(f"call ptr {grow}(ptr {state}, i32 {number}, i64 {size})")
        self._go_on_if(self.w.emit(f"icmp ne ptr {found}, null"))
        return found

    def _set_context(self, number: int, value: str) -> None:
        slot = self.w.emit(f"getelementptr ptr, ptr {self.context}, i64 {number}")
        self.w.do(f"store ptr {value}, ptr {slot}, align 8")

    def _go_on_if(self, holds: str) -> None:
        """Let the call fail unless a condition holds."""
        w = self.w
        failed, good = w.fresh_label(), w.fresh_label()
        w.do(f"br i1 {holds}, label %{good}, label %{failed}")
        w.start_block(failed)
        w.do("ret i32 -1")
        w.start_block(good)

    def _region(self, step: RegionStep) -> None:
        """Call a region; its tensors are described on the stack."""
        w = self.w
        assert self.blocks is not None  # it asks for the call
        behind = 0
        for number, arg in enumerate(step.args):
            tensor = w.emit(f"getelementptr i8, ptr {self.tensors}, i64 {number * _TENSOR_BYTES}")
            self._describe(tensor, arg, self.blocks.address_of(arg), self._shape(arg, behind))
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
        self._go_on_if(w.emit(f"icmp eq i32 {status}, 0"))

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

    def _describe(self, tensor: str, arg: Argument, address: str, shape: str) -> None:
        """Fill in a DLTensor."""
        w = self.w
        dtype = dlpack_code(arg.dtype) | arg.dtype.bits << 8 | 1 << 16
        fields = (
            (0, f"ptr {address}"),
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
