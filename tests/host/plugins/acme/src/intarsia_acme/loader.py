# SPDX-License-Identifier: Apache-2.0
"""The running half: interprets a region's program with NumPy. Imports no compiler."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.loading import LoadRequest


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


FUNCTIONS = {"nn.relu": _relu, "add": np.add, "multiply": np.multiply}


def load(request: LoadRequest) -> Callable[..., None]:
    """Return a function that fills the outputs from the inputs."""
    program = json.loads(request.files["program.json"])
    inputs: tuple[TensorSpec, ...] = request.inputs

    def run(*arrays: np.ndarray) -> None:
        results: list[np.ndarray] = []
        for step in program["steps"]:
            args = [value(place, results, arrays) for place in step["args"]]
            results.append(FUNCTIONS[step["op"]](*args))
        for place, output in zip(program["outputs"], arrays[len(inputs) :], strict=True):
            output[...] = value(place, results, arrays)

    def value(
        place: tuple[str, str | int], results: list[np.ndarray], arrays: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        where, key = place
        if where == "constant":
            return request.constants[str(key)]
        return (arrays if where == "input" else results)[int(key)]

    return run
