# SPDX-License-Identifier: Apache-2.0
"""Object files whose tables lead nowhere are refused before a just-in-time linker reads them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from intarsia_llvm.elf_object import check_object
from intarsia_runtime.errors import ArtifactError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

SOURCE = r"""
extern int g(int);
static int k = 3, none[9];
int f(int x) { return g(x) + ++k + none[x]++; }
__asm__(".section .text.twice,\"axG\",@progbits,twice,comdat\n.globl twice\ntwice: ret\n.text");
"""
NAME, KIND, FLAGS, OFFSET, SIZE, LINK, INFO, ALIGNMENT, ENTRY = 0, 4, 8, 24, 32, 40, 44, 48, 56
SYMTAB, STRTAB, RELA, GROUP = 2, 3, 4, 17


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("object") / "f.o"
    command = ["cc", "-c", "-O1", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=SOURCE.encode(), check=True)
    content = Path(path).read_bytes()
    if content[4] != 2:
        pytest.skip("the offsets here are those of 64 bits")
    return content


def section(content: bytes, kind: int) -> int:
    """Where the header of the first section of a kind lies."""
    (start,) = struct.unpack_from("<Q", content, 40)
    (count,) = struct.unpack_from("<H", content, 60)
    rows = [start + 64 * number for number in range(count)]
    return next(at for at in rows if struct.unpack_from("<I", content, at + KIND)[0] == kind)


def changed(content: bytes, at: int, form: str, value: int) -> bytes:
    data = bytearray(content)
    struct.pack_into(form, data, at, value)
    return bytes(data)


def test_what_a_compiler_wrote_is_taken(good: bytes) -> None:
    check_object(good)


@pytest.mark.parametrize(
    ("kind", "field", "form", "value", "words"),
    [
        (SYMTAB, NAME, "<I", 1 << 20, "lies behind the names"),
        (SYMTAB, LINK, "<I", 0, "section 0 does not hold the names of symbols"),
        (SYMTAB, LINK, "<I", 999, "section 999 does not hold the names of symbols"),
        (SYMTAB, INFO, "<I", 999, "the first global symbol is 999"),
        (SYMTAB, ENTRY, "<Q", 23, "has rows of 23 bytes"),
        (SYMTAB, OFFSET, "<Q", 0, "holds its header"),
        (SYMTAB, ALIGNMENT, "<Q", 0, "cannot be at a multiple of 0"),
        (SYMTAB, ALIGNMENT, "<Q", 12, "cannot be at a multiple of 12"),
        (RELA, LINK, "<I", 1, "section 1 does not hold symbols"),
        (RELA, INFO, "<I", 999, "there is no section 999 to relocate"),
        (RELA, INFO, "<I", 0, "is relocated where it has no bytes"),
        (GROUP, LINK, "<I", 0, "section 0 does not hold symbols"),
        (GROUP, INFO, "<I", 999, "names what is not there"),
        (1, SIZE, "<Q", 1 << 40, "ends at byte"),
        (8, SIZE, "<Q", 1 << 40, "needs more than"),
    ],
)
def test_tables_that_lead_nowhere_are_refused(
    good: bytes, kind: int, field: int, form: str, value: int, words: str
) -> None:
    at = section(good, kind) + field
    broken = changed(good, at, form, value)
    with pytest.raises(ArtifactError, match=words):
        check_object(broken)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (56, 3, "has program headers"),
        (60, 1, "does not hold the names of sections"),
        (62, 0, "section 0 does not hold the names of sections"),
        (62, 999, "section 999 does not hold the names of sections"),
    ],
)
def test_a_header_that_leads_nowhere_is_refused(
    good: bytes, at: int, value: int, words: str
) -> None:
    with pytest.raises(ArtifactError, match=words):
        check_object(changed(good, at, "<H", value))


def test_symbols_and_relocations_lie_in_their_sections(good: bytes) -> None:
    symbols = struct.unpack_from("<Q", good, section(good, SYMTAB) + OFFSET)[0]
    relocations = struct.unpack_from("<Q", good, section(good, RELA) + OFFSET)[0]
    names = section(good, STRTAB)
    last = struct.unpack_from("<QQ", good, names + OFFSET)
    in_first = changed(changed(good, symbols + 24 + 6, "<H", 1), symbols + 32, "<Q", 1 << 30)
    for broken, words in (
        (changed(good, symbols + 24, "<I", 1 << 20), "symbol 1 has no name or no section"),
        (changed(good, symbols + 24 + 6, "<H", 0x8000), "symbol 1 has no name or no section"),
        (in_first, "symbol 1 lies behind the end"),
        (changed(good, relocations, "<Q", 1 << 30), "is relocated where it has no bytes"),
        (changed(good, relocations + 12, "<I", 1 << 20), "is relocated where it has no bytes"),
        (changed(good, sum(last) - 1, "<B", 65), "have no end"),
    ):
        with pytest.raises(ArtifactError, match=words):
            check_object(broken)


def test_what_code_needs_is_loaded(good: bytes) -> None:
    relocated = section(good, RELA)
    table = struct.unpack_from("<Q", good, 40)[0]
    broken = good
    for number in range(1, struct.unpack_from("<H", good, 60)[0]):
        if number != struct.unpack_from("<I", good, relocated + INFO)[0]:
            broken = changed(broken, table + 64 * number + FLAGS, "<Q", 0)
    with pytest.raises(ArtifactError, match="which is not loaded"):
        check_object(broken)


def test_sections_do_not_overlap(good: bytes) -> None:
    first, second = section(good, SYMTAB), section(good, STRTAB)
    where = struct.unpack_from("<Q", good, first + OFFSET)[0]
    with pytest.raises(ArtifactError, match="two sections of the object hold byte"):
        check_object(changed(good, second + OFFSET, "<Q", where))
