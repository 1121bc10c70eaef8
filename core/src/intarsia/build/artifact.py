# SPDX-License-Identifier: Apache-2.0
"""The last stage: everything that was compiled as one value that can be saved, loaded and run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact.archive import OpenedArtifact, Weight, check_references
from ..artifact.passport import Passport
from ..artifact.plan import TensorSpec
from ..artifact.tensors import array_bytes
from ..artifact.unit import CompiledUnit
from ..artifact.write import member_name, write_artifact
from ..dtype import parse_dtype
from ..errors import PluginError
from ..partition.report import Placement
from ..runtime.load import Executable, instantiate

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A compiled model in memory.

    Attributes:
        passport: What it says of itself; digests are filled in when it is saved.
        units: The code.
        constants: Every weight that the plan or a unit reads.
        placement: What was offloaded, and why not more.
    """

    passport: Passport
    units: tuple[CompiledUnit, ...]
    constants: Mapping[str, np.ndarray]
    placement: Placement

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the artifact; the same content gives the same bytes.

        Raises:
            ResourceError: The disk is full.
            UsageError: The place cannot be written to.

        Returns:
            Where it was written.
        """
        target = Path(path)
        write_artifact(target, self.passport, self.units, self.constants)
        return target

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
        weights = {name: _weight(name, array) for name, array in self.constants.items()}
        opened = OpenedArtifact(self.passport, MappingProxyType(files), MappingProxyType(weights))
        check_references(opened)
        return instantiate(opened, threads=threads, executor=executor)


def collect_constants(
    main: Mapping[str, np.ndarray], units: Sequence[CompiledUnit]
) -> dict[str, np.ndarray]:
    """Return the weights of the plan and of all units under one roof.

    Raises:
        PluginError: Two units use one name for two weights.
    """
    constants = dict(main)
    for unit in units:
        for name, array in unit.constants.items():
            if constants.setdefault(name, array) is not array:
                raise PluginError(
                    f"unit '{unit.name}' calls a weight '{name}', which another unit has"
                )
    return constants


def _weight(name: str, array: np.ndarray) -> Weight:
    spec = TensorSpec(name, tuple(array.shape), parse_dtype(array.dtype.name))
    return Weight(spec, array_bytes(array))
