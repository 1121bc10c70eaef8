# SPDX-License-Identifier: Apache-2.0
"""Makes element-wise work part of the primitive before it, and gives primitives better shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from msgspec.structs import replace

from .draft import DnnlDraft
from .operators.convolution import is_strided
from .program import PostOp, PrimitiveNode
from .views import reshaped

MAX_POST_OPS = 32

_ACCEPTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "conv": frozenset({"eltwise", "binary", "sum"}),
        "deconv": frozenset({"eltwise", "binary"}),
        "matmul": frozenset({"eltwise", "binary", "sum"}),
        "pool": frozenset({"eltwise", "binary"}),
        "eltwise": frozenset({"eltwise", "binary"}),
        "binary": frozenset({"eltwise", "binary"}),
        "resampling": frozenset({"eltwise", "binary"}),
        "reduction": frozenset({"eltwise", "binary"}),
    }
)
_SWAPPABLE = frozenset({"add", "mul", "max", "min"})
_VIEWS = frozenset({"reshape", "transpose", "slice"})


def fuse(draft: DnnlDraft, outputs: Sequence[int]) -> None:
    """Rewrite ``draft.nodes``: post-ops, biases, sums in place, lower ranks.

    Args:
        draft: What to rewrite; its values keep their meaning.
        outputs: Values that the region returns.
    """
    _Fusion(draft, outputs).run()
    draft.nodes = _drop_dead(draft.nodes, outputs)
    draft.nodes = _sum_in_place(draft, outputs)
    draft.nodes = _simplify_shapes(draft)


class _Fusion:
    """One walk over the nodes; a node that takes in a later one moves to the later one's place."""

    def __init__(self, draft: DnnlDraft, outputs: Sequence[int]) -> None:
        self.draft = draft
        self.order: dict[int, PrimitiveNode] = {}  # result to node, in the order they run
        self.uses: dict[int, int] = dict.fromkeys(outputs, 1)
        for node in draft.nodes:
            for value in node.reads:
                self.uses[value] = self.uses.get(value, 0) + 1
        self.place: dict[int, int] = {}

    def run(self) -> None:
        """Fuse everything."""
        for position, node in enumerate(self.draft.nodes):
            self.place[node.result] = position
            fused = self._fused(node)
            if fused is not None:
                producer, node = fused
                del self.order[producer]
            self.order[node.result] = node
        self.draft.nodes = list(self.order.values())

    def _fused(self, node: PrimitiveNode) -> tuple[int, PrimitiveNode] | None:
        if node.kind == "eltwise":
            producer = self._producer(node.args[0], "eltwise")
            if producer is None or node.post:
                return None
            op = PostOp(
                "eltwise", node.text("algorithm"), node.number("alpha"), node.number("beta")
            )
            return producer.result, self._joined(producer, op, node)
        if node.kind == "binary":
            return self._fused_binary(node)
        return None

    def _fused_binary(self, node: PrimitiveNode) -> tuple[int, PrimitiveNode] | None:
        left, right = node.args
        algorithm = node.text("algorithm")
        choices = [(left, right)]
        if algorithm in _SWAPPABLE:
            choices.append((right, left))
        # The later producer waits least when it moves here.
        choices.sort(key=self._lateness)
        for main, other in choices:
            if main == other or self.draft.shape(main) != self.draft.shape(node.result):
                continue
            producer = self._producer(main, "binary")
            if producer is None:
                continue
            if algorithm == "add" and self._is_bias(producer, other):
                return producer.result, self._with_bias(producer, other, node)
            op = PostOp("binary", algorithm, value=other)
            return producer.result, self._joined(producer, op, node)
        return None

    def _lateness(self, choice: tuple[int, int]) -> int:
        return -self.place.get(choice[0], -1)

    def _producer(self, value: int, kind: str) -> PrimitiveNode | None:
        node = self.order.get(value)
        if node is None or self.uses.get(value) != 1 or len(node.post) >= MAX_POST_OPS:
            return None
        accepts = kind in _ACCEPTS.get(node.kind, frozenset[str]())
        return node if accepts and not _is_strided_deconv(node) else None

    def _joined(self, producer: PrimitiveNode, op: PostOp, node: PrimitiveNode) -> PrimitiveNode:
        label = f"{producer.label}+{node.label}" if len(producer.label) < 200 else producer.label
        return replace(producer, post=(*producer.post, op), result=node.result, label=label)

    def _is_bias(self, producer: PrimitiveNode, other: int) -> bool:
        if producer.kind not in ("conv", "deconv", "matmul") or producer.post:
            return False
        if len(producer.args) > 2 or not self._is_constant(other):
            return False
        axis = len(self.draft.shape(producer.result)) - 1 if producer.kind == "matmul" else 1
        size = self.draft.shape(producer.result)[axis]
        shape = self.draft.shape(other)
        return shape[axis] == size and prod(shape) == size

    def _is_constant(self, value: int) -> bool:
        while value in self.order and self.order[value].kind == "reshape":
            value = self.order[value].args[0]
        return value in self.draft.constants

    def _with_bias(self, producer: PrimitiveNode, other: int, node: PrimitiveNode) -> PrimitiveNode:
        flat = (prod(self.draft.shape(other)),)
        bias = other
        if self.draft.shape(other) != flat:
            bias = self.draft.new_value(flat, self.draft.dtypes[other])
            self.order[bias] = PrimitiveNode("reshape", (other,), bias)
        joined = self._joined(producer, PostOp("sum"), node)
        return replace(joined, args=(*producer.args, bias), post=producer.post)


def _is_strided_deconv(node: PrimitiveNode) -> bool:
    """Whether a node is one whose post-ops the library applies too often; see its lowering."""
    return node.kind == "deconv" and is_strided(node.ints("strides"))


def _drop_dead(nodes: Sequence[PrimitiveNode], outputs: Sequence[int]) -> list[PrimitiveNode]:
    """Drop nodes whose result nothing reads."""
    wanted = set(outputs)
    kept: list[PrimitiveNode] = []
    for node in reversed(nodes):
        if node.result in wanted:
            kept.append(node)
            wanted.update(node.reads)
    return kept[::-1]


def _sum_in_place(draft: DnnlDraft, outputs: Sequence[int]) -> list[PrimitiveNode]:
    """Turn an added operand that nothing reads afterwards into the accumulator."""
    memory: dict[int, int] = {}
    last: dict[int, int] = {}
    computed: set[int] = set()
    for position, node in enumerate(draft.nodes):
        for value in node.reads:
            last[memory.get(value, value)] = position
        if node.kind in _VIEWS:
            memory[node.result] = memory.get(node.args[0], node.args[0])
        else:
            computed.add(node.result)
    kept = {memory.get(value, value) for value in outputs}
    result: list[PrimitiveNode] = []
    for position, node in enumerate(draft.nodes):
        reads = [memory.get(value, value) for value in node.reads]
        if "sum" in _ACCEPTS.get(node.kind, frozenset[str]()):
            for index, op in enumerate(node.post):
                root = memory.get(op.value, op.value)
                if (
                    (op.kind, op.algorithm) == ("binary", "add")
                    and draft.shape(op.value) == draft.shape(node.result)
                    and root in computed
                    and root not in kept
                    and last[root] == position
                    and reads.count(root) == 1
                ):
                    accumulated = PostOp("sum", value=op.value)
                    post = (*node.post[:index], accumulated, *node.post[index + 1 :])
                    node = replace(node, post=post)
                    break
        result.append(node)
    return result


def _simplify_shapes(draft: DnnlDraft) -> list[PrimitiveNode]:
    """Give matrix products and convolutions the ranks that the library is fastest at."""
    result: list[PrimitiveNode] = []
    for node in draft.nodes:
        if node.kind == "matmul" and _is_flat(draft, node):
            result += reshaped(draft, node, _FlatProduct(draft.shape(node.result)).of)
        elif node.kind == "conv" and (gone := _needless_axes(draft, node)):
            numbers = dict(node.attrs)
            for key in ("strides", "dilation", "padding_low", "padding_high"):
                kept = enumerate(node.ints(key), start=2)
                numbers[key] = tuple(item for axis, item in kept if axis not in gone)
            result += reshaped(draft, replace(node, attrs=numbers), _Without(gone).of)
        else:
            result.append(node)
    return result


class _FlatProduct:
    """Shapes of a product of a batch of rows and one matrix, as a product of two matrices."""

    def __init__(self, result: tuple[int, ...]) -> None:
        self.result = result

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the flat shape of an operand or of the result."""
        if shape[:-2] != self.result[:-2] and prod(shape[:-2]) == 1 and len(shape) > 2:
            # The matrix, or an operand that is broadcast over the rows.
            return shape[-2:]
        return shape if len(shape) < 2 else (prod(shape[:-1]), *shape[-1:])


class _Without:
    """Shapes without some axes, all of size 1."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape without the axes; a bias has none of them."""
        return tuple(size for axis, size in enumerate(shape) if axis not in self.axes)


def _needless_axes(draft: DnnlDraft, node: PrimitiveNode) -> tuple[int, ...]:
    """Return the spatial axes along which a convolution does nothing, but for one."""
    data, weights, result = (draft.shape(v) for v in (*node.args[:2], node.result))
    gone = tuple(
        axis
        for axis in range(2, len(data))
        if data[axis] == weights[axis] == result[axis] == 1
        and node.ints("padding_low")[axis - 2] == node.ints("padding_high")[axis - 2] == 0
    )
    return gone[:-1] if len(gone) == len(data) - 2 else gone


def _is_flat(draft: DnnlDraft, node: PrimitiveNode) -> bool:
    shape = draft.shape(node.result)
    if len(shape) < 3 or prod(draft.shape(node.args[1])[:-2]) != 1:
        return False
    for op in node.post:
        if op.value < 0:
            continue
        other = draft.shape(op.value)
        if other[:-1] != shape[:-1] and prod(other[:-1]) != 1:
            return False
    return True
