# SPDX-License-Identifier: Apache-2.0
"""The base of what holds something until it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Something to ``close``, also by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds; harmless when repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
