# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend tests through emx-onnx-cgen, by the backend for such tests that it ships.

That backend writes C, compiles it with ``gcc -O2`` to a program and reads what the program prints.
Only NumPy, onnx and emx-onnx-cgen need to be installed.
"""

from __future__ import annotations

import time
from functools import cache, partial

import onnx

from .node_outcome import Outcome, differs
from .onnx_cases import OnnxCase

NAME = "emx-onnx-cgen"


def run_case(case: OnnxCase) -> Outcome:
    """Write, compile and run one test in this process and a program of its own."""
    from emx_onnx_cgen.errors import CompilerError
    from emx_onnx_cgen.onnx_backend import backend

    _keep_templates()
    start = time.perf_counter()

    def outcome(status: str, reason: str = "") -> Outcome:
        seconds = round(time.perf_counter() - start, 3)
        return Outcome(case.kind, case.name, status, reason, seconds=seconds)

    try:
        model, sets, rtol, atol = case.read()
        for inputs, wanted in sets:
            found = backend.run_model(model, inputs)
            problem = differs(wanted, found, rtol, atol)
            if problem:
                return outcome("wrong", problem)
        return outcome("pass")
    except CompilerError as error:
        return outcome("refused", _first_line(error))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return outcome("refused", _first_line(error))
    except Exception as error:  # whatever else it raises is no answer either
        return outcome("failed", f"{type(error).__name__}: {_first_line(error)}")


@cache
def _keep_templates() -> None:
    """Have templates translated once, not for each model: nine tenths of the time otherwise."""
    from emx_onnx_cgen.codegen import c_emitter
    from jinja2 import Environment, FileSystemBytecodeCache

    c_emitter.Environment = partial(Environment, bytecode_cache=FileSystemBytecodeCache())


def _first_line(error: Exception) -> str:
    """Return the first line of an error, and what a compiler that failed says first."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    said = [line.partition("error: ")[2] for line in lines[1:] if "error: " in line]
    return " ".join([lines[0], *said[:1]])
