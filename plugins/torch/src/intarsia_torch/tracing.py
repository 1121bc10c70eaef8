# SPDX-License-Identifier: Apache-2.0
"""Trace a graph of ``torch.compile`` to ATen operators once, for all sizes that torch leaves open.

The tracing uses the symbols and the environment of dynamo. What it assumes of sizes becomes a guard
of torch, which compiles anew where a call breaks it; so tracing belongs into the call of the
backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from intarsia_runtime.errors import UnsupportedError

from .aten.importer import unknown_among
from .aten.in_place import WriteToViewError, check_writes
from .aten.sizes import examples_of
from .attention import encoder_layer, self_attention
from .kinds import calls_one_of

if TYPE_CHECKING:
    from .types import AtenOperator, FakeMode, GraphModule, TorchTensor

MOST_ROUNDS = 3
"""How often what a decomposition brings is decomposed again."""


class Traced(Struct, frozen=True, eq=False):
    """A graph of ATen operators, and the arguments that it was traced with.

    Attributes:
        graph_module: The graph; ``meta["val"]`` of its nodes has shapes and element types.
        examples: Example values of the symbols.
    """

    graph_module: GraphModule
    examples: Mapping[str, int]


class Tracer:
    """Traces one graph, for any numbers that it takes.

    Args:
        torch: The package.
        graph_module: The graph.
        args: What it is about to be called with; tensors, sizes and numbers.
    """

    def __init__(
        self, torch: ModuleType, graph_module: GraphModule, args: Sequence[object]
    ) -> None:
        self._torch = torch
        self._graph_module = graph_module
        guards = import_module("torch._guards")
        context = guards.TracingContext.try_get()
        mode: FakeMode | None = None
        contexts: Mapping[object, object] = {}
        if context is not None and context.fake_mode is not None:
            mode, contexts = context.fake_mode, context.tensor_to_context
        if mode is None:
            mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode()
        self._mode = cast("FakeMode", mode)
        with self._mode:
            self._fakes = [self._fake(value, contexts) for value in args]

    def _fake(self, value: object, contexts: Mapping[object, object]) -> object:
        if not isinstance(value, self._torch.Tensor):
            return value
        tensor = cast("TorchTensor", value)
        symbolic = contexts.get(tensor)
        source = None if symbolic is None else attrgetter("tensor_source")(symbolic)
        static = True if symbolic is None else None
        return self._mode.from_tensor(
            tensor, static_shapes=static, symbolic_context=symbolic, source=source
        )

    def takes(self, args: Sequence[object]) -> bool:
        """Whether arguments have the sizes that are numbers in the tracing."""
        tensor = self._torch.Tensor
        for fake, arg in zip(self._fakes, args, strict=True):
            if isinstance(fake, tensor) and isinstance(arg, tensor):
                shape = cast(
                    "Sequence[object]", cast("TorchTensor", fake).shape
                )  # some are symbols
                own = cast("TorchTensor", arg).shape
                if len(shape) != len(own):
                    return False
                rows = zip(shape, own, strict=True)
                if any(isinstance(size, int) and size != number for size, number in rows):
                    return False
        return True

    def trace(self, numbers: Mapping[int, object], *, late: bool = False) -> Traced:
        """Trace the graph.

        Args:
            numbers: Values of arguments that the graph takes as numbers, by position.
            late: Whether torch has made its guards already, so that none may be added.

        Raises:
            UnsupportedError: It cannot be traced, or another set of sizes would need other guards.
        """
        environment = self._mode.shape_env
        before = 0 if environment is None else len(environment.guards)
        inputs = [numbers.get(n, value) for n, value in enumerate(self._fakes)]
        made = self._decomposed(inputs)
        after = 0 if environment is None else len(environment.guards)
        if late and after > before:
            raise UnsupportedError("a new number needs new guards of sizes")
        return Traced(made, examples_of(environment))

    def _decomposed(self, inputs: Sequence[object]) -> GraphModule:
        """Trace, and once more with operators that no converter knows in terms of others."""
        autocast = self._torch.is_autocast_enabled("cpu") or _enters_autocast(self._graph_module)
        how = _Form(casts=autocast)
        table = fused(self._torch)
        found = self._made(inputs, table, how)
        try:
            check_writes(tuple(found.graph.nodes))
        except WriteToViewError:
            how = _Form(casts=autocast, writes=False)
            found = self._made(inputs, table, how)
        for _ in range(MOST_ROUNDS):
            known = decompositions(unknown_among(tuple(found.graph.nodes)))
            if not known:
                break
            table.update(known)
            found = self._made(inputs, table, how)
        return found

    def _made(
        self,
        inputs: Sequence[object],
        table: Mapping[object, Callable[..., object]],
        how: _Form,
    ) -> GraphModule:
        proxies = import_module("torch.fx.experimental.proxy_tensor")
        function: Callable[..., object] = self._graph_module
        if not how.writes:
            function = self._torch.func.functionalize(function, remove="mutations_and_views")
        trace = proxies.make_fx(
            function,
            decomposition_table=table,
            tracing_mode="real",
            pre_dispatch=how.writes and not how.casts,
            _allow_non_fake_inputs=True,
        )
        with ExitStack() as stack:
            stack.enter_context(self._torch.no_grad())
            stack.enter_context(self._mode)
            try:
                return trace(*inputs)
            except Exception as cause:  # whatever PyTorch raises where contents are needed
                raise UnsupportedError(
                    f"the graph cannot be traced: {type(cause).__name__}: {cause}"
                ) from cause


class _Form(Struct, frozen=True):
    """What operators of a traced graph may do.

    Attributes:
        casts: Whether the casts of autocast are operators; composite operators are taken apart.
        writes: Whether operators may write to their arguments; if not, as before.
    """

    casts: bool = False
    writes: bool = True


def _enters_autocast(graph_module: GraphModule) -> bool:
    """Whether a graph switches autocast on or off."""
    nodes = graph_module.graph.nodes
    return any(calls_one_of(node.target, ("_enter_autocast",)) for node in nodes)


def fused(torch: ModuleType) -> dict[object, Callable[..., object]]:
    """Return decompositions of the fused operators of PyTorch's own modules."""
    names = torch.ops.aten
    return {
        names._transformer_encoder_layer_fwd.default: partial(encoder_layer, torch),
        names._native_multi_head_attention.default: partial(self_attention, torch),
    }


def decompositions(operators: Sequence[AtenOperator]) -> dict[object, Callable[..., object]]:
    """Return PyTorch's own decompositions of operators, of those that have one."""
    if not operators:
        return {}
    module = import_module("torch._decomp")
    tables = (module.core_aten_decompositions(), module.decomposition_table)
    found: dict[object, Callable[..., object]] = {}
    for item in operators:
        for table in tables:
            if item in table:
                found[item] = table[item]
                break
    return found
