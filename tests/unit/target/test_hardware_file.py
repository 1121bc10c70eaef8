# SPDX-License-Identifier: Apache-2.0
"""Files of hardware tags are read strictly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.target.kind import Memory
from intarsia_ir.hardware import tag_file as hardware_file
from intarsia_ir.hardware.tag_file import read_hardware
from intarsia_ir.hardware.tags import HardwareTag
from intarsia_runtime.errors import IntarsiaError, ModelError, PluginError

GOOD = """schema = 1

[[hardware]]
name = "arm/a72"
kind = "core"
summary = "a core"
target = "loops -mcpu=a72"
source = "a manual"

[[hardware]]
name = "pie/4b:cpu"
kind = "board"
summary = "a board"
aliases = ["Pie 4 (B)", "pie4+"]
parents = ["arm/a72"]
keys = ["arm"]
types = ["b.{2,4}x"]
memory = [{ name = "l2", size = "1 MiB", alignment = 32 }, { name = "l3", size = "7 B" }]
notes = "new"
source = "a data sheet"
"""


ENTRY = '[[hardware]]\nname = "a/b"\nkind = "core"\nsummary = "s"\ntarget = "t"\nsource = "s"\n'


def read(text: str | bytes, **more: object) -> tuple[HardwareTag, ...]:
    raw = text.encode() if isinstance(text, str) else text
    return read_hardware(raw, file="f.toml", owner="acme", **more)


@pytest.mark.parametrize(
    "raw",
    [GOOD.encode(), GOOD.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + GOOD.encode()],
    ids=["lf", "crlf", "bom"],
)
def test_a_file(raw):
    core, board = read(raw)
    assert core.target == "loops -mcpu=a72"
    assert board.aliases == ("Pie 4 (B)", "pie4+")
    assert board.memory == (Memory("l2", 32, 1 << 20), Memory("l3", 64, 7))
    assert (board.notes, board.keys, board.types) == ("new", ("arm",), ("b.{2,4}x",))
    assert (board.owner, board.where) == ("acme", "f.toml:10")


def test_what_an_entry_may_say_besides():
    (one,) = read(
        f"schema = 1\n{ENTRY}types = ['x', 'y']\nvcpus = [1, 2]\nmemory_mib = [3, 4]\n"
        "gpus = [0, 1]\n"
        "host = 'c/d'\ncores = 4\nthreads = 8\ndie = 'D1'\nunverified = 'all of it'\n"
        "memory = [{ name = 'sram', size = '3 KiB', banks = ['1 KiB', '2 KiB'] }, "
        "{ name = 'l2', size = '1 MiB', shared_by = 4 }]\n"
    )
    assert (one.vcpus, one.memory_mib, one.gpus) == ((1, 2), (3, 4), (0, 1))
    assert (one.host, one.cores, one.threads) == ("c/d", 4, 8)
    assert (one.die, one.unverified) == ("D1", "all of it")
    assert one.memory == (Memory("sram", 64, 3072), Memory("l2", 64, 1 << 20, shared_by=4))


def test_an_empty_file_has_no_tags():
    assert read("schema = 1\n") == ()


@pytest.mark.parametrize(
    "text, message",
    [
        ("schema = 2\n", "schema 2; this version reads 1"),
        ("schema = true\n", "schema True"),
        ("", "schema None"),
        ("schema = 1\n[hardware]\n", "not a list of tables"),
        ("schema = 1\nhardware = [1]\n", "not a list of tables"),
        ("schema = 1\nhardwear = 1\n", "unknown key 'hardwear'"),
        ("schema = 1\n[[hardware]\n", "does not parse"),
        (b"schema = 1 # \xff", "not UTF-8"),
        (ENTRY.replace('name = "a/b"\n', ""), "no text 'name'"),
        (ENTRY.replace('source = "s"\n', ""), "no text 'source'"),
        (ENTRY.replace('summary = "s"', "summary = 3"), "no text 'summary'"),
        (ENTRY.replace('summary = "s"', 'summary = "a\\nb"'), "not one line"),
        (ENTRY.replace("a/b", "A/b"), "not vendor/device"),
        (ENTRY.replace("a/b", "ab"), "not vendor/device"),
        (ENTRY.replace('"core"', '"corn"'), "'kind' is 'corn'"),
        (ENTRY.replace('target = "t"\n', ""), "implies no target"),
        (ENTRY + "aliasses = []\n", "unknown key 'aliasses'"),
        (ENTRY + 'aliases = "b"\n', "not a list of strings"),
        (ENTRY + 'aliases = ["a,b"]\n', "'aliases' has 'a,b'"),
        (ENTRY + 'aliases = ["-a"]\n', "'aliases' has '-a'"),
        (ENTRY + 'parents = ["b"]\n', "'parents' has 'b'"),
        (ENTRY + 'keys = ["A"]\n', "'keys' has 'A'"),
        (ENTRY + 'types = ["{a"]\n', "'types' has '{a'"),
        (ENTRY + 'types = ["{a,a}"]\n', "gives a name twice"),
        (ENTRY + f'types = ["{"{0,1,2,3,4,5,6,7,8,9}" * 4}"]\n', "stands for 10000 names"),
        (ENTRY + "memory = [1]\n", "'memory' is not a list of tables"),
        (ENTRY + "memory = 1\n", "'memory' is not a list of tables"),
        (ENTRY + 'memory = [{ name = "l2", size = "1 MB" }]\n', "'size' of memory 'l2' is '1 MB'"),
        (ENTRY + 'memory = [{ name = "l2", size = 4096 }]\n', "'size' of memory 'l2' is 4096"),
        (ENTRY + 'memory = [{ name = "l2", size = "1 B", align = 1 }]\n', "unknown key 'align'"),
        (ENTRY + 'memory = [{ name = "l2", size = "1 B", alignment = 3 }]\n', "power of two"),
        (
            ENTRY + 'memory = [{ name = "l2", size = "1 B" }, { name = "l2", size = "1 B" }]\n',
            "given twice",
        ),
        (
            ENTRY + 'memory = [{ name = "l2", size = "2 B", banks = ["1 B", "2 B"] }]\n',
            "memory 'l2' has 2 bytes, its banks have 3 together",
        ),
        (
            ENTRY + 'memory = [{ name = "l2", size = "2 B", banks = ["1 MB"] }]\n',
            "a bank of memory 'l2' is '1 MB'",
        ),
        (
            ENTRY + 'memory = [{ name = "l2", size = "2 B", shared_by = 0 }]\n',
            "memory 'l2' is shared by no core",
        ),
        (ENTRY + 'types = ["a", "b"]\nvcpus = [1]\n', "'vcpus' has 1 numbers for 2 names"),
        (ENTRY + 'types = ["a"]\nvcpus = 1\n', "'vcpus' has None, which is no count"),
        (ENTRY + 'types = ["a"]\ngpus = [-1]\n', "'gpus' has -1, which is no count"),
        (ENTRY + "cores = true\n", "'cores' has True, which is no count"),
        (ENTRY + 'host = "b"\n', "'host' is 'b', not vendor/device"),
        (ENTRY + ENTRY, "the name 'a/b' is taken by 'a/b'"),
        (ENTRY + 'aliases = ["c"]\n' + ENTRY.replace("a/b", "a/c") + 'aliases = ["C"]\n', "'c' is"),
        (ENTRY + 'parents = ["a/b"]\n', "circle: a/b -> a/b"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    if isinstance(text, str) and text.startswith("[["):
        text = "schema = 1\n" + text
    with pytest.raises(ModelError) as caught:
        read(text)
    assert message in caught.value.message
    assert caught.value.where.startswith("f.toml")


def test_the_place_has_line_and_entry():
    with pytest.raises(PluginError) as caught:
        read(GOOD.replace('"1 MiB"', '"1 megabyte"'), fault=PluginError)
    assert caught.value.where == "f.toml:10 [[hardware]] 'pie/4b:cpu'"
    assert "KiB" in caught.value.hint


def test_a_huge_file_is_not_parsed(monkeypatch):
    monkeypatch.setattr(hardware_file, "MAX_LENGTH", 100)
    with pytest.raises(ModelError, match="at most 100"):
        read(GOOD)


WORDS = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
TEXTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._+/-]{0,20}", fullmatch=True)


@given(
    st.tuples(WORDS, WORDS),
    st.sampled_from(["core", "board"]),
    st.lists(TEXTS, max_size=3, unique_by=lambda text: text.casefold()),
    st.lists(WORDS, max_size=3),
    st.lists(st.tuples(WORDS, st.integers(1, 999)), max_size=3, unique_by=lambda row: row[0]),
)
def test_what_is_written_is_read(name, kind, aliases, keys, memory):
    levels = ", ".join(f'{{ name = "{level}", size = "{size} KiB" }}' for level, size in memory)
    text = (
        f'schema = 1\n[[hardware]]\nname = "{"/".join(name)}"\nkind = "{kind}"\nsummary = "s"\n'
        f'source = "s"\ntarget = "loops"\naliases = {aliases!r}\nkeys = {keys!r}\n'
        f"memory = [{levels}]\n"
    )
    (found,) = read(text)
    assert found.name == "/".join(name)
    assert found.aliases == tuple(aliases)
    assert found.keys == tuple(keys)
    assert found.memory == tuple(Memory(level, 64, size << 10) for level, size in memory)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_file_breaks_the_reader(raw):
    for content in (raw, b"schema = 1\n[[hardware]]\n" + raw):
        refusal: IntarsiaError | None = None
        try:
            read(content)
        except IntarsiaError as error:
            refusal = error
        assert refusal is None or refusal.where.startswith("f.toml")
