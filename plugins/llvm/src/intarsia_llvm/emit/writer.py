# SPDX-License-Identifier: Apache-2.0
"""Writes one LLVM function: numbered values, labels, and what is known in the current scope."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct, field


class _Scope(Struct):
    """A loop or a branch that is being written.

    Attributes:
        preheader: Loop-invariant instructions in front of a loop; ``None`` for a branch.
        shared: Instructions that have been written in it once.
    """

    preheader: list[str] | None
    shared: list[str] = field(default_factory=list[str])


class Declarations(Struct):
    """What the functions of a module share.

    Attributes:
        half: Whether the machine converts float16 itself; else integer arithmetic does.
        bare: Whether there is no operating system: addresses of 32 bits, a small stack.
        scale: Whether an instruction multiplies by a power of two.
        rounds: Whether an instruction rounds floats to integers of 32 bits.
        packs: Words that saturating packs make bytes of: 8 with AVX2, 32 with AVX-512; else 0.
        byte_tables: What looks up bytes in tables: 2 is ``vpermi2b``, 1 ``vpermi2w``; 0 if nothing.
        narrows: Whether conversions saturate, to 32 bits and from them to fewer: NEON of AArch64.
        fma: Whether an instruction multiplies and adds.
        bfloat: Whether an instruction rounds to bfloat16, and subnormal numbers may become 0.
        serial: Whether parallel loops run on the calling thread.
        hides_counters: Whether LLVM shall not know how loops count: an instruction adds a scaled
            index to a pointer.
        lines: External and intrinsic functions by name, each declared once.
        procedures: Kernels of this module, which is linked from several, that others call, by name.
    """

    half: bool = True
    bare: bool = False
    scale: bool = False
    rounds: bool = False
    packs: int = 0
    byte_tables: int = 0
    narrows: bool = False
    fma: bool = False
    bfloat: bool = False
    serial: bool = False
    hides_counters: bool = False
    lines: dict[str, str] = field(default_factory=dict[str, str])
    procedures: dict[str, str] = field(default_factory=dict[str, str])

    def procedure(self, name: str, kinds: tuple[str, ...]) -> None:
        """Declare a kernel that another one calls."""
        self.procedures.setdefault(name, f"declare hidden void @{name}({', '.join(kinds)})")

    def use(self, result: str, name: str, parameters: tuple[str, ...]) -> str:
        """Declare ``name`` if it is not yet, and return its symbol."""
        self.lines.setdefault(name, f"declare {result} @{name}({', '.join(parameters)})")
        return f"@{name}"


class FunctionWriter(Struct):
    """Text of one function under construction.

    Attributes:
        declarations: Shared by all functions of a module.
        lines: Instructions so far.
        allocas: Instructions of the entry block.
        label: Label of the block being written.
        scopes: Loops and branches that are open, from the outermost.
        depths: How many of them are around the definition of a value; those left out are of none.
        shared: Values of instructions that always give the same, by the instruction.
        values: Values computed before for expressions of this statement, by identity.
        loaded: What this block has read of a buffer, and nobody has written since: the value by
            the instruction, by the buffer's pointer.
    """

    declarations: Declarations
    lines: list[str] = field(default_factory=list[str])
    allocas: list[str] = field(default_factory=list[str])
    label: str = "start"
    count: int = 0
    scopes: list[_Scope] = field(default_factory=list[_Scope])
    depths: dict[str, int] = field(default_factory=dict[str, int])
    shared: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[int, str] = field(default_factory=dict[int, str])
    loaded: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def emit(self, instruction: str) -> str:
        """Write an instruction that gives a value and return the value's name."""
        name = self.define()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def chosen(self, value: str, scalar: str, lanes: int, order: Sequence[int]) -> str:
        """Write a vector of some lanes of another; itself if they are all of them."""
        if list(order) == list(range(lanes)):
            return value
        kind = f"<{lanes} x {scalar}>"
        mask = ", ".join(f"i32 {lane}" for lane in order)
        return self.emit(
            f"shufflevector {kind} {value}, {kind} poison, <{len(order)} x i32> <{mask}>"
        )

    def define(self) -> str:
        """Return the name of a new value of the current scope."""
        self.count += 1
        name = f"%v{self.count}"
        if self.scopes:
            self.depths[name] = len(self.scopes)
        return name

    def once(self, instruction: str, first: str, *others: str) -> str:
        """Return the value of an instruction, which is written unless it has been in this scope.

        It is written before the loops that do not change it, as far as no branch is in between.

        Args:
            instruction: Gives the same for the same operands: it neither reads memory nor calls,
                and has no effect.
            first: A value in it.
            others: The other values in it.
        """
        value_numbers = self.shared.get(instruction)
        if value_numbers is not None:
            return value_numbers
        depth = max([self.depths.get(operand, 0) for operand in (first, *others)])
        lines, outer = self.lines, len(self.scopes)
        while outer > depth and (preheader := self.scopes[outer - 1].preheader) is not None:
            lines, outer = preheader, outer - 1
        self.count += 1
        name = f"%v{self.count}"
        lines.append(f"  {name} = {instruction}")
        if outer:
            self.depths[name] = outer
            self.scopes[outer - 1].shared.append(instruction)
        self.shared[instruction] = name
        return name

    def share(self, key: str, value: str) -> None:
        """Have a value of this scope found under a key in :attr:`shared`."""
        self.shared[key] = value
        if self.scopes:
            self.scopes[-1].shared.append(key)

    def opaque(self, pointer: str) -> str:
        """Return a pointer as a value of unknown origin, at no cost.

        What LLVM's strength reduction finds out of the loops around takes half of all its code
        generation, and changes nothing: what a loop adds to such a pointer is all that matters.
        """
        text = f'call ptr asm "", "=r,0"(ptr {pointer}) nounwind memory(none)'
        return self.once(text, pointer)

    def load(self, memory: str, pointer: str, alignment: int, buffer: str) -> str:
        """Return what lies at an address of a buffer, which is read once while it stays the same.

        Args:
            memory: Type of what is read.
            pointer: The address.
            alignment: Of the address, in bytes.
            buffer: Pointer of the buffer that it lies in; buffers do not overlap.
        """
        instruction = f"load {memory}, ptr {pointer}, align {alignment}"
        value_numbers = self.loaded.setdefault(buffer, {})
        if instruction not in value_numbers:
            value_numbers[instruction] = self.emit(instruction)
        return value_numbers[instruction]

    def store(self, memory: str, value: str, pointer: str, alignment: int, buffer: str) -> None:
        """Write a value to an address of a buffer."""
        self.do(f"store {memory} {value}, ptr {pointer}, align {alignment}")
        self.loaded.pop(buffer, None)

    def do(self, instruction: str) -> None:
        """Write an instruction that gives no value."""
        self.lines.append(f"  {instruction}")

    def fresh_label(self) -> str:
        """Return a new label."""
        self.count += 1
        return f"b{self.count}"

    def start_block(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.label = label
        self.loaded.clear()

    def alloca(self, memory: str, elements: int, alignment: int) -> str:
        """Reserve memory in the function's frame."""
        self.count += 1
        name = f"%v{self.count}"
        self.allocas.append(f"  {name} = alloca [{elements} x {memory}], align {alignment}")
        return name

    @contextmanager
    def branch(self) -> Generator[None]:
        """Forget at the end what was computed inside: it does not dominate what follows."""
        with self._scope(_Scope(None)):
            yield

    @contextmanager
    def loop(self) -> Generator[None]:
        """As a branch; what does not change in the loop is written where it is opened."""
        place, scope = len(self.lines), _Scope([])
        with self._scope(scope):
            yield
        self.lines[place:place] = scope.preheader or ()

    @contextmanager
    def _scope(self, scope: _Scope) -> Generator[None]:
        values = len(self.values)
        self.scopes.append(scope)
        yield
        self.scopes.pop()
        for instruction in scope.shared:
            del self.shared[instruction]
        while len(self.values) > values:
            self.values.popitem()
