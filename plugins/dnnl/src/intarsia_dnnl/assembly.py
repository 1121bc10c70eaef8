# SPDX-License-Identifier: Apache-2.0
"""A region under construction: tensors in layouts the library chose, and what runs on them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia_runtime.plugin import UnsupportedError

from .arena import aligned_bytes
from .faults import Candidate, find_fault, is_broken, is_slow, skip_broken
from .layout_hints import LayoutHint, find_layout_hints
from .layouts import canonical, channels_last
from .names import (
    BF16,
    BINARY,
    BYTES,
    DTYPES,
    ELTWISE,
    F32,
    FPMATH,
    S32,
    USER_SCRATCHPAD,
    Arg,
    Query,
)
from .program import PostOp, PrimitiveNode, PrimitiveProgram
from .sdk import Dnnl
from .steps import ExecutionArgument
from .stored import StoredWeight
from .weights import RegionWeights


class Home(Enum):
    """Where a buffer lives."""

    ARENA = "arena"
    CONSTANT = "constant"
    ARGUMENT = "argument"
    SCRATCH = "scratch"


class MemoryBuffer(Struct, frozen=True):
    """Memory of a tensor.

    Attributes:
        number: Identity.
        home: Where it lives.
        bytes: Size; 0 for arguments.
        where: Address of a constant, number of an argument.
    """

    number: int
    home: Home
    bytes: int = 0
    where: int = 0


class MemoryTensor(Struct, frozen=True):
    """A layout and the memory it is about.

    Attributes:
        desc: Address of the memory descriptor, which itself has no offset: kernels ignore it there.
        buffer: Where it is.
        offset: Bytes before its first element; 0 in the caller's arrays.
    """

    desc: int
    buffer: MemoryBuffer
    offset: int = 0


class Execution(Struct, frozen=True):
    """A primitive and its arguments.

    Attributes:
        primitive: Address.
        arguments: Role and tensor of each.
        label: Names of the model's operators in it, for messages.
        implementation: The library's name of the kernel, e.g. ``brgconv:avx512_core``.
    """

    primitive: int
    arguments: tuple[tuple[int, MemoryTensor], ...]
    label: str
    implementation: str


Operands = Callable[[int], Sequence[tuple[int, MemoryTensor]]]
Create = Callable[[tuple[int, ...], int], "int | None"]


class Assembly:
    """Builds primitives one node at a time; see :mod:`intarsia_dnnl.primitives`.

    Attributes:
        dnnl: The library.
        program: What is built.
        shapes: Shape of each value; grows when a node has to be split.
        dtypes: The library's number of each value's element type.
        products: The same of what fp32 convolutions and matrix products multiply.
        values: Where each value is.
        executions: What runs, in order.
        scratch_bytes: The largest scratch memory any of them needs.
        keep_alive: What its executions read besides the pool.
        weights: The constants, in all layouts that are read of them.
        pool: Memory of the constants that were reordered.
        moved: What was reordered, and what came out.
    """

    def __init__(
        self,
        dnnl: Dnnl,
        program: PrimitiveProgram,
        constants: Mapping[str, np.ndarray],
        build_node: Callable[[Assembly, PrimitiveNode], None],
        narrow: AbstractSet[int] | None = None,
        weights: RegionWeights | None = None,
    ) -> None:
        self.dnnl, self._build_node = dnnl, build_node
        self.program = program
        self.shapes = [tuple(shape) for shape in program.shapes]
        few = narrow or frozenset[int]()
        self.dtypes = [BF16 if n in few else DTYPES[t] for n, t in enumerate(program.dtypes)]
        self.products = F32 if narrow is None else BF16
        self.values: dict[int, MemoryTensor] = {}
        self.executions: list[Execution] = []
        self.scratch_bytes = 0
        self.keep_alive: list[object] = []
        self.weights = RegionWeights(dnnl, program, constants) if weights is None else weights
        self.pool = self.weights.pool
        self.moved: list[tuple[MemoryTensor, MemoryTensor]] = []
        self._stored: dict[int, StoredWeight] = {}
        self._origins: dict[int, int] = {}
        self._alternates: dict[tuple[int, int, int], list[MemoryTensor]] = {}
        self._buffers = 0
        self._borrowed = aligned_bytes(0)
        self._scratch = self.new_buffer(Home.SCRATCH)
        for position, value in enumerate(program.inputs):
            self.values[value] = MemoryTensor(
                self.row_major(value), self.new_buffer(Home.ARGUMENT, 0, position)
            )
        for value in program.constants:
            self.values[value] = self._constant(value)
        self._outputs = {
            value: self.new_buffer(Home.ARGUMENT, 0, len(program.inputs) + position)
            for position, value in reversed(list(enumerate(program.outputs)))
        }
        self.layout_hints: Mapping[int, LayoutHint] = find_layout_hints(
            dnnl, program, frozenset(self._outputs)
        )

    def new_buffer(self, home: Home, size: int = 0, where: int = 0) -> MemoryBuffer:
        """Make a buffer."""
        self._buffers += 1
        return MemoryBuffer(self._buffers, home, size, where)

    def new_value(self, like: int) -> int:
        """Number a value that the program does not have, of the shape and type of another."""
        self.shapes.append(self.shapes[like])
        self.dtypes.append(self.dtypes[like])
        return len(self.shapes) - 1

    def _constant(self, value: int) -> MemoryTensor:
        stored = self.weights.stored(value)
        buffer = self.new_buffer(Home.CONSTANT, stored.plain_bytes)
        self._stored[buffer.number] = stored
        self._origins[buffer.number] = value
        self.keep_alive.append(stored)
        return MemoryTensor(self.row_major(value), buffer)

    def address(self, buffer: MemoryBuffer) -> int:
        """Return where a constant lies, row-major; unpacked if it is stored in another layout."""
        stored = self._stored.get(buffer.number)
        return buffer.where if stored is None else stored.plain().ctypes.data

    def _as_stored(self, tensor: MemoryTensor, desc: int) -> MemoryTensor | None:
        """Return the constant in the layout ``desc`` if it is stored so."""
        stored = self._stored.get(tensor.buffer.number)
        if stored is None or stored.packed is None or tensor.offset:
            return None
        seen, wanted = self.dnnl.layout(tensor.desc), self.dnnl.layout(desc)
        if (seen, wanted) != (stored.packed.view, stored.packed.layout):
            return None
        data = stored.data
        if self.dnnl.size(desc) != data.nbytes:
            return None  # with sums of the weights behind them
        return MemoryTensor(desc, self.new_buffer(Home.CONSTANT, data.nbytes, data.ctypes.data))

    def integer(self, number: int) -> MemoryTensor:
        """Return a 32-bit integer in memory, e.g. a zero point."""
        data = np.asarray([number], np.int32)
        self.keep_alive.append(data)
        buffer = self.new_buffer(Home.CONSTANT, data.nbytes, data.ctypes.data)
        return MemoryTensor(self.dnnl.plain((1,), S32), buffer)

    def row_major(self, value: int) -> int:
        """Describe the row-major layout of a value."""
        return self.dnnl.plain(self.shapes[value], self.dtypes[value])

    def free(self, value: int) -> int:
        """Describe a value whose layout the primitive may choose."""
        return self.dnnl.any_layout(self.shapes[value], self.dtypes[value])

    # Layouts ------------------------------------------------------------------------------------

    def in_layout(self, tensor: MemoryTensor, desc: int) -> MemoryTensor:
        """Return the tensor in the layout ``desc``, reordered if it is in another."""
        if self.dnnl.equal(tensor.desc, desc):
            return tensor
        key = (tensor.buffer.number, tensor.offset, tensor.desc)
        for other in self._alternates.get(key, ()):
            if self.dnnl.equal(other.desc, desc):
                return other
        result = self._reordered(tensor, desc)
        self._alternates.setdefault(key, []).append(result)
        return result

    def _reordered(self, tensor: MemoryTensor, desc: int) -> MemoryTensor:
        size = self.dnnl.size(desc)
        if tensor.buffer.home is Home.CONSTANT:
            stored = self._as_stored(tensor, desc)
            return self._reordered_constant(tensor, desc, size) if stored is None else stored
        target = MemoryTensor(desc, self.new_buffer(Home.ARENA, size))
        self.copy(tensor, target)
        return target

    def _reordered_constant(self, tensor: MemoryTensor, desc: int, size: int) -> MemoryTensor:
        """Return a constant in another layout, reordered if nobody wanted it in that before."""
        origin = self._origins.get(tensor.buffer.number)
        key = None if origin is None else (origin, tensor.offset, tensor.desc, desc)
        known = None if key is None else self.weights.find(*key)
        if known is None:
            address = self.pool.allocate(size)
            target = MemoryTensor(desc, self.new_buffer(Home.CONSTANT, size, address))
            self._run_now(self._reorder(tensor.desc, desc), tensor, target)
            self.moved.append((tensor, target))
            if key is not None:
                self.weights.keep(*key, address, size)
        else:
            target = MemoryTensor(desc, self.new_buffer(Home.CONSTANT, size, known.address))
        self._origins[target.buffer.number] = -target.buffer.where  # no number of a value
        return target

    def copy(self, source: MemoryTensor, target: MemoryTensor) -> None:
        """Run a reorder from ``source`` to ``target``."""
        arguments = ((Arg.SRC, source), (Arg.DST, target))
        self.emit(self._reorder(source.desc, target.desc), arguments, "reorder")

    def _reorder(self, source: int, target: int) -> int:
        engine = self.dnnl.engine
        attribute = self.attribute((), None)
        return self.dnnl.make(
            "reorder_primitive_desc_create", source, engine, target, engine, attribute
        )

    def _operand(self, buffer: MemoryBuffer) -> int:
        """Return where a constant can be read until this is asked again."""
        stored = self._stored.get(buffer.number)
        if stored is None or stored.packed is not None or stored.data.flags.aligned:
            return self.address(buffer)
        # A copy of each would take as much memory as all weights do.
        if self._borrowed.nbytes < stored.data.nbytes:
            self._borrowed = aligned_bytes(stored.data.nbytes)
        self._borrowed[: stored.data.nbytes] = stored.data.reshape(-1).view(np.uint8)
        return self._borrowed.ctypes.data

    def _run_now(self, primitive_desc: int, source: MemoryTensor, target: MemoryTensor) -> None:
        dnnl = self.dnnl
        scratch = aligned_bytes(dnnl.scratchpad_bytes(primitive_desc))
        arguments = (ExecutionArgument * 3)()
        memories = (
            (Arg.SRC, source.desc, self._operand(source.buffer) + source.offset),
            (Arg.DST, target.desc, target.buffer.where),
            (Arg.SCRATCHPAD, dnnl.scratchpad(primitive_desc), scratch.ctypes.data),
        )
        for slot, (arg, desc, address) in zip(arguments, memories, strict=True):
            slot.arg = arg
            slot.memory = dnnl.make("memory_create", desc, dnnl.engine, address)
        primitive = dnnl.make("primitive_create", primitive_desc)
        dnnl.call("primitive_execute", primitive, dnnl.stream, 3, ctypes.addressof(arguments))

    def canonical(self, value: int, desc: int) -> int:
        """Return the usual descriptor of a layout of a value."""
        return canonical(self.dnnl, desc, self.shapes[value], self.dtypes[value])

    def layouts(self, value: int) -> list[int]:
        """Describe layouts of an operand: its own, and those that fast kernels read."""
        last = channels_last(self.dnnl, self.shapes[value], self.dtypes[value])
        return [self.dense(value).desc, last, self.row_major(value)]

    def dense(self, value: int) -> MemoryTensor:
        """Return a value in some layout without gaps."""
        tensor, shape = self.values[value], self.shapes[value]
        strides = self.dnnl.strides(tensor.desc, len(shape))
        if strides is not None and self.dnnl.size(tensor.desc) != BYTES[self.dtypes[value]] * prod(
            shape
        ):
            return self.plain(value)
        return tensor

    def plain(self, value: int) -> MemoryTensor:
        """Return a value in row-major layout."""
        desc = self.row_major(value)
        found = self.in_layout(self.values[value], desc)
        # An equal layout may give an axis of size 1 a stride that views and kernels stumble over.
        return MemoryTensor(desc, found.buffer, found.offset)

    # Primitives ---------------------------------------------------------------------------------

    def attribute(self, post: Sequence[PostOp], result: int | None) -> int:
        """Make the attributes of a primitive with these post-ops.

        Args:
            post: Work on the result.
            result: The result, if there is such work.
        """
        dnnl = self.dnnl
        attribute = dnnl.make("primitive_attr_create")
        dnnl.call("primitive_attr_set_scratchpad_mode", attribute, USER_SCRATCHPAD)
        if self.program.fpmath_mode != "strict":
            mode = FPMATH[self.program.fpmath_mode]
            dnnl.call("primitive_attr_set_fpmath_mode", attribute, mode)
        if result is None or not post:
            return attribute
        shape = self.shapes[result]
        chain = dnnl.make("post_ops_create")
        for op in post:
            if op.kind == "eltwise":
                function = ELTWISE[op.algorithm]
                dnnl.call("post_ops_append_eltwise", chain, function, op.alpha, op.beta)
            elif op.kind == "sum":
                dnnl.call("post_ops_append_sum", chain, 1.0, 0, self.dtypes[result])
            else:
                # Kernels read an operand as large as the result in the layout of the result,
                # whatever its descriptor says; so the library has to say which that is.
                same = self.shapes[op.value] == shape
                desc = self.free(op.value) if same else self.row_major(op.value)
                dnnl.call("post_ops_append_binary", chain, BINARY[op.algorithm], desc)
        dnnl.call("primitive_attr_set_post_ops", attribute, chain)
        return attribute

    def build(
        self,
        node: PrimitiveNode,
        create: Create,
        operands: Operands,
        candidates: Sequence[tuple[int, ...]],
        prepare: Callable[[int], None] | None = None,
    ) -> None:
        """Make the primitive of ``node`` and bind its result.

        Args:
            node: What it computes.
            create: From layouts and attributes, a primitive descriptor, or ``None``.
            operands: From the primitive descriptor, its inputs.
            candidates: Layouts to try, best first; a fast implementation is preferred to an
                earlier candidate.
            prepare: Completes the attributes, e.g. with scales; then nothing is split off.

        Raises:
            UnsupportedError: The library has no implementation.
        """
        node = self._without_needless_sums(node)
        primitive_desc, post = self._choose(node, create, candidates, prepare)
        result = node.result
        if len(post) < len(node.post):
            result = self.new_value(node.result)
        arguments = list(operands(primitive_desc))
        desc = self.dnnl.queried(primitive_desc, Query.DST)
        buffer = None
        for index, op in enumerate(post):
            role = Arg.POST_OP * (index + 1) | Arg.SRC_1
            if op.kind == "binary":
                wanted = self.dnnl.queried(primitive_desc, Query.ARGUMENT, role)
                arguments.append((role, self.in_layout(self.values[op.value], wanted)))
            elif op.kind == "sum":
                buffer = self._accumulator(op.value, desc).buffer
        target = self._target(result, self.canonical(result, desc), buffer)
        self.emit(primitive_desc, (*arguments, (Arg.DST, target)), node.label or node.kind)
        self.values[result] = target
        self._build_rest(node, result, len(post))

    def _without_needless_sums(self, node: PrimitiveNode) -> PrimitiveNode:
        """An in-place sum saves nothing if the result goes straight to the caller."""
        if node.result not in self.layout_hints or not self.layout_hints[node.result].output:
            return node
        post = tuple(
            PostOp("binary", "add", value=op.value) if op.kind == "sum" else op for op in node.post
        )
        return replace(node, post=post)

    def _choose(
        self,
        node: PrimitiveNode,
        create: Create,
        candidates: Sequence[tuple[int, ...]],
        prepare: Callable[[int], None] | None,
    ) -> tuple[int, tuple[PostOp, ...]]:
        slow: tuple[int, tuple[PostOp, ...]] | None = None
        for post in (node.post, ()) if node.post and prepare is None else (node.post,):
            attribute = self.attribute(post, node.result)
            if prepare is not None:
                prepare(attribute)
            for candidate in candidates:
                made = create(candidate, attribute)
                if made is None:
                    continue
                found = Candidate(self, node, post, made)
                if (is_broken(found) and not skip_broken(found)) or find_fault(found) is not None:
                    continue
                if not is_slow(found):
                    return made, post
                slow = slow if slow is not None else (made, post)
        if slow is None:
            raise UnsupportedError(
                f"oneDNN {'.'.join(map(str, self.dnnl.version))} has no kernel for {node.kind} "
                f"with result {list(self.shapes[node.result])} on this machine",
                where=node.label or "dnnl",
                hint="leave this node to the fallback, or use a newer libdnnl.so.3",
            )
        return slow

    def _accumulator(self, value: int, desc: int) -> MemoryTensor:
        tensor = self.in_layout(self.values[value], desc)
        if tensor.buffer.home is Home.ARENA and tensor.offset == 0:
            # The sum overwrites it, so copies of it in other layouts are of the past.
            for key in [key for key in self._alternates if key[0] == tensor.buffer.number]:
                del self._alternates[key]
            return tensor
        target = MemoryTensor(desc, self.new_buffer(Home.ARENA, self.dnnl.size(desc)))
        self.copy(tensor, target)
        return target

    def _target(self, value: int, desc: int, buffer: MemoryBuffer | None) -> MemoryTensor:
        if buffer is None:
            layout_hint = self.layout_hints.get(value)
            if (
                layout_hint is not None
                and layout_hint.output
                and self.dnnl.equal(layout_hint.desc, desc)
            ):
                buffer = self._outputs[layout_hint.origin]
            else:
                buffer = self.new_buffer(Home.ARENA, self.dnnl.size(desc))
        return MemoryTensor(desc, buffer)

    def _build_rest(self, node: PrimitiveNode, value: int, done: int) -> None:
        """Run as primitives of their own the post-ops that the library would not fuse."""
        for position in range(done, len(node.post)):
            op = node.post[position]
            last = position == len(node.post) - 1
            result = node.result if last else self.new_value(node.result)
            if op.kind == "eltwise":
                attrs = {"algorithm": op.algorithm, "alpha": op.alpha, "beta": op.beta}
                self._build_node(
                    self, PrimitiveNode("eltwise", (value,), result, attrs, label=node.label)
                )
            else:
                attrs = {"algorithm": op.algorithm or "add"}
                args = (value, op.value)
                self._build_node(
                    self, PrimitiveNode("binary", args, result, attrs, label=node.label)
                )
            value = result

    def emit(
        self, primitive_desc: int, arguments: Sequence[tuple[int, MemoryTensor]], label: str
    ) -> None:
        """Create the primitive and append its execution."""
        size = self.dnnl.scratchpad_bytes(primitive_desc)
        if size:
            self.scratch_bytes = max(self.scratch_bytes, size)
            scratch = MemoryTensor(self.dnnl.scratchpad(primitive_desc), self._scratch)
            arguments = (*arguments, (Arg.SCRATCHPAD, scratch))
        primitive = self.dnnl.make("primitive_create", primitive_desc)
        implementation = self.dnnl.implementation(primitive_desc)
        self.executions.append(Execution(primitive, tuple(arguments), label, implementation))

    def commit(self) -> None:
        """Copy to the caller's arrays the outputs that were not computed in place."""
        for position, value in enumerate(self.program.outputs):
            if 0 in self.shapes[value]:
                continue
            tensor = self.values[value]
            number = len(self.program.inputs) + position
            if tensor.buffer.home is Home.ARGUMENT and tensor.buffer.where == number:
                continue
            target = MemoryTensor(self.row_major(value), self.new_buffer(Home.ARGUMENT, 0, number))
            self.copy(tensor, target)
