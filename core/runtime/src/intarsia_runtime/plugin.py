# SPDX-License-Identifier: Apache-2.0
"""The loader author's face: everything that a plugin imports which runs without the compiler.

A plugin's loader, and the modules that it shares with the plugin's compiling half (the format of
its units, the binding of its vendor's library), import this module and nothing else of Intarsia:
they must load where only the runtime is installed. Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .artifact.abandoned import temporary_folder
    from .artifact.plan import TensorSpec, stamp_of
    from .artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT
    from .artifact.unit_json import (
        Dims,
        Index,
        Int32,
        Int64,
        Size,
        interpreting,
        print_unit_json,
        read_unit_json,
        read_versioned_json,
        tensor_bytes,
    )
    from .closing import Closing
    from .cpu import this_machine
    from .dtype import DType
    from .errors import (
        ArtifactError,
        IntarsiaError,
        LinkRefused,
        PluginError,
        ResourceError,
        TargetError,
        ToolchainError,
        UnsupportedError,
        WorkerLost,
    )
    from .installed import installed_version, read_fact
    from .library import NativeLibrary
    from .loading import (
        CodeLoader,
        DeviceModel,
        HostedCall,
        LoadRequest,
        NativeCall,
        NativeCode,
        UnitLoader,
        reads_formats,
    )
    from .simulation import no_device, simulated_call
    from .size import Dim, value_of
    from .size_text import parse_size
    from .threads import available_threads, load_openmp, thread_setter

__all__ = [
    "SHARED_LIBRARY",
    "SHARED_LIBRARY_FORMAT",
    "ArtifactError",
    "Closing",
    "CodeLoader",
    "DType",
    "DeviceModel",
    "Dim",
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
    "parse_size",
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
    "value_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "intarsia_runtime.artifact.abandoned": "temporary_folder",
            "intarsia_runtime.artifact.plan": "TensorSpec stamp_of",
            "intarsia_runtime.artifact.unit": "SHARED_LIBRARY SHARED_LIBRARY_FORMAT",
            "intarsia_runtime.artifact.unit_json": (
                "Dims Index Int32 Int64 Size interpreting print_unit_json read_unit_json "
                "read_versioned_json tensor_bytes"
            ),
            "intarsia_runtime.closing": "Closing",
            "intarsia_runtime.cpu": "this_machine",
            "intarsia_runtime.dtype": "DType",
            "intarsia_runtime.errors": (
                "ArtifactError IntarsiaError LinkRefused PluginError ResourceError TargetError "
                "ToolchainError UnsupportedError WorkerLost"
            ),
            "intarsia_runtime.installed": "installed_version read_fact",
            "intarsia_runtime.library": "NativeLibrary",
            "intarsia_runtime.loading": (
                "CodeLoader DeviceModel HostedCall LoadRequest NativeCall NativeCode UnitLoader "
                "reads_formats"
            ),
            "intarsia_runtime.simulation": "no_device simulated_call",
            "intarsia_runtime.size": "Dim value_of",
            "intarsia_runtime.size_text": "parse_size",
            "intarsia_runtime.threads": "available_threads load_openmp thread_setter",
        },
    )
