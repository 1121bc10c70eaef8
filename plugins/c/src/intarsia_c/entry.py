# SPDX-License-Identifier: Apache-2.0
"""``model_entry.c``: the functions that the runtime loads, which check what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from intarsia_ir.c_text import c_string
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_loops.codegen.arguments import dlpack_code, faults_of
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_interface import Interface
from intarsia_loops.codegen.statements import AddressOf
from intarsia_runtime.artifact.plan import (
    PLAN_STAMP,
    Argument,
    ArgumentSource,
    CallPlan,
    LoopStep,
    RegionStep,
    TensorSpec,
    all_steps,
    calls_open_regions,
    frame_entry,
    has_loops,
    passed_outputs,
    plan_stamp,
    poll_entry,
)
from intarsia_runtime.artifact.plan_walk import may_take_long

from .entry_text import (
    ANY_SIZE,
    CHECKS,
    DESCRIBE,
    EXPECTED,
    FAIL,
    INCLUDE,
    MORE_SLOTS,
    OPEN_STEPS,
    SLOT,
    STEPS,
    TYPES,
)
from .open_sizes import FRAME, CFrame, any_size
from .spelling import C99
from .stages import StageMemory

SIGNATURE = (
    "(void *handle, const struct intarsia_value *args, int32_t n, struct intarsia_value *result)"
)


def print_entry(module: TensorModule, interface: Interface, functions: Functions) -> str:
    """Return the source of the exported functions.

    Args:
        module: What the backend compiles.
        interface: Names of its tensors.
        functions: Collects the small functions of ``model.c`` that the text calls.

    ``__tvm_ffi_main`` carries out the plan, ``__tvm_ffi_<kernel>`` calls one kernel, and
    ``intarsia_run_steps`` walks a table of C calls (``intarsia_runtime.loading``).
    """
    statics = ConstantTables()
    parts = [kernel_wrapper(function, statics) for function in module.functions]
    opened = module.plan.open
    frame = None if opened is None else CFrame(functions, opened)
    parts.append(_CMain(interface, statics, frame).text())
    describe = (DESCRIBE,) if module.plan.regions and not interface.whole else ()
    checks = CHECKS if opened is None else CHECKS.replace(*ANY_SIZE)
    steps = (STEPS, OPEN_STEPS) if calls_open_regions(module.plan) else (STEPS,)
    slot = SLOT.replace(*MORE_SLOTS) if _has_callbacks(module.plan) else SLOT
    head = "".join([INCLUDE, TYPES, slot, EXPECTED, FAIL, checks])
    declared = f"const uint64_t {PLAN_STAMP}"
    stamp = f"extern {declared};\n{declared} = UINT64_C({plan_stamp(module.plan)});"
    return "\n".join([head, *describe, *statics.lines, stamp, "", *parts, *steps])


class ConstantTables(Struct):
    """Constant tables, each once; their names begin with a prefix."""

    prefix: str = ""
    lines: list[str] = field(default_factory=list[str])
    names: dict[object, str] = field(default_factory=dict[object, str])

    def _add(self, kind: str, key: object, head: str, text: str) -> str:
        if (kind, key) not in self.names:
            name = self.names[kind, key] = f"{self.prefix}{kind}_{len(self.names)}"
            self.lines.append(f"static const {head.format(name)} = {text};")
        return self.names[kind, key]

    def shape(self, shape: tuple[int, ...]) -> str:
        """Return the sizes as an array."""
        sizes = ", ".join(map(str, any_size(shape))) or "0"
        return self._add("shape", shape, "int64_t {}[]", f"{{{sizes}}}")

    def expected(self, called: Sequence[tuple[str, TensorSpec]]) -> str:
        """Return the descriptions of arguments, each given as ``input 'x'`` and its type."""
        rows: list[str] = []
        for name, spec in called:
            faults = faults_of(name, spec)
            texts = ",\n    ".join(c_string(text) for text in faults)
            messages = self._add("faults", faults, "char *const {}[]", f"{{\n    {texts}}}")
            rows.append(
                f"{{{dlpack_code(spec.dtype)}, {spec.dtype.bits}, {len(spec.shape)}, "
                f"{self.shape(spec.shape)}, {messages}}}"
            )
        if not rows:
            return "0"
        joined = ",\n    ".join(rows)
        return self._add("expected", joined, "struct expected {}[]", f"{{\n    {joined}}}")


def called_with(plan: CallPlan) -> list[tuple[str, TensorSpec]]:
    """Return what a caller passes, inputs before outputs, with what messages call it."""
    called = [(f"input '{spec.name}'", spec) for spec in plan.inputs]
    return [*called, *((f"output '{spec.name}'", spec) for spec in passed_outputs(plan))]


def fill_structs(face: Interface) -> list[str]:
    """Return the statements that point the structs of tensors at checked arguments."""
    lines: list[str] = []
    for number, (name, spec) in enumerate(zip(face.inputs, face.plan.inputs, strict=True)):
        lines.append(f"    inputs.{name} = {pointer_to(C99.memory[spec.dtype], number)};")
    for number, (name, spec) in enumerate(zip(face.outputs, face.plan.outputs, strict=True)):
        value = pointer_to(C99.memory[spec.dtype], len(face.plan.inputs) + number)
        lines.append(f"    outputs.{name} = {value};")
    return lines


def pointer_to(kind: str, number: int) -> str:
    """Return the address of a tensor as one of its elements."""
    return f"({kind} *)(void *)data[{number}]"


def function_head(name: str, count: int) -> list[str]:
    """Return the beginning of a function of packed arguments, which has ``count`` tensors."""
    return [
        f"int32_t {name}{SIGNATURE};",
        f"int32_t {name}{SIGNATURE}",
        "{",
        f"    unsigned char *data[{max(1, count)}];",
    ]


def check_arguments(count: int, skip: int, expected: str, *, behind: int = 0) -> list[str]:
    """Return what leaves the function if an argument behind the first ``skip`` does not fit.

    There are ``behind`` integers behind the tensors.
    """
    given = f"n - {behind}" if behind else "n"
    return [
        "    (void)handle;",
        "    (void)result;",
        f"    if (check(args, {given}, {skip}, {expected}, {count}, data) != 0) {{",
        "        return -1;",
        "    }",
    ]


def kernel_wrapper(function: PrimFunc, statics: ConstantTables, prefix: str = "__tvm_ffi_") -> str:
    """Return the function of packed arguments that calls one kernel."""
    params = function.params
    called = [
        (f"{function.name}: buffer '{b.name}'", TensorSpec(b.name, b.shape, b.dtype))
        for b in params
    ]
    places = [pointer_to(C99.memory[b.dtype], n) for n, b in enumerate(params)]
    behind = len(function.sizes)
    numbers = range(len(params), len(params) + behind)
    values = ", ".join([*places, *(f"args[{n}].value.integer" for n in numbers)])
    return "\n".join(
        [
            *function_head(f"{prefix}{function.name}", len(params)),
            *check_arguments(len(params), 0, statics.expected(called), behind=behind),
            f"    kernel_{function.name}({values});",
            "    return 0;",
            "}",
            "",
        ]
    )


def region_call(
    step: RegionStep,
    place: Callable[[Argument], str],
    statics: ConstantTables,
    called: tuple[str, str],
    frame: CFrame | None = None,
) -> list[str]:
    """Return the statements that call a region; its tensors are described on the stack.

    Args:
        step: The step of the plan.
        place: Gives the address of an argument.
        statics: Where the shapes go.
        called: The function, and the handle that it is given first, in C.
        frame: Sizes of a plan of open sizes.
    """
    count = len(step.args) + len(step.sizes)
    lines = [
        "    {",
        f"        struct intarsia_tensor tensors[{max(1, len(step.args))}];",
        f"        struct intarsia_value packed[{max(1, count)}];",
        "        struct intarsia_value none = {0, 0, {0}};",
    ]
    for number, arg in enumerate(step.args):
        shape = statics.shape(arg.shape) if frame is None else f"shape_{number}"
        if frame is not None:
            lines += _open_shape(shape, arg.shape, frame)
        values = f"{dlpack_code(arg.dtype)}, {arg.dtype.bits}, {len(arg.shape)}, {shape}"
        lines.append(
            f"        describe(&tensors[{number}], &packed[{number}], {place(arg)}, {values});"
        )
    for number, name in enumerate(step.sizes, start=len(step.args)):
        assert frame is not None  # of open plans alone
        lines += [
            f"        packed[{number}].type = 1;",
            f"        packed[{number}].zero = 0;",
            f"        packed[{number}].value.integer = {frame.variable(name)};",
        ]
    function, handle = called
    return [
        *lines,
        f"        if ({function}({handle}, packed, {count}, &none) != 0) {{",
        "            return -1;",
        "        }",
        "    }",
    ]


def _open_shape(name: str, shape: tuple[int, ...], frame: CFrame) -> list[str]:
    """Return the statements that write the shape of a tensor of the run."""
    lines = [f"        int64_t {name}[{max(1, len(shape))}];"]
    for axis, size in enumerate(shape):
        text = frame.value(size)
        before = frame.take_statements()
        lines += [*(f"    {line}" for line in before), f"        {name}[{axis}] = {text};"]
    return lines


def _has_callbacks(plan: CallPlan) -> bool:
    """Whether code calls the runtime: it loops, or its steps compute sizes."""
    return has_loops(plan) or (plan.open is not None and bool(plan.open.stages))


class _CMain(Struct):
    interface: Interface
    statics: ConstantTables
    frame: CFrame | None = None

    @property
    def _runs_model(self) -> bool:
        """Whether the model's own function does it all: it has no loop that a user may end."""
        loops = [s for s in all_steps(self.interface.plan.steps) if isinstance(s, LoopStep)]
        return self.interface.whole and not any(map(may_take_long, loops))

    @property
    def _stages(self) -> StageMemory | None:
        """What writes about sizes that steps compute; ``None`` if there are none."""
        plan = self.interface.plan
        if plan.open is None or self.frame is None or not plan.open.stages:
            return None
        return StageMemory(plan, plan.open, self.frame)

    def text(self) -> str:
        plan = self.interface.plan
        called = called_with(plan)
        check = check_arguments(len(called), 1, self.statics.expected(called))
        read = ["    context = args[0].value.pointer;", "    (void)context;"]
        declared: list[str] = []
        body = self._whole() if self._runs_model else (declared, self._steps())
        const = "" if self._stages is not None else "const "
        lines = [
            *function_head("__tvm_ffi_main", len(called)),
            f"    {const}union slot *context;",
            *body[0],
            *check,
            *read,
            *body[1],
            "    return 0;" if not self._runs_model else "",
            "}",
            "",
        ]
        return "\n".join(line for line in lines if line) + "\n"

    def _whole(self) -> tuple[list[str], list[str]]:
        """Declarations, and statements that fill the structs and run the model."""
        face = self.interface
        declared = [
            f"    struct {face.prefix}_inputs inputs = {{0}};",
            f"    struct {face.prefix}_outputs outputs = {{0}};",
        ]
        lines = fill_structs(face)
        given = ["&inputs", "&outputs"]
        if face.constants:
            declared.append(f"    struct {face.prefix}_constants constants = {{0}};")
            given.append("&constants")
            lines += [
                f"    constants.{name} = context[{1 + number}].data;"
                for number, name in enumerate(face.constants)
            ]
        lines.append(f"    return {face.prefix}_run({', '.join(given)}, context[0].handle);")
        return declared, lines

    def _address(self, arg: Argument) -> str:
        match arg.place:
            case ArgumentSource.INPUT:
                return pointer_to(C99.memory[arg.dtype], arg.index)
            case ArgumentSource.OUTPUT:
                return self._output(arg)
            case ArgumentSource.CONSTANT:
                return f"context[{1 + arg.index}].data"
            case ArgumentSource.WORKSPACE:
                offset = arg.index if self.frame is None else self.frame.offset(arg.index)
                stages = self._stages
                memory = "context[0].memory" if stages is None else stages.workspace(arg.index)
                return f"{memory} + {offset}"

    def _output(self, arg: Argument) -> str:
        plan, kind = self.interface.plan, C99.memory[arg.dtype]
        place = None if self._stages is None else self._stages.output(arg.index)
        if place is not None:
            return f"({kind} *){place}"
        return pointer_to(kind, len(plan.inputs) + len(passed_outputs(plan, arg.index)))

    def _steps(self) -> list[str]:
        plan, stages = self.interface.plan, self._stages
        poll = f"context[{poll_entry(plan)}].poll()" if has_loops(plan) else None
        read = None if stages is None else stages.statements
        steps = self.interface.steps(self._address, self._region, self.frame, read, poll)
        if self.frame is None:
            return steps
        number = frame_entry(plan)
        declared = f"    const int64_t *const {FRAME} = context[{number}].data;"
        if stages is not None:
            declared = f"    int64_t *const {FRAME} = context[{number}].handle;"
        return [declared, f"    (void){FRAME};", *steps]

    def _region(self, step: RegionStep, address_of: AddressOf) -> list[str]:
        first = 1 + len(self.interface.plan.constants) + 2 * step.region
        called = f"context[{first}].call", f"context[{first + 1}].handle"
        return region_call(step, address_of, self.statics, called, self.frame)
