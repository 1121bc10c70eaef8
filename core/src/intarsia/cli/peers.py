# SPDX-License-Identifier: Apache-2.0
"""Other runtimes to measure against, each behind one function: inputs by name in, results out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ..errors import ModelError, UsageError

Run: TypeAlias = "Callable[[dict[str, np.ndarray]], object]"


def _onnxruntime(model: Path, threads: int) -> Run:
    import onnxruntime  # only who measures against it needs it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(inputs: dict[str, np.ndarray]) -> object:
        return session.run(None, inputs)

    return run


PEERS: Mapping[str, Callable[[Path, int], Run]] = MappingProxyType({"onnxruntime": _onnxruntime})
"""Name to a function that opens a model for a number of threads."""


def open_peer(name: str, model: Path, threads: int) -> Run:
    """Open ``model`` in another runtime.

    Raises:
        UsageError: The runtime is not installed.
        ModelError: It does not take the model.
    """
    try:
        return PEERS[name](model, threads)
    except ImportError as error:
        raise UsageError(
            f"'{name}' is not installed: {error}", hint=f"pip install {name}"
        ) from None
    except Exception as error:  # a foreign runtime raises anything
        raise ModelError(f"'{name}' does not take '{model}': {error}") from error
