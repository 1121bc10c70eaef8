# SPDX-License-Identifier: Apache-2.0
"""Types of torch, as far as its objects are asked here; torch itself need not be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence, Set
from typing import Protocol

import numpy as np


class TorchDevice(Protocol):
    """Where the memory of a tensor is."""

    type: str


class Storage(Protocol):
    """A ``torch.UntypedStorage``: the memory that tensors share."""

    _cdata: int


class SymExpression(Protocol):
    """A SymPy expression of integers."""

    args: tuple[SymExpression, ...]
    is_Integer: bool
    is_Symbol: bool
    is_number: bool
    free_symbols: Set[SymExpression]


class SymNode(Protocol):
    """The inside of a ``torch.SymInt``."""

    expr: SymExpression


class SymInt(Protocol):
    """A ``torch.SymInt``: an integer that is an expression over symbols."""

    node: SymNode


class SymBool(Protocol):
    """A ``torch.SymBool``: a relation of expressions over symbols."""

    node: SymNode


class ShapeEnv(Protocol):
    """A ``ShapeEnv``: the symbols of a tracing, and what must hold of them."""

    backed_var_to_val: Mapping[object, int]
    guards: Sequence[object]
    var_to_range: MutableMapping[SymExpression, object]


class FakeMode(Protocol):
    """A ``FakeTensorMode``: tensors made inside have shapes and no contents."""

    shape_env: ShapeEnv | None

    def from_tensor(
        self,
        tensor: TorchTensor,
        *,
        static_shapes: bool | None = None,
        symbolic_context: object = None,
        source: object = None,
    ) -> TorchTensor:
        """The tensor without contents."""
        ...

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> None: ...


class TorchTensor(Protocol):
    """A ``torch.Tensor``; strides and offsets count elements."""

    shape: tuple[int, ...]
    dtype: object
    device: TorchDevice
    requires_grad: bool

    def item(self) -> object:
        """The one element as a number."""
        ...

    def stride(self) -> tuple[int, ...]:
        """Elements from one index to the next, for each dimension."""
        ...

    def storage_offset(self) -> int:
        """Elements of the memory in front of the first."""
        ...

    def element_size(self) -> int:
        """Bytes of an element."""
        ...

    def untyped_storage(self) -> Storage:
        """The memory that it is a view of."""
        ...

    def data_ptr(self) -> int:
        """Address of the first element."""
        ...

    def is_contiguous(self) -> bool:
        """Whether the elements lie in order."""
        ...

    def contiguous(self) -> TorchTensor:
        """The tensor, copied if its elements do not lie in order."""
        ...

    def is_neg(self) -> bool:
        """Whether the elements in memory are the negatives of the tensor's."""
        ...

    def resolve_neg(self) -> TorchTensor:
        """The tensor, copied if its elements in memory are the negatives."""
        ...

    def is_inference(self) -> bool:
        """Whether it was made in inference mode."""
        ...

    def as_strided(self, size: Sequence[int], stride: Sequence[int], offset: int) -> TorchTensor:
        """Another view of the same memory."""
        ...

    def view(self, dtype: object) -> TorchTensor:
        """The same memory as elements of another type of the same size."""
        ...

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The same memory as an array, where NumPy has the element type."""
        ...


class Module(Protocol):
    """A ``torch.nn.Module``."""

    training: bool


class FxNode(Protocol):
    """A ``torch.fx.Node``."""

    op: str
    name: str
    target: object
    args: tuple[Sequence[object], ...]
    kwargs: Mapping[str, object]
    users: Mapping[FxNode, object]
    meta: Mapping[str, object]

    def replace_all_uses_with(self, other: FxNode) -> object:
        """Let all users of it use another node."""
        ...


class SchemaArgument(Protocol):
    """An argument in the schema of an operator."""

    name: str
    default_value: object


class OperatorSchema(Protocol):
    """The schema of an operator."""

    name: str
    overload_name: str
    arguments: Sequence[SchemaArgument]
    is_mutable: bool


class AtenOperator(Protocol):
    """A ``torch._ops.OpOverload``."""

    _schema: OperatorSchema


class FxGraph(Protocol):
    """A ``torch.fx.Graph``."""

    nodes: Iterable[FxNode]

    def erase_node(self, node: FxNode) -> None:
        """Remove a node without users."""
        ...


class GraphModule(Protocol):
    """A ``torch.fx.GraphModule``: a graph that can be called."""

    graph: FxGraph

    def __call__(self, *args: object) -> tuple[object, ...]:
        """Run it in PyTorch."""
        ...

    def recompile(self) -> object:
        """Take notice of changes of the graph."""
        ...


class InputName(Protocol):
    """The argument of an input of an exported program."""

    name: str


class InputKind(Protocol):
    """What an input of an exported program is."""

    name: str


class InputSpec(Protocol):
    """An input of an exported program; ``target`` is the name of a weight."""

    arg: InputName
    kind: InputKind
    target: str | None


class SymbolRange(Protocol):
    """The values that a symbol may have."""

    lower: SymExpression | int
    upper: SymExpression | int


class ExportSignature(Protocol):
    """Inputs of an exported program, and the names of what it writes to."""

    input_specs: Sequence[InputSpec]
    buffers_to_mutate: Mapping[str, str]
    user_inputs_to_mutate: Mapping[str, str]


class CallEntry(Protocol):
    """A call of a module in an exported program; ``in_spec`` is the tree of its arguments."""

    class Signature(Protocol):
        """How the module is called."""

        in_spec: object
        forward_arg_names: Sequence[str] | None

    signature: Signature


class Exported(Protocol):
    """A ``torch.export.ExportedProgram``."""

    @property
    def module_call_graph(self) -> Sequence[CallEntry]:
        """Calls of modules, the program's own first."""
        ...

    @property
    def graph_signature(self) -> ExportSignature:
        """What its inputs and outputs are."""
        ...

    @property
    def graph_module(self) -> GraphModule:
        """Its operators."""
        ...

    @property
    def range_constraints(self) -> Mapping[object, SymbolRange]:
        """The values that each symbol may have."""
        ...

    @property
    def state_dict(self) -> Mapping[str, TorchTensor]:
        """Parameters and buffers by name."""
        ...

    @property
    def constants(self) -> Mapping[str, TorchTensor]:
        """Other tensors by name."""
        ...

    def run_decompositions(self, decomp_table: Mapping[object, Callable[..., object]]) -> Exported:
        """The same with some operators in terms of others."""
        ...
