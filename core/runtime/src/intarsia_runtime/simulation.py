# SPDX-License-Identifier: Apache-2.0
"""Loaders of accelerators that have no device on this machine: refused, or computed by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .errors import ArtifactError, WorkerLost
from .loading import HostedCall, LoadRequest

if TYPE_CHECKING:
    import numpy as np


def no_device(request: LoadRequest, device: str, *, instead: str) -> WorkerLost:
    """Return the error for a region that was compiled for a device without a driver here.

    Args:
        request: The region.
        device: Its device with an article, e.g. ``an NPU``.
        instead: The remedy other than ``-simulate``.
    """
    return WorkerLost(
        f"region '{request.name}' is compiled for {device}, and no driver for it is here",
        hint=f"{instead}; to compute regions by NumPy on this machine, compile with -simulate",
    )


def simulated_call(
    request: LoadRequest,
    shapes: Iterable[tuple[int, ...]],
    execute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]],
    *,
    file: str,
) -> HostedCall:
    """Return a function that fills the outputs with the reference result.

    Args:
        request: The region.
        shapes: Shapes of the inputs and outputs that the unit was compiled for, in order.
        execute: Computes the outputs from the inputs.
        file: The file that ``execute`` interprets, for messages.

    Raises:
        ArtifactError: The unit does not fit the request.
    """
    ours = list(shapes)
    theirs = [tuple(spec.shape) for spec in (*request.inputs, *request.outputs)]
    if ours != theirs:
        raise ArtifactError(
            f"region '{request.name}' was compiled for {ours} and is called with {theirs}",
            where=request.name,
        )
    count = len(request.inputs)

    def reference_result(*arrays: np.ndarray) -> None:
        with request.interpreting(file):
            results = execute(arrays[:count])
            for output, result in zip(arrays[count:], results, strict=True):
                output[...] = result

    return reference_result
