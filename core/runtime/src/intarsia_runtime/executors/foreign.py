# SPDX-License-Identifier: Apache-2.0
"""The executable of a plugin's executor or runtime: what it raises names the plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ..closing import Closing
from ..errors import PluginError
from ..guarded import LateOwner, explain, is_plugins_own, owner_of_module

if TYPE_CHECKING:
    import numpy as np

    from ..loading import PlanExecutable
    from .signature import Inputs


class ForeignExecutable(Closing):
    """Passes everything on to what a plugin made.

    Args:
        made: What the plugin made.
        what: Which executor or runtime it is of, for messages.
    """

    def __init__(self, made: PlanExecutable, what: str) -> None:
        self._made, self._what = made, what
        self._module = type(made).__module__

    def __getattr__(self, name: str) -> object:
        """Return an attribute of what the plugin made; a method is guarded."""
        made = self._made
        try:
            value = getattr(made, name)
        except BaseException as cause:
            absent = isinstance(cause, AttributeError) and name not in dir(made)
            if absent or not is_plugins_own(cause):
                raise
            owner = owner_of_module(self._module)
            raise explain(cause, owner, f"{name} of the {self._what}") from cause
        return self._guarded(name) if callable(value) else value

    def _guarded(self, name: str) -> LateOwner:
        doing = f"{name}() of the {self._what}"
        return LateOwner(getattr(self._made, name), self._module, doing=doing)

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Compute the outputs, as new arrays by name.

        Raises:
            PluginError: The plugin failed, or answered with something else.
        """
        answer = self._guarded("run")(inputs)
        if not isinstance(answer, Mapping):
            label = owner_of_module(self._module).label
            raise PluginError(
                f"{label} answered run() of the {self._what} with {type(answer).__name__}, not dict"
            )
        return dict(cast("Mapping[str, np.ndarray]", answer))

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays; errors as :meth:`run`."""
        self._guarded("run_into")(inputs, outputs)

    def close(self) -> None:
        """Free what it holds; errors as :meth:`run`."""
        self._guarded("close")()
