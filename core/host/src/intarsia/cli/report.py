# SPDX-License-Identifier: Apache-2.0
"""The file that a bug leaves: traceback, versions, command line."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence


def write_report(error: BaseException, arguments: Sequence[str], version: str) -> str:
    """Write a report into the temporary directory and return its path.

    Raises:
        OSError: It cannot be written.
    """
    import importlib_metadata

    installed = sorted(
        {
            f"{d.name} {d.version}"
            for d in importlib_metadata.distributions()
            if "intarsia" in d.name
        }
    )
    lines = [
        f"intarsia {version}",
        f"Python {sys.version}",
        f"platform {platform.platform()}",
        f"arguments {list(arguments)!r}",
        f"distributions {', '.join(installed)}",
        "",
        *traceback.format_exception(error),
    ]
    handle, path = tempfile.mkstemp(prefix="intarsia-report-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write("\n".join(lines))
    return path
