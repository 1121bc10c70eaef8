# SPDX-License-Identifier: Apache-2.0
"""From a draft to the C++ of its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from intarsia.plugin.accelerator import DType, c_string

from .draft import AclDraft, AclQuantization, AclStep, AclTensor, Arg, naturals, real
from .prelude import INCLUDES, POSTLUDE, PRELUDE, PRODUCT

DATA_TYPES: Mapping[DType, str] = MappingProxyType(
    {
        DType.FLOAT16: "F16",
        DType.FLOAT32: "F32",
        DType.INT32: "S32",
        DType.INT8: "QASYMM8_SIGNED",
        DType.UINT8: "QASYMM8",
    }
)

_MANAGED = frozenset(
    (
        *("NEConvolutionLayer", "NEDepthwiseConvolutionLayer", "NEDeconvolutionLayer"),
        *("NEFullyConnectedLayer", "NESoftmaxLayer", "NELogSoftmaxLayer"),
        *("NEReductionOperation", "NENormalizationLayer", "NEL2NormalizeLayer"),
    )
)
"""Functions with buffers of their own, which they take from the unit's memory manager."""

_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (*("NEElementwiseMax", "NEElementwiseMin", "NEElementwiseDivision"),),
            "NEElementwiseOperations",
        ),
        **dict.fromkeys(
            (*("NEExpLayer", "NENegLayer", "NERoundLayer"),),
            "NEElementwiseUnaryLayer",
        ),
        "NELogSoftmaxLayer": "NESoftmaxLayer",
        "ChangingProduct": "NEGEMM",
    }
)
"""Header of a function where it is not called as the function."""

_PART = 24
"""Steps that one C++ function configures: the compiler's time grows faster than a function."""


def emit_unit(
    draft: AclDraft, inputs: Sequence[AclTensor], outputs: Sequence[AclTensor], *, threads: int
) -> str:
    """Return the C++ of a unit that runs the draft's steps.

    Args:
        draft: What to run.
        inputs: Tensors of the caller to read.
        outputs: Tensors of the caller to write, after the inputs in a call; distinct, and each
            the result of a step.
        threads: Threads of the library; 0 takes what the unit is opened with.
    """
    lines = [f"// Region {draft.name}: {len(draft.steps)} functions in one unit."]
    lines += [f'#include "{name}"' for name in (*INCLUDES, *headers_of(draft.steps))]
    lines += [
        PRELUDE.strip("\n"),
        *own_functions(draft.steps),
        "",
        "struct Region final : Unit",
        "{",
    ]
    constants = [tensor for tensor in draft.constants if _is_used(tensor, draft.steps)]
    used = [*inputs, *outputs, *constants, *_between(draft, inputs, outputs)]
    lines.append(f"    Tensor {', '.join(f't{tensor.number}' for tensor in used)};")
    for number, step in enumerate(draft.steps):
        manager = "{ inner }" if step.function in _MANAGED else ""
        lines.append(f"    {step.function} f{number}{manager};")
    described = [
        f"        describe(t{tensor.number}, {description(draft, tensor)});" for tensor in used
    ]
    parts = [
        *_parts("describe", described, 4 * _PART),
        *_parts("configure", _configuration(draft, _between(draft, inputs, outputs)), _PART),
    ]
    for name, body in parts:
        lines += ["", f"    void {name}()", "    {", *body, "    }"]
    lines += ["", "    Region()", "    {"]
    for side, tensors in (("inputs", inputs), ("outputs", outputs)):
        borders = ", ".join(f"{{ &t{tensor.number}, false }}" for tensor in tensors)
        lines.append(f"        {side} = {{ {borders} }};")
    functions = ", ".join(f"&f{number}" for number in range(len(draft.steps)))
    weights = ", ".join(f"&t{tensor.number}" for tensor in constants)
    lines.append(f"        functions = {{ {functions} }};")
    lines.append(f"        weights = {{ {weights} }};")
    lines += [f"        {name}();" for name, _ in parts]
    lines += ["    }", "};", ""]
    lines.append(f"constexpr int32_t CONSTANTS = {len(constants)};")
    lines.append(f"constexpr unsigned int THREADS = {threads};")
    lines.append(f"constexpr size_t CALL_ARGUMENTS = {max(1, len(inputs) + len(outputs))};")
    lines.append(POSTLUDE.strip("\n"))
    return "\n".join(lines) + "\n"


def used_constants(draft: AclDraft) -> tuple[str, ...]:
    """Return the names of the constants in the order in which the unit takes them."""
    return tuple(
        name for tensor, (name, _) in draft.constants.items() if _is_used(tensor, draft.steps)
    )


def _is_used(tensor: AclTensor, steps: Sequence[AclStep]) -> bool:
    return any(tensor in step.reads for step in steps)


def headers_of(steps: Sequence[AclStep]) -> list[str]:
    """Return the library's headers that declare the functions of the steps."""
    names = {_HEADERS.get(step.function, step.function) for step in steps}
    return [f"arm_compute/runtime/NEON/functions/{name}.h" for name in sorted(names)]


def own_functions(steps: Sequence[AclStep]) -> list[str]:
    """Return the C++ of functions that the library lacks, where the steps use them."""
    return [PRODUCT] if any(step.function == "ChangingProduct" for step in steps) else []


def _between(
    draft: AclDraft, inputs: Sequence[AclTensor], outputs: Sequence[AclTensor]
) -> list[AclTensor]:
    outside = {*inputs, *outputs}
    return [step.result for step in draft.steps if step.result not in outside]


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as the library counts it, innermost first."""
    return f"TensorShape({naturals(shape[::-1] or (1,))})"


def description(draft: AclDraft, tensor: AclTensor) -> str:
    """Return shape, element type and quantization of a tensor as C++ arguments."""
    kind = "QSYMM8_PER_CHANNEL" if tensor.per_channel else DATA_TYPES[tensor.dtype]
    text = f"{shape_text(tensor.shape)}, DataType::{kind}"
    if tensor.dtype not in (DType.INT8, DType.UINT8):
        return text
    meaning = draft.quantizations.get(draft.family(tensor), AclQuantization((1.0,)))
    if tensor.per_channel:
        scales = ", ".join(real(scale) for scale in meaning.scales)
        return f"{text}, QuantizationInfo(std::vector<float>{{ {scales} }})"
    return f"{text}, QuantizationInfo({real(meaning.scales[0])}, {meaning.zero})"


def _parts(name: str, items: Sequence[str], count: int) -> list[tuple[str, Sequence[str]]]:
    """Cut the body of a function into functions of ``count`` items each, with a number each."""
    starts = range(0, len(items), count)
    return [(f"{name}_{start // count}", items[start : start + count]) for start in starts]


def _configuration(draft: AclDraft, between: Sequence[AclTensor]) -> list[str]:
    """Configure the functions, one item a step.

    A tensor's memory is free after the last function that reads it.
    """
    last: dict[AclTensor, int] = {}
    for number, step in enumerate(draft.steps):
        last[step.result] = number
        last.update(dict.fromkeys(step.reads, number))
    managed = set(between)
    lines: list[str] = []
    for number, step in enumerate(draft.steps):
        label = c_string(step.label)
        item: list[str] = []
        if step.result in managed:
            item.append(f"        group.manage(&t{step.result.number});")
        item.append(f'        check({label}, "{step.function}", {validation(step)});')
        item.append(f"        f{number}.configure({_arguments(step, infos=False)});")
        ended = {tensor for tensor in (*step.reads, step.result) if last[tensor] == number}
        for tensor in sorted(ended & managed, key=_number):
            item.append(f"        t{tensor.number}.allocator()->allocate();")
        lines.append("\n".join(item) + "\n")
    return lines


def _number(tensor: AclTensor) -> int:
    return tensor.number


def validation(step: AclStep) -> str:
    """Return the call that asks the library whether it takes a step."""
    return f"{step.function}::validate({_arguments(step, infos=True)})"


def _arguments(step: AclStep, *, infos: bool) -> str:
    return ", ".join(_argument(arg, step, infos=infos) for arg in step.args)


def _argument(arg: Arg, step: AclStep, *, infos: bool) -> str:
    if arg is None:
        return "nullptr"
    if isinstance(arg, AclTensor):
        return f"t{arg.number}.info()" if infos else f"&t{arg.number}"
    if isinstance(arg, str):
        return arg.replace("{activation}", step.activation or "ActivationLayerInfo()")
    element = "const ITensorInfo *" if infos else "const ITensor *"
    items = ", ".join(_argument(item, step, infos=infos) for item in arg)
    return f"std::vector<{element}>{{ {items} }}"
