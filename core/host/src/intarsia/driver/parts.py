# SPDX-License-Identifier: Apache-2.0
"""Puts compiled models into one artifact; weights with the same content are stored once."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.partition.report import Placement
from intarsia_runtime.artifact.members import part_unit
from intarsia_runtime.artifact.passport import Part, Passport
from intarsia_runtime.artifact.tensors import array_bytes
from intarsia_runtime.artifact.unit import CompiledUnit

from .artifact import Artifact

if TYPE_CHECKING:
    import numpy as np

_Content: TypeAlias = tuple[str, tuple[int, ...], bytes]


class Piece(Struct, frozen=True, eq=False):
    """A compiled model that becomes a part of another one.

    Attributes:
        name: What the part is called.
        artifact: The model.
        sizes: The sizes it was compiled for.
    """

    name: str
    artifact: Artifact
    sizes: tuple[int, ...] = ()


def join(
    passport: Passport,
    units: Sequence[CompiledUnit],
    pieces: Sequence[Piece],
    placement: Placement,
) -> Artifact:
    """Return an artifact with parts.

    Args:
        passport: All but its ``parts``, and what follows from them: machine, features, versions.
        units: Code of the artifact itself; it has no weights.
        pieces: The parts.
        placement: Of all together.
    """
    joint = Joint()
    for piece in pieces:
        joint.add(piece)
    return joint.artifact(passport, units, placement)


class Joint:
    """Takes compiled models one by one, so that weights which several have are in memory once."""

    def __init__(self) -> None:
        self._weights = _Weights()
        self._parts: list[Part] = []
        self._units: list[CompiledUnit] = []

    def add(self, piece: Piece) -> None:
        """Take a model; nothing is kept of it but its code, its passport and new weights."""
        made = piece.artifact
        renamed = MappingProxyType(self._weights.add(made.constants))
        self._parts.append(
            Part(name=piece.name, passport=made.passport, weights=renamed, sizes=piece.sizes)
        )
        self._units += [
            dataclasses.replace(
                unit, name=part_unit(piece.name, unit.name), constants=MappingProxyType({})
            )
            for unit in made.units
        ]

    def artifact(
        self, passport: Passport, units: Sequence[CompiledUnit], placement: Placement
    ) -> Artifact:
        """Return the artifact; arguments as those of :func:`join`."""
        inside = [part.passport for part in self._parts]
        whole = replace(
            passport,
            arch=inside[0].arch if inside else passport.arch,
            cpu_features=tuple(sorted({f for p in inside for f in p.cpu_features})),
            plugins=MappingProxyType({k: v for p in inside for k, v in p.plugins.items()}),
            versions=MappingProxyType({k: v for p in inside for k, v in p.versions.items()}),
            parts=tuple(self._parts),
        )
        stored = MappingProxyType(self._weights.stored)
        return Artifact(whole, (*units, *self._units), stored, placement)


class _Weights:
    """The weights of all parts under one roof.

    Attributes:
        stored: Every weight once, by its name in the artifact.
    """

    def __init__(self) -> None:
        self.stored: dict[str, np.ndarray] = {}
        self._names: dict[_Content, str] = {}

    def add(self, constants: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Add the weights of a part; return the names of those that are called otherwise."""
        renamed: dict[str, str] = {}
        for name, array in constants.items():
            digest = hashlib.sha256(array_bytes(array)).digest()
            content = array.dtype.name, tuple(array.shape), digest
            stored = self._names.get(content)
            if stored is None:
                stored = self._free(name)
                self._names[content], self.stored[stored] = stored, array
            if stored != name:
                renamed[name] = stored
        return renamed

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self.stored:
            number += 1
            free = f"{name}.{number}"
        return free
