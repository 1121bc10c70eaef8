# SPDX-License-Identifier: Apache-2.0
"""Graphs of ``torch.compile`` as programs: which one fits a call, and what is compiled anew."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from intarsia_runtime.errors import IntarsiaError, ModelError, TypeRuleError, UnsupportedError
from intarsia_runtime.forking import renew_lock_in_children

from .calls import CompiledCall
from .graph import (
    Imported,
    numbers_as_values,
    require_inference,
    specialize,
    weights_among,
)
from .onnx_export import quiet, require_torch
from .open_graph import import_traced, symbols_among
from .tracing import Traced, Tracer

if TYPE_CHECKING:
    from intarsia_ir.graph.module import IRModule
    from intarsia_runtime.load import Executable

    from .types import GraphModule, TorchTensor

Results: TypeAlias = "tuple[object, ...]"

MOST_KEPT = 32
"""Sets of shapes and weights that one graph is kept compiled for; the oldest goes first."""


class CompiledGraph:
    """A graph of ``torch.compile``, compiled for whatever it is called with.

    Args:
        graph_module: The graph.
        examples: What it is about to be called with.
        compile_module: Makes a module ready to run.
        fallback: Whether PyTorch runs a graph that is refused.
        freeze: Whether weights are compiled in.

    Raises:
        UnsupportedError: It needs gradients, and ``fallback`` is off.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        examples: Sequence[object],
        compile_module: Callable[[IRModule], Executable],
        *,
        fallback: bool,
        freeze: bool,
    ) -> None:
        self._original = graph_module
        self._graph_module, self._numbers = numbers_as_values(graph_module)
        self._compile = compile_module
        self._fallback = fallback
        self._freeze = freeze
        self._refused = False
        self._latest: CompiledCall | None = None
        self._kept: list[CompiledCall] = []
        self._lock = threading.Lock()
        renew_lock_in_children(self)
        self._tracer: Tracer | None = None
        self._traced: Traced | None = None
        self._traced_for: Mapping[int, object] = {}
        try:
            require_inference(examples)
        except UnsupportedError as error:
            self._refuse(error)
        else:
            self._trace(examples)

    def renew_lock(self) -> None:
        """Take a new lock in a forked process: who held the old one compiles in the other."""
        self._lock = threading.Lock()

    def __call__(self, *args: object) -> Results:
        """Compute the results of the graph.

        Raises:
            UnsupportedError: It cannot be compiled, and ``fallback`` is off.
            IntarsiaError: A build fails.
        """
        given = self._with_numbers(args) if self._numbers else args
        latest = self._latest
        if latest is None or not latest.fits(given):
            latest = self._compiled_for(given)
            if latest is None:
                return self._original(*args)
        try:
            return latest.run(given)
        except ModelError as error:  # a guard of sizes that torch has not made
            if not latest.is_open or not self._fallback:
                raise
            _warn(f"PyTorch runs a call that Intarsia does not: {error}")
            return self._original(*args)

    def _with_numbers(self, args: Sequence[object]) -> tuple[object, ...]:
        given = list(args)
        for number in self._numbers:
            given[number] = cast("TorchTensor", given[number]).item()
        return tuple(given)

    def _trace(self, examples: Sequence[object]) -> None:
        """Trace the graph, while torch still takes guards; one that cannot be is left as it is."""
        torch = require_torch()
        numbers = self._numbers_of(self._with_numbers(examples))
        with quiet(torch):
            try:
                self._tracer = Tracer(torch, self._graph_module, examples)
                self._traced = self._tracer.trace(numbers)
                self._traced_for = numbers
            except UnsupportedError:
                self._tracer = None

    def _numbers_of(self, given: Sequence[object]) -> dict[int, object]:
        return {number: given[number] for number in self._numbers}

    def _compiled_for(self, args: Sequence[object]) -> CompiledCall | None:
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

    def _new(self, args: Sequence[object]) -> CompiledCall:
        if any(kept.is_outdated(args) for kept in self._kept):
            self._freeze = False  # somebody trains: from now on, weights are arguments
            self._kept.clear()
        weights = weights_among(args) if self._freeze else ()
        with quiet(require_torch()):
            for imported in self._imports(args, weights):
                try:
                    module = imported.module
                    executable = None if module is None else self._compile(module)
                except (UnsupportedError, TypeRuleError):
                    continue  # the next way may do
                return CompiledCall(imported, executable, args, weights)
            imported = specialize(self._graph_module, args, weights)
        executable = None if imported.module is None else self._compile(imported.module)
        return CompiledCall(imported, executable, args, weights)

    def _imports(self, args: Sequence[object], weights: Sequence[int]) -> Iterator[Imported]:
        """Give the traced graph with open sizes, then for the sizes of these arguments alone."""
        numbers = self._numbers_of(args)
        if self._tracer is None or not self._tracer.takes(args):
            return
        try:
            if self._traced is None or numbers != self._traced_for:
                self._traced = self._tracer.trace(numbers, late=True)
                self._traced_for = numbers
        except UnsupportedError:
            self._traced = None
            return
        symbols: Mapping[str, int] = {}
        try:
            opened = import_traced(self._traced, args, weights)
            symbols = opened.symbols
            yield opened
        except IntarsiaError:
            symbols = symbols_among(self._traced)
        if not symbols:
            return
        fixed = {name: int(cast("int", args[number])) for name, number in symbols.items()}
        try:
            yield import_traced(self._traced, args, weights, fixed=fixed)
        except IntarsiaError:
            return

    def _refuse(self, error: UnsupportedError) -> None:
        """Let PyTorch run the graph from now on.

        Raises:
            UnsupportedError: That is not wanted.
        """
        if not self._fallback:
            raise error
        self._refused, self._latest = True, None
        self._kept.clear()
        _warn(f"PyTorch runs a graph that Intarsia does not compile: {error}")


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=3)
