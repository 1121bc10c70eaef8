# SPDX-License-Identifier: Apache-2.0
"""The request of a build: model, target and options. Every stage gets this one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from intarsia_ir.graph.guards import Guard
from intarsia_ir.graph.module import IRModule
from intarsia_ir.partition.cost import Plan
from intarsia_ir.size_values import Size
from intarsia_ir.writing.deferred import Weights

from ..host.host import Host
from ..target.target import CompositeTarget
from .config import Executor, Runtime
from .dump import Dump
from .source import ModuleSource

if TYPE_CHECKING:
    import os

    from intarsia_ir.partition.measured import MeasuredSeconds
    from intarsia_ir.partition.rules import PlaceRule

Progress: TypeAlias = Callable[[str], object]
"""Called with the name of each stage when it begins."""

Measure: TypeAlias = "Callable[[Host, IRModule, CompositeTarget], MeasuredSeconds]"
"""Measures what the claims of a prepared module cost, in seconds."""


def _silent(stage: str) -> None:
    """Progress that nobody asked for."""


def _no_rules() -> tuple[PlaceRule, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A model, a target and the options of a build; checked when it is made.

    :func:`intarsia.build` makes it from its arguments. The fields with a default are its options,
    except for ``given_executor``, ``is_open``, ``range_guards``, ``name`` and ``dump``. Its options
    ``place``, ``values`` and ``dump_ir`` become ``rules``, a part of ``source``, and ``dump``.

    Attributes:
        source: Where the model comes from; it is read once.
        target: What to compile for, canonical.
        executor: How the model is executed.
        runtime: Where it runs. It fits the executor, and the target has code for it.
        host: The plugins.
        given_executor: The executor that the user chose; ``None`` if the build may choose ``vm``
            because a part of the model cannot be compiled.
        is_open: Whether sizes without a value stay open in the program.
        range_guards: Guards that keep open sizes in the user's ranges.
        name: Name of the model.
        dump: Writes the result of each stage as text.
        shapes: Shapes of inputs, for a model that is imported. A size may be a list, which makes a
            program for each value, or a range (:class:`~intarsia_ir.size_values.SizeValues`).
            Ranges, and sizes without a value in this and in the model, stay open.
        plan: How to choose regions; by cost if ``None``.
        rules: The user's rules for single nodes.
        require_offload: At least this many percent of the nodes must be offloaded.
        max_regions: At most this many regions.
        time_limit: Limit of the build in seconds. Default: only the host's own part is limited, far
            above the needs of usual models (:mod:`intarsia_ir.budget`).
        memory_limit: Limit in bytes of the build, of a tensor and of all weights. Default: the
            machine's memory, and less for constant folding.
        allow_overflow: Warn instead of failing if the model does not fit into the memory of the
            device that the target's hardware tag describes.
        measure: Measures the cost of each claim of an accelerator, once, for the plan by cost. As
            an option of a build it is True or False. ``None`` estimates all costs.
        records: File with tuning records, or ``none``; the user's own file if ``None``.
        mapped: Leave large weights in the model's file instead of reading them into memory. The
            file must then stay unchanged while the artifact, or a model loaded from it, is used.
        progress: Called with the name of each stage.
        weights_known: Called with all weights of the artifact before code is generated, e.g. to
            write them in parallel. Not called for sources, nor for several programs, whose weights
            are merged.
    """

    source: ModuleSource
    target: CompositeTarget
    executor: Executor
    runtime: Runtime
    host: Host
    given_executor: Executor | None = None
    is_open: bool = False
    range_guards: tuple[Guard, ...] = ()
    name: str = "default"
    dump: Dump = field(default_factory=Dump)
    shapes: Mapping[str, Sequence[Size]] | None = None
    plan: Plan | None = None
    rules: Sequence[PlaceRule] = field(default_factory=_no_rules)
    require_offload: float | None = None
    max_regions: int | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
    allow_overflow: bool = False
    measure: Measure | None = None
    records: str | os.PathLike[str] | None = None
    mapped: bool = False
    progress: Progress = _silent
    weights_known: Callable[[Weights], object] | None = None

    @classmethod
    def plain(cls, model: IRModule, target: CompositeTarget, host: Host) -> BuildRequest:
        """Return the request for a module with nothing chosen: ``aot`` in a process, by cost."""
        return cls(
            source=ModuleSource(model),
            target=target,
            executor=Executor(),
            runtime=Runtime(),
            host=host,
        )

    def of_size(self, shapes: Mapping[str, tuple[int, ...]], folder: str) -> BuildRequest:
        """Return the request for one of several sizes.

        Args:
            shapes: The shapes of the inputs for this size.
            folder: Where its stages are written, below the folder of all.
        """
        return replace(self, shapes=shapes, dump=self.dump.below(folder), weights_known=None)

    def of_piece(self, module: IRModule, name: str, rules: Sequence[PlaceRule]) -> BuildRequest:
        """Return the request for a compiled piece of a program.

        Args:
            module: The piece.
            name: Its name.
            rules: Those of the user, for a piece that may lack the nodes that they name.
        """
        return replace(
            self,
            source=ModuleSource(module),
            executor=Executor(),
            given_executor=None,
            name=name,
            dump=self.dump.below(name),
            shapes=None,
            rules=rules,
            require_offload=None,
            max_regions=None,
            weights_known=None,
        )

    def annotated(self, module: IRModule) -> IRModule:
        """Return a module with target, executor and runtime as settings, for its text alone."""
        module = module.with_attr(Executor, self.executor).with_attr(Runtime, self.runtime)
        return module.with_attr(CompositeTarget, self.target)


_MADE = ("given_executor", "is_open", "range_guards", "name", "dump")
BUILD_OPTIONS = (
    *(
        field.name
        for field in fields(BuildRequest)
        if field.name not in _MADE
        and not (field.default is MISSING and field.default_factory is MISSING)
    ),
    "place",
    "values",
    "dump_ir",
)
"""Names of the options of :func:`intarsia.build`."""


def dump_to(folder: str | os.PathLike[str] | None) -> Dump:
    """Return what writes stages into a folder; into none if ``None``."""
    return Dump(None if folder is None else Path(folder))
