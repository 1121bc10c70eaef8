# SPDX-License-Identifier: Apache-2.0
"""What an accelerator says of each operator: yes, or no with a code and a reason in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

if TYPE_CHECKING:
    from ..graph.pattern import Match, Pattern


class Code(Enum):
    """Why an accelerator does not take a node."""

    OK = "ok"
    UNSUPPORTED_OP = "unsupported-op"
    UNSUPPORTED_DTYPE = "unsupported-dtype"
    UNSUPPORTED_SHAPE = "unsupported-shape"
    UNSUPPORTED_ATTRIBUTE = "unsupported-attribute"
    UNSUPPORTED_LAYOUT = "unsupported-layout"
    OUTVOTED = "outvoted"
    TOO_SMALL = "too-small"
    SLOWER = "slower"  # it can, and thinks that the fallback is faster: the user may overrule it
    DROPPED = "dropped"  # given back by the hook `partition`
    WOULD_CYCLE = "would-cycle"
    EXCLUDED_BY_USER = "excluded-by-user"
    PLUGIN_ERROR = "plugin-error"


@dataclass(frozen=True, slots=True)
class Support:
    """The answer of an accelerator to one match.

    Attributes:
        code: ``OK``, or the code of the reason.
        detail: The reason in words.
        seconds: The time of the match on the accelerator, if known.
        flops: Arithmetic operations of the match, if the accelerator counts them itself.
        caution: How its results differ from the definition, in words; empty if they do not.
        open_sizes: Size variables that prevent the accelerator from taking it. The report names
            the shapes of inputs that would give them.
    """

    code: Code
    detail: str = ""
    seconds: float | None = None
    flops: float | None = None
    caution: str = ""
    open_sizes: frozenset[str] = frozenset()

    @classmethod
    def yes(
        cls, *, seconds: float | None = None, flops: float | None = None, caution: str = ""
    ) -> Support:
        """The accelerator takes it.

        Args:
            seconds: Time of the match, without the launch of the region and without borders.
            flops: Arithmetic operations of the match; the host divides them by the speed of the
                kind. The host counts them if neither is given.
            caution: How its results differ from the definition of the operators, in a few words;
                the command line prints it wherever such a match is taken.
        """
        return cls(Code.OK, "", seconds, flops, caution)

    @classmethod
    def no(cls, code: Code | str, detail: str) -> Support:
        """The accelerator does not take it, for the reason ``detail``.

        ``slower`` is no limit but a cost: ``--plan greedy`` and ``--place`` overrule it.
        """
        return cls(Code(code), detail)

    @classmethod
    def no_open_size(cls, size: Size, detail: str) -> Support:
        """The accelerator needs a fixed size, and the match has a symbolic one."""
        names = frozenset[str]() if isinstance(size, int) else size.variables()
        return cls(Code.UNSUPPORTED_SHAPE, detail, open_sizes=names)

    def __bool__(self) -> bool:
        return self.code is Code.OK


Predicate: TypeAlias = "Callable[[Match], Support]"


@dataclass(frozen=True, slots=True)
class SupportRow:
    """A pattern of an accelerator, with the predicate that decides about a match.

    Attributes:
        name: Unique in the table.
        pattern: The pattern.
        predicate: Returns the verdict on a match.
        asks_for: The conditions of the predicate, in words for the documentation.
        dtypes: Element types of the data, for the documentation; empty if the row does not say.
    """

    name: str
    pattern: Pattern
    predicate: Predicate
    asks_for: str = ""
    dtypes: tuple[DType, ...] = ()


@dataclass(frozen=True, slots=True)
class SupportTable:
    """Rows in order of preference: the first row that matches a node and says yes takes it.

    Attributes:
        rows: Larger patterns before their parts.
        only_forced: Whether only nodes are taken that the user places there (``--place``).
    """

    rows: Sequence[SupportRow]
    only_forced: bool = False


def support_markdown(rows: Sequence[SupportRow]) -> str:
    """Return the rows of a support table as a table in Markdown."""
    lines = ["| operator or pattern | element types | asks for |", "|---|---|---|"]
    for row in rows:
        dtypes = ", ".join(dtype.value for dtype in row.dtypes)
        lines.append(f"| `{row.name}` | {dtypes} | {row.asks_for} |")
    return "\n".join(lines) + "\n"
