# SPDX-License-Identifier: Apache-2.0
"""Every error class of Intarsia.

::

    IntarsiaError                    exit 1   (only if raised bare: our bug)
    ├── UsageError                   exit 2   bad command line, argument or configuration
    │   ├── TargetError              exit 2   target string, option, composite
    │   └── DuplicateName            exit 2   two owners of one name
    ├── ModelError                   exit 3   broken model file, or input data that does not fit it
    │   ├── TypeRuleError            exit 3   operands an operator does not accept
    │   ├── VerifyError              exit 3   ill-formed IR
    │   └── ParseError               exit 3   IR text that does not parse
    ├── UnsupportedError             exit 4   operator, dtype, opset or combination not supported
    ├── PluginError                  exit 5   a plugin is missing, does not fit, fails or misbehaves
    ├── ToolchainError               exit 6   linker, LLVM, cc, NVRTC failed
    ├── ArtifactError                exit 7   artifact invalid, or not for this machine
    │   └── LinkRefused              exit 7   the dynamic linker refuses its code
    ├── ResourceError                exit 8   memory, disk, time
    ├── WorkerLost                   exit 9   worker or device lost
    └── GateFailed                   exit 10  a gate such as --require-offload failed
"""

from __future__ import annotations

import errno
from copy import copy
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Collection

EXHAUSTED = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
        *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN),
    }
)
"""Numbers of the system's errors that say that a resource ran out, not that anybody erred."""


class IntarsiaError(Exception):
    """Root of all errors that Intarsia raises on purpose.

    Args:
        message: What happened and where, one sentence.
        hint: What the user can do next.
        where: File, node, column or plugin the message is about.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def at(self, where: str) -> Self:
        """Return the same error about another place: of the same class, with all it carries."""
        other = copy(self)
        other.where = where
        return other

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class UsageError(IntarsiaError):
    """The command line, an argument or a setting is wrong."""

    exit_code = 2


class TargetError(UsageError):
    """A target string, option or composite is wrong.

    Args:
        message: As of :class:`IntarsiaError`; so are ``hint`` and ``where``.
        option: Flag of the option that is wrong, without dashes. Code that knows the text of the
            target points at it.
    """

    def __init__(self, message: str, *, hint: str = "", where: str = "", option: str = "") -> None:
        super().__init__(message, hint=hint, where=where)
        self.option = option


class DuplicateName(UsageError):
    """Two owners claim one name."""


class ModelError(IntarsiaError):
    """The model file is broken, or the data given to it does not fit."""

    exit_code = 3


class TypeRuleError(ModelError):
    """An operator does not accept these operands."""


class VerifyError(ModelError):
    """A module breaks a rule of the IR."""


class ParseError(ModelError):
    """Text does not parse as IR."""


class UnsupportedError(IntarsiaError):
    """A valid request that this version, plugin or target cannot serve."""

    exit_code = 4


class PluginError(IntarsiaError):
    """A plugin is missing, broken, incompatible, or broke its contract."""

    exit_code = 5


class ToolchainError(IntarsiaError):
    """A tool that turns code into machine code failed."""

    exit_code = 6


class ArtifactError(IntarsiaError):
    """An artifact is damaged, or was built for another machine."""

    exit_code = 7


class LinkRefused(ArtifactError):
    """The dynamic linker refuses machine code, e.g. because a library that it needs is missing."""


class ResourceError(IntarsiaError):
    """Memory, disk space or time ran out."""

    exit_code = 8


class WorkerLost(IntarsiaError):
    """A worker process or a device went away."""

    exit_code = 9


class GateFailed(IntarsiaError):
    """A gate the user set was not met."""

    exit_code = 10


def did_you_mean(word: str, known: Collection[str], dash: str = "") -> str:
    """Return ``did you mean 'x'?`` for the nearest known word, or nothing."""
    from difflib import get_close_matches  # where a word is wrong

    near = get_close_matches(word[:64], list(known), n=2, cutoff=0.55)
    return f"did you mean {' or '.join(repr(dash + name) for name in near)}?" if near else ""
