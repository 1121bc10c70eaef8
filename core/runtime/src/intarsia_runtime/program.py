# SPDX-License-Identifier: Apache-2.0
"""An artifact in memory: its code, weights, workspace, and regions ready to be called."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from .abi import call_with_leading, hosted_call, numpy_dtype
from .artifact.archive import OpenedArtifact, Weight
from .artifact.passport import Passport, UnitEntry
from .artifact.plan import (
    ALIGNMENT,
    PLAN_STAMP,
    CallPlan,
    RegionStep,
    TensorSpec,
    all_steps,
    has_loops,
    plan_stamp,
)
from .artifact.unit import PLAN_FILE, SHARED_LIBRARY, SHARED_LIBRARY_FORMAT, UNSTATED
from .artifact.unit_plan import read_unit_plan
from .discovery import check_format, find_loader, has_loader, is_installed, loader_label
from .errors import ArtifactError, IntarsiaError, ModelError, PluginError, UnsupportedError
from .forking import ends_threads_to_fork, renew_lock_in_children
from .guarded import Guarded, Owner, is_plugins_own
from .interrupts import Interrupts
from .library import NativeLibrary
from .loading import (
    CodeLoader,
    DeviceModel,
    HostedCall,
    LoadFunction,
    LoadRequest,
    NativeCall,
    NativeCode,
)
from .memory import allocate
from .open_memory import OpenMemory, check_guard_of_step
from .threads import choose_threads, load_openmp, startable_threads, thread_setter

_LIBRARY_FILE = "lib.so"


class LoadedProgram:
    """Everything that one loaded artifact owns. One call runs at a time, under ``lock``.

    Args:
        opened: A checked artifact for this machine.
        threads: Threads for parallel loops; ``None`` means as many as the process may use.
        with_libraries: Whether libraries run regions, here or in what this is a part of. Then
            code has no threads of its own: threads of two kinds that wait actively would take the
            processors from each other.

    Attributes:
        passport: What the artifact says of itself.
        threads: Threads for parallel loops.
        lock: Held while compiled code runs, because its workspace is shared.
        context: Address of the context array (see :mod:`intarsia_runtime.artifact.plan`).
        code: The code of the main unit; ``None`` if a loader runs the plan on a device.
        main: The function that carries out the plan, and its handle.
        leading: First argument of ``main``, in front of the tensors; ``None`` if it takes none.
        device: The model on its device, if ``code`` is ``None``.
        workspace: The memory of intermediate tensors, bytes.
        open: Sizes and memory of an open plan; ``None`` for others.
        constants: Read-only arrays in the order of the plan's constants.
        regions: In the order of the plan's regions.

    Raises:
        ArtifactError: Code or a loader is missing.
        PluginError: A loader is broken.
        ResourceError: No memory for the workspace.
    """

    def __init__(
        self, opened: OpenedArtifact, threads: int | None, *, with_libraries: bool = False
    ) -> None:
        self.passport: Passport = opened.passport
        plan = opened.passport.plan
        self.lock = threading.RLock()
        self.threads = choose_threads(threads)
        openmp = load_openmp()
        self._set_threads = thread_setter(openmp)
        self._forks_alone = openmp is not None and ends_threads_to_fork(openmp)
        renew_lock_in_children(self)
        self._is_forked = False
        self._may_have_threads = not (with_libraries or plan.regions)
        self._has_own_threads = False
        if not self._may_have_threads:
            self.threads = startable_threads(self.threads)
            self.apply_threads()  # libraries split their work by it when they are loaded
        self._failure: BaseException | None = None
        self._closed = False
        opened_main = _open_main(opened)
        self.code = opened_main if isinstance(opened_main, NativeCode) else None
        run_steps = self._symbol("intarsia_run_steps"), self._symbol("intarsia_run_open_steps")
        self.workspace = allocate(0 if plan.open is not None else plan.workspace_bytes)
        self._arrays = {name: _array(weight) for name, weight in opened.weights.items()}
        self.constants = tuple(self._arrays[name] for name in plan.constants)
        self.regions = tuple(self._load_region(opened, name, run_steps) for name in plan.regions)
        pointers = [self.workspace.ctypes.data, *(a.ctypes.data for a in self.constants)]
        for region in self.regions:
            pointers += [region.function, region.handle]
        self._interrupts = Interrupts() if has_loops(plan) else None
        pointers += [] if self._interrupts is None else [self._interrupts.address]
        self.open = self._open_memory(plan)
        pointers += [] if self.open is None else self.open.pointers()
        self._context = (ctypes.c_void_p * len(pointers))(*pointers)
        self.context = ctypes.addressof(self._context)
        if self.open is not None:
            self.open.attach(self._context)
        self.device: DeviceModel | None = None
        self._kernels: list[NativeCall] = []
        self.main, self.leading = self._load_main(opened, opened_main)
        self._begin_threads()

    def _symbol(self, name: str) -> int:
        """Return the address of a symbol of the main unit's code; 0 if there is none."""
        return 0 if self.code is None else self.code.address(name)

    def invoke(self, call: Callable[..., int], *arguments: int | None) -> int:
        """Call compiled code; not 0 if it failed. The caller holds ``lock``.

        Raises:
            KeyboardInterrupt: The user interrupted a loop.
        """
        if self._is_forked:
            return self._invoke_forked(call, arguments)
        if not self._has_own_threads:
            self.apply_threads()
        if self._interrupts is None:
            return call(*arguments)
        try:
            self._interrupts.begin()
            return call(*arguments)
        finally:
            self._interrupts.complete()

    def _invoke_forked(self, call: Callable[..., int], arguments: tuple[int | None, ...]) -> int:
        """Call compiled code in a process forked after loading: no thread survived the fork.

        An OpenMP that was not told before does not know, and the forking thread would wait for its
        threads for ever; a new thread gets new ones.
        """
        if self._has_own_threads or self._forks_alone:
            self._begin_threads()
            self._is_forked = False
            self.apply_threads()
            return call(*arguments)
        status: list[int] = []

        def work() -> None:
            self.apply_threads()
            status.append(call(*arguments))

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        return status[0]

    def renew_lock(self) -> None:
        """Take a new lock in a forked process: who held the old one runs in the other."""
        self.lock = threading.RLock()
        self._is_forked = True

    def _begin_threads(self) -> None:
        """Let the code have threads of its own, unless libraries bring theirs."""
        if self.code is not None and self._may_have_threads:
            self._has_own_threads = self.code.begin_threads(self.threads)
            if not self._has_own_threads:
                self.threads = startable_threads(self.threads)

    def apply_threads(self) -> None:
        """Set the number of threads of the calling thread; OpenMP keeps one for each."""
        if self._set_threads is not None and not self._has_own_threads:
            self._set_threads(self.threads)

    def check_open(self) -> None:
        """Refuse to run what was closed.

        Raises:
            ModelError: It was.
        """
        if self._closed:
            raise ModelError("the executable was closed", hint="load the artifact again")

    def raise_failure(self, what: str, returned: int = 0) -> None:
        """Raise what made a native call return non-zero.

        Args:
            what: The call, for the message.
            returned: What it returned, if it is ``main`` of a plan without open sizes.

        Raises:
            ModelError: A value is not what an operator takes.
            PluginError: A region said why it failed, or nobody did.
            KeyboardInterrupt: A loop ended because the user interrupted.
            IntarsiaError: A Python-hosted region raised it.
        """
        failure, self._failure = self._failure, None
        if isinstance(failure, IntarsiaError | KeyboardInterrupt | MemoryError):
            raise failure
        if failure is not None:
            raise PluginError(f"{what} failed in Python code of a region: {failure!r}") from failure
        check_guard_of_step(self.passport.plan, returned, {})
        names = (*(f"region '{name}'" for name in self.passport.plan.regions), "the model")
        for name, region in zip(names, (*self.regions, self.main), strict=True):
            reason = region.describe_failure() if region.describe_failure is not None else ""
            if reason:
                raise PluginError(f"{name} failed: {reason}")
        if self._interrupts is not None and not self.regions:
            raise KeyboardInterrupt  # nothing else ends a run that only loops
        raise PluginError(f"{what} failed and gave no reason")

    def close(self) -> None:
        """Free code and memory once the running call has ended; harmless when repeated."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self.regions = ()
            self.main, self.device, self._kernels = NativeCall(0, 0, None), None, []
            self._arrays = {}
            self.constants = ()
            self.workspace = np.empty(0, np.uint8)
            self.open = None
            if self.code is not None:
                self.code.close()

    def kernel(self, name: str, specs: tuple[TensorSpec, ...], sizes: Sequence[int] = ()) -> int:
        """Return the address of one kernel of the main unit, called with ``specs``, then ``sizes``.

        Raises:
            UnsupportedError: The plan runs on a device as a whole.
            ArtifactError: The code has no such kernel.
        """
        if self.code is not None:
            return self.code.required(f"__tvm_ffi_{name}")
        if self.device is None:
            raise UnsupportedError(
                "the kernels of this artifact run on a device, and its loader cannot run one alone",
                hint="run it with the aot executor",
            )
        self._kernels.append(self._host(self.device.kernel(name, *sizes), specs))
        return self._kernels[-1].function

    def _open_memory(self, plan: CallPlan) -> OpenMemory | None:
        if plan.open is None:
            return None
        return OpenMemory(plan, None if self.code is None else self.code.required)

    def _load_main(
        self, opened: OpenedArtifact, made: NativeCode | LoadFunction
    ) -> tuple[NativeCall, int | None]:
        """Return what carries out the plan, and its first argument."""
        if isinstance(made, NativeCode):
            made.check_stamp(PLAN_STAMP, plan_stamp(self.passport.plan), "plan")
            return NativeCall(made.required("__tvm_ffi_main"), 0, made), self.context
        plan, unit = self.passport.plan, self.passport.unit("main")
        wanted = (*plan.constants, *unit.constants)
        request = LoadRequest(
            name="main",
            files=opened.unit_files("main"),
            constants={name: self._arrays[name] for name in wanted},
            inputs=plan.inputs,
            outputs=plan.outputs,
            threads=self.threads,
            run_steps=0,
            plan=plan,
            regions=self.regions,
        )
        specs = (*plan.inputs, *plan.outputs)
        return self._loaded(unit, made, request, specs), None

    def _load_region(
        self, opened: OpenedArtifact, name: str, run_steps: tuple[int, int]
    ) -> NativeCall:
        unit = opened.passport.unit(name)
        made = _open(opened, unit)
        files = opened.unit_files(name)
        constants = {constant: self._arrays[constant] for constant in unit.constants}
        plan = None if PLAN_FILE not in files else _unit_plan(unit, files[PLAN_FILE], constants)
        if isinstance(made, NativeCode):
            if plan is not None:
                return _planned(made, plan, constants)
            return NativeCall(made.required(f"__tvm_ffi_{name}"), 0, made)
        request = LoadRequest(
            name=name,
            files=files,
            constants=constants,
            inputs=unit.inputs,
            outputs=unit.outputs,
            threads=self.threads,
            run_steps=run_steps[0],
            plan=plan,
            run_open_steps=run_steps[1],
            sizes=_sizes_of(self.passport.plan, name),
        )
        return self._loaded(unit, made, request, unit.inputs + unit.outputs)

    def _loaded(
        self,
        unit: UnitEntry,
        loader: LoadFunction,
        request: LoadRequest,
        specs: tuple[TensorSpec, ...],
    ) -> NativeCall:
        """Have a plugin's loader make a unit ready to be called with tensors."""
        loaded = _asked(unit, loader, request)
        what = f"the run of '{unit.name}'"
        if isinstance(loaded, NativeCall):
            describe = loaded.describe_failure
            if describe is None:
                return loaded
            guarded = cast("Callable[[], str]", _guarded(unit, describe, what, str))
            return dataclasses.replace(loaded, describe_failure=guarded)
        if isinstance(loaded, DeviceModel) and unit.name == "main":
            kernel = cast("Callable[..., HostedCall]", _guarded(unit, loaded.kernel, what))
            self.device = DeviceModel(loaded.run, kernel)
            loaded = loaded.run
        if not callable(loaded):
            kind = type(loaded).__name__
            raise PluginError(
                f"{loader_label(unit)} returned {kind}, not a NativeCall or a function"
            )
        return self._host(cast("HostedCall", _guarded(unit, loaded, what)), specs)

    def _host(self, function: Callable[..., None], specs: tuple[TensorSpec, ...]) -> NativeCall:
        native = hosted_call(function, specs, self._keep_failure)
        address = ctypes.cast(native, ctypes.c_void_p).value
        return NativeCall(address or 0, 0, native)

    def _keep_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error  # the first one is the reason of the others


def _sizes_of(plan: CallPlan, name: str) -> tuple[str, ...]:
    """Return the size variables that calls of a region have behind their tensors."""
    number = plan.regions.index(name)
    called = (s for s in all_steps(plan.steps) if isinstance(s, RegionStep) and s.region == number)
    return next((step.sizes for step in called), ())


def _unit_plan(unit: UnitEntry, data: bytes, constants: Mapping[str, np.ndarray]) -> CallPlan:
    return read_unit_plan(
        data,
        name=unit.name,
        inputs=unit.inputs,
        outputs=unit.outputs,
        constants={name: array.nbytes for name, array in constants.items()},
    )


def _planned(code: NativeCode, plan: CallPlan, constants: Mapping[str, np.ndarray]) -> NativeCall:
    """Return a region that carries out a plan of its own, on a workspace of its own."""
    code.check_stamp(PLAN_STAMP, plan_stamp(plan), "plan")
    workspace = allocate(plan.workspace_bytes)
    arrays = [workspace, *(constants[name] for name in plan.constants)]
    context = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    count = len(plan.inputs) + len(plan.outputs)
    main = code.required("__tvm_ffi_main")
    call = call_with_leading(main, ctypes.addressof(context), count)
    address = ctypes.cast(cast("ctypes.c_void_p", call), ctypes.c_void_p).value
    return NativeCall(address or 0, 0, (code, context, arrays, call))


def _open_main(opened: OpenedArtifact) -> NativeCode | LoadFunction:
    """Open the main unit.

    Raises:
        ArtifactError: Nothing here runs what it holds.
    """
    unit = opened.passport.unit("main")
    if unit.loader != SHARED_LIBRARY and not has_loader(unit.loader, unit.plugin):
        raise _not_for_here(unit)
    return _open(opened, unit)


def _open(opened: OpenedArtifact, unit: UnitEntry) -> NativeCode | LoadFunction:
    """Return the code of a unit, or the loader that makes a function of it."""
    files = opened.unit_files(unit.name)
    if unit.loader == SHARED_LIBRARY:
        if _LIBRARY_FILE not in files:
            raise _not_for_here(unit)
        check_format(unit, (UNSTATED, SHARED_LIBRARY_FORMAT))
        return NativeLibrary(files[_LIBRARY_FILE], unit.name)
    loader = find_loader(unit)
    if not isinstance(loader, CodeLoader):
        return loader
    code = _asked(unit, loader.open, files, unit.name)
    if not isinstance(code, NativeCode):
        raise PluginError(f"{loader_label(unit)} returned {type(code).__name__}, not a NativeCode")
    return code


def _not_for_here(unit: UnitEntry) -> ArtifactError:
    missing = bool(unit.plugin) and not is_installed(unit.plugin)
    return ArtifactError(
        f"unit '{unit.name}' holds {', '.join(sorted(unit.files)) or 'no files'} for "
        f"'{unit.loader}', which this process cannot run",
        hint="compile the model for a target that runs in this process"
        + (f", or install what loads it: pip install '{unit.plugin}'" if missing else ""),
    )


def _asked(unit: UnitEntry, function: Callable[..., object], *given: object) -> object:
    """Call a function of a unit's loader; what it raises names the loader and the unit."""
    try:
        return function(*given)
    except BaseException as error:  # a plugin may raise anything
        if isinstance(error, MemoryError) or not is_plugins_own(error):
            raise
        what = "the model" if unit.name == "main" else f"region '{unit.name}'"
        raise PluginError(f"{loader_label(unit)} fails on {what}: {error!r}") from error


def _guarded(
    unit: UnitEntry, function: Callable[..., object], doing: str, *answers: type
) -> Guarded:
    return Guarded(function, Owner(loader_label(unit)), doing=doing, answers=answers)


def _array(weight: Weight) -> np.ndarray:
    """Return a read-only array on a weight; copied only if it does not lie at a multiple of 64."""
    dtype = numpy_dtype(weight.spec.dtype)
    if not weight.spec.bytes:
        return np.empty(weight.spec.shape, dtype)
    data = np.frombuffer(weight.data, np.uint8)
    if data.ctypes.data % ALIGNMENT:
        copy = allocate(weight.spec.bytes)
        copy[:] = data
        data = copy
    array = data.view(dtype).reshape(weight.spec.shape)
    array.flags.writeable = False
    return array
