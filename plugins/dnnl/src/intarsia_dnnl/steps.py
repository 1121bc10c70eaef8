# SPDX-License-Identifier: Apache-2.0
"""The step table of ``intarsia_runtime.loading`` as C structures."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p


class PlannedStep(ctypes.Structure):
    """``function(a, b, c, d)``."""

    _fields_ = (
        ("function", c_void_p),
        ("a", c_void_p),
        ("b", c_void_p),
        ("c", c_int64),
        ("d", c_void_p),
    )


class Binding(ctypes.Structure):
    """``steps[step].b`` is the data of argument ``argument``."""

    _fields_ = (("step", c_int64), ("argument", c_int64))


class StepTable(ctypes.Structure):
    """What ``intarsia_run_steps`` walks; after a failure, which step failed and its status."""

    _fields_ = (
        ("bindings_count", c_int64),
        ("bindings", c_void_p),
        ("steps_count", c_int64),
        ("steps", c_void_p),
        ("failed_step", c_int64),
        ("status", c_int64),
    )


class OpenTables(ctypes.Structure):
    """What ``intarsia_run_open_steps`` chooses a table from."""

    _fields_ = (
        ("tensors", c_int64),
        ("sizes", c_int64),
        ("count", c_int64),
        ("keys", c_void_p),
        ("tables", c_void_p),
        ("used", c_void_p),
        ("clock", c_int64),
        ("add", c_void_p),
        ("last", c_int64),
    )


AddTable = ctypes.CFUNCTYPE(c_int64, c_void_p, c_int64)
"""Adds a table for new sizes: from the arguments of a call, the number of the table, or -1."""


class ExecutionArgument(ctypes.Structure):
    """oneDNN's ``dnnl_exec_arg_t``."""

    _fields_ = (("arg", ctypes.c_int), ("memory", c_void_p))


def make_table(
    steps: Sequence[tuple[int, int, int, int, int]], bindings: Sequence[tuple[int, int]]
) -> tuple[StepTable, object]:
    """Return the table and what must live as long as it is used."""
    step_array = (PlannedStep * max(1, len(steps)))(*steps)
    binding_array = (Binding * max(1, len(bindings)))(*bindings)
    table = StepTable(
        len(bindings),
        ctypes.addressof(binding_array),
        len(steps),
        ctypes.addressof(step_array),
        -1,
        0,
    )
    return table, (step_array, binding_array)
