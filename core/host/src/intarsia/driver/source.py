# SPDX-License-Identifier: Apache-2.0
"""A model that a build imports several times: it is read once, and some imports are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from intarsia_ir.given_values import Given, input_values
from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.graph.guards import is_collecting
from intarsia_ir.graph.inputs import bind_params, fits
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.errors import IntarsiaError, UnsupportedError

from .importing import Model, import_model, is_program

if TYPE_CHECKING:
    import numpy as np

    from intarsia_onnx.dynamic import DynamicModel
    from intarsia_onnx.graph import Model as ReadModel

    from ..host.frontend import Frontend
    from ..host.host import Host

_Shapes: TypeAlias = "Mapping[str, Sequence[int]] | None"
_Key: TypeAlias = tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]

_BUILT_IN = (".onnx", ".pt2")
"""Formats of which the driver asks more than a module: open sizes, programs, files of weights."""


def source_of(
    host: Host,
    model: Model,
    *,
    params: Mapping[str, np.ndarray] | None = None,
    values: Mapping[str, Given] | None = None,
    mapped: bool = False,
    control_flow: bool = False,
) -> ModuleSource:
    """Return where a model comes from; a format that only a plugin knows is known by the suffix.

    Args:
        host: The plugins.
        model: As of :class:`ModuleSource`.
        params: As of :class:`ModuleSource`.
        values: As of :class:`ModuleSource`.
        mapped: As of :class:`ModuleSource`.
        control_flow: As of :class:`ModuleSource`.

    Raises:
        PluginError: The plugin of the format is broken.
        DuplicateName: Two plugins have the suffix.
    """
    frontend: Frontend | None = None
    if isinstance(model, str | os.PathLike):
        name = Path(model).name.lower()
        suffixes = [suffix.lower() for row in host.frontends() for suffix in row.suffixes]
        if not name.endswith(_BUILT_IN) and any(map(name.endswith, suffixes)):
            frontend = host.frontend_for(Path(model))
    return ModuleSource(
        model,
        params,
        values=values,
        mapped=mapped,
        frontend=frontend,
        control_flow=control_flow,
    )


class ModuleSource:
    """Where modules come from.

    Args:
        model: A module, an ONNX model, or a saved program of PyTorch.
        params: Values of inputs that are weights.
        values: Values that the user gives other inputs, as :func:`.values.input_values` reads them.
        mapped: Leave large weights in the model's file, which must then stay as it is.
        frontend: The plugin's importer of a model in another format.
        control_flow: Whether a module may branch and loop when it runs.

    Attributes:
        model: As given.
        values: As given.
        mapped: As given.
        frontend: As given.
        control_flow: As given.
        is_shared: Whether several stories read it, so that :meth:`forget` must wait.
        is_onnx: Whether it is an ONNX model, as a file or bytes.
        is_program: Whether it is a saved program of PyTorch.
    """

    def __init__(
        self,
        model: Model,
        params: Mapping[str, np.ndarray] | None = None,
        *,
        values: Mapping[str, Given] | None = None,
        mapped: bool = False,
        frontend: Frontend | None = None,
        control_flow: bool = False,
    ) -> None:
        self.model = model
        self.values = dict(values or {})
        self._params = dict(params or {})
        self.mapped = mapped
        self.frontend = frontend
        self.control_flow = control_flow
        self.is_shared = False
        self.is_program = frontend is None and is_program(model)
        self.is_onnx = frontend is None and not (isinstance(model, IRModule) or self.is_program)
        self._read: ReadModel | None = None
        self._unreadable: UnsupportedError | None = None
        self._kept: dict[_Key, IRModule | DynamicModel] = {}
        self._refused: dict[_Key, UnsupportedError] = {}

    def module(self, shapes: _Shapes = None, *, keep: bool = False) -> IRModule:
        """Import for these shapes, unless that was done and kept.

        Args:
            shapes: Shapes of inputs.
            keep: Whether the module will be asked for once more; what was kept is given once.

        Raises:
            As :func:`~intarsia.driver.importing.import_model`.
        """
        is_other = is_collecting() and not self.is_program  # whose guards are a setting
        key = _key("open" if is_other else "module", shapes)
        if key in self._refused:
            raise self._refused[key]
        found = self._kept.pop(key, None)
        try:
            module = found if isinstance(found, IRModule) else self._imported(shapes)
        except UnsupportedError as error:
            self._refused[key] = error
            raise
        if keep:
            self._kept[key] = module
        return module

    def program(
        self,
        shapes: _Shapes = None,
        *,
        keep: bool = False,
        hosted: Mapping[str, str] = MappingProxyType({}),
    ) -> IRModule | DynamicModel:
        """Import an ONNX model of which a part may be known at run time only.

        Where somebody collects guards, its pieces take sizes that only the run knows.

        Args:
            shapes: Shapes of inputs.
            keep: As of :meth:`module`.
            hosted: Names of nodes that no piece may have, with the reason.

        Raises:
            As :func:`~intarsia_onnx.dynamic.planner.plan_onnx`.
        """
        from intarsia_onnx.dynamic import plan_read  # 20 ms that other models are spared

        key = _key("open program" if is_collecting() else "program", shapes)
        found = None if hosted else self._kept.pop(key, None)
        if found is None:
            found = plan_read(
                self._onnx(), shapes, self._constants(), opens=is_collecting(), hosted=hosted
            )
        if keep:
            self._kept[key] = found
        return found

    def declared(self, shapes: _Shapes = None) -> dict[str, TensorType]:
        """Return the types of the inputs of an ONNX model that are tensors of known rank.

        Raises:
            As :func:`~intarsia_onnx.api.declared_types`.
        """
        from intarsia_onnx.api import input_types  # not for modules: no importer

        return input_types(self._onnx().graph, shapes or {}, {})

    def may_be_open(self, shapes: _Shapes) -> bool:
        """Whether a model that can be read leaves a size of an input open.

        Of other formats than ONNX and PyTorch's nobody knows.
        """
        try:
            types = self._input_types(shapes)
        except IntarsiaError:  # whoever imports it says what is wrong
            return False
        bound = {*self._params, *self.values}
        return any(not type_.is_static for name, type_ in types.items() if name not in bound)

    def _input_types(self, shapes: _Shapes) -> dict[str, TensorType]:
        if self.is_onnx:
            return self.declared(shapes)
        if not self.is_program:
            return {}
        module = self.module(shapes, keep=True)
        return {param.name: tensor_type(param) for param in module.main.params}

    def forget(self) -> None:
        """Free what was read and kept, unless several stories share it; it is read again if wanted.

        What was refused is remembered: to import it again would end in the same way.
        """
        if not self.is_shared:
            self._read = None
            self._kept.clear()

    def _imported(self, shapes: _Shapes) -> IRModule:
        if self.frontend is not None:
            file = Path(cast("str | os.PathLike[str]", self.model))
            return self._bound(self.frontend.importer(file, shapes, self.mapped))
        if not self.is_onnx:
            return self._bound(import_model(self.model, shapes))
        from intarsia_onnx.api import import_read  # as above

        constants = self._constants()
        declared = self.declared(shapes) if constants else {}
        # Known while the model is read, a value decides branches and sizes.
        known = {n: c for n, c in constants.items() if n in declared and fits(c, declared[n])}
        module = import_read(self._tensors_only(), shapes, known, control_flow=self.control_flow)
        rest = {name: array for name, array in constants.items() if name not in known}
        return bind_params(module, rest) if rest else module

    def _constants(self) -> dict[str, np.ndarray]:
        """Return the values of inputs of an ONNX model that are none any more."""
        found = input_values(self.values, self.declared()) if self.values else {}
        return {**self._params, **found}

    def _bound(self, module: IRModule) -> IRModule:
        """Return a module with the values of inputs put in."""
        types = {param.name: tensor_type(param) for param in module.main.params}
        constants = {**self._params, **input_values(self.values, types)}
        return bind_params(module, constants) if constants else module

    def _tensors_only(self) -> ReadModel:
        """Return the model as it is read, if all its values are what compiled functions take."""
        read = self._onnx()
        if read.refused is not None:
            raise read.refused
        return read

    def _onnx(self) -> ReadModel:
        """Return the model as it is read, which every import has in common."""
        from intarsia_onnx.reader import read_model  # as above

        assert not isinstance(self.model, IRModule)
        if self._unreadable is not None:
            raise self._unreadable
        if self._read is None:
            try:
                self._read = read_model(self.model, any_value=True, mapped=self.mapped)
            except UnsupportedError as error:
                self._unreadable = error
                raise
        return self._read


def _key(form: str, shapes: _Shapes) -> _Key:
    return form, tuple((name, tuple(shape)) for name, shape in (shapes or {}).items())
