# SPDX-License-Identifier: Apache-2.0
"""The loader interface: everything that the running half of a plugin imports.

A plugin's loader, and the modules that it shares with the plugin's compiling half (the format of
its units, the binding of its vendor's library), import this module and nothing else of Intarsia:
they must load where only the runtime is installed. Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .artifact.abandoned import temporary_folder as temporary_folder
    from .artifact.machine import Machine as Machine
    from .artifact.plan import TensorSpec as TensorSpec
    from .artifact.plan import stamp_of as stamp_of
    from .artifact.unit import SHARED_LIBRARY as SHARED_LIBRARY
    from .artifact.unit import SHARED_LIBRARY_FORMAT as SHARED_LIBRARY_FORMAT
    from .artifact.unit_json import Dims as Dims
    from .artifact.unit_json import Index as Index
    from .artifact.unit_json import Int32 as Int32
    from .artifact.unit_json import Int64 as Int64
    from .artifact.unit_json import Size as Size
    from .artifact.unit_json import interpreting as interpreting
    from .artifact.unit_json import print_unit_json as print_unit_json
    from .artifact.unit_json import read_unit_json as read_unit_json
    from .artifact.unit_json import read_versioned_json as read_versioned_json
    from .artifact.unit_json import tensor_bytes as tensor_bytes
    from .closing import Closing as Closing
    from .cpu import this_machine as this_machine
    from .dtype import DType as DType
    from .errors import ArtifactError as ArtifactError
    from .errors import IntarsiaError as IntarsiaError
    from .errors import LinkRefused as LinkRefused
    from .errors import PluginError as PluginError
    from .errors import ResourceError as ResourceError
    from .errors import TargetError as TargetError
    from .errors import ToolchainError as ToolchainError
    from .errors import UnsupportedError as UnsupportedError
    from .errors import WorkerLost as WorkerLost
    from .installed import installed_version as installed_version
    from .installed import read_fact as read_fact
    from .library import NativeLibrary as NativeLibrary
    from .loading import CodeLoader as CodeLoader
    from .loading import DeviceModel as DeviceModel
    from .loading import HostedCall as HostedCall
    from .loading import LoadRequest as LoadRequest
    from .loading import NativeCall as NativeCall
    from .loading import NativeCode as NativeCode
    from .loading import UnitLoader as UnitLoader
    from .loading import reads_formats as reads_formats
    from .simulation import no_device as no_device
    from .simulation import simulated_call as simulated_call
    from .size import Dim as Dim
    from .size import value_of as value_of
    from .size_text import parse_size as parse_size
    from .threads import available_threads as available_threads
    from .threads import load_openmp as load_openmp
    from .threads import thread_setter as thread_setter

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "intarsia_runtime.artifact.abandoned": "temporary_folder",
            "intarsia_runtime.artifact.machine": "Machine",
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
