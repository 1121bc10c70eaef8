# SPDX-License-Identifier: Apache-2.0
"""Which shapes of inputs would give an accelerator the numbers that it asks for."""

from __future__ import annotations

from dataclasses import replace

from intarsia_ir.graph.expr import Function
from intarsia_ir.graph.types import Dim, TensorType
from intarsia_ir.graph.typical import fitting_values, typical
from intarsia_ir.regions.support import Support


class ShapeHints:
    """Adds to a refusal of open sizes the options that would make numbers of them.

    Args:
        function: Whose parameters are the inputs.
    """

    def __init__(self, function: Function) -> None:
        self._values = fitting_values(function)
        self._options: dict[str, str] = {}
        for param in function.params:
            kind = param.type
            if not isinstance(kind, TensorType) or kind.is_static:
                continue
            sizes = ",".join(str(typical(size, self._values)) for size in kind.shape)
            for size in kind.shape:
                for name in size.variables() if isinstance(size, Dim) else ():
                    self._options.setdefault(name, f"--shape {param.name}:{sizes}")

    def added(self, support: Support) -> Support:
        """Return a verdict; if open sizes are its reason, with an example of a remedy."""
        if not support.open_sizes:
            return support
        wanted = [self._options.get(name) for name in sorted(support.open_sizes)]
        options = dict.fromkeys(option for option in wanted if option is not None)
        if len(wanted) > len([option for option in wanted if option is not None]):
            return replace(support, detail=f"{support.detail}; no shape of an input gives it")
        return replace(support, detail=f"{support.detail}; e.g. {' '.join(options)} gives one")
