# SPDX-License-Identifier: Apache-2.0
"""Options of an accelerator that the backend behind it decides: both are for one device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from intarsia_runtime.errors import TargetError

from .options import OptionRow, Value, option_rows, print_value
from .target import Target


def follow_backend(accelerator: Target, backend: Target) -> Target:
    """Return an accelerator with the backend's values of the options that its kind ``follows``.

    An option that the backend does not have is left as it is.

    Args:
        accelerator: A target; its kind names the options by their flags.
        backend: The backend behind it.

    Raises:
        TargetError: The user gives both another value, or the accelerator does not have it.
    """
    theirs, ours = _rows(backend), _rows(accelerator)
    for flag in accelerator.kind.follows:
        if flag not in theirs:
            continue
        row = ours[flag]
        value: Value = getattr(backend.options, theirs[flag].field)
        given: Value = getattr(accelerator.options, row.field)
        if given == value:
            continue
        text = f"'{backend.kind.name}' behind it is for -{flag}={print_value(value)}"
        if given != row.default:
            raise TargetError(
                f"'{accelerator.kind.name} -{flag}={print_value(given)}' is for another device:"
                f" {text}",
                hint=f"give -{flag} once, of '{backend.kind.name}'",
            )
        if row.choices and value not in row.choices:
            known = ", ".join(str(choice) for choice in row.choices if choice != row.default)
            raise TargetError(
                f"'{accelerator.kind.name}' is not for this device: {text}",
                hint=f"it compiles for {known}; leave it away for others",
            )
        options = dataclasses.replace(accelerator.options, **{row.field: value})
        origins = (*accelerator.origins, (flag, backend.kind.name))
        accelerator = dataclasses.replace(accelerator, options=options, origins=origins)
    return accelerator


def _rows(target: Target) -> Mapping[str, OptionRow]:
    return {row.flag: row for row in option_rows(target.kind.options)}
