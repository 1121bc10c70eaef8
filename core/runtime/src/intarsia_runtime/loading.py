# SPDX-License-Identifier: Apache-2.0
"""The contract between the runtime and what plugins give to it, found through entry points.

``intarsia.loaders``: what loads a region's unit. ``intarsia.executors``: for an executor of a
plugin, a function ``drive(program: Program, options) -> Executable`` that runs a program which is
loaded in this process. ``intarsia.runtimes``: for a runtime of a plugin, a function
``open(opened: OpenedArtifact, *, threads, options) -> Executable`` that runs an artifact wherever
it belongs. Each is named as its kind.

A loader is a function ``load(request: LoadRequest) -> NativeCall | Callable``. It runs once, when
an artifact is loaded, and may be slow; what it returns runs at every call and should be native.

**A unit is input from outside.** Digests only say that a file is as somebody wrote it. A loader
checks what it reads before it steers native code: :meth:`LoadRequest.read_json` is the reader to
do so, :meth:`LoadRequest.check_signature` and :meth:`LoadRequest.check_constant` compare sizes.
It also says which formats of units it reads: ``@reads_formats(2)`` makes a :class:`UnitLoader`.
A function alone reads units that state no format.

The loader of a whole model for a device (``TargetKind.main_loader``) gets the plan, the functions
of its regions, and all weights; it returns a :class:`DeviceModel`.

A :class:`CodeLoader` stands where code is not a shared library, but has the functions that one
would export: it puts them into this process, before anything else of the artifact is loaded.

A plugin whose vendor library has a C API ships no native code of its own: it fills a *step table*,
a list of C calls with fixed arguments, and the compiled module's ``intarsia_run_steps`` walks it::

    struct step    { int32_t (*function)(void *a, void *b, int64_t c, void *d);
                     void *a; void *b; int64_t c; void *d; };
    struct binding { int64_t step; int64_t argument; };   /* steps[step].b = data of the argument */
    struct table   { int64_t bindings_count; struct binding *bindings;
                     int64_t steps_count;    struct step *steps;
                     int64_t failed_step;    int64_t status; };

``intarsia_run_steps(table, args, n, result)`` has the signature of a tvm-ffi function
(``TVMFFISafeCallType``). A step that returns anything but 0 stops the table, which then holds its
number and status, and the call returns -1.

A region of open sizes has a table for each combination of sizes it met, which
``intarsia_run_open_steps(tables, args, n, result)`` chooses by the size variables behind the
tensors; for new sizes it asks the loader to add one, which is the only time Python runs::

    struct open_tables { int64_t tensors;        /* in front of the size variables */
                         int64_t sizes;          /* how many variables there are */
                         int64_t count;          /* of tables */
                         int64_t *keys;          /* values of the variables, table by table */
                         struct table **tables;
                         int64_t *used;          /* by table, the clock at its last call */
                         int64_t clock;
                         int64_t (*add)(const void *args, int64_t n);  /* its number; -1: failed */
                         int64_t last; };        /* number of the table that ran last */

``add`` may replace a table that was not used for long; the caller holds the lock of the artifact.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from .artifact.plan import CallPlan, TensorSpec
from .artifact.signature import ValueSpec
from .artifact.unit import UNSTATED
from .artifact.unit_json import interpreting, read_unit_json
from .errors import ArtifactError
from .threads import thread_pool

if TYPE_CHECKING:
    import numpy as np

    from .artifact.archive import OpenedArtifact
    from .artifact.passport import Passport
    from .executors.signature import Inputs
    from .program import LoadedProgram

T = TypeVar("T")

LOADER_GROUP = "intarsia.loaders"
EXECUTOR_GROUP = "intarsia.executors"
RUNTIME_GROUP = "intarsia.runtimes"


@dataclass(frozen=True, slots=True, eq=False)
class LoadRequest:
    """The argument of a loader.

    Attributes:
        name: Name of the region.
        files: Files of the unit, digests already checked.
        constants: Weights of the unit by the name given in ``CompiledUnit.constants``; read-only
            views of the mapped artifact, valid as long as the loaded artifact lives.
        inputs: Input tensors of the region's function.
        outputs: Output tensors; they follow the inputs in the call.
        threads: Number of threads to use.
        run_steps: Address of ``intarsia_run_steps``; 0 if the artifact has none.
        run_open_steps: Address of ``intarsia_run_open_steps``; 0 if the artifact has none.
        sizes: Size variables, which follow the tensors in the call, in order. Shapes of ``inputs``
            and ``outputs`` are expressions over them; empty if all sizes are numbers.
        plan: The call plan, for the loader of a whole model on a device and for a region that was
            compiled from loop IR: its constants are in ``constants`` and its regions in
            ``regions``. ``None`` for other regions.
        regions: Functions of the plan's regions, in its order; they use the CPU's memory.
    """

    name: str
    files: Mapping[str, bytes]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    threads: int
    run_steps: int
    plan: CallPlan | None = None
    regions: tuple[NativeCall, ...] = ()
    run_open_steps: int = 0
    sizes: tuple[str, ...] = ()

    def file(self, name: str) -> bytes:
        """Return a file of the unit.

        Raises:
            ArtifactError: The unit has none of that name.
        """
        if name not in self.files:
            raise self.damaged(f"it has no {name}")
        return self.files[name]

    def read_json(self, name: str, kind: type[T]) -> T:
        """Read a JSON file of the unit as ``kind``: see :mod:`intarsia_runtime.artifact.unit_json`.

        Raises:
            ArtifactError: The file is missing, or holds something else.
        """
        data = self.file(name)
        with self.interpreting(name):
            return read_unit_json(data, kind, file=name)

    @contextmanager
    def interpreting(self, name: str) -> Generator[None]:
        """Return a context for code that interprets the file ``name`` of this unit.

        Raises:
            ArtifactError: Instead of Python's errors for a wrong value, index or key.
        """
        try:
            with interpreting(name):
                yield
        except ArtifactError as error:
            error.where = error.where or f"unit '{self.name}'"
            raise

    def check_signature(
        self,
        inputs: Iterable[tuple[str, tuple[int, ...]]],
        outputs: Iterable[tuple[str, tuple[int, ...]]],
    ) -> None:
        """Compare the element types and shapes of the unit with those of the call.

        Raises:
            ArtifactError: They differ.
        """
        for what, ours, theirs in (
            ("inputs", list(inputs), self.inputs),
            ("outputs", list(outputs), self.outputs),
        ):
            called = [(spec.dtype.value, tuple(spec.shape)) for spec in theirs]
            if ours != called:
                raise self.damaged(
                    f"region '{self.name}' was compiled for the {what} {ours} and is called with"
                    f" {called}"
                )

    def check_constant(self, name: str, dtype: str, shape: tuple[int, ...] | None = None) -> None:
        """Check that the unit has a weight of this element type and, if given, this shape.

        Raises:
            ArtifactError: It has not.
        """
        if name not in self.constants:
            raise self.damaged(f"it reads a weight '{name}', which is not among its own")
        found = self.constants[name]
        if found.dtype.name != dtype or (shape is not None and tuple(found.shape) != shape):
            raise self.damaged(
                f"its weight '{name}' is {found.dtype.name} {list(found.shape)}, not {dtype}"
                + ("" if shape is None else f" {list(shape)}")
            )

    def damaged(self, reason: str) -> ArtifactError:
        """Return the error for a damaged unit."""
        return ArtifactError(reason, hint="compile the model again", where=f"unit '{self.name}'")


@dataclass(frozen=True, slots=True, eq=False)
class NativeCall:
    """A native function of the tvm-ffi ABI: ``function(handle, args, n, result) -> int``.

    Attributes:
        function: Address.
        handle: Its first argument.
        keep_alive: Objects that must live as long as the function may be called.
        describe_failure: Returns the reason, one sentence; called after a non-zero result.
    """

    function: int
    handle: int
    keep_alive: object
    describe_failure: Callable[[], str] | None = None


HostedCall: TypeAlias = "Callable[..., None]"
"""A Python function called with NumPy arrays: inputs, then outputs to fill. Slow, but simple."""


RunValue: TypeAlias = "np.ndarray | list[RunValue] | dict[int, float] | dict[str, float] | None"
"""A value of a program: an array (object elements are strings), a list of values, or ``None``."""

PieceCall: TypeAlias = "Callable[[Sequence[RunValue]], Sequence[RunValue]]"
"""Calls a compiled piece: arrays in, arrays out, in the order of its signature."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramRequest:
    """What the loader of a program gets.

    Attributes:
        files: Files of the unit, digests already checked.
        pieces: Compiled pieces by name.
    """

    files: Mapping[str, bytes]
    pieces: Mapping[str, PieceCall]


@dataclass(frozen=True, slots=True, eq=False)
class StepSeen:
    """What one step of a program did.

    Attributes:
        label: Name of the piece, or operator of the node.
        node: Name of the model's node; empty for a piece.
        operands: What it took.
        results: What it gave.
        seconds: How long it took.
    """

    label: str
    node: str
    operands: Sequence[RunValue]
    results: Sequence[RunValue]
    seconds: float


WatchSteps: TypeAlias = "Callable[[StepSeen], object]"
"""Called after each step of a program."""


class HostedProgram(Protocol):
    """A program on the host, ready to run.

    Attributes:
        inputs: Inputs of the model, in its order.
        outputs: Names of its outputs, in its order.
    """

    inputs: tuple[ValueSpec, ...]
    outputs: tuple[str, ...]

    def run(self, values: Sequence[RunValue], watch: WatchSteps | None = None) -> list[RunValue]:
        """Return the outputs; a value is an array, a list of values, or ``None``."""
        ...


ProgramLoader: TypeAlias = "Callable[[ProgramRequest], HostedProgram]"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceModel:
    """A whole model on a device, prepared by its loader. All arrays are in the CPU's memory.

    Attributes:
        run: Executes the plan; takes the inputs, then the outputs to fill.
        kernel: ``kernel(name, *sizes)`` returns one kernel of the plan, for the executor ``graph``.
            The kernel takes all its buffers and fills those that it writes.
    """

    run: HostedCall
    kernel: Callable[..., HostedCall]


class NativeCode(ABC):
    """Compiled code in this process; each load has its own state.

    Code may run parallel loops. Then it exports ``int32_t intarsia_begin_threads(void *pool,
    int32_t count)``, after which its loops run on ``count`` threads of the ``pool`` (see
    :func:`intarsia_runtime.threads.thread_pool`), and ``void intarsia_end_threads(void)``, which
    leaves the pool. If the first fails, it changes nothing and returns another value than 0. A
    subclass calls ``_endings`` before it unloads the code.

    Args:
        name: Name of the unit, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._endings: list[Callable[[], object]] = []

    @abstractmethod
    def address(self, symbol: str) -> int:
        """Return the address of an exported symbol, 0 if there is none."""

    @abstractmethod
    def close(self) -> None:
        """Unload the code: no address may be called any more. Harmless when repeated."""

    def begin_threads(self, count: int) -> bool:
        """Let the code run its loops on ``count`` threads of the pool; false if it has none.

        Call it again after a fork.
        """
        begin = self.address("intarsia_begin_threads")
        if not begin:
            return False
        # One at a time: PYFUNCTYPE keeps the interpreter's lock.
        function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(begin)
        if function(thread_pool(), count):
            return False
        if not self._endings:
            end = self.required("intarsia_end_threads")
            self._endings.append(ctypes.CFUNCTYPE(None)(end))
        return True

    def check_stamp(self, symbol: str, stamp: int, what: str) -> None:
        """Compare a stamp in the code with that of what steers it; code may carry none.

        Raises:
            ArtifactError: They differ: the code was compiled for another ``what``.
        """
        address = self.address(symbol)
        if address and ctypes.c_uint64.from_address(address).value != stamp:
            raise ArtifactError(
                f"the code of '{self.name}' was compiled for another {what} than the artifact has",
                hint="compile the model again",
            )

    def required(self, symbol: str) -> int:
        """Return the address of an exported symbol.

        Raises:
            ArtifactError: The code does not export it.
        """
        address = self.address(symbol)
        if not address:
            raise ArtifactError(f"the code of '{self.name}' exports no '{symbol}'")
        return address


@dataclass(frozen=True, slots=True)
class CodeLoader:
    """A loader of machine code in another format than a shared library; an entry point names it.

    Attributes:
        open: Loads code into this process, from the files of a unit (digests already checked) and
            the unit's name. ``main`` exports the functions of a shared library, such as
            ``__tvm_ffi_main`` and ``intarsia_run_steps``. A region exports ``__tvm_ffi_<name>``;
            if it was compiled from loop IR, ``__tvm_ffi_main`` with its context as first argument.
        formats: Versions of units' format that it reads (``CompiledUnit.format``).
    """

    open: Callable[[Mapping[str, bytes], str], NativeCode]
    formats: tuple[int, ...] = (UNSTATED,)


LoadFunction: TypeAlias = "Callable[[LoadRequest], NativeCall | HostedCall | DeviceModel]"
"""Makes one function of a unit."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class UnitLoader(Generic[P, T]):
    """A loader, and which versions of its units' format it reads.

    Attributes:
        load: The function that loads a unit.
        formats: Values of ``CompiledUnit.format``.
    """

    load: Callable[P, T]
    formats: tuple[int, ...]

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> T:
        """Load a unit."""
        return self.load(*arguments, **named)


def reads_formats(*formats: int) -> Callable[[Callable[P, T]], UnitLoader[P, T]]:
    """Decorate a loader with the versions of its units' format that it reads."""

    def decorate(load: Callable[P, T]) -> UnitLoader[P, T]:
        return UnitLoader(load, formats)

    return decorate


def formats_of(loader: object) -> tuple[int, ...]:
    """Return the versions that a loader reads; of a function alone, :data:`UNSTATED`."""
    return loader.formats if isinstance(loader, CodeLoader | UnitLoader) else (UNSTATED,)


Loader: TypeAlias = "LoadFunction | CodeLoader"
"""What an entry point of the group ``intarsia.loaders`` names."""


class PlanExecutable(AbstractContextManager["PlanExecutable"], Protocol):
    """A loaded artifact of a plan, whatever drives it."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of the model, in its order."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of the model, in its order."""
        ...

    @property
    def passport(self) -> Passport:
        """What the artifact says of itself."""
        ...

    @property
    def threads(self) -> int:
        """Threads that parallel loops use."""
        ...

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Compute the outputs, as new arrays by name in the model's order."""
        ...

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays."""
        ...

    def close(self) -> None:
        """Free what it holds; harmless when repeated."""
        ...


class DriveProgram(Protocol):
    """Makes the executable of an executor that a plugin has; its options as in the passport."""

    def __call__(self, program: LoadedProgram, options: Mapping[str, object], /) -> PlanExecutable:
        """Return what runs ``program``, which it owns from now on."""
        ...


class OpenElsewhere(Protocol):
    """Makes the executable of a runtime that a plugin has; its options as in the passport."""

    def __call__(
        self, opened: OpenedArtifact, /, *, threads: int | None, options: Mapping[str, object]
    ) -> PlanExecutable:
        """Return what runs the artifact; its digests are checked, this machine is not."""
        ...
