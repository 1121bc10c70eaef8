# SPDX-License-Identifier: Apache-2.0
"""Programs whose compiled pieces take sizes that only the run knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import structs

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.walk import calls
from intarsia_runtime.errors import IntarsiaError, TypeRuleError, UnsupportedError, VerifyError
from intarsia_runtime.load import VM

from .artifact import Artifact
from .config import Executor
from .open_build import compile_open, takes_open_sizes
from .request import BuildRequest
from .shapes import static_shapes
from .story import compile_model, compile_program

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel

_REFUSED = (UnsupportedError, TypeRuleError, VerifyError)

MOST_HOSTED = 32
"""Most nodes that are taken out of the pieces, one by one, because no code can be made of them."""


def import_open_program(
    request: BuildRequest,
    hosted: Mapping[str, str] = MappingProxyType({}),
    *,
    refused: IntarsiaError | None = None,
) -> DynamicModel | None:
    """Import a model as a program whose pieces have open sizes; ``None`` as of the function below.

    ``refused`` is why it is not compiled whole: that is the reason of the step that it names.

    Raises:
        IntarsiaError: A node can be neither compiled nor carried out.
    """
    chosen = None if request.given_executor is None else request.given_executor.kind
    if not request.source.is_onnx or chosen not in (None, VM) or not takes_open_sizes(request):
        return None
    if request.range_guards:  # no step of a program checks them
        return None
    with collecting_guards():
        program = request.source.program(static_shapes(request.shapes), hosted=hosted)
    if isinstance(program, IRModule):
        return None
    where = "" if refused is None else f" {refused.where} ("
    named = [name for name in program.reasons if f" {name} (" in where]
    if refused is None or not named:
        return program
    return structs.replace(
        program, reasons={**program.reasons, **dict.fromkeys(named, refused.message)}
    )


def compile_open_program(
    request: BuildRequest, refused: IntarsiaError | None = None
) -> Artifact | None:
    """Compile a model as a program whose pieces have open sizes.

    A node that cannot be compiled for open sizes becomes a step of the program, and the rest is
    tried again.

    Returns:
        ``None`` if it may not be one: the user chose another executor, the fallback's kernels take
        no sizes, or the model needs no program.

    Raises:
        IntarsiaError: A node can be neither compiled nor carried out.
    """
    request = replace(request, executor=Executor(VM), weights_known=None)
    hosted: dict[str, str] = {}
    while True:
        request.progress("import")
        program = import_open_program(request, hosted, refused=refused)
        if program is None:
            return None
        try:
            return compile_program(request, program)
        except _REFUSED as error:
            name = _node_of(error, program)
            if not name or name in hosted or len(hosted) >= MOST_HOSTED:
                raise
            hosted[name] = error.message


def compile_program_or_model(request: BuildRequest) -> Artifact:
    """Compile a model for one set of shapes; as a program if a part is known at run time only.

    Raises:
        As :func:`~intarsia.driver.story.compile_model`.
    """
    if needs_open_program(request):
        with suppress(*_REFUSED):
            computed = compile_open(request, computed=True)
            if computed is not None and not any(i.only for i in computed.passport.plan.inputs):
                return computed
        with suppress(*_REFUSED):  # pieces of known sizes alone may do
            program = compile_open_program(request)
            if program is not None:
                return program
    return compile_model(request)


def compile_instead(request: BuildRequest, refused: UnsupportedError | TypeRuleError) -> Artifact:
    """Compile a model with open sizes, whole if it computes sizes, else as a program of pieces.

    Args:
        request: The model, and what it is compiled for.
        refused: Why it cannot be compiled as one with open sizes.

    Raises:
        UnsupportedError: It is that.
    """
    try:
        program = compile_open_program(request, refused)
    except _REFUSED as reason:
        if isinstance(refused, TypeRuleError) or reason.message == refused.message:
            raise refused from reason
        raise UnsupportedError(
            f"{refused.message}; nor can it be a program of pieces: {reason.message}",
            hint=refused.hint,
            where=refused.where,
        ) from reason
    if program is None:
        raise refused
    return program


def needs_open_program(request: BuildRequest) -> bool:
    """Whether an ONNX model cannot be compiled whole, or the user wants a program."""
    if not request.source.is_onnx or request.executor.kind == VM:
        return request.source.is_onnx
    if request.given_executor is not None or not takes_open_sizes(request):
        return False
    try:
        request.source.module(static_shapes(request.shapes), keep=True)
    except UnsupportedError:
        return True
    return False


def _node_of(error: IntarsiaError, program: DynamicModel) -> str:
    """Return the name of the model's node that an error names; empty if it names none."""
    for piece in program.pieces.values():
        for call in calls(piece.main):
            if call.span.name and f"{call.span}," in f"{error.where},":  # a plugin may be behind it
                return call.span.name
    return ""
