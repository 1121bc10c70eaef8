# SPDX-License-Identifier: Apache-2.0
"""Reads files of hardware tags, strictly.

::

    schema = 1

    [[hardware]]
    name = "raspberrypi/4b"
    kind = "board"
    summary = "Raspberry Pi 4 Model B"
    aliases = ["rasp4b", "rpi4"]
    parents = ["broadcom/bcm2711"]
    memory = [{ name = "l2", size = "1 MiB", alignment = 64 }]
    source = "Raspberry Pi 4 Model B datasheet, release 1.1"

``name``, ``kind``, ``summary`` and ``source`` are required; a tag has a ``target`` or parents.
A level of memory may list its ``banks``: their sum is its size. ``vcpus``, ``memory_mib`` and
``gpus`` have a number for each of the ``types``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import cast

from intarsia_ir.capabilities import Memory
from intarsia_runtime.errors import IntarsiaError, ModelError, did_you_mean

from .tags import KINDS, HardwareTag, check_circles, expand, name_key

SCHEMA = 1
"""Version of the file format."""

MAX_LENGTH = 2_000_000
"""Longest file, in bytes."""

MAX_TYPES = 1000
"""Most sizes that one entry may expand to."""

_WORD = r"[a-z0-9]+(?:[._-][a-z0-9]+)*"
_NAME = re.compile(rf"[a-z0-9]+(?:-[a-z0-9]+)*/{_WORD}(?::{_WORD})?")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+/:()-]*")
_KEY = re.compile(r"[a-z][a-z0-9_-]*")
_TYPE = re.compile(r"[A-Za-z0-9._-]*(?:\{[A-Za-z0-9,.-]+\}[A-Za-z0-9._-]*)*")
_SIZE = re.compile(r"([1-9][0-9]{0,8}) (B|KiB|MiB|GiB)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TEXTS = ("name", "kind", "summary", "source")
_OPTIONAL = ("target", "microarchitecture", "host", "die", "unverified", "notes")
_LISTS = ("aliases", "parents", "keys", "types")
_NUMBERS = ("vcpus", "memory_mib", "gpus", "cores", "threads")
_KEYS = (*_TEXTS, *_OPTIONAL, *_LISTS, *_NUMBERS, "memory")
_LEVEL = ("name", "size", "banks", "shared_by", "alignment")
_MAX_COUNT = 1 << 30


def read_hardware(
    raw: bytes, *, file: str, owner: str = "", fault: type[IntarsiaError] = ModelError
) -> tuple[HardwareTag, ...]:
    """Return the tags of a file.

    Args:
        raw: Its content: UTF-8, with or without byte order mark, lines ending in LF or CRLF.
        file: Its name, for messages.
        owner: Distribution that contributes it.
        fault: Raised when the file is wrong.

    Raises:
        IntarsiaError: Of class ``fault``; ``where`` has file, line and entry.
    """
    return _FileReader(raw, file, owner, fault).tags()


class _FileReader:
    """Reads one file; every complaint has its place."""

    def __init__(self, raw: bytes, file: str, owner: str, fault: type[IntarsiaError]) -> None:
        self._raw = raw
        self._owner = owner
        self._fault = fault
        self._file = self._where = file
        self._starts: list[int] = []

    def fail(self, message: str, hint: str = "") -> IntarsiaError:
        """The error for what is wrong at the current place."""
        return self._fault(message, hint=hint, where=self._where)

    def tags(self) -> tuple[HardwareTag, ...]:
        """All entries."""
        rows = self._rows()
        tags: list[HardwareTag] = []
        names: dict[str, str] = {}
        for number, row in enumerate(rows):
            line = self._starts[number] if number < len(self._starts) else 0
            self._where = f"{self._file}:{line}" if line else self._file
            name = row.get("name")
            if isinstance(name, str):
                self._where += f" [[hardware]] {name[:60]!r}"
            tag = self._tag(row)
            for key in dict.fromkeys(name_key(word) for word in (tag.name, *tag.aliases)):
                if key in names:
                    raise self.fail(f"the name '{key}' is taken by '{names[key]}' in this file")
                names[key] = tag.name
            tags.append(tag)
        try:
            check_circles(tags)
        except IntarsiaError as error:
            raise self._fault(error.message, where=error.where) from None
        return tuple(tags)

    def _rows(self) -> list[Mapping[str, object]]:
        if len(self._raw) > MAX_LENGTH:
            raise self.fail(f"the file has {len(self._raw)} bytes; at most {MAX_LENGTH} are read")
        try:
            text = self._raw.decode("utf-8-sig")
            data: Mapping[str, object] = tomllib.loads(text)
        except UnicodeDecodeError as cause:
            raise self.fail(f"the file is not UTF-8 text: {cause}") from None
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as cause:
            raise self.fail(f"the file does not parse: {cause}") from None
        schema = data.get("schema")
        if type(schema) is not int or schema != SCHEMA:
            raise self.fail(f"the file has schema {schema!r}; this version reads {SCHEMA}")
        self._only(data, ("schema", "hardware"))
        rows = data.get("hardware", [])
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) for row in cast("list[object]", rows)
        ):
            raise self.fail("'hardware' is not a list of tables", "[[hardware]]")
        lines = text.splitlines()
        self._starts = [
            at + 1
            for at, line in enumerate(lines)
            if re.fullmatch(r"\s*\[\[\s*hardware\s*\]\]\s*(#.*)?", line)
        ]
        return cast("list[Mapping[str, object]]", rows)

    def _only(self, row: Mapping[str, object], keys: tuple[str, ...]) -> None:
        for key in row:
            if key not in keys:
                hint = did_you_mean(key, keys) or f"known: {', '.join(keys)}"
                raise self.fail(f"unknown key {key[:60]!r}", hint)

    def _tag(self, row: Mapping[str, object]) -> HardwareTag:
        self._only(row, _KEYS)
        texts = {key: self._text(row, key) for key in _TEXTS}
        texts |= {key: self._text(row, key) for key in _OPTIONAL if key in row}
        lists = {key: self._list(row, key) for key in _LISTS}
        if not _NAME.fullmatch(texts["name"]):
            raise self.fail(
                f"'name' is {texts['name'][:60]!r}, not vendor/device[:part]",
                "lower case, digits and inner - . _",
            )
        if texts["kind"] not in KINDS:
            raise self.fail(f"'kind' is {texts['kind'][:60]!r}", f"one of {', '.join(KINDS)}")
        self._match(lists["aliases"], "aliases", _ALIAS)
        self._match(lists["parents"], "parents", _NAME)
        self._match(lists["keys"], "keys", _KEY)
        self._match(lists["types"], "types", _TYPE)
        count = sum(_choices(pattern) for pattern in lists["types"])
        if count > MAX_TYPES:
            raise self.fail(f"'types' stands for {count} names; at most {MAX_TYPES}")
        sizes = [name_key(size) for pattern in lists["types"] for size in expand(pattern)]
        if len(set(sizes)) < len(sizes):
            raise self.fail("'types' gives a name twice")
        if not texts.get("target") and not lists["parents"]:
            raise self.fail("it implies no target and has no parents", 'target = "..."')
        if "host" in texts and not _NAME.fullmatch(texts["host"]):
            raise self.fail(f"'host' is {texts['host'][:60]!r}, not vendor/device[:part]")
        where = self._where.partition(" [[")[0]
        return HardwareTag(
            **texts,
            aliases=lists["aliases"],
            parents=lists["parents"],
            keys=lists["keys"],
            types=lists["types"],
            memory=self._memory(row),
            vcpus=self._column(row, "vcpus", len(sizes)),
            memory_mib=self._column(row, "memory_mib", len(sizes)),
            gpus=self._column(row, "gpus", len(sizes)),
            cores=self._count(row.get("cores", 0), "cores"),
            threads=self._count(row.get("threads", 0), "threads"),
            owner=self._owner,
            where=where,
        )

    def _text(self, row: Mapping[str, object], key: str) -> str:
        value = row.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(f"there is no text '{key}'", f'{key} = "..."')
        if len(value) > 1000 or not value.isprintable():
            raise self.fail(f"'{key}' is too long or is not one line")
        return value

    def _list(self, row: Mapping[str, object], key: str) -> tuple[str, ...]:
        value = row.get(key, [])
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, str) for item in items):
            raise self.fail(f"'{key}' is not a list of strings", f'{key} = ["..."]')
        return tuple(cast("list[str]", items))

    def _column(self, row: Mapping[str, object], key: str, count: int) -> tuple[int, ...]:
        """A number for each size, or nothing."""
        value = row.get(key, [])
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        if key in row and len(items) != count:
            raise self.fail(f"'{key}' has {len(items)} numbers for {count} names in 'types'")
        return tuple(self._count(item, key) for item in items)

    def _count(self, value: object, key: str) -> int:
        if type(value) is not int or not 0 <= value <= _MAX_COUNT:
            raise self.fail(f"'{key}' has {value!r:.60}, which is no count")
        return value

    def _match(self, items: tuple[str, ...], key: str, rule: re.Pattern[str]) -> None:
        for item in items:
            if not rule.fullmatch(item) or len(item) > 200:
                raise self.fail(f"'{key}' has {item[:60]!r}, which is not well-formed")

    def _memory(self, row: Mapping[str, object]) -> tuple[Memory, ...]:
        value = row.get("memory", [])
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        levels: list[Memory] = []
        for item in items:
            if not isinstance(item, dict):
                raise self.fail(
                    "'memory' is not a list of tables", '{ name = "l2", size = "1 MiB" }'
                )
            level = cast("Mapping[str, object]", item)
            self._only(level, _LEVEL)
            name = self._text(level, "name")
            alignment = level.get("alignment", Memory().alignment)
            if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
                raise self.fail(f"'alignment' of memory '{name}' is not a power of two of bytes")
            if name in [one.name for one in levels]:
                raise self.fail(f"memory '{name}' is given twice")
            cores = self._count(level.get("shared_by", 1), "shared_by")
            if not cores:
                raise self.fail(f"memory '{name}' is shared by no core")
            levels.append(Memory(name, alignment, self._size_of(level, name), cores))
        return tuple(levels)

    def _size_of(self, level: Mapping[str, object], name: str) -> int:
        """The size of a level, which is that of its banks together if it lists them."""
        size = self._size(level.get("size", ""), f"'size' of memory '{name}'")
        if "banks" in level:
            banks = self._list(level, "banks")
            total = sum(self._size(bank, f"a bank of memory '{name}'") for bank in banks)
            if total != size:
                raise self.fail(
                    f"memory '{name}' has {size} bytes, its banks have {total} together"
                )
        return size

    def _size(self, value: object, what: str) -> int:
        match = _SIZE.fullmatch(str(value))
        if match is None:
            raise self.fail(
                f"{what} is {value!r:.60}",
                'a number and B, KiB, MiB or GiB: size = "512 KiB"',
            )
        return int(match[1]) * _UNITS[match[2]]


def _choices(pattern: str) -> int:
    count = 1
    for group in re.findall(r"\{([^{}]*)\}", pattern):
        count *= group.count(",") + 1
    return count
