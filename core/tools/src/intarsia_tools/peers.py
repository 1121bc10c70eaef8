# SPDX-License-Identifier: Apache-2.0
"""Other runtimes to measure against, each behind one function: inputs by name in, results out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from intarsia_runtime.errors import ModelError, UsageError

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


def _openvino_f32(model: Path, threads: int) -> Run:
    return _openvino(model, threads, {"INFERENCE_PRECISION_HINT": "f32"})


def _openvino_default(model: Path, threads: int) -> Run:
    return _openvino(model, threads, {})  # bfloat16 where the processor has instructions for it


def _openvino(model: Path, threads: int, precision: Mapping[str, str]) -> Run:
    openvino = importlib.import_module("openvino")  # only who measures against it needs it

    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(str(model), "CPU", {**settings, **precision})
    request = compiled.create_infer_request()

    def run(inputs: dict[str, np.ndarray]) -> object:
        request.infer(inputs, share_inputs=True)
        return [request.get_output_tensor(index).data for index in range(len(compiled.outputs))]

    return run


PEERS: Mapping[str, Callable[[Path, int], Run]] = MappingProxyType(
    {
        "onnxruntime": _onnxruntime,
        "openvino": _openvino_f32,
        "openvino-default": _openvino_default,
    }
)
"""Name to a function that opens a model for a number of threads; fp32 unless the name says more."""


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
            f"'{name}' is not installed: {error}", hint=f"pip install {name.split('-')[0]}"
        ) from None
    except Exception as error:  # a foreign runtime raises anything
        raise ModelError(f"'{name}' does not take '{model}': {error}") from error
