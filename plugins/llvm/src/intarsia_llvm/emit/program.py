# SPDX-License-Identifier: Apache-2.0
"""What a program sees of a model: the function that runs it, and the weights.

The names and types are those of the header (:mod:`intarsia_loops.codegen.c_interface`): its structs
hold nothing but pointers, so an element's number is its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from intarsia_loops.codegen.c_interface import Interface, pack_weights
from intarsia_runtime.artifact.plan import Argument, ArgumentSource, RegionStep, SizesStep
from intarsia_runtime.artifact.tensors import array_bytes

from .blocks import Blocks
from .writer import Declarations, FunctionWriter

if TYPE_CHECKING:
    import numpy as np


def emit_run(face: Interface, declarations: Declarations) -> str:
    """Return ``<prefix>_run(inputs, outputs, [constants,] workspace)``, whose result is 0."""
    w = FunctionWriter(declarations)
    Blocks(w, partial(_pointer, w, face), _refused, _refused).write(face.plan.steps)
    names = ["inputs", "outputs", *(["constants"] if face.asks_constants else []), "workspace"]
    head = f"define i32 @{face.prefix}_run({', '.join(f'ptr %{name}' for name in names)}) #0 {{"
    return "\n".join([head, "start:", *w.allocas, *w.lines, "  ret i32 0", "}", ""])


def _refused(step: RegionStep | SizesStep) -> None:
    raise AssertionError(f"{step} was refused before")


def _pointer(w: FunctionWriter, face: Interface, arg: Argument) -> str:
    """Return the address of an argument's data."""
    match arg.place:
        case ArgumentSource.INPUT:
            return _member(w, "%inputs", arg.index)
        case ArgumentSource.OUTPUT:
            return _member(w, "%outputs", arg.index)
        case ArgumentSource.CONSTANT:
            return f"@weight.{arg.index}" if face.linked else _member(w, "%constants", arg.index)
        case ArgumentSource.WORKSPACE:
            return w.emit(f"getelementptr i8, ptr %workspace, i64 {arg.index}")


def _member(w: FunctionWriter, struct: str, number: int) -> str:
    slot = w.emit(f"getelementptr ptr, ptr {struct}, i64 {number}")
    return w.emit(f"load ptr, ptr {slot}")


def emit_weights(face: Interface, constants: Mapping[str, np.ndarray]) -> str:
    """Return the weights as constants, or the function that finds them in the file's bytes."""
    if face.asks_constants:
        return _mapping(face, pack_weights(face, constants)[1])
    lines: list[str] = []
    for number, name in enumerate(face.plan.constants):
        data = array_bytes(constants[name])
        text = "".join(f"\\{argument}" for argument in data.hex(" ").split())
        kind = f"[{len(data)} x i8]"
        aligned = f"align {face.constant_alignment}"
        lines.append(f'@weight.{number} = internal constant {kind} c"{text}", {aligned}')
    if lines:
        rows = ", ".join(f"ptr @weight.{number}" for number in range(len(lines)))
        lines.append(f"@{face.prefix}_parameters = constant [{len(lines)} x ptr] [{rows}]")
    return "\n".join([*lines, ""])


def _mapping(face: Interface, starts: list[int]) -> str:
    w = FunctionWriter(Declarations())
    for number, start in enumerate(starts):
        slot = w.emit(f"getelementptr ptr, ptr %constants, i64 {number}")
        data = w.emit(f"getelementptr i8, ptr %parameters, i64 {start}")
        w.do(f"store ptr {data}, ptr {slot}")
    head = f"define void @{face.prefix}_map_constants(ptr %parameters, ptr %constants) #0 {{"
    return "\n".join([head, "start:", *w.lines, "  ret void", "}", ""])
