# SPDX-License-Identifier: Apache-2.0
"""The attributes of a target and of a region that the loop compiler reads.

A backend passes its own target, and schedules get it unchanged. The host's ``Target`` and
``Region`` have these attributes; the loop compiler does not import them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from intarsia_ir.capabilities import Memory

    OptionsT_co = TypeVar("OptionsT_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    OptionsT_co = TypeVar("OptionsT_co", covariant=True)


class LoopTarget(Protocol[OptionsT_co]):
    """A target as schedules see it.

    Attributes:
        keys: Names to dispatch on, special to general.
        memory: Levels of memory, outermost first.
        options: The backend's own options.
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """Names to dispatch on, special to general."""
        ...

    @property
    def memory(self) -> tuple[Memory, ...]:
        """Levels from the outermost to the innermost."""
        ...

    @property
    def options(self) -> OptionsT_co:
        """What the backend's users may set."""
        ...


class OutlinedRegion(Protocol):
    """A region that the plan calls.

    Attributes:
        name: Of its function.
        kind: Target kind that compiles it.
        nodes: Names of the model's nodes in it.
        sizes: Size variables that its call takes.
    """

    @property
    def name(self) -> str:
        """Of its function."""
        ...

    @property
    def kind(self) -> str:
        """That of the target which compiles it."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those of the model, by name."""
        ...

    @property
    def sizes(self) -> tuple[str, ...]:
        """Size variables that its call takes behind the tensors, by name."""
        ...
