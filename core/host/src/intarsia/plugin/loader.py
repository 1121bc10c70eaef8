# SPDX-License-Identifier: Apache-2.0
"""The loader author's face, where the host is installed: see :mod:`intarsia_runtime.plugin`.

It has the same names and imports nothing but the runtime. A loader that must also run where only
the runtime is installed imports :mod:`intarsia_runtime.plugin` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_runtime.plugin import (
        SHARED_LIBRARY,
        SHARED_LIBRARY_FORMAT,
        ArtifactError,
        Closing,
        CodeLoader,
        DeviceModel,
        Dims,
        DType,
        HostedCall,
        Index,
        Int32,
        Int64,
        IntarsiaError,
        LinkRefused,
        LoadRequest,
        NativeCall,
        NativeCode,
        NativeLibrary,
        PluginError,
        ResourceError,
        Size,
        TargetError,
        TensorSpec,
        ToolchainError,
        UnitLoader,
        UnsupportedError,
        WorkerLost,
        available_threads,
        installed_version,
        interpreting,
        load_openmp,
        no_device,
        print_unit_json,
        read_fact,
        read_unit_json,
        read_versioned_json,
        reads_formats,
        simulated_call,
        stamp_of,
        temporary_folder,
        tensor_bytes,
        this_machine,
        thread_setter,
    )

__all__ = [
    "SHARED_LIBRARY",
    "SHARED_LIBRARY_FORMAT",
    "ArtifactError",
    "Closing",
    "CodeLoader",
    "DType",
    "DeviceModel",
    "Dims",
    "HostedCall",
    "Index",
    "Int32",
    "Int64",
    "IntarsiaError",
    "LinkRefused",
    "LoadRequest",
    "NativeCall",
    "NativeCode",
    "NativeLibrary",
    "PluginError",
    "ResourceError",
    "Size",
    "TargetError",
    "TensorSpec",
    "ToolchainError",
    "UnitLoader",
    "UnsupportedError",
    "WorkerLost",
    "available_threads",
    "installed_version",
    "interpreting",
    "load_openmp",
    "no_device",
    "print_unit_json",
    "read_fact",
    "read_unit_json",
    "read_versioned_json",
    "reads_formats",
    "simulated_call",
    "stamp_of",
    "temporary_folder",
    "tensor_bytes",
    "this_machine",
    "thread_setter",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "intarsia_runtime.plugin": (
                "SHARED_LIBRARY SHARED_LIBRARY_FORMAT ArtifactError Closing CodeLoader DType "
                "DeviceModel Dims HostedCall Index Int32 Int64 IntarsiaError LinkRefused "
                "LoadRequest NativeCall NativeCode NativeLibrary PluginError ResourceError Size "
                "TargetError TensorSpec ToolchainError UnitLoader UnsupportedError WorkerLost "
                "available_threads installed_version interpreting load_openmp no_device "
                "print_unit_json read_fact read_unit_json read_versioned_json reads_formats "
                "simulated_call stamp_of temporary_folder tensor_bytes this_machine "
                "thread_setter"
            ),
        },
    )
