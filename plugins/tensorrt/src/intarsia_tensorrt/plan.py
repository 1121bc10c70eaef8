# SPDX-License-Identifier: Apache-2.0
"""From a network to an engine, serialized as the library does it: a plan."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from intarsia.plugin.accelerator import TargetError, ToolchainError, WorkerLost

from .device import Gpu
from .draft import NetworkDraft, member
from .sdk import Library
from .target import TensorrtOptions


def device_identity(library: Library, options: TensorrtOptions) -> str:
    """Return what an engine is built for.

    Raises:
        WorkerLost: The edition builds on a GPU only, and there is none.
        ToolchainError: The binding of the driver is not installed.
    """
    if library.builds_without_gpu:
        return options.capability
    try:
        gpu = Gpu()
    except WorkerLost as error:
        error.hint = "compile where the GPU is, or with -library=tensorrt-rtx, which needs none"
        raise
    try:
        return gpu.identity
    finally:
        gpu.close()


def build_plan(draft: NetworkDraft, options: TensorrtOptions) -> bytes:
    """Build the engine of a finished network.

    Raises:
        ToolchainError: The library refuses it, in its own words.
        TargetError: The library has no timing cache, and one is asked for.
    """
    config: Any = draft.builder.create_builder_config()
    trt = draft.trt
    tf32 = member(trt.BuilderFlag, "TF32")
    (config.set_flag if options.tf32 else config.clear_flag)(tf32)
    if options.workspace:
        config.set_memory_pool_limit(member(trt.MemoryPoolType, "WORKSPACE"), options.workspace)
    if draft.library.builds_without_gpu:
        config.num_compute_capabilities = 1
        name = options.capability.upper().replace("_", "")
        config.set_compute_capability(member(trt.ComputeCapability, name), 0)
    if options.dynamic_batch:
        config.add_optimization_profile(_profile(draft, options.dynamic_batch))
    times = open_times(draft, config, options.timing_cache)
    draft.messages.clear()
    plan = draft.builder.build_serialized_network(draft.network, config)
    if plan is None:
        raise ToolchainError(
            f"{draft.library.label} builds no engine: {draft.messages.text()}",
            where=draft.network.name,
            hint="keep the node that it names from the plugin: --place 'NODE!=tensorrt'",
        )
    if times is not None:
        keep_times(times, Path(options.timing_cache))
    return bytes(plan)


def _profile(draft: NetworkDraft, batches: tuple[int, ...]) -> Any:
    profile = draft.builder.create_optimization_profile()
    for number in range(draft.network.num_inputs):
        tensor = draft.network.get_input(number)
        rest = draft.shape_of(tensor)[1:]
        profile.set_shape(tensor.name, *((batch, *rest) for batch in batches))
    return profile


def open_times(draft: NetworkDraft, config: Any, name: str) -> Any:
    """Give the times of a file to the builder; return what holds them, ``None`` without a name.

    Raises:
        TargetError: The file cannot be read, or the library has no such cache.
        ToolchainError: The library does not take the file.
    """
    if not name:
        return None
    if draft.library.edition == "tensorrt-rtx":
        raise TargetError(
            "TensorRT-RTX measures nothing while it builds, so it has no timing cache",
            hint="leave -timing-cache away, or -library=tensorrt",
        )
    path = Path(name)
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as cause:
        raise TargetError(f"-timing-cache={name} cannot be read: {cause}") from cause
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = config.create_timing_cache(content)
    if times is None or not config.set_timing_cache(times, False):
        raise ToolchainError(
            f"{draft.library.label} does not take the timing cache {name}: {draft.messages.text()}",
            hint="it was written by another version or on another GPU: name another file",
        )
    return times


def keep_times(times: Any, path: Path) -> None:
    """Write the measured times beside the place, then rename.

    Raises:
        TargetError: They cannot be written there.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(bytes(times.serialize()))
        Path(file.name).replace(path)
    except OSError as cause:
        raise TargetError(f"-timing-cache={path} cannot be written: {cause}") from cause
