# SPDX-License-Identifier: Apache-2.0
"""Which sizes of a model a program each is made for: those the user names, or that are open."""

from __future__ import annotations

from intarsia_ir.size_values import ShapeChoices
from intarsia_runtime.errors import UnsupportedError

from .dynamic import VM, import_any, is_open
from .open_sizes import open_choices, prove_ranges
from .request import BuildRequest
from .shapes import check_one_program, find_choices, static_shapes


def size_choices(request: BuildRequest) -> ShapeChoices | None:
    """Return the sizes that a program each is made for; ``None`` if every size has one value.

    Raises:
        UnsupportedError: Results depend on a size that has several values, or that nobody gives.
        UsageError: One size of the model is given different values.
    """
    source = request.source
    several = find_choices(source, request.shapes)
    if several is None:
        return _open_choices(request)
    check_one_program(request.runtime)
    prove_ranges(source, several)
    return several


def _open_choices(request: BuildRequest) -> ShapeChoices | None:
    """Return the choices of sizes that nobody gives; ``None`` if there are none.

    Raises:
        UnsupportedError: There are, and they cannot be any.
        IntarsiaError: The model cannot be imported, whatever its sizes are.
    """
    shapes = static_shapes(request.shapes)
    has_one_shape = request.executor.kind == VM or request.runtime.is_freestanding
    has_one_shape = has_one_shape or request.source.is_program
    if has_one_shape or not request.source.may_be_open(shapes):
        return None
    try:
        return open_choices(request.source, shapes)
    except UnsupportedError:
        chosen = request.given_executor
        if is_open(import_any(request.source, chosen, request.runtime, shapes, keep=True)):
            raise
        return None
