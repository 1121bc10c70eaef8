# SPDX-License-Identifier: Apache-2.0
"""The last stage: everything that was compiled as one value that can be saved, loaded and run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text import print_module
from intarsia_ir.partition.report import Placement
from intarsia_ir.writing.artifact_writer import ArtifactWriter, Aside, write_artifact
from intarsia_ir.writing.deferred import Weights, contents_of
from intarsia_runtime.artifact.archive import OpenedArtifact, Weight, check_references
from intarsia_runtime.artifact.members import member_name
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.artifact.tensors import array_bytes
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.dtype import parse_dtype
from intarsia_runtime.errors import PluginError, UsageError
from intarsia_runtime.load import Executable, instantiate

from .compute_weights import compute_all
from .export import ExportedSources, write_folder, write_library_format

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifact:
    """A compiled model in memory.

    Attributes:
        passport: Its description; saving fills in the digests.
        units: The code.
        constants: Every weight that the plan or a unit reads.
        placement: The offloaded nodes, and the reasons for the others.
        module: The partitioned graph; kept if the code is C sources for another program.
    """

    passport: Passport
    units: tuple[CompiledUnit, ...]
    constants: Mapping[str, np.ndarray]
    placement: Placement
    module: IRModule | None = None

    def __repr__(self) -> str:
        """Name, target, and how much there is of it: one line."""
        target = self.passport.target
        shown = target if len(target) <= 60 else target[:57] + "..."
        parts = (("unit", len(self.passport.units)), ("weight", len(self.constants)))
        sizes = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in parts)
        return f"<Artifact {self.passport.name!r} for {shown!r}: {sizes}>"

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        output_format: str | None = None,
        aside: Aside | None = None,
        writer: ArtifactWriter | None = None,
    ) -> Path:
        """Write the artifact; the same content gives the same bytes.

        Args:
            path: Path of the file or folder.
            output_format: ``artifact``, or for sources ``mlf`` (a tar in the model library format)
                or ``folder``. Default: by the path; sources become a tar if it ends with ``.tar``,
                a folder if it ends with a slash or is a folder.
            aside: Gets a copy of the artifact's bytes.
            writer: May have begun to write the artifact's weights to this path.

        Raises:
            ResourceError: The disk is full.
            UsageError: The path cannot be written to, or the code is not sources.

        Returns:
            The path that was written.
        """
        target = Path(path)
        chosen = output_format or self._format_of(os.fspath(path))
        if chosen == "artifact":
            write = partial(write_artifact, target) if writer is None else writer.commit
            write(self.passport, self.units, self.constants, aside=aside)
            return target
        if chosen not in _EXPORTS:
            known = ", ".join(("artifact", *_EXPORTS))
            raise UsageError(f"no output format '{chosen}'", hint=f"one of {known}")
        if self.module is None:
            raise UsageError(
                f"output format '{chosen}' is for sources, and runtime "
                f"'{self.passport.runtime.get('kind')}' loads compiled code",
                hint="choose a freestanding runtime, or write an artifact",
            )
        size = sum(len(array_bytes(array)) for array in self.constants.values())
        _EXPORTS[chosen](
            target, ExportedSources(self.passport, self.units[0], size, print_module(self.module))
        )
        return target

    def _format_of(self, path: str) -> str:
        if path.endswith((os.sep, "/")) or (self.module is not None and Path(path).is_dir()):
            return "folder"
        return "mlf" if path.endswith(".tar") and self.module is not None else "artifact"

    def load(self, *, threads: int | None = None, executor: str | None = None) -> Executable:
        """Make it ready to run in this process, without a file.

        Raises:
            ArtifactError: It is for another machine.
            PluginError: The loader of a region fails.
            ResourceError: Not enough memory.
        """
        files = {
            member_name(unit.name, name): data
            for unit in self.units
            for name, data in unit.files.items()
        }
        if isinstance(self.constants, Weights):
            compute_all(self.constants)
        weights = {name: _weight(name, array) for name, array in self.constants.items()}
        opened = OpenedArtifact(self.passport, MappingProxyType(files), MappingProxyType(weights))
        check_references(opened)
        return instantiate(opened, threads=threads, executor=executor)


_EXPORTS: Mapping[str, Callable[[Path, ExportedSources], None]] = MappingProxyType(
    {"mlf": write_library_format, "folder": write_folder}
)


def collect_constants(main: Mapping[str, np.ndarray], units: Sequence[CompiledUnit]) -> Weights:
    """Return the weights of the plan and of all units under one roof.

    Raises:
        PluginError: Two units use one name for two weights.
    """
    constants = dict(contents_of(main))
    for unit in units:
        for name, array in unit.constants.items():
            if constants.setdefault(name, array) is not array:
                raise PluginError(
                    f"unit '{unit.name}' calls a weight '{name}', which another unit has"
                )
    return Weights(constants)


def _weight(name: str, array: np.ndarray) -> Weight:
    spec = TensorSpec(name, tuple(array.shape), parse_dtype(array.dtype.name))
    return Weight(spec, array_bytes(array))
