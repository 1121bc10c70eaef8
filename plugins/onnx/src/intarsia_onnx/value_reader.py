# SPDX-License-Identifier: Apache-2.0
"""Reads values of an ONNX model: types of inputs and outputs, and arrays of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from intarsia_ir.graph.types import Dim, TensorType, variable
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, UnsupportedError

from .external import ExternalFiles
from .graph import ValueInfo
from .tensors import (
    check_sizes,
    decode_any_tensor,
    decode_tensor,
    element_type,
    is_element_type,
    is_text,
    stored_name,
)

if TYPE_CHECKING:
    import numpy as np

    from .reader import TensorProto, TypeProto, ValueInfoProto


class ValueReader:
    """Reads the values of one model.

    Args:
        onnx: The package.
        files: Where external data are.
        any_value: Let values be what no compiled function takes; if not, they are refused.

    Attributes:
        refused: The first refusal that ``any_value`` suppressed; ``None`` if there is none.
        refused_input: The input of the model that it is about; empty if it is about none.
    """

    def __init__(self, onnx: ModuleType, files: ExternalFiles, *, any_value: bool) -> None:
        self.refused: UnsupportedError | None = None
        self.refused_input = ""
        self._onnx = onnx
        self._files = files
        self._any_value = any_value
        self._dims = 0

    def array(self, tensor: TensorProto, where: str, raw: memoryview | None = None) -> np.ndarray:
        """Return the array of a tensor message; of strings, objects.

        Args:
            tensor: The message.
            where: The tensor, for messages.
            raw: Its ``raw_data``, if they were cut out of the message.

        Raises:
            ModelError: The message contradicts itself.
            UnsupportedError: Its element type has no array here.
        """
        if not self._any_value:
            return decode_tensor(tensor, self._files, where, raw)
        if is_text(tensor):
            self._note_refusal(partial(decode_tensor, tensor, self._files, where, raw))
        return decode_any_tensor(tensor, self._files, where, raw)

    def value(self, info: ValueInfoProto, role: str) -> ValueInfo:
        """Return an input or an output of a graph.

        Args:
            info: Its declaration.
            role: ``input`` or ``output``.

        Raises:
            ModelError: Its name is no text, or its size is impossible.
            UnsupportedError: No compiled function takes it.
        """
        check_text(info.name)
        if info.type.WhichOneof("value") is None and role == "output":
            return ValueInfo(info.name, None)
        if self._any_value and not self._is_plain(info.type):
            if role == "input" and self.refused is None:
                self.refused_input = info.name
            self._note_refusal(partial(self._plain_value, info, role))
            text = self._type_text(info.type)
            return ValueInfo(info.name, None, text, "", *self._inside(info.type))
        return self._plain_value(info, role)

    def inner_value(self, info: ValueInfoProto, role: str) -> ValueInfo:
        """Return an input or an output of a graph inside a node, which need not be a tensor.

        The values that the node gives to the graph say what they are.

        Args:
            info: Its declaration.
            role: ``input`` or ``output``.

        Raises:
            ModelError: Its name is no text, or its size is impossible.
        """
        check_text(info.name)
        if self._is_plain(info.type):
            return self._plain_value(info, role)
        return ValueInfo(info.name, None, self._type_text(info.type))

    def _note_refusal(self, read_plain: Callable[[], object]) -> None:
        """Keep the first refusal, for whoever wants compiled functions only."""
        if self.refused is None:
            try:
                read_plain()
            except UnsupportedError as error:
                self.refused = error

    def _plain_value(self, info: ValueInfoProto, role: str) -> ValueInfo:
        where = f"{role} '{info.name}'"
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise UnsupportedError(f"is no tensor but {kind or 'of unknown type'}", where=where)
        tensor = info.type.tensor_type
        if role == "output" and not (tensor.elem_type and tensor.HasField("shape")):
            return ValueInfo(info.name, None)
        stored = stored_name(tensor.elem_type)
        dtype = DType.UINT8 if stored else element_type(tensor.elem_type, where)
        if not tensor.HasField("shape"):
            raise UnsupportedError(
                "has no shape, not even a rank", where=where, hint="give it one with --shape"
            )
        dims: list[int | Dim] = []
        for dim in tensor.shape.dim:
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            elif dim.dim_param.strip("?"):  # Paddle writes "?" for every size it does not know
                check_text(dim.dim_param)
                dims.append(variable(dim.dim_param))
            else:
                self._dims += 1
                dims.append(variable(f"unknown_{self._dims}"))
        check_sizes(tuple(size for size in dims if isinstance(size, int)), dtype, where)
        return ValueInfo(info.name, TensorType(tuple(dims), dtype), stored=stored)

    def _is_plain(self, type_: TypeProto) -> bool:
        """Whether compiled functions can take the type: a tensor of a known rank and element."""
        tensor = type_.tensor_type
        if type_.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
            return False
        return is_element_type(tensor.elem_type) or bool(stored_name(tensor.elem_type))

    def _inside(self, type_: TypeProto) -> tuple[DType | None, tuple[int | None, ...] | None]:
        """Return element type and sizes of the tensors in a sequence or an optional."""
        kind = type_.WhichOneof("value")
        if kind == "sequence_type":
            return self._inside(type_.sequence_type.elem_type)
        if kind == "optional_type":
            return self._inside(type_.optional_type.elem_type)
        tensor = type_.tensor_type
        if kind != "tensor_type" or not is_element_type(tensor.elem_type):
            return None, None
        dtype = element_type(tensor.elem_type, "a sequence")
        if not tensor.HasField("shape"):
            return dtype, None
        return dtype, tuple(
            dim.dim_value if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0 else None
            for dim in tensor.shape.dim
        )

    def _type_text(self, type_: TypeProto) -> str:
        """Write a type as ONNX's own schemas do, e.g. ``seq(tensor(float))``."""
        match type_.WhichOneof("value"):
            case "sequence_type":
                return f"seq({self._type_text(type_.sequence_type.elem_type)})"
            case "optional_type":
                return f"optional({self._type_text(type_.optional_type.elem_type)})"
            case "map_type":
                kind = self._element_text(type_.map_type.key_type)
                return f"map({kind},{self._type_text(type_.map_type.value_type)})"
            case "tensor_type":
                return f"tensor({self._element_text(type_.tensor_type.elem_type)})"
            case None:
                return "unknown"
            case other:
                return other

    def _element_text(self, code: int) -> str:
        names = self._onnx.TensorProto.DataType
        return names.Name(code).lower() if code in names.values() else str(code)


def check_text(*names: str) -> None:
    """Refuse names that are not UTF-8; protobuf hands them out as bytes.

    Raises:
        ModelError: One is not.
    """
    try:
        "".join(names)
    except TypeError as error:
        raise ModelError(f"a name is not UTF-8 text: {error}") from None
