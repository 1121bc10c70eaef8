# SPDX-License-Identifier: Apache-2.0
"""The base of what holds something until it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Never, Self, SupportsIndex

from .errors import UsageError


class Closing(ABC):
    """Something to ``close``, also by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds; harmless when repeated."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Never:
        """Refuse to be copied or pickled.

        Raises:
            UsageError: Always: code and memory belong to this process.
        """
        raise UsageError(
            f"a loaded model ({type(self).__name__}) can be neither copied nor pickled",
            hint="load the artifact again in that process",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
