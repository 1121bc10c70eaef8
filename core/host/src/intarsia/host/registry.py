# SPDX-License-Identifier: Apache-2.0
"""Names with owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from intarsia_runtime.errors import DuplicateName, UsageError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Named values, each with the distribution that owns it; a second owner of a name is refused.

    Args:
        what: What the values are, singular, for messages: ``target kind``.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._rows: dict[str, tuple[T, str]] = {}

    def add(self, name: str, value: T, *, owner: str) -> None:
        """Enter a value.

        Raises:
            DuplicateName: The name has an owner.
        """
        if name in self._rows:
            other = self._rows[name][1]
            raise DuplicateName(
                f"{self._what} '{name}' is registered by both '{other}' and '{owner}'",
                hint=f"INTARSIA_DISABLE_PLUGINS={owner} (or ={other}) decides",
            )
        self._rows[name] = (value, owner)

    def get(self, name: str) -> T:
        """Return the value called ``name``.

        Raises:
            UsageError: No such name.
        """
        return self._row(name)[0]

    def owner(self, name: str) -> str:
        """Return the distribution that owns ``name``.

        Raises:
            UsageError: No such name.
        """
        return self._row(name)[1]

    def _row(self, name: str) -> tuple[T, str]:
        if name not in self._rows:
            known = ", ".join(self._rows) or "none"
            raise UsageError(
                f"no {self._what} is called '{name}'",
                hint=did_you_mean(name, self._rows) or f"known: {known}",
            )
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
