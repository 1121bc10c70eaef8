# SPDX-License-Identifier: Apache-2.0
"""Models whose sizes stay open: one program for every size that the model's arithmetic allows."""

from __future__ import annotations

from dataclasses import replace

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_runtime.load import VM

from .artifact import Artifact
from .config import Executor
from .dynamic import is_open
from .request import BuildRequest
from .shapes import static_shapes
from .story import compile_model


def open_request(request: BuildRequest, *, computed: bool = False) -> BuildRequest | None:
    """Return the request to compile a model with open sizes; ``None`` if it has none, or may not.

    It may where the fallback's kernels take sizes.

    Args:
        request: The model, and what it is compiled for.
        computed: Whether the model may compute sizes, so that no input need have an open one.
    """
    if not takes_open_sizes(request):
        return None
    if request.executor.kind not in ("aot", VM):
        return None
    model = request.source.model
    if computed:
        opened = request.source.is_onnx
    elif isinstance(model, IRModule):
        opened = is_open(model)
    else:
        opened = request.source.may_be_open(static_shapes(request.shapes))
    if not opened:
        return None
    executor = Executor() if request.executor.kind == VM else request.executor
    return replace(request, executor=executor, is_open=True, weights_known=None)


def takes_open_sizes(request: BuildRequest) -> bool:
    """Whether the fallback's kernels take sizes, and somebody lays memory out for them.

    Runtimes without a heap need a largest value of each size, and so the user's ranges.
    """
    is_laid_out = not request.runtime.is_freestanding or bool(request.range_guards)
    return request.target.fallback.kind.open_sizes and is_laid_out


def compile_open(request: BuildRequest, *, computed: bool = False) -> Artifact | None:
    """Compile a model with open sizes; ``None`` if it has none.

    Args:
        request: The model, and what it is compiled for.
        computed: As of :func:`open_request`.

    Raises:
        UnsupportedError: An operator needs numbers.
        IntarsiaError: As :func:`~intarsia.driver.story.compile_model`.
    """
    opened = open_request(request, computed=computed)
    if opened is None:
        return None
    with collecting_guards(request.range_guards):
        return compile_model(opened)
