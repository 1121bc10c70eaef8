# SPDX-License-Identifier: Apache-2.0
"""Loads machine code from memory: every load is a library of its own."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress

from .artifact.elf import check_shared_library
from .errors import ArtifactError, LinkRefused, ResourceError
from .loading import NativeCode


class NativeLibrary(NativeCode):
    """A shared library that lives in this process alone.

    On Linux its content is in an anonymous file, elsewhere in a private temporary one. The dynamic
    linker knows libraries by path and inode; both are new at every load, so two loads share no
    state.

    Args:
        content: The library. Its digest must have been checked: a damaged one can end the process.
        name: For messages.

    Raises:
        ArtifactError: Its headers lie outside of it, or the dynamic linker refuses it.
        ResourceError: No memory or file left.
    """

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(name)
        check_code(content, name)
        try:
            self._library, descriptor = _open(content, name)
        except MemoryError:
            raise ResourceError(f"no memory to load '{name}'") from None
        except OSError as error:
            raise ResourceError(
                f"the code of '{name}' cannot be loaded: {error.strerror or error}",
                hint="memory, open files or the size of files are limited: ulimit -a",
            ) from None
        self._close = weakref.finalize(self, _unload, self._library, descriptor, self._endings)
        # A finalizer at exit could unload code that another thread still runs.
        self._close.atexit = False

    def address(self, symbol: str) -> int:
        """Return the address of an exported symbol, 0 if there is none."""
        try:
            function = self._library[symbol]
        except AttributeError:
            return 0
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def close(self) -> None:
        """Unload the library; its addresses must not be called any more. Harmless when repeated."""
        self._close()


def check_code(content: bytes, name: str) -> None:
    """Check the bounds of a shared library, on systems whose libraries are ELF.

    Raises:
        ArtifactError: Mapping it could end this process; the message names the unit.
    """
    if sys.platform in ("darwin", "win32"):
        return
    try:
        check_shared_library(content)
    except ArtifactError as error:
        error.where = f"the code of '{name}'"
        raise


def _open(content: bytes, name: str) -> tuple[ctypes.CDLL, int]:
    """Load the library; the descriptor stays open, so that its path stays ours, or is -1."""
    if sys.platform == "linux":
        try:
            descriptor = os.memfd_create(f"intarsia-{name[:64]}", os.MFD_CLOEXEC)
        except OSError:
            return _open_file(content, name), -1
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            return _dlopen(f"/proc/self/fd/{descriptor}", name), descriptor
        except BaseException:
            os.close(descriptor)
            raise
    return _open_file(content, name), -1


def _open_file(content: bytes, name: str) -> ctypes.CDLL:
    from .artifact.abandoned import temporary_folder  # the usual way needs no file

    with temporary_folder("code") as folder:
        file = folder / "lib.so"
        file.write_bytes(content)
        return _dlopen(str(file), name)


def _dlopen(path: str, name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        reason = str(error).replace(path, f"the code of '{name}'")
        raise LinkRefused(f"the dynamic linker refuses {reason}") from None


def _unload(library: ctypes.CDLL, descriptor: int, endings: Iterable[Callable[[], object]]) -> None:
    for end in endings:
        end()
    with suppress(AttributeError, OSError):
        dlclose = ctypes.CDLL(None).dlclose
        dlclose.argtypes = (ctypes.c_void_p,)
        dlclose(library._handle)  # pyright: ignore[reportPrivateUsage] # no public name for it
    if descriptor >= 0:
        os.close(descriptor)
