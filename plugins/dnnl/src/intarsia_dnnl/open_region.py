# SPDX-License-Identifier: Apache-2.0
"""A region of open sizes: primitives for each combination of sizes, made when it is first met.

A call whose sizes were met before is native from end to end: ``intarsia_run_open_steps`` finds
their table. For new sizes it calls back, and the primitives are made as those of fixed sizes are;
the library keeps what it generated for equal ones. Constants are reordered once for each layout
that a primitive asks for, and all sizes use one workspace, as large as the largest needs. The
tables of the last :data:`MOST_TABLES` combinations are kept.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from typing import cast

from intarsia_runtime.plugin import IntarsiaError, LoadRequest

from .arena import Workspace
from .program import PrimitiveProgram
from .region import LoadedPrimitives, Shared, open_library
from .sdk import Dnnl
from .sound import check_nodes
from .specialize import Specializer, without_empty
from .steps import AddTable, OpenTables
from .weights import Weights

MOST_TABLES = 32
"""Combinations of sizes whose primitives are kept. Of a BERT, one takes 0.2 MB."""


class OpenRegion:
    """The primitives of a region for the sizes it met, alive as long as this object is.

    Args:
        program: A program of open sizes.
        request: Of the runtime.
        most: How many combinations of sizes are kept.

    Attributes:
        variables: Size variables that a call has behind its tensors.
        tables: What ``intarsia_run_open_steps`` takes as its handle.
        built: How many combinations of sizes were built.

    Raises:
        ArtifactError: The program is damaged, or names a library that is not here.
        PluginError: There is no usable library.
        ValueError: A size of the program has a variable that nobody knows.
    """

    def __init__(
        self, program: PrimitiveProgram, request: LoadRequest, most: int = MOST_TABLES
    ) -> None:
        self._program = program
        self._specializer = Specializer(program)
        self._request = request
        self._regions: list[LoadedPrimitives] = []
        self._failure: BaseException | None = None
        self.variables = self._specializer.variables
        self.built = 0
        dnnl = open_library(program.library)
        # Held until every region that was made with it is gone: they close in front of it.
        weakref.finalize(self, _close, self._regions, dnnl).atexit = False
        weights = Weights(dnnl, program, request.constants)
        self._shared = Shared(dnnl, weights, Workspace())
        self._keys = (ctypes.c_int64 * max(1, most * len(self.variables)))()
        self._pointers = (ctypes.c_void_p * most)()
        self._used = (ctypes.c_int64 * most)()
        self._most = most
        reference = weakref.ref(self)

        def add(arguments: int, count: int) -> int:
            """Add a table to the region, which holds this function and so is not held by it."""
            found = reference()
            return -1 if found is None else found.add(arguments, count)

        self._add = AddTable(add)
        self.tables = OpenTables(
            len(program.inputs) + len(program.outputs),
            len(self.variables),
            0,
            ctypes.addressof(self._keys),
            ctypes.addressof(self._pointers),
            ctypes.addressof(self._used),
            0,
            ctypes.cast(self._add, ctypes.c_void_p).value or 0,
            0,
        )

    @property
    def reordered_bytes(self) -> int:
        """Memory of the weights that had to be reordered or unpacked, for all sizes."""
        return self._shared.weights.reordered_bytes

    def signature(self, values: Iterable[int]) -> list[tuple[str, tuple[int, ...]]]:
        """Return element types and shapes of values; expressions stand for sizes of the run."""
        dtypes, shape = self._program.dtypes, self._specializer.shape
        return [(dtypes[value], cast("tuple[int, ...]", shape(value))) for value in values]

    def add(self, arguments: int, count: int) -> int:
        """Build the primitives for the sizes of a call; return the number of their table, or -1.

        Args:
            arguments: Address of the call's arguments, as tvm-ffi has them.
            count: How many there are.
        """
        self._failure = None
        try:
            words = (ctypes.c_int64 * (2 * count)).from_address(arguments)
            first = int(self.tables.tensors)
            return self._added([int(words[2 * n + 1]) for n in range(first, count)])
        except BaseException as error:  # crosses native frames: told behind them
            self._failure = error
            return -1

    def _added(self, sizes: list[int]) -> int:
        program = without_empty(self._specializer.at(sizes))
        check_nodes(program)
        region = LoadedPrimitives(program, self._request, self._shared)
        self.built += 1
        number = int(self.tables.count)
        if number < self._most:
            self._regions.append(region)
            self.tables.count = number + 1
        else:
            number = min(range(self._most), key=self._used.__getitem__)
            self._regions[number].close()
            self._regions[number] = region
        self._keys[number * len(sizes) : (number + 1) * len(sizes)] = sizes
        self._pointers[number] = ctypes.addressof(region.table)
        return number

    def describe_failure(self) -> str:
        """Say why the last run failed.

        Raises:
            KeyboardInterrupt: The user stopped it while primitives were built.
            MemoryError: There was no memory to build them.
        """
        failure, self._failure = self._failure, None
        if isinstance(failure, KeyboardInterrupt | MemoryError):
            raise failure
        if failure is not None:
            text = failure.message if isinstance(failure, IntarsiaError) else str(failure)
            return f"oneDNN builds no primitives for these sizes: {text}"
        if not self._regions:
            return ""
        return self._regions[int(self.tables.last)].describe_failure()


def _close(regions: Iterable[LoadedPrimitives], dnnl: Dnnl) -> None:
    for region in regions:
        region.close()
    dnnl.close()
