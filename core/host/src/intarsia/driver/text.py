# SPDX-License-Identifier: Apache-2.0
"""Module text with its settings: what ``--dump-ir`` writes is read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text.parser import NO_PARAMS, SettingReader, parse_module
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.control import CONTROL

from ..host.host import Host
from ..target.target import CompositeTarget
from .config import Executor, Runtime

if TYPE_CHECKING:
    import numpy as np


def read_module(
    text: str, *, host: Host | None = None, params: Mapping[str, np.ndarray] = NO_PARAMS
) -> IRModule:
    """Parse a module with core's operators, its executor, runtime and target.

    Args:
        text: What :func:`intarsia_ir.graph.text.print_module` prints.
        host: Knows kinds of targets, executors and runtimes; those installed if ``None``.
        params: Arrays of the constants that the text names.

    Raises:
        ParseError: The text is wrong; ``where`` has line and column.
    """
    readers = setting_readers(host or Host())
    return parse_module(text, operators={**OPERATORS, **CONTROL}, params=params, settings=readers)


def setting_readers(host: Host) -> Mapping[str, SettingReader]:
    """Return how each module-level setting is made from its text, by the name of its class."""

    def executor(text: str) -> Executor:
        return Executor(text, host=host)

    def runtime(text: str) -> Runtime:
        return Runtime(text, host=host)

    def target(text: str) -> CompositeTarget:
        return host.target(text)

    return {"Executor": executor, "Runtime": runtime, "CompositeTarget": target}
