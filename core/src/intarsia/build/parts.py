# SPDX-License-Identifier: Apache-2.0
"""Puts compiled models into one artifact; weights with the same content are stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from ..artifact.passport import Part, Passport
from ..artifact.tensors import array_bytes
from ..artifact.unit import CompiledUnit
from ..artifact.write import part_unit
from ..partition.report import Placement
from .artifact import Artifact

if TYPE_CHECKING:
    import numpy as np

_Content: TypeAlias = tuple[str, tuple[int, ...], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
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
    weights = _Weights()
    parts = tuple(
        Part(
            name=piece.name,
            passport=piece.artifact.passport,
            weights=MappingProxyType(weights.add(piece.artifact.constants)),
            sizes=piece.sizes,
        )
        for piece in pieces
    )
    inner = tuple(
        replace(unit, name=part_unit(piece.name, unit.name), constants=MappingProxyType({}))
        for piece in pieces
        for unit in piece.artifact.units
    )
    inside = [piece.artifact.passport for piece in pieces]
    whole = replace(
        passport,
        arch=inside[0].arch if inside else passport.arch,
        cpu_features=tuple(sorted({f for p in inside for f in p.cpu_features})),
        plugins=MappingProxyType({k: v for p in inside for k, v in p.plugins.items()}),
        versions=MappingProxyType({k: v for p in inside for k, v in p.versions.items()}),
        parts=parts,
    )
    return Artifact(whole, (*units, *inner), MappingProxyType(weights.stored), placement)


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
