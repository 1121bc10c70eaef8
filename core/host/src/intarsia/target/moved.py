# SPDX-License-Identifier: Apache-2.0
"""Options that stand on targets elsewhere and have another place here, each with that place."""

from __future__ import annotations

from intarsia_runtime.errors import TargetError

from .config_kind import ConfigKind, core_executors, core_runtimes

_ELSEWHERE = {
    "model": ("-model is called -hardware", "-hardware=NAME; `intarsia hardware list` shows names"),
    "libs": (
        "-libs is not an option of a target: a library is an accelerator of its own",
        "name it in front of the backend: 'ACCELERATOR, BACKEND'",
    ),
    "accelerators": (
        "-accelerators is not an option in a string: accelerators stand in front of the backend",
        "'ACCELERATOR, BACKEND'; in JSON it is a key of the backend",
    ),
    "host": (
        "-host is not an option of a target: the host is the last of its targets",
        "'DEVICE, HOST', or target_host=",
    ),
}


def moved_option(flag: str) -> TargetError | None:
    """Return the error for an option that is not a target's, with what to use instead.

    ``executor`` and ``runtime`` themselves, every option of the core's kinds of them, and what is
    written in another way; ``None`` for any other word.
    """
    name = flag.replace("_", "-")
    message, hint = _ELSEWHERE.get(name.removeprefix("target-"), ("", ""))
    if message:
        return TargetError(message, hint=hint)
    for what, kinds in (("executor", core_executors()), ("runtime", core_runtimes())):
        if name == what:
            return TargetError(
                f"-{name} is not an option of a target: the {what} is chosen for the whole model",
                hint=f"--{what} KIND, or build(..., {what}={what.capitalize()}(KIND))",
            )
        owner = _owner(kinds, name)
        if owner:
            return TargetError(
                f"-{name} is not an option of a target but of the {what}",
                hint=f"--{what}-{owner}-{name}, or "
                f"build(..., {what}={what.capitalize()}('{owner}', {{'{name}': ...}}))",
            )
    return None


def _owner(kinds: tuple[ConfigKind, ...], flag: str) -> str:
    """The first kind that has an option of this name."""
    for kind in kinds:
        if any(row.flag == flag for row in kind.rows):
            return kind.name
    return ""
