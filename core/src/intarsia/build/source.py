# SPDX-License-Identifier: Apache-2.0
"""A model that a build imports several times: it is read once, and some imports are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..errors import IntarsiaError, UnsupportedError
from ..ir.module import IRModule
from ..ir.types import TensorType
from .importing import Model, bind_params, import_model, is_program

if TYPE_CHECKING:
    import numpy as np

    from ..frontend.onnx.graph import Model as ReadModel

_Shapes: TypeAlias = "Mapping[str, Sequence[int]] | None"
_Key: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


class Source:
    """Where modules come from.

    Args:
        model: A module, an ONNX model, or a saved program of PyTorch.
        params: Values of inputs that are weights.
        mapped: Leave large weights in the model's file, which must then stay as it is.
    """

    def __init__(
        self,
        model: Model,
        params: Mapping[str, np.ndarray] | None = None,
        *,
        mapped: bool = False,
    ) -> None:
        self.model = model
        self.params = params
        self.mapped = mapped
        self.is_onnx = not isinstance(model, IRModule) and not is_program(model)
        self._read: ReadModel | None = None
        self._refused: UnsupportedError | None = None
        self._kept: dict[_Key, IRModule] = {}

    def module(self, shapes: _Shapes = None, *, keep: bool = False) -> IRModule:
        """Import for these shapes, unless that was done and kept.

        Args:
            shapes: Shapes of inputs.
            keep: Whether the module will be asked for once more; what was kept is given once.

        Raises:
            As :func:`~intarsia.build.importing.import_model`.
        """
        key = tuple((name, tuple(shape)) for name, shape in (shapes or {}).items())
        found = self._kept.pop(key, None)
        if found is None:
            found = self._imported(shapes)
        if keep:
            self._kept[key] = found
        return found

    def declared(self, shapes: _Shapes = None) -> dict[str, TensorType]:
        """Return the types of the inputs of an ONNX model that are tensors of known rank.

        Raises:
            As :func:`~intarsia.frontend.onnx.api.declared_types`.
        """
        from ..frontend.onnx.api import declared_types, input_types  # not for modules: no importer

        assert not isinstance(self.model, IRModule)  # which has its types
        try:
            graph = self._onnx().graph
        except UnsupportedError:  # it has values that only a program may have
            return declared_types(self.model, shapes)
        return input_types(graph, shapes or {}, {})

    def may_be_open(self, shapes: _Shapes) -> bool:
        """Whether an ONNX model that can be read leaves a size of an input open."""
        if not self.is_onnx:
            return False
        try:
            types = self.declared(shapes)
        except IntarsiaError:  # whoever imports it says what is wrong
            return False
        bound = self.params or {}
        return any(not type_.is_static for name, type_ in types.items() if name not in bound)

    def largest_bound(self) -> int:
        """Return the largest fixed number that sizes of an ONNX model may be compared with.

        Raises:
            As :func:`~intarsia.frontend.onnx.reader.read_model`.
        """
        from ..frontend.onnx.bounds import largest_bound  # as above

        return largest_bound(self._onnx().graph)

    def forget(self) -> None:
        """Free what was read and kept; it is read again if it is wanted again."""
        self._read = None
        self._kept.clear()

    def _imported(self, shapes: _Shapes) -> IRModule:
        if not self.is_onnx:
            return import_model(self.model, shapes, self.params)
        from ..frontend.onnx.api import import_read  # as above

        module = import_read(self._onnx(), shapes)
        return bind_params(module, self.params) if self.params else module

    def _onnx(self) -> ReadModel:
        """Return the model as it is read, which every import has in common."""
        from ..frontend.onnx.reader import read_model  # as above

        assert not isinstance(self.model, IRModule)
        if self._refused is not None:
            raise self._refused
        if self._read is None:
            try:
                self._read = read_model(self.model, mapped=self.mapped)
            except UnsupportedError as error:
                self._refused = error
                raise
        return self._read
