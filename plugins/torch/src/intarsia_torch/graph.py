# SPDX-License-Identifier: Apache-2.0
"""Import the graphs of ``torch.compile``, each for the shapes and sizes of given arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_onnx import from_onnx
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Size

from .aten.in_place import memory_of
from .onnx_export import export, onnx_model, quiet, require_torch

if TYPE_CHECKING:
    from .types import FxNode, GraphModule, TorchTensor


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
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size


Result: TypeAlias = "Computed | Known | View"

version_of: Callable[[TorchTensor], int] = attrgetter("_version")
"""Count of the writes to a tensor, as torch keeps it; not of those through ``tensor.data``."""


class Imported(Struct, frozen=True, eq=False):
    """A graph as a module.

    Attributes:
        module: What is to be compiled; ``None`` if nothing is computed.
        inputs: The number of the graph's argument for each parameter of ``module``.
        results: What the graph returns, in order.
        outputs: Element type of each output of ``module``, as torch has it.
        symbols: The number of the argument that gives each size variable.
        carried: Of ``inputs``, the arguments that are sizes; such a one is passed as the shape of
            an input without elements.
    """

    module: IRModule | None
    inputs: tuple[int, ...]
    results: tuple[Result, ...]
    outputs: tuple[object, ...]
    symbols: Mapping[str, int] = MappingProxyType({})
    carried: frozenset[int] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether it takes arguments of any sizes that torch has guards for."""
        return bool(self.symbols)


def specialize(
    graph_module: GraphModule, args: Sequence[object], weights: Collection[int]
) -> Imported:
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
    require_cpu(tensors.values())
    with quiet(torch):
        results, outputs = _trace(torch, graph_module, args)
        if not outputs:
            return Imported(None, (), results, ())
        chosen = [number for number, item in enumerate(results) if isinstance(item, Computed)]
        blanks = {n: torch.empty(t.shape, dtype=t.dtype) for n, t in tensors.items()}
        examples = tuple(blanks.get(number, value) for number, value in enumerate(args))
        exported = export(torch, _narrowed(torch, graph_module, chosen), examples, {})
        names = [spec.arg.name for spec in exported.graph_signature.input_specs[-len(args) :]]
        constants = {names[number]: array_of(tensors[number]) for number in weights}
        with onnx_model(torch, exported) as model:
            module = from_onnx(model, constants=constants)
    inputs = tuple(names.index(param.name) for param in module.main.params)
    return Imported(module, inputs, results, outputs)


def _trace(
    torch: ModuleType, graph_module: GraphModule, args: Sequence[object]
) -> tuple[tuple[Result, ...], tuple[object, ...]]:
    """Return what becomes of each result, and the element types of those to be computed."""
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
    owners = {memory_of(tensor): number for number, tensor in reversed(tensors.items())}
    results: list[Result] = []
    computed: list[TorchTensor] = []
    found = tensors_among(values)
    for position, value in enumerate(values):
        result = found.get(position)
        if result is None:
            results.append(Known(value))
        elif memory_of(result) in owners:
            owner = owners[memory_of(result)]
            results.append(_view(result, tensors[owner], owner))
        else:
            _refuse_overlap(result, computed)
            results.append(Computed(len(computed)))
            computed.append(result)
    return tuple(results), tuple(tensor.dtype for tensor in computed)


def _view(result: TorchTensor, argument: TorchTensor, number: int) -> View:
    if result.dtype != argument.dtype:
        raise UnsupportedError(f"a result reads argument {number} as {result.dtype}")
    offset = result.storage_offset() - argument.storage_offset()
    return View(number, tuple(result.shape), tuple(result.stride()), offset)


def _refuse_overlap(result: TorchTensor, others: Sequence[TorchTensor]) -> None:
    """Compiled code writes each result to its own memory: what shares memory would come apart."""
    same = [other for other in others if memory_of(other) == memory_of(result)]
    own, size = _layout(result), result.element_size()
    if any(overlap(own, _layout(other), size) for other in same):
        raise UnsupportedError("two results of the graph share memory")


def _layout(tensor: TorchTensor) -> tuple[Sequence[int], ...]:
    return tensor.shape, tensor.stride(), (tensor.storage_offset(),)


def overlap(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]], size: int) -> bool:
    """Whether two tensors of one memory share an element.

    Args:
        one: Shape, strides and offset of a tensor, in elements.
        other: Those of the other.
        size: Bytes of an element.
    """
    nowhere = np.zeros(1, np.uint8)
    return np.shares_memory(_places(one, size, nowhere), _places(other, size, nowhere))


def _places(layout: Sequence[Sequence[int]], size: int, memory: np.ndarray) -> np.ndarray:
    """Return an array of bytes laid out as a tensor, beyond the end of ``memory``."""
    strided = np.lib.stride_tricks.as_strided
    shape, stride, (begin,) = layout
    offset = begin * size
    steps = (*(step * size for step in stride), 1)
    return strided(strided(memory, (offset + 1,), (1,))[offset:], (*shape, size), steps)


def _narrowed(torch: ModuleType, graph_module: GraphModule, chosen: Sequence[int]) -> GraphModule:
    """Return a copy of the graph that returns some of its results only."""
    copied: GraphModule = torch.fx.GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    output = next(node for node in copied.graph.nodes if node.op == "output")
    output.args = (tuple(output.args[0][number] for number in chosen),)
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


def require_cpu(tensors: Iterable[TorchTensor]) -> None:
    """Make sure that all tensors are in the memory of the CPU.

    Raises:
        UnsupportedError: One is not.
    """
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise UnsupportedError(
                f"a tensor is on '{tensor.device}', and this version compiles graphs of the CPU",
                hint="model.to('cpu')",
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
