# SPDX-License-Identifier: Apache-2.0
"""The backend of ``torch.compile(model, backend="intarsia")``; torch finds it by its entry point.

torch hands over a graph without branches, with parameters as arguments. It is compiled when it is
called first: then every size is a number, also in a graph that torch made for any size, and weights
have values that can be compiled in. A graph is compiled once for each set of shapes and weights
that it is called with, and kept as long as torch keeps the graph.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from intarsia.driver.build import build
from intarsia.driver.configured import TargetChoice, read_settings
from intarsia.driver.request import OPTIONS
from intarsia.host.guard import working_folder
from intarsia.host.host import Host
from intarsia.target.kind_table import Origin
from intarsia.target.options import did_you_mean
from intarsia.target.target import CompositeTarget, Target
from intarsia_runtime.errors import TargetError, UnsupportedError, UsageError
from intarsia_runtime.forking import renew_lock_in_children

from .graph import (
    View,
    array_of,
    numbers_as_values,
    require_inference,
    result_of,
    specialize,
    tensors_among,
    version_of,
    weights_among,
)

if TYPE_CHECKING:
    from intarsia.target.read import OneSpec, TargetSpec
    from intarsia_ir.graph.module import IRModule
    from intarsia_runtime.load import Executable

    from .graph import Specialized
    from .types import GraphModule, TorchTensor

Results: TypeAlias = "tuple[object, ...]"

MOST_KEPT = 32
"""Sets of shapes and weights that one graph is kept compiled for; the oldest goes first."""

_BUILD_OPTIONS = frozenset(OPTIONS) - {"shapes", "progress"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """``options`` of ``torch.compile``; others are options of a build.

    Attributes:
        target: What to compile for; if ``None``, the one of the ``with`` statement around, or else
            of the environment or the nearest file with settings.
        target_host: The backend that drives the target.
        threads: Threads for parallel loops; as many as the process may use if ``None``.
        fallback: Whether a graph that cannot be compiled runs in PyTorch, with one warning.
        freeze: Whether parameters and buffers are compiled in, which makes code fast, until one of
            them is written to.
    """

    target: TargetSpec | None = None
    target_host: OneSpec | None = None
    threads: int | None = None
    fallback: bool = True
    freeze: bool = True


def backend(
    graph_module: GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Results]:
    """Return what runs a graph; torch calls it for each graph that it finds.

    Args:
        graph_module: The graph.
        example_inputs: Arguments that it is about to be called with.
        options: Fields of :class:`BackendOptions`, and options of
            :class:`~intarsia.driver.request.BuildRequest`.
        mode: A name for settings of other backends; there are none here.

    Raises:
        UsageError: An option is unknown, or a mode is given.
        TargetError: The target is missing or wrong.
        UnsupportedError: The graph needs gradients, and ``fallback`` is off.
    """
    if mode is not None:
        raise UsageError(f"there is no mode '{mode}'", hint="options={'target': ..., 'threads': 2}")
    given = dict(options or {})
    build_options = {name: given.pop(name) for name in _BUILD_OPTIONS & given.keys()}
    own = [field.name for field in fields(BackendOptions)]
    for name in given.keys() - set(own):
        known = [*own, *_BUILD_OPTIONS]
        hint = did_you_mean(name, known) or f"options: {', '.join(known)}"
        raise UsageError(f"the backend 'intarsia' has no option '{name}'", hint=hint)
    chosen = BackendOptions(**given)
    host = Host()
    target = _target(host, chosen)

    def compile_module(module: IRModule) -> Executable:
        artifact = build(module, target, mod_name="graph", host=host, **build_options)
        return artifact.load(threads=chosen.threads)

    compiled = CompiledGraph(graph_module, compile_module, chosen)
    compiled.check(example_inputs)
    return compiled


def _target(host: Host, options: BackendOptions) -> CompositeTarget:
    """The target of the options, the scope, the environment or a file, in this order."""
    given = options.target if options.target is not None else Target.current()
    if given is not None:
        return host.target(given, options.target_host)
    configured = read_settings(os.environ, working_folder())
    found, driver = configured.choose("target", None), configured.choose("target-host", None)
    if found.value is None:
        known = ", ".join(host.backends()) or "none; e.g. pip install 'intarsia[all]'"
        raise TargetError(
            "no target is given",
            hint=f"options={{'target': ...}} or INTARSIA_TARGET; installed backends: {known}",
        )
    origin = Origin(found.origin, defaults=configured.options, default_setter=configured.origin)
    return TargetChoice(found.value, origin, driver.value, driver.origin).read(host)


class CompiledGraph:
    """A graph of ``torch.compile``, compiled for whatever it is called with.

    Args:
        graph_module: The graph.
        compile_module: Makes a module ready to run.
        options: Whether weights are compiled in, and what happens to a refused graph.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        compile_module: Callable[[IRModule], Executable],
        options: BackendOptions,
    ) -> None:
        self._original = graph_module
        self._graph_module, self._numbers = numbers_as_values(graph_module)
        self._compile = compile_module
        self._fallback = options.fallback
        self._freeze = options.freeze
        self._refused = False
        self._latest: _Compiled | None = None
        self._kept: list[_Compiled] = []
        self._lock = threading.Lock()
        renew_lock_in_children(self)

    def renew_lock(self) -> None:
        """Take a new lock in a forked process: who held the old one compiles in the other."""
        self._lock = threading.Lock()

    def __call__(self, *args: object) -> Results:
        """Compute the results of the graph.

        Raises:
            UnsupportedError: It cannot be compiled, and ``fallback`` is off.
            IntarsiaError: A build fails.
        """
        given = args
        if self._numbers:
            tensors = cast("Sequence[TorchTensor]", args)
            values = {number: tensors[number].item() for number in self._numbers}
            given = tuple(values.get(number, value) for number, value in enumerate(args))
        latest = self._latest
        if latest is None or not latest.fits(given):
            latest = self._compiled_for(given)
        return self._original(*args) if latest is None else latest.run(given)

    def check(self, example_inputs: Sequence[object]) -> None:
        """Refuse the graph at once if it needs gradients.

        Raises:
            UnsupportedError: It does, and ``fallback`` is off.
        """
        try:
            require_inference(example_inputs)
        except UnsupportedError as error:
            self._refuse(error)

    def _compiled_for(self, args: Sequence[object]) -> _Compiled | None:
        """Return what fits the arguments, compiled now if need be; ``None`` if it is refused."""
        with self._lock:
            if self._refused:
                return None
            found = next((kept for kept in self._kept if kept.fits(args)), None)
            if found is None:
                try:
                    found = self._new(args)
                except UnsupportedError as error:
                    self._refuse(error)
                    return None
                self._kept = [found, *self._kept[: MOST_KEPT - 1]]
            self._latest = found
            return found

    def _new(self, args: Sequence[object]) -> _Compiled:
        if any(kept.is_outdated(args) for kept in self._kept):
            self._freeze = False  # somebody trains: from now on, weights are arguments
            self._kept.clear()
        weights = weights_among(args) if self._freeze else ()
        graph = specialize(self._graph_module, args, weights)
        executable = None if graph.module is None else self._compile(graph.module)
        return _Compiled(graph, executable, args, weights)

    def _refuse(self, error: UnsupportedError) -> None:
        """Let PyTorch run the graph from now on.

        Raises:
            UnsupportedError: That is not wanted.
        """
        if not self._fallback:
            raise error
        self._refused, self._latest = True, None
        self._kept.clear()
        text = f"PyTorch runs a graph that Intarsia does not compile: {error}"
        warnings.warn(text, UserWarning, stacklevel=2)


class _Compiled:
    """A graph compiled for arguments like the given ones."""

    def __init__(
        self,
        graph: Specialized,
        executable: Executable | None,
        args: Sequence[object],
        weights: Sequence[int],
    ) -> None:
        tensors = tensors_among(args)
        viewed = {item.argument for item in graph.results if isinstance(item, View)}
        self._weights = [(number, tensors.pop(number)) for number in weights]
        self._versions = [version_of(tensor) for _, tensor in self._weights]
        self._shapes = [(number, tensor.shape) for number, tensor in tensors.items()]
        self._strides = [(n, tensors[n].stride()) for n in viewed if n in tensors]
        known = (*tensors, *weights)
        self._sizes = [(n, value) for n, value in enumerate(args) if n not in known]
        self._executable = executable
        names = () if executable is None else [spec.name for spec in executable.inputs]
        self._inputs = [graph.arguments[name] for name in names]
        self._outputs = graph.outputs
        self._results = graph.results

    def fits(self, args: Sequence[object]) -> bool:
        """Whether these arguments have the shapes, sizes and weights that it was compiled for."""
        tensors = cast("Sequence[TorchTensor]", args)  # asked only where it was one before
        for (number, tensor), version in zip(self._weights, self._versions, strict=True):
            if tensors[number] is not tensor or version_of(tensor) != version:
                return False
        for number, shape in self._shapes:
            if tensors[number].shape != shape:
                return False
        for number, stride in self._strides:
            if tensors[number].stride() != stride:
                return False
        return all(args[number] == value for number, value in self._sizes)

    def is_outdated(self, args: Sequence[object]) -> bool:
        """Whether somebody wrote to one of these arguments after it was compiled in."""
        rows = zip(self._weights, self._versions, strict=True)
        return any(args[n] is tensor and version_of(tensor) != was for (n, tensor), was in rows)

    def run(self, args: Sequence[object]) -> Results:
        """Compute the results; inputs are read, and outputs written, where torch has them."""
        tensors = cast("Sequence[TorchTensor]", args)
        outputs = [make() for make in self._outputs]
        if self._executable is not None:
            inputs: list[object] = [array_of(tensors[number]) for number in self._inputs]
            self._executable.run_into(inputs, [array_of(output) for output in outputs])
        return tuple([result_of(item, tensors, outputs) for item in self._results])
