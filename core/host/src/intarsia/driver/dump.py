# SPDX-License-Identifier: Apache-2.0
"""Writes what each stage made as numbered text files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text.printer import print_module
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.text.print import print_funcs
from intarsia_ir.writing.new_file import atomic_write, explain_failure
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.artifact.plan_json import plan_to_json


class Dump:
    """A folder of numbered text files, one a stage; does nothing without a folder.

    Args:
        folder: Where to; made if it is not there. ``None`` writes nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._number = 0

    @property
    def is_on(self) -> bool:
        """Whether there is a folder."""
        return self._folder is not None

    def module(self, stage: str, module: IRModule) -> None:
        """Write a module after ``stage``."""
        if self._folder is not None:
            self._write(f"{stage}.txt", print_module(module))

    def functions(self, stage: str, functions: Sequence[PrimFunc]) -> None:
        """Write the kernels."""
        if self._folder is not None:
            self._write(f"{stage}.txt", print_funcs(functions))

    def plan(self, stage: str, plan: CallPlan) -> None:
        """Write the call plan as JSON."""
        if self._folder is not None:
            self._write(f"{stage}.json", json.dumps(plan_to_json(plan), indent=1) + "\n")

    def below(self, piece: str) -> Dump:
        """Return what writes into a folder below this one, for a piece or a size of the model."""
        return Dump(None if self._folder is None else self._folder / piece)

    def _write(self, name: str, text: str) -> None:
        assert self._folder is not None
        self._number += 1
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._folder / f"{self._number:02}-{name}") as file:
                file.write(text.encode())
        except OSError as error:
            raise explain_failure(self._folder, error) from None
