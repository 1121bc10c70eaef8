# SPDX-License-Identifier: Apache-2.0
"""Attributes that every kind of target has: ``-keys`` and ``-hardware``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from intarsia_runtime.errors import TargetError

from .options import OptionRow, Value, option_rows

KEYS, HARDWARE = "keys", "hardware"

COMMON = (
    OptionRow(
        field=KEYS,
        flag=KEYS,
        type="list of str",
        default=(),
        doc="keys to dispatch on before those of the hardware and the kind, special to general",
        choices=(),
        minimum=None,
        maximum=None,
    ),
    OptionRow(
        field=HARDWARE,
        flag=HARDWARE,
        type="str",
        default="",
        doc="the device, by any name of its tag; what the tag implies holds unless given",
        choices=(),
        minimum=None,
        maximum=None,
    ),
)
"""The options that every kind has besides its own."""

_KEY = re.compile(r"[a-z][a-z0-9_-]*")


class Tag(Struct, frozen=True):
    """What a target needs to know of a hardware tag.

    Attributes:
        name: Canonical name.
        target: The target string that it implies.
        keys: Keys to dispatch on, general to special.
    """

    name: str
    target: str
    keys: tuple[str, ...] = ()


class HardwareDevice(Struct, frozen=True):
    """The hardware of one target.

    Attributes:
        tag: The tag.
        implied: What the tag implies for the kind of the target, flag to value.
    """

    tag: Tag
    implied: Mapping[str, Value]


def target_rows(options: type) -> tuple[OptionRow, ...]:
    """Return the options of a target kind: its own, then those that every kind has.

    Raises:
        PluginError: The options class breaks a rule.
    """
    return (*option_rows(options), *COMMON)


def check_keys(keys: Value) -> tuple[str, ...]:
    """Return keys that a user gives, each once.

    Raises:
        TargetError: One is no key.
    """
    words = tuple(str(key) for key in keys) if isinstance(keys, tuple) else ()
    for word in words:
        if not _KEY.fullmatch(word):
            raise TargetError(
                f"-{KEYS}: '{word[:60]}' is not a key",
                hint="lower case letters, digits, - and _",
                option=KEYS,
            )
    return tuple(dict.fromkeys(words))
