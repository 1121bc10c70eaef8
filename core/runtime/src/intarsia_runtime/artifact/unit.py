# SPDX-License-Identifier: Apache-2.0
"""What code generation leaves: files, the constants they need, and who loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SHARED_LIBRARY = "shared-library"
"""Loader of a unit whose file ``lib.so`` exports tvm-ffi functions; built into the runtime."""

SHARED_LIBRARY_FORMAT = 1
"""Version of what the runtime expects of a library: :mod:`intarsia_runtime.artifact.plan`."""

UNSTATED = 0
"""Format of a unit whose plugin states none, and of a loader that states none."""
PLAN_FILE = "plan.json"
"""File of a region's unit that was compiled from loop IR: the call plan that it carries out."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledUnit:
    """The code of one region, or of everything the fallback backend compiles.

    Attributes:
        name: Name of the region (``acme_0``), or ``main``.
        loader: Name in the entry-point group ``intarsia.loaders``, or :data:`SHARED_LIBRARY`.
        files: Member name to content, stored below ``units/<name>/`` in the artifact.
        constants: Weights that the unit reads at load time, by a name unique in the artifact.
        cpu_features: CPU features that the code needs, as the Linux kernel names them
            (``avx512f``); a machine without one refuses the artifact.
        versions: Vendor component to version, for the passport.
        sources: Names of the C sources and headers among ``files``, if the code of the region can
            become part of another program. They define ``<name>_call``, a function of packed
            arguments, and declare what its handle points to. External names start with ``<name>``,
            macros with it in capitals; the program puts the model's name in front of them.
        format: Version of the format of ``files`` and ``constants``. A plugin increments it when
            older loaders would read them wrongly; a loader refuses versions that it does not read
            (:class:`intarsia_runtime.loading.UnitLoader`).
        weight_bytes: Bytes of the weights and commands among ``files`` that the device reads in
            place: they count against the memory of the hardware tag.
        scratch_bytes: Bytes that the unit needs while it runs, without inputs and outputs. Units of
            one loader run one after another and share them.
    """

    name: str
    loader: str
    files: Mapping[str, bytes]
    constants: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    cpu_features: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sources: tuple[str, ...] = ()
    format: int = UNSTATED
    weight_bytes: int = 0
    scratch_bytes: int = 0
