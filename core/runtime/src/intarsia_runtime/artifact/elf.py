# SPDX-License-Identifier: Apache-2.0
"""Bounds of an ELF file, checked before the dynamic linker or a just-in-time linker reads it.

The dynamic linker maps what the program headers say and trusts it: a page behind the end of the
file is a ``SIGBUS`` at the first access, a table at a wild address a ``SIGSEGV``. So headers,
segments, sections and the addresses in the dynamic section must lie within the file. Instructions,
symbols and relocations are code, and code is trusted: an artifact *is* a program.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from ..errors import ArtifactError

MAGIC = b"\x7fELF"

RELOCATABLE, _SHARED = 1, 3  # e_type
_LOAD, _DYNAMIC, _TLS = 1, 2, 7  # p_type
NO_BITS = 8  # sh_type of a section without bytes in the file
ALLOCATED, _OF_THREAD = 2, 0x400  # sh_flags
MAX_MEMORY = 1 << 34  # no code with its data is larger than 16 GiB
MAX_ALIGNMENT = 1 << 24

# Tags of the dynamic section: those whose value is an address, and what gives the bytes there.
_STRTAB, _STRSZ, _RELA, _RELASZ, _REL, _RELSZ = 5, 10, 7, 8, 17, 18
_JMPREL, _PLTRELSZ, _INIT_ARRAY, _INIT_ARRAYSZ, _FINI_ARRAY, _FINI_ARRAYSZ = 23, 2, 25, 27, 26, 28
_TABLES = {
    _STRTAB: _STRSZ,
    _RELA: _RELASZ,
    _REL: _RELSZ,
    _JMPREL: _PLTRELSZ,
    _INIT_ARRAY: _INIT_ARRAYSZ,
    _FINI_ARRAY: _FINI_ARRAYSZ,
}
_ADDRESSES = {3: "PLTGOT", 4: "HASH", 6: "SYMTAB", 12: "INIT", 13: "FINI", 0x6FFFFEF5: "GNU_HASH"}
_NAMES = {1: "NEEDED", 14: "SONAME", 15: "RPATH", 29: "RUNPATH"}  # offsets in the string table


class ElfLayout(Struct, frozen=True):
    """How headers are laid out in one class and byte order of ELF."""

    order: str
    wide: bool

    def read(self, data: bytes, offset: int, *, what: str, wide: str, narrow: str) -> list[int]:
        """Read the fields at ``offset``; ``wide`` and ``narrow`` are formats of 64 and 32 bits."""
        form = struct.Struct(self.order + (wide if self.wide else narrow))
        if offset < 0 or offset + form.size > len(data):
            raise _cut(what, offset + form.size, len(data))
        return list(form.unpack_from(data, offset))


class _Segment(Struct, frozen=True):
    """A program header."""

    kind: int
    offset: int
    address: int
    in_file: int
    in_memory: int
    alignment: int


class Section(Struct, frozen=True):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    @property
    def is_loaded(self) -> bool:
        """Whether it has a place in memory."""
        return bool(self.flags & ALLOCATED and self.size)


def is_elf(content: bytes) -> bool:
    """Whether the bytes begin as an ELF file does."""
    return content[:4] == MAGIC


def check_shared_library(content: bytes) -> None:
    """Check that a shared library can be mapped and its tables be found.

    Raises:
        ArtifactError: A header, segment or section lies outside of the file, or contradicts
            another. The message says which; who calls adds whose library it is.
    """
    layout, header = read_header(content, _SHARED, "a shared library")
    segments = _segments(content, layout, header)
    _check_loads([segment for segment in segments if segment.kind == _LOAD])
    sections = read_sections(content, layout, header)
    _check_places([section for section in sections if section.is_loaded], segments)
    dynamics = [segment for segment in segments if segment.kind == _DYNAMIC]
    if len(dynamics) != 1:
        raise ArtifactError(f"the library has {len(dynamics)} dynamic sections, not one")
    _check_dynamic(content, layout, dynamics[0], segments)


def _cut(what: str, needed: int, size: int) -> ArtifactError:
    return ArtifactError(
        f"{what} ends at byte {needed}, and the file has {size}",
        hint="compile the model again, or fetch the file again",
    )


def read_header(content: bytes, kind: int, called: str) -> tuple[ElfLayout, list[int]]:
    """Return the layout, and: e_phoff, e_shoff, and the six fields of headers behind e_ehsize."""
    if not is_elf(content) or len(content) < 20 or content[4] not in (1, 2):
        raise ArtifactError(f"the file is not {called} of ELF", hint="compile the model again")
    layout = ElfLayout({1: "<", 2: ">"}.get(content[5], "<"), content[4] == 2)
    fields = layout.read(
        content, 16, what="the ELF header", wide="HHIQQQIHHHHHH", narrow="HHIIIIIHHHHHH"
    )
    if fields[0] != kind:
        raise ArtifactError(f"the ELF file has type {fields[0]}, {called} has {kind}")
    return layout, [fields[4], fields[5], *fields[8:13]]


def _segments(content: bytes, layout: ElfLayout, header: Sequence[int]) -> list[_Segment]:
    start, _, entry, count, *_ = header
    if entry != (56 if layout.wide else 32):
        raise ArtifactError(f"program headers of {entry} bytes are none of ELF")
    segments: list[_Segment] = []
    for number in range(count):
        what = f"program header {number}"
        row = layout.read(
            content, start + number * entry, what=what, wide="IIQQQQQQ", narrow="IIIIIIII"
        )
        if layout.wide:
            kind, _, offset, address, _, in_file, in_memory, alignment = row
        else:
            kind, offset, address, _, in_file, in_memory, _, alignment = row
        if in_file and offset + in_file > len(content):
            raise _cut(f"segment {number}", offset + in_file, len(content))
        segments.append(_Segment(kind, offset, address, in_file, in_memory, alignment))
    return segments


def read_sections(content: bytes, layout: ElfLayout, header: Sequence[int]) -> list[Section]:
    """Return all sections, which lie within the file."""
    _, start, _, _, entry, count, _ = header
    if entry != (64 if layout.wide else 40):
        raise ArtifactError(f"section headers of {entry} bytes are none of ELF")
    sections: list[Section] = []
    for number in range(count):
        what = f"section header {number}"
        row = layout.read(
            content, start + number * entry, what=what, wide="IIQQQQIIQQ", narrow="IIIIIIIIII"
        )
        section = Section(*row)
        end = section.offset + section.size
        if section.kind not in (0, NO_BITS) and end > len(content):
            raise _cut(f"section {number}", end, len(content))
        sections.append(section)
    return sections


def _check_places(sections: Sequence[Section], segments: Sequence[_Segment]) -> None:
    """Check that segments put every section where its addresses say that it is."""
    if not sections:
        raise ArtifactError("the library has no sections that are loaded")
    for section in sections:
        if section.kind != NO_BITS:
            fits = _bytes_at(section.address, section.size, segments) == section.offset
        else:
            kinds = (_TLS,) if section.flags & _OF_THREAD else (_LOAD,)
            end = section.address + section.size
            fits = any(
                segment.kind in kinds
                and segment.address <= section.address
                and end <= segment.address + segment.in_memory
                for segment in segments
            )
        if not fits:
            raise ArtifactError(f"no segment loads the section at {section.address:#x}")


def _check_loads(loads: Sequence[_Segment]) -> None:
    """Check what is mapped: pages in ascending order that do not overlap."""
    if not loads:
        raise ArtifactError("the library has nothing to load")
    end = 0
    for segment in loads:
        alignment = max(1, segment.alignment)
        fits = (
            segment.in_file <= segment.in_memory
            and alignment & (alignment - 1) == 0
            and alignment <= MAX_ALIGNMENT
            and segment.address % alignment == segment.offset % alignment
            and segment.address >= end
            and segment.address + segment.in_memory <= MAX_MEMORY
        )
        if not fits:
            raise ArtifactError(f"the segment at {segment.address:#x} cannot be mapped")
        end = segment.address + segment.in_memory


def _bytes_at(address: int, size: int, segments: Sequence[_Segment]) -> int | None:
    """Return the offset in the file of an address that is loaded from it; ``None`` if none is."""
    for segment in segments:
        if segment.kind != _LOAD:
            continue
        start = address - segment.address
        if start >= 0 and start + size <= segment.in_file:
            return segment.offset + start
    return None


def _check_dynamic(
    content: bytes, layout: ElfLayout, dynamic: _Segment, segments: Sequence[_Segment]
) -> None:
    """Check that every table which the dynamic section names is loaded from the file."""
    if _bytes_at(dynamic.address, dynamic.in_memory, segments) != dynamic.offset:
        raise ArtifactError("no segment loads the dynamic section")
    found: dict[int, int] = {}
    names: list[tuple[str, int]] = []
    size = 16 if layout.wide else 8
    for number in range(dynamic.in_file // size):
        where = dynamic.offset + number * size
        tag, value = layout.read(content, where, what="the dynamic section", wide="QQ", narrow="II")
        if tag == 0:
            break
        found[tag] = value
        if tag in _NAMES:
            names.append((_NAMES[tag], value))
    else:
        raise ArtifactError("the dynamic section has no end")
    for tag, size_tag in _TABLES.items():
        if tag in found and _bytes_at(found[tag], found.get(size_tag, 0), segments) is None:
            raise ArtifactError(f"table {tag} of the dynamic section is not loaded from the file")
    for tag, name in _ADDRESSES.items():
        if tag in found and _bytes_at(found[tag], 1, segments) is None:
            raise ArtifactError(f"{name} of the dynamic section is not loaded from the file")
    for name, value in names:
        if value >= found.get(_STRSZ, 0):
            raise ArtifactError(f"{name} of the dynamic section lies behind its names")
    if _STRTAB not in found or 6 not in found:
        raise ArtifactError("the dynamic section has no names or no symbols")
