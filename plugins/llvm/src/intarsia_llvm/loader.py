# SPDX-License-Identifier: Apache-2.0
"""Puts an object file into this process: what runs code that no linker made a library of.

The running half of the plugin: it imports nothing of what compiles but llvmlite, whose LLVM links
in memory (ORC with JITLink).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.loading import CodeLoader, NativeCode

from .elf_object import check_object

if TYPE_CHECKING:
    from llvmlite import binding

OBJECT_LOADER = "llvm-object"
"""Name in the entry-point group ``intarsia.loaders``."""

OBJECT_FORMAT = 1
"""Version of what such a unit holds."""

OBJECT_FILE = "unit.o"
"""The file of a unit that :data:`LOADER` loads."""

_LIBRARY = "unit"  # ORC has a library "main" of its own
_ALWAYS_THERE = "intarsia_run_steps"  # looked up at once, so that nothing is linked later


class ObjectCode(NativeCode):
    """The functions of an object file, linked into memory against what the process has.

    Weak symbols that the process lacks are null, as in a library.

    Args:
        content: The object. Its digest must have been checked.
        name: For messages.

    Raises:
        ArtifactError: llvmlite is not installed, or LLVM refuses the object.
    """

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(name)
        try:
            from llvmlite import binding  # an SDK: loaded when there is an object to link
        except ImportError as cause:
            raise ArtifactError(
                f"the code of '{name}' is an object file, and LLVM, which puts it into the "
                f"process, cannot be imported: {cause}",
                hint="pip install 'llvmlite>=0.50', or compile the model where there is a linker",
            ) from None
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        builder = binding.JITLibraryBuilder().add_object_img(content).add_current_process()
        try:
            self._jit = binding.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
            linked = builder.export_symbol(_ALWAYS_THERE).link(self._jit, _LIBRARY)
        except RuntimeError as cause:
            raise ArtifactError(f"LLVM refuses the code of '{name}': {cause}") from None
        self._trackers = [linked]
        self._close = weakref.finalize(self, _unload, self._trackers, self._jit, self._endings)
        # A finalizer at exit could unload code that another thread still runs.
        self._close.atexit = False

    def address(self, symbol: str) -> int:
        """Return the address of an exported symbol, 0 if there is none."""
        try:
            found = self._jit.lookup(_LIBRARY, symbol)
        except RuntimeError:
            return 0
        self._trackers.append(found)
        return found[symbol]

    def close(self) -> None:
        """Free the code; its addresses must not be called any more. Harmless when repeated."""
        self._close()


def _unload(
    trackers: list[binding.ResourceTracker],
    jit: binding.LLJIT,
    endings: Iterable[Callable[[], object]],
) -> None:
    """Free the code; any tracker that is closed, also by the garbage collector, frees all of it."""
    for end in endings:
        end()
    for tracker in trackers:
        tracker.close()
    trackers.clear()
    jit.close()


def open_object(files: Mapping[str, bytes], name: str) -> ObjectCode:
    """Load the object file of a unit.

    Raises:
        ArtifactError: The unit has none, or :class:`ObjectCode` cannot load it.
    """
    if OBJECT_FILE not in files:
        raise ArtifactError(f"unit '{name}' has no file '{OBJECT_FILE}'")
    content = files[OBJECT_FILE]
    try:
        check_object(content)
    except ArtifactError as error:
        error.where = f"the code of '{name}'"
        raise
    return ObjectCode(content, name)


LOADER = CodeLoader(open_object, (OBJECT_FORMAT,))
"""What the entry point names."""
