# SPDX-License-Identifier: Apache-2.0
"""Bounds of an object file of ELF, checked before a just-in-time linker reads it.

Such a linker ends the process where an index leads nowhere, so all of them are checked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

from intarsia_runtime.artifact.elf import (
    ALLOCATED,
    MAX_ALIGNMENT,
    MAX_MEMORY,
    NO_BITS,
    RELOCATABLE,
    ElfLayout,
    Section,
    read_header,
    read_sections,
)
from intarsia_runtime.errors import ArtifactError

_SYMBOLS, _STRINGS, _ADDENDS, _PLAIN, _GROUP = 2, 3, 4, 9, 17  # sh_type
_RESERVED, _ABSOLUTE, _COMMON = 0xFF00, 0xFFF1, 0xFFF2  # st_shndx
_HEADER_BYTES = 52  # and 64 in the wide class


def check_object(content: bytes) -> None:
    """Check that the sections of an object file lie within it, and that all indices lead somewhere.

    Raises:
        ArtifactError: One does not.
    """
    layout, header = read_header(content, RELOCATABLE, "an object")
    sections = read_sections(content, layout, header)
    if header[3]:
        raise ArtifactError("the object has program headers")
    _check_overlaps(sections)
    names = _of_kind(sections, header[6], _STRINGS, "the names of sections")
    if sum(section.size for section in sections if section.is_loaded) > MAX_MEMORY:
        raise ArtifactError(f"the object needs more than {MAX_MEMORY} bytes")
    for number, section in enumerate(sections):
        if section.name >= names.size:
            raise ArtifactError(f"the name of section {number} lies behind the names")
        is_power = section.alignment.bit_count() == 1 or section.kind == 0
        if not is_power or section.alignment > MAX_ALIGNMENT:
            raise ArtifactError(f"section {number} cannot be at a multiple of {section.alignment}")
        if section.kind == _STRINGS and content[section.offset + section.size - 1] != 0:
            raise ArtifactError(f"the names in section {number} have no end")
        if section.kind == _SYMBOLS:
            _check_symbols(content, layout, section, sections)
        elif section.kind in (_ADDENDS, _PLAIN):
            _check_relocations(content, layout, section, sections)
        elif section.kind == _GROUP:
            _check_group(content, layout, section, sections)


def _check_overlaps(sections: Sequence[Section]) -> None:
    """Check that no byte belongs to two sections."""
    held = [one for one in sections if one.kind not in (0, NO_BITS) and one.size]
    held.sort(key=lambda section: section.offset)
    if held and held[0].offset < _HEADER_BYTES:
        raise ArtifactError("a section of the object holds its header")
    for before, after in pairwise(held):
        if before.offset + before.size > after.offset:
            raise ArtifactError(f"two sections of the object hold byte {after.offset}")


def _of_kind(sections: Sequence[Section], number: int, kind: int, what: str) -> Section:
    """Return a section that another one refers to."""
    if number >= len(sections) or sections[number].kind != kind or not sections[number].size:
        raise ArtifactError(f"section {number} does not hold {what}")
    return sections[number]


def _rows(content: bytes, layout: ElfLayout, section: Section, form: str) -> list[tuple[int, ...]]:
    """Return the rows of a table."""
    row = struct.Struct(layout.order + form)
    if section.entry != row.size or section.size % row.size:
        raise ArtifactError(f"a table of {section.size} bytes has rows of {section.entry} bytes")
    return list(row.iter_unpack(content[section.offset : section.offset + section.size]))


def _symbols(content: bytes, layout: ElfLayout, table: Section) -> list[tuple[int, int, int, int]]:
    """Return the name, section, value and size of every symbol."""
    if layout.wide:
        rows = _rows(content, layout, table, "IBBHQQ")
        return [(name, place, value, size) for name, _, _, place, value, size in rows]
    rows = _rows(content, layout, table, "IIIBBH")
    return [(name, place, value, size) for name, value, size, _, _, place in rows]


def _check_symbols(
    content: bytes, layout: ElfLayout, table: Section, sections: Sequence[Section]
) -> None:
    """Check that symbols have names, and places in sections."""
    names = _of_kind(sections, table.link, _STRINGS, "the names of symbols")
    rows = _symbols(content, layout, table)
    if table.info > len(rows):
        raise ArtifactError(f"the first global symbol is {table.info} of {len(rows)}")
    for number, (name, place, value, size) in enumerate(rows):
        known = place < len(sections) or place in (_ABSOLUTE, _COMMON)
        if name >= names.size or not known:
            raise ArtifactError(f"symbol {number} has no name or no section")
        if 0 < place < _RESERVED and value + size > sections[place].size:
            raise ArtifactError(f"symbol {number} lies behind the end of its section")


def _check_relocations(
    content: bytes, layout: ElfLayout, table: Section, sections: Sequence[Section]
) -> None:
    """Check that relocations are of symbols, and within a section."""
    symbols = _of_kind(sections, table.link, _SYMBOLS, "symbols")
    if table.info >= len(sections):
        raise ArtifactError(f"there is no section {table.info} to relocate")
    addend = {True: "q", False: "i"}[layout.wide] if table.kind == _ADDENDS else ""
    rows = _rows(content, layout, table, ("QQ" if layout.wide else "II") + addend)
    target = sections[table.info]
    known = [place for _, place, _, _ in _symbols(content, layout, symbols)]
    for offset, info, *_ in rows:
        symbol = info >> (32 if layout.wide else 8)
        if offset >= target.size or symbol >= len(known):
            raise ArtifactError(f"section {table.info} is relocated where it has no bytes")
        place = known[symbol]
        is_ours = 0 < place < min(_RESERVED, len(sections))
        if target.is_loaded and is_ours and not sections[place].flags & ALLOCATED:
            raise ArtifactError(f"section {table.info} needs section {place}, which is not loaded")


def _check_group(
    content: bytes, layout: ElfLayout, group: Section, sections: Sequence[Section]
) -> None:
    """Check that the members of a group are there."""
    symbols = _of_kind(sections, group.link, _SYMBOLS, "symbols")
    rows = _rows(content, layout, group, "I")
    members = [number for (number,) in rows[1:]]
    if group.info * max(1, symbols.entry) >= symbols.size or max(members, default=0) >= len(
        sections
    ):
        raise ArtifactError("a group of sections names what is not there")
