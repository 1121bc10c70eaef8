# SPDX-License-Identifier: Apache-2.0
"""The vendor's library: which edition is installed, and what it says when it refuses something.

Everything else takes the module from here, so that TensorRT 10, 11 and TensorRT-RTX share one code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from intarsia_runtime.plugin import ToolchainError

MODULES = MappingProxyType(
    {"tensorrt": ("tensorrt",), "tensorrt-rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings")}
)
"""Editions in order of preference, and the modules that each may be."""

OLDEST = MappingProxyType({"tensorrt": 10, "tensorrt-rtx": 1})
"""First major version with the API that this plugin uses."""

HINT = "pip install 'intarsia-tensorrt[tensorrt-rtx]', or install NVIDIA's tensorrt"

_DISTRIBUTIONS = ("tensorrt", "tensorrt-rtx", "tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu12-libs")


class Library(Struct, frozen=True):
    """An installed edition.

    Attributes:
        edition: ``tensorrt`` or ``tensorrt-rtx``.
        module: The Python module.
        version: Its version.
    """

    edition: str
    module: Any
    version: str

    @property
    def label(self) -> str:
        """Edition and version, for messages."""
        return f"{self.edition} {self.version}"

    @property
    def builds_without_gpu(self) -> bool:
        """Whether engines can be built for a GPU that is not here."""
        return self.edition == "tensorrt-rtx"


def find_library(wanted: str = "auto") -> Library:
    """Import an edition: the one that is wanted, or the first that is installed.

    Raises:
        ToolchainError: None is installed, it does not load, or it is too old.
    """
    editions = tuple(MODULES) if wanted == "auto" else (wanted,)
    reasons: list[str] = []
    for edition in editions:
        for name in MODULES[edition]:
            try:
                module = importlib.import_module(name)
            except (ImportError, OSError, RuntimeError) as cause:
                reasons.append(str(cause))
                continue
            return _checked(edition, module)
    raise ToolchainError(
        f"{' or '.join(editions)} is not installed, or does not load: {'; '.join(reasons)}",
        hint=HINT,
    )


def _checked(edition: str, module: Any) -> Library:
    library = Library(edition, module, str(module.__version__))
    if int(library.version.partition(".")[0]) < OLDEST[edition]:
        raise ToolchainError(
            f"{library.label} is too old: the plugin needs {OLDEST[edition]} or newer", hint=HINT
        )
    return library


def installed_versions() -> str:
    """Return the installed editions and versions, read from metadata: nothing is imported."""
    found: list[str] = []
    for name in _DISTRIBUTIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found) or "not installed"


def builds_on_the_gpu(wanted: str) -> bool:
    """Whether the edition that :func:`find_library` will find is the one for the GPU that is here.

    Imports nothing, so that placing needs no library.
    """
    if wanted != "auto":
        return wanted == "tensorrt"
    return any(word.startswith("tensorrt ") for word in installed_versions().split(", "))


class Messages:
    """What the library logged as errors since the last :meth:`clear`.

    Args:
        module: The vendor's module; the logger must be of a class that derives from its own.

    Attributes:
        logger: What the builder and the runtime take.
    """

    def __init__(self, module: Any) -> None:
        self._lines: list[str] = []
        severity = module.ILogger.Severity
        self.logger = _logger(module, self._lines.append, (severity.ERROR, severity.INTERNAL_ERROR))

    def clear(self) -> None:
        """Forget what was said."""
        self._lines.clear()

    def text(self) -> str:
        """Return what was said, in order, each once.

        That there is no GPU is left out if there is anything else: building asks for one first.
        """
        lines = list(dict.fromkeys(self._lines))
        told = [line for line in lines if "cudaError 35" not in line] or lines
        return "; ".join(told) or "it gave no reason"


def _logger(module: Any, keep: Callable[[str], None], levels: tuple[Any, ...]) -> Any:
    class Logger(module.ILogger):
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            """Keep a message if it is an error; the library calls this."""
            if severity in levels:
                keep(message)

    return Logger()
