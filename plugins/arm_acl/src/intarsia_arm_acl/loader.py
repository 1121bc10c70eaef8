# SPDX-License-Identifier: Apache-2.0
"""The runtime half: opens a unit and returns its native function. Imports no compiler."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from intarsia_runtime.plugin import (
    LinkRefused,
    LoadRequest,
    NativeCall,
    NativeLibrary,
    PluginError,
    reads_formats,
)

from .stamp import FORMAT, SYMBOL, unit_stamp

if TYPE_CHECKING:
    import numpy as np

LIBRARY = "lib.so"
RELEASES = (
    "install the release of Arm Compute Library that the artifact was compiled for: Debian 12 has"
    " libarm_compute.so.20 (20.08), Debian 13 libarm_compute.so.43 (24.11); or compile again with"
    " -acl-root, which names the headers and libraries of the release that is here"
)
_MESSAGE_BYTES = 1024


@reads_formats(FORMAT)
def load(request: LoadRequest) -> NativeCall:
    """Open the unit of a region: the library configures its functions and packs their weights.

    Raises:
        ArtifactError: The unit is damaged, or the library it was compiled for is not here.
        PluginError: The library refuses one of the functions.
    """
    unit = LoadedUnit(request)
    return NativeCall(unit.function, unit.handle, unit, unit.describe_failure)


class LoadedUnit:
    """An open unit, alive as long as this object is.

    Attributes:
        function: Address of the function that runs it.
        handle: Its first argument.
    """

    def __init__(self, request: LoadRequest) -> None:
        """Load the code and open the unit; on an error nothing is left behind."""
        self.name = request.name
        self._library = _load_library(request)
        self._constants = _checked_constants(request, self._library)
        self.function = self._library.required("intarsia_acl_call")
        addresses = (ctypes.c_void_p * max(1, len(self._constants)))(
            *(array.ctypes.data for array in self._constants)
        )
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        open_unit = ctypes.CFUNCTYPE(
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32),
            *(ctypes.c_char_p, ctypes.c_size_t),
        )(self._library.required("intarsia_acl_open"))
        self.handle: int = (
            open_unit(
                ctypes.addressof(addresses),
                len(self._constants),
                request.threads,
                ctypes.cast(message, ctypes.c_char_p),
                _MESSAGE_BYTES,
            )
            or 0
        )
        if not self.handle:
            reason = message.value.decode(errors="replace")
            self._library.close()
            raise PluginError(
                f"region '{self.name}' cannot be opened: {reason}",
                hint="compile the model for the version of Arm Compute Library that is here",
            )
        close = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            self._library.required("intarsia_acl_close")
        )
        self._close = weakref.finalize(self, _close_unit, close, self.handle, self._library)
        self._close.atexit = False

    def describe_failure(self) -> str:
        """Say why the last run failed; empty if it did not."""
        error = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(
            self._library.required("intarsia_acl_error")
        )
        return (error(self.handle) or b"").decode(errors="replace")

    def close(self) -> None:
        """Free the unit; not to be run again."""
        self._close()


def _close_unit(close: Callable[[int], None], handle: int, library: NativeLibrary) -> None:
    close(handle)
    library.close()


def _load_library(request: LoadRequest) -> NativeLibrary:
    try:
        return NativeLibrary(request.file(LIBRARY), request.name)
    except LinkRefused as error:
        error.hint = RELEASES  # Arm's library is all that may be missing
        raise


def _checked_constants(request: LoadRequest, library: NativeLibrary) -> tuple[np.ndarray, ...]:
    """Return the weights in the order of the code, which was compiled for these sizes.

    Raises:
        ArtifactError: It was compiled for others.
    """
    with request.interpreting("passport.json"):
        names = sorted(request.constants, key=_constant_number)
    arrays = tuple(request.constants[name] for name in names)
    stamp = unit_stamp(
        [(spec.dtype.value, tuple(spec.shape)) for spec in request.inputs],
        [(spec.dtype.value, tuple(spec.shape)) for spec in request.outputs],
        [(array.dtype.name, tuple(array.shape)) for array in arrays],
    )
    library.check_stamp(SYMBOL, stamp, "set of tensors")
    return arrays


def _constant_number(name: str) -> int:
    return int(name.rpartition(".")[2])
