# SPDX-License-Identifier: Apache-2.0
"""Target strings, JSON and files of it become one canonical composite.

The forms of one value::

    npu, loops -mcpu=native                        a string; see intarsia.target.strings
    {"kind": "composite", "accelerators": [{"kind": "npu"}], "fallback": {"kind": "loops"}}
    {"kind": "loops", "accelerators": [{"kind": "npu"}]}
    ["npu", {"kind": "loops", "mcpu": "native"}]   a list, in the order of a string
    target.json, @target.json                      a file with JSON, or a machine's profile
"""

from __future__ import annotations

from pathlib import Path

from intarsia_runtime.errors import TargetError

from .compose import compose
from .kind_table import GIVEN, KindSource, Origin
from .scan import MAX_LENGTH
from .strings import parse_targets
from .target import CompositeTarget, Target

__all__ = ["parse_target", "parse_targets"]


def parse_target(
    text: str, kinds: KindSource, *, host: Target | None = None, origin: Origin = GIVEN
) -> CompositeTarget:
    """Return the composite that a string, a JSON text or the path of a ``.json`` file says.

    Args:
        text: One of the forms above.
        kinds: Where kinds, aliases and tags come from.
        host: ``target_host``; see :func:`intarsia.target.compose.compose`.
        origin: Who gives the options, for ``Target.origins``, and what is set besides.

    Raises:
        TargetError: The text is wrong; the message points at the column.
        PluginError: The plugin of a kind is broken.
    """
    stripped = text.strip()
    named = stripped.startswith("@")
    if named or (stripped.endswith(".json") and "{" not in stripped and len(stripped) < 4096):
        text = _read_file(stripped[named:])
        stripped = text.strip()
        if not stripped.startswith(("{", "[")):
            raise TargetError("a target file holds one JSON object or list", where=text[:40])
    if stripped.startswith(("{", "[")):
        from .structured import composite_from_text  # most targets are plain strings

        return composite_from_text(stripped, kinds, host, origin)
    targets = parse_targets(text, kinds, origin)
    return compose(targets, kinds, host, origin)


def _read_file(name: str) -> str:
    try:
        path = Path(name)
        if not path.is_file():
            raise TargetError("no such target file", where=name)
        with path.open("rb") as stream:
            raw = stream.read(4 * MAX_LENGTH + 1)
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise TargetError("the target file is not UTF-8 text", where=name) from None
    except (OSError, ValueError) as cause:
        raise TargetError(f"the target file cannot be read: {cause}", where=name) from cause
