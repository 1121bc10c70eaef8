# SPDX-License-Identifier: Apache-2.0
"""The target that is chosen: by whoever asks, or else by the environment or a file."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from intarsia_runtime.errors import TargetError, UsageError

from ..host.host import Host
from ..target.kinds import GIVEN_NAME, Origin
from ..target.read import read_host
from ..target.target import CompositeTarget, Target


class TargetChoice(Struct, frozen=True):
    """A target as the command line, the environment or a file gives it, before it is read.

    Attributes:
        text: As written; ``None`` if nobody gives one.
        origin: Who gives it, and what is set besides.
        target_host: The same for the host.
        host_origin: Who gives that.
    """

    text: str | None
    origin: Origin
    target_host: str | None = None
    host_origin: str = GIVEN_NAME

    @property
    def is_given(self) -> bool:
        """Whether it, or an option of it, stands on the command line."""
        stands = self.text is not None and self.origin.name == GIVEN_NAME
        return stands or bool(self.origin.overrides) or self.target_host is not None

    def instead(self, text: str) -> TargetChoice:
        """The same with a text given on the command line."""
        return replace(self, text=text, origin=self.origin.named(GIVEN_NAME))

    def read(self, host: Host) -> CompositeTarget:
        """Return the canonical target.

        Raises:
            TargetError: It is missing or wrong; a target from a file or the environment is named
                with its place.
        """
        if self.text is None:
            known = ", ".join(host.backends()) or "none; e.g. pip install 'intarsia[all]'"
            raise TargetError("no target is given", hint=f"--target; installed backends: {known}")
        driver = self._driver(host)
        try:
            return host.target(self.text, driver, origin=self.origin)
        except UsageError as error:
            if self.origin.name == GIVEN_NAME:
                raise
            where = f"{self.origin.name}, {error.where}".removesuffix(", ")
            raise error.at(where) from None

    def _driver(self, host: Host) -> str | Target | None:
        """The host of the target; one that is not from the command line is read here.

        Raises:
            TargetError: It is wrong; its place names the file or the variable.
        """
        if self.target_host is None or self.host_origin == GIVEN_NAME:
            return self.target_host
        try:
            return read_host(self.target_host, host, self.origin.named(self.host_origin))
        except UsageError as error:
            raise error.at(f"{self.host_origin}, {error.where}".removesuffix(", ")) from None
