# SPDX-License-Identifier: Apache-2.0
"""Import the graphs of ``torch.compile``, each for the shapes and sizes of given arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_onnx import from_onnx
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from .importing import export, onnx_model, quiet, require_torch

if TYPE_CHECKING:
    from .types import FxNode, GraphModule, Storage, TorchTensor


class Computed(Struct, frozen=True):
    """A result that the compiled code writes; ``position`` counts its outputs."""

    position: int


class Known(Struct, frozen=True):
    """A result that is known when the graph is compiled: a size, or ``None``."""

    value: object


class View(Struct, frozen=True):
    """A result that is a view of an argument; sizes, strides and offset count elements.

    Attributes:
        argument: Its number.
        size, stride: Of the view.
        offset: From the first element of the argument, not of its memory.
    """

    argument: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


Result: TypeAlias = "Computed | Known | View"
NewTensor: TypeAlias = "Callable[[], TorchTensor]"
"""Makes a tensor of a fixed shape and element type, contents undefined."""

version_of: Callable[[TorchTensor], int] = attrgetter("_version")
"""Count of the writes to a tensor, as torch keeps it; not of those through ``tensor.data``."""

_address_of: Callable[[Storage], object] = attrgetter("_cdata")


class Specialized(Struct, frozen=True, eq=False):
    """A graph for arguments of given shapes and sizes.

    Attributes:
        module: What is to be compiled; ``None`` if nothing is computed.
        arguments: The number of the graph's argument, by the name of the parameter of ``module``.
        results: What the graph returns, in order.
        outputs: For each output of ``module``, what makes its tensor.
    """

    module: IRModule | None
    arguments: Mapping[str, int]
    results: tuple[Result, ...]
    outputs: tuple[NewTensor, ...]


def specialize(
    graph_module: GraphModule, args: Sequence[object], weights: Collection[int]
) -> Specialized:
    """Import a graph for the shapes and sizes of given arguments.

    Args:
        graph_module: The graph; it is not changed.
        args: Tensors and sizes, as it is called with.
        weights: Numbers of the tensors that become constants.

    Raises:
        UnsupportedError: It writes to arguments, results share memory, or a tensor or operator is
            one that cannot be imported.
    """
    torch = require_torch()
    tensors = tensors_among(args)
    for tensor in tensors.values():
        if tensor.device.type != "cpu":
            raise UnsupportedError(
                f"a tensor is on '{tensor.device}', and this version compiles graphs of the CPU",
                hint="model.to('cpu')",
            )
    with quiet(torch):
        results, outputs = _trace(torch, graph_module, args)
        if not outputs:
            return Specialized(None, {}, results, ())
        chosen = [number for number, item in enumerate(results) if isinstance(item, Computed)]
        blanks = {n: torch.empty(t.shape, dtype=t.dtype) for n, t in tensors.items()}
        examples = tuple(blanks.get(number, value) for number, value in enumerate(args))
        exported = export(torch, _narrowed(torch, graph_module, chosen), examples, {})
        names = [spec.arg.name for spec in exported.graph_signature.input_specs[-len(args) :]]
        constants = {names[number]: array_of(tensors[number]) for number in weights}
        with onnx_model(torch, exported) as model:
            module = from_onnx(model, constants=constants)
    taken = {param.name for param in module.main.params}
    numbers = {name: number for number, name in enumerate(names) if name in taken}
    return Specialized(module, numbers, results, outputs)


def _trace(
    torch: ModuleType, graph_module: GraphModule, args: Sequence[object]
) -> tuple[tuple[Result, ...], tuple[NewTensor, ...]]:
    """Return what becomes of each result, and what makes the tensors of those to be computed."""
    fakes = import_module("torch._subclasses.fake_tensor")  # shapes and memory without contents
    with fakes.FakeTensorMode(allow_non_fake_inputs=True):
        tensors: dict[int, TorchTensor] = {
            number: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            for number, t in tensors_among(args).items()
        }
        versions = {number: version_of(tensor) for number, tensor in tensors.items()}
        try:
            values = graph_module(*(tensors.get(n, value) for n, value in enumerate(args)))
        except Exception as cause:  # whatever PyTorch raises where contents are needed
            raise UnsupportedError(
                f"the graph cannot be traced: {type(cause).__name__}: {cause}"
            ) from cause
    for number, tensor in tensors.items():
        if version_of(tensor) != versions[number]:
            raise UnsupportedError(
                f"the graph writes to its argument {number}; compiled code only computes",
                hint="in evaluation mode a batch norm does not; or return the new value",
            )
    owners = {_memory(tensor): number for number, tensor in reversed(tensors.items())}
    results: list[Result] = []
    computed: list[TorchTensor] = []
    found = tensors_among(values)
    for position, value in enumerate(values):
        result = found.get(position)
        if result is None:
            results.append(Known(value))
        elif _memory(result) in owners:
            owner = owners[_memory(result)]
            results.append(_view(result, tensors[owner], owner))
        else:
            _refuse_overlap(result, computed)
            results.append(Computed(len(computed)))
            computed.append(result)
    made = tuple(partial(torch.empty, tuple(t.shape), dtype=t.dtype) for t in computed)
    return tuple(results), made


def result_of(item: Result, args: Sequence[TorchTensor], outputs: Sequence[TorchTensor]) -> object:
    """Return one result of a graph, from its arguments and what was computed."""
    match item:
        case Computed(position):
            return outputs[position]
        case Known(value):
            return value
        case View(argument, size, stride, offset):
            tensor = args[argument]
            return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def _memory(tensor: TorchTensor) -> object:
    return _address_of(tensor.untyped_storage())


def _view(result: TorchTensor, argument: TorchTensor, number: int) -> View:
    if result.dtype != argument.dtype:
        raise UnsupportedError(f"a result reads argument {number} as {result.dtype}")
    offset = result.storage_offset() - argument.storage_offset()
    return View(number, tuple(result.shape), tuple(result.stride()), offset)


def _refuse_overlap(result: TorchTensor, others: Sequence[TorchTensor]) -> None:
    """Compiled code writes each result to its own memory: what shares memory would come apart."""
    same = [other for other in others if _memory(other) == _memory(result)]
    nowhere = np.zeros(1, np.uint8)
    if any(np.shares_memory(_places(result, nowhere), _places(o, nowhere)) for o in same):
        raise UnsupportedError("two results of the graph share memory")


def _places(tensor: TorchTensor, memory: np.ndarray) -> np.ndarray:
    """Return an array of bytes laid out as the tensor, beyond the end of ``memory``."""
    size, strided = tensor.element_size(), np.lib.stride_tricks.as_strided
    offset = tensor.storage_offset() * size
    steps = (*(step * size for step in tensor.stride()), 1)
    return strided(strided(memory, (offset + 1,), (1,))[offset:], (*tensor.shape, size), steps)


def _narrowed(torch: ModuleType, graph_module: GraphModule, chosen: Sequence[int]) -> GraphModule:
    """Return a copy of the graph that returns some of its results only."""
    copied: GraphModule = torch.fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    output = next(node for node in copied.graph.nodes if node.op == "output")
    output.args = (tuple(output.args[0][number] for number in chosen),)
    copied.graph.eliminate_dead_code()
    copied.recompile()
    return copied


def numbers_as_values(graph_module: GraphModule) -> tuple[GraphModule, tuple[int, ...]]:
    """Return a graph that takes numbers where the given one takes tensors only for ``item()``.

    With ``dynamic=True``, torch passes the numbers of a module, as the momentum of a batch norm, as
    tensors of one element. What is computed from them decides attributes, so they must be known.

    Returns:
        The graph, itself if it has none, and the arguments that it takes as numbers.
    """
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    found = [
        number
        for number, node in enumerate(placeholders)
        if node.users and all(_is_item(user) for user in node.users)
    ]
    if not found:
        return graph_module, ()
    copied: GraphModule = require_torch().fx.GraphModule(
        graph_module, copy.deepcopy(graph_module.graph)
    )
    placeholders = [node for node in copied.graph.nodes if node.op == "placeholder"]
    for number in found:
        for user in tuple(placeholders[number].users):
            user.replace_all_uses_with(placeholders[number])
            copied.graph.erase_node(user)
    copied.recompile()
    return copied, tuple(found)


def _is_item(node: FxNode) -> bool:
    return node.op == "call_method" and node.target == "item"


def tensors_among(args: Sequence[object]) -> dict[int, TorchTensor]:
    """Return the tensors among arguments, by number."""
    kind = require_torch().Tensor
    rows = enumerate(cast("Sequence[TorchTensor]", args))
    return {number: value for number, value in rows if isinstance(value, kind)}


def weights_among(args: Sequence[object]) -> tuple[int, ...]:
    """Return the numbers of parameters and buffers, which torch marks in the graphs of modules.

    Those made in inference mode are left out: nobody counts the writes to them.
    """
    return tuple(
        number
        for number, tensor in tensors_among(args).items()
        if "_dynamo_static_input_type" in vars(tensor) and not tensor.is_inference()
    )


def require_inference(args: Sequence[object]) -> None:
    """Make sure that nobody wants gradients.

    Raises:
        UnsupportedError: Gradients are on, and an argument needs them.
    """
    tensors = tensors_among(args)
    if require_torch().is_grad_enabled() and any(t.requires_grad for t in tensors.values()):
        raise UnsupportedError(
            "it is called for training, as gradients are on; compiled code only infers",
            hint="with torch.no_grad(): ..., or torch.inference_mode()",
        )


def array_of(tensor: TorchTensor) -> np.ndarray:
    """Return an array of the same memory.

    Raises:
        UnsupportedError: NumPy has no such element type.
    """
    try:
        return tensor.numpy(force=True)
    except TypeError:
        torch = require_torch()
        if tensor.dtype != torch.bfloat16:
            raise UnsupportedError(f"a tensor has elements of type {tensor.dtype}") from None
    return tensor.view(torch.int16).numpy(force=True).view(numpy_dtype(DType.BFLOAT16))
