# SPDX-License-Identifier: Apache-2.0
"""The process at the other end of :mod:`.compile_pool`: texts of LLVM IR in, object files out.

The first line says what all texts have in common; each text follows a line with its size in bytes.
Each answer follows a line with ``object`` or ``error`` and its size.
"""

from __future__ import annotations

import json
import os
import sys
from typing import BinaryIO

from intarsia_runtime.errors import ToolchainError

from .machine import CodegenMachine
from .optimize import compile_object, prepare


def serve() -> None:
    """Answer until there is nothing more to read."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what LLVM prints is no answer
        _serve(sys.stdin.buffer, answers)


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    job = json.loads(questions.readline())
    machine = CodegenMachine(**job["machine"])
    prepare()  # while nothing is asked yet
    while size := questions.readline():
        text = questions.read(int(size)).decode()
        try:
            kind, answer = b"object", compile_object(text, machine, job["level"])
        except ToolchainError as error:
            kind, answer = b"error", error.message.encode()
        answers.write(b"%s %d\n" % (kind, len(answer)) + answer)
        answers.flush()
