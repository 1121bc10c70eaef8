# SPDX-License-Identifier: Apache-2.0
"""Opens an artifact: checks structure and digests before a byte of it is mapped or run."""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from ..errors import ArtifactError, IntarsiaError, ModelError
from .digest import member_digest
from .members import PARAMS, PASSPORT, UNITS, check_member_path, member_name, part_unit
from .passport import Member, Part, Passport, UnitEntry, parse_passport
from .plan import ArgumentSource, RegionStep, TensorSpec, all_steps
from .plan_walk import all_arguments
from .tensors import read_layout

SUFFIX = ".intarsia"
"""What the name of an artifact ends with by convention."""

_MAX_PASSPORT = 256 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")


class Weight(Struct, frozen=True, eq=False):
    """A weight of an artifact.

    Attributes:
        spec: Name, shape and element type.
        data: Its bytes, mapped and read-only; never written to.
    """

    spec: TensorSpec
    data: memoryview


class OpenedArtifact(Struct, frozen=True, eq=False):
    """An artifact whose every member matches its digest.

    Attributes:
        passport: What it says of itself.
        files: Member name to content, of all units.
        weights: Name to weight.
    """

    passport: Passport
    files: Mapping[str, bytes]
    weights: Mapping[str, Weight]

    def unit_files(self, unit: str) -> dict[str, bytes]:
        """Return the files of a unit by their names below its folder."""
        names = self.passport.unit(unit).files
        return {name: self.files[member_name(unit, name)] for name in names}

    def part(self, part: Part) -> OpenedArtifact:
        """Return a part as an artifact of its own, on the same bytes."""
        prefix = member_name(part_unit(part.name, ""), "").removesuffix("/")
        files = {
            f"{UNITS}/{name.removeprefix(prefix)}": data
            for name, data in self.files.items()
            if name.startswith(prefix)
        }
        renamed = {name: self.weights[stored] for name, stored in part.weights.items()}
        weights = MappingProxyType({**self.weights, **renamed})
        return OpenedArtifact(part.passport, MappingProxyType(files), weights)


def is_artifact(path: Path) -> bool:
    """Say whether ``path`` is meant as an artifact: by its name, or because it begins as a zip."""
    if path.suffix == SUFFIX:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read_passport(path: Path, *, signed_by: Path | None = None) -> Passport:
    """Read only the passport, without a look at the digests of the members.

    Args:
        path: The artifact.
        signed_by: Public key that must have signed it (:mod:`intarsia_runtime.artifact.signing`).

    Raises:
        ModelError: There is no such file.
        ArtifactError: The file is no artifact, its passport is damaged, or not signed.
    """
    with _open_zip(Path(path)) as archive:
        return _passport(archive, Path(path), signed_by)


def open_artifact(path: Path, *, signed_by: Path | None = None) -> OpenedArtifact:
    """Check everything and map the weights.

    Args:
        path: The artifact.
        signed_by: Public key that must have signed it, which is checked first.

    Raises:
        ModelError: There is no such file.
        ArtifactError: The file is no artifact, any part of it is damaged, or it is not signed.
    """
    path = Path(path)
    try:
        with _open_zip(path) as archive:
            passport = _passport(archive, path, signed_by)
            whole = _map(archive)
            members = {
                info.filename: _slice(whole, info)
                for info in archive.infolist()
                if info.filename != PASSPORT
            }
        return _verified(passport, members)
    except IntarsiaError as error:
        error.where = error.where or str(path)
        raise


def _verified(passport: Passport, members: Mapping[str, memoryview]) -> OpenedArtifact:
    if set(members) != set(passport.members):
        odd = sorted(set(members) ^ set(passport.members))
        raise ArtifactError(
            f"the passport and the archive disagree on the members: {', '.join(odd)}"
        )
    files = {
        name: _verified_copy(name, data, passport.members[name])
        for name, data in members.items()
        if name != PARAMS
    }
    weights: dict[str, Weight] = {}
    if PARAMS in members:
        params = members[PARAMS]
        _check_digest(PARAMS, params, passport.members[PARAMS])
        for name, stored in read_layout(params).items():
            data = params[stored.offset : stored.offset + stored.spec.bytes]
            weights[name] = Weight(stored.spec, data)
    opened = OpenedArtifact(passport, MappingProxyType(files), MappingProxyType(weights))
    check_references(opened)
    return opened


def _verified_copy(name: str, data: memoryview, member: Member) -> bytes:
    copy = bytes(data)  # what is checked is what is used, whatever happens to the file
    _check_digest(name, memoryview(copy), member)
    return copy


def _check_digest(name: str, data: memoryview, member: Member) -> None:
    found = member_digest(data)
    if len(data) != member.bytes or found != member.sha256:
        raise ArtifactError(
            f"member '{name}' is damaged: the passport says sha256 {member.sha256[:16]}… and "
            f"{member.bytes} bytes, found {found[:16]}… and {len(data)} bytes",
            hint="compile the model again, or fetch the file again",
        )


def check_references(opened: OpenedArtifact) -> None:
    """Check that everything the plan and the units refer to is there.

    Raises:
        ArtifactError: Something is not.
    """
    passport, plan = opened.passport, opened.passport.plan
    names = [unit.name for unit in passport.units]
    first = [] if passport.sizes else ["main"]
    if names[:1] != first or sorted(names[1:]) != sorted(plan.regions):
        raise ArtifactError(f"the units {names} do not match the regions {list(plan.regions)}")
    for unit in passport.units:
        for file in unit.files:
            if member_name(unit.name, file) not in opened.files:
                raise ArtifactError(f"unit '{unit.name}' has no file '{file}'")
    needed = [*plan.constants, *(name for unit in passport.units for name in unit.constants)]
    absent = [name for name in needed if name not in opened.weights]
    if absent:
        raise ArtifactError(f"the weights {', '.join(absent[:5])}are missing")
    for part in passport.parts:
        _check_part(opened, part)
    _check_sizes(passport)
    for step in all_steps(plan.steps):
        if isinstance(step, RegionStep):
            _check_region_call(passport.unit(plan.regions[step.region]), step)
    for argument in all_arguments(plan.steps):
        if argument.place is ArgumentSource.CONSTANT:
            weight = opened.weights[plan.constants[argument.index]]
            if argument.bytes > weight.spec.bytes:
                raise ArtifactError(
                    f"the plan reads past the end of the weight '{weight.spec.name}'"
                )


def _check_region_call(unit: UnitEntry, step: RegionStep) -> None:
    """Check that a region is called with the tensors its unit says; errors as above."""
    wanted = [(spec.shape, spec.dtype) for spec in (*unit.inputs, *unit.outputs)]
    given = [(argument.shape, argument.dtype) for argument in step.args]
    if wanted != given:
        raise ArtifactError(
            f"the plan calls unit '{unit.name}' with tensors that do not match",
            hint="compile the model again",
        )


def _check_part(opened: OpenedArtifact, part: Part) -> None:
    """Check a part of an artifact; errors as :func:`check_references`."""
    absent = [stored for stored in part.weights.values() if stored not in opened.weights]
    if absent:
        raise ArtifactError(f"part '{part.name}': the weight '{absent[0]}' is not there")
    if len(part.sizes) != len(opened.passport.sizes):
        raise ArtifactError(
            f"part '{part.name}' is for {len(part.sizes)} sizes, not {len(opened.passport.sizes)}"
        )
    try:
        check_references(opened.part(part))
    except ArtifactError as error:
        raise ArtifactError(f"part '{part.name}': {error.message}", hint=error.hint) from None


def _check_sizes(passport: Passport) -> None:
    """Check that there is a part for every combination of sizes, and an input that has each."""
    if not passport.sizes:
        return
    counted = prod(len(choice.sizes) for choice in passport.sizes)
    known = {part.sizes for part in passport.parts}
    full = counted == len(known) and known == set(
        product(*(choice.sizes for choice in passport.sizes))
    )
    named = {size for spec in passport.signature.inputs for size in spec.shape or ()}
    if not full or not named.issuperset(choice.name for choice in passport.sizes):
        raise ArtifactError("the parts of the artifact are not those of its sizes")


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        if not path.is_file():
            raise ModelError(f"there is no file '{path}'")
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
        raise ArtifactError(f"not an artifact, or cut short: {error}", where=str(path)) from None
    except OSError as error:
        raise ModelError(f"cannot read '{path}': {error.strerror}") from None
    return archive


def _passport(archive: zipfile.ZipFile, path: Path, signed_by: Path | None) -> Passport:
    """Check the names in the archive and who signed the passport, and read it.

    Raises:
        ArtifactError: A name is there twice or leaves the archive, or the passport is damaged.
    """
    try:
        _check_entries(archive)
        if archive.getinfo(PASSPORT).file_size > _MAX_PASSPORT:
            raise ArtifactError("passport.json is too large")
        content = archive.read(PASSPORT)
        if signed_by is not None:
            from .signing import check_signature  # starts a program; few artifacts are signed

            check_signature(content, path, signed_by)
        return parse_passport(content)
    except ArtifactError as error:
        error.where = str(path)
        raise
    except KeyError:
        raise ArtifactError("the archive has no passport.json", where=str(path)) from None
    except (
        zipfile.BadZipFile,
        struct.error,
        OSError,
        EOFError,
        NotImplementedError,
        ValueError,
    ) as error:
        raise ArtifactError(f"passport.json is damaged: {error}", where=str(path)) from None


def _check_entries(archive: zipfile.ZipFile) -> None:
    seen: set[str] = set()
    for info in archive.infolist():
        name = info.filename
        if name in seen:
            raise ArtifactError(f"member '{name}' is there twice")
        seen.add(name)
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored or info.flag_bits & 1 or info.is_dir():
            raise ArtifactError(f"member '{name}' is not a stored file")
        if name not in (PASSPORT, PARAMS):
            _check_member_name(name)


def _check_member_name(name: str) -> None:
    folder, _, rest = name.partition("/")
    unit, _, file = rest.partition("/")
    if folder != UNITS:
        raise ArtifactError(f"member '{name}' does not belong in an artifact")
    try:
        check_member_path(unit, file)
    except IntarsiaError:
        raise ArtifactError(f"member '{name}' has a name that leaves the archive") from None


def _map(archive: zipfile.ZipFile) -> memoryview:
    """Map the file that is open; another may have its name by now."""
    file = archive.fp
    assert file is not None
    try:
        size = os.fstat(file.fileno()).st_size
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot map the file: {error}") from None


def _slice(whole: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """Return the data of a stored member; the library gives no way to where it begins."""
    header = whole[info.header_offset : info.header_offset + _LOCAL_HEADER.size]
    if len(header) < _LOCAL_HEADER.size:
        raise ArtifactError(f"member '{info.filename}' begins after the end of the file")
    magic, name_size, extra_size = _LOCAL_HEADER.unpack(header)
    start = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size
    end = start + info.file_size
    if magic != b"PK\x03\x04" or end > len(whole):
        raise ArtifactError(f"member '{info.filename}' is cut short")
    return whole[start:end]
