# SPDX-License-Identifier: Apache-2.0
"""Arguments of exported functions: checked against static descriptors before anything reads them.

A descriptor is ``{i8 code, i8 bits, i16 lanes, i32 ndim, ptr shape, ptr messages}``; ``messages``
are the sentences of :mod:`intarsia_loops.codegen.arguments` about this argument, in their order.
"""

from __future__ import annotations

from msgspec import Struct, field

from intarsia_loops.codegen.arguments import dlpack_code, faults_of
from intarsia_runtime.artifact.plan import TensorSpec

from .open_sizes import checked_shape


class ModuleConstants(Struct):
    """Constants of the module: strings, shapes and descriptors, each value once."""

    lines: list[str] = field(default_factory=list[str])
    names: dict[tuple[str, object], str] = field(default_factory=dict[tuple[str, object], str])

    def _add(self, kind: str, key: object, text: str) -> str:
        if (kind, key) not in self.names:
            name = f"@intarsia.{kind}{len(self.names)}"
            self.names[kind, key] = name
            self.lines.append(f"{name} = private unnamed_addr constant {text}")
        return self.names[kind, key]

    def string(self, text: str) -> str:
        """Return a zero-terminated UTF-8 string."""
        data = text.encode("utf-8") + b"\0"
        plain = "".join(
            chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data
        )
        return self._add("text", text, f'[{len(data)} x i8] c"{plain}"')

    def shape(self, shape: tuple[int, ...]) -> str:
        """Return the sizes as an array of ``i64``."""
        shape = checked_shape(shape)
        values = ", ".join(f"i64 {size}" for size in shape) or "i64 0"
        return self._add("shape", shape, f"[{max(1, len(shape))} x i64] [{values}], align 8")

    def pointers(self, names: tuple[str, ...]) -> str:
        """Return an array of addresses."""
        values = ", ".join(f"ptr {name}" for name in names)
        return self._add("table", names, f"[{len(names)} x ptr] [{values}], align 8")

    def descriptors(self, what: tuple[tuple[str, TensorSpec], ...]) -> str:
        """Return the descriptors of arguments, each given as ``input 'x'`` and its type."""
        rows: list[str] = []
        for called, spec in what:
            messages = self.pointers(tuple(self.string(fault) for fault in faults_of(called, spec)))
            rows.append(
                "{ i8, i8, i16, i32, ptr, ptr } "
                f"{{ i8 {dlpack_code(spec.dtype)}, i8 {spec.dtype.bits}, i16 1, "
                f"i32 {len(spec.shape)}, ptr {self.shape(spec.shape)}, ptr {messages} }}"
            )
        kind = "{ i8, i8, i16, i32, ptr, ptr }"
        return self._add("args", what, f"[{len(rows)} x {kind}] [{', '.join(rows)}], align 8")


CHECK_TEXT = """
declare extern_weak void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)

@intarsia.error.kind = private unnamed_addr constant [11 x i8] c"ValueError\\00"
@intarsia.error.count = private unnamed_addr constant [26 x i8] c"wrong number of arguments\\00"

define internal i32 @intarsia.fail(ptr %message) noinline optnone cold #0 {
  %absent = icmp eq ptr @TVMFFIErrorSetRaisedFromCStr, null
  br i1 %absent, label %done, label %tell
tell:
  call void @TVMFFIErrorSetRaisedFromCStr(ptr @intarsia.error.kind, ptr %message)
  br label %done
done:
  ret i32 -1
}

define internal ptr @intarsia.tensor(ptr %any) alwaysinline #0 {
start:
  %type = load i32, ptr %any, align 8
  %slot = getelementptr i8, ptr %any, i64 8
  %object = load ptr, ptr %slot, align 8
  %held = icmp eq i32 %type, 70
  %inside = getelementptr i8, ptr %object, i64 24
  %given = icmp eq i32 %type, 7
  %plain = select i1 %given, ptr %object, ptr null
  %tensor = select i1 %held, ptr %inside, ptr %plain
  ret ptr %tensor
}

define internal ptr @intarsia.data(ptr %tensor) alwaysinline #0 {
  %base = load ptr, ptr %tensor, align 8
  %slot = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %slot, align 8
  %data = getelementptr i8, ptr %base, i64 %offset
  ret ptr %data
}

; Checks %count arguments and puts their data pointers into %out; -1 and an error if one is wrong.
define internal i32 @intarsia.check(ptr %args, ptr %rows, i64 %count, ptr %out) noinline #0 {
start:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %good, label %argument
argument:
  %i = phi i64 [ 0, %start ], [ %i.next, %accept ]
  %any = getelementptr [16 x i8], ptr %args, i64 %i
  %row = getelementptr { i8, i8, i16, i32, ptr, ptr }, ptr %rows, i64 %i
  %messages.slot = getelementptr i8, ptr %row, i64 16
  %messages = load ptr, ptr %messages.slot, align 8
  %tensor = call ptr @intarsia.tensor(ptr %any)
  %no.tensor = icmp eq ptr %tensor, null
  br i1 %no.tensor, label %bad, label %device
device:
  %device.slot = getelementptr i8, ptr %tensor, i64 8
  %device.type = load i32, ptr %device.slot, align 4
  %elsewhere = icmp ne i32 %device.type, 1
  br i1 %elsewhere, label %bad, label %dtype
dtype:
  %dtype.slot = getelementptr i8, ptr %tensor, i64 20
  %dtype.is = load i32, ptr %dtype.slot, align 4
  %dtype.must = load i32, ptr %row, align 8
  %other.dtype = icmp ne i32 %dtype.is, %dtype.must
  br i1 %other.dtype, label %bad, label %rank
rank:
  %rank.slot = getelementptr i8, ptr %tensor, i64 16
  %rank.is = load i32, ptr %rank.slot, align 4
  %rank.must.slot = getelementptr i8, ptr %row, i64 4
  %rank.must = load i32, ptr %rank.must.slot, align 4
  %shape.slot = getelementptr i8, ptr %tensor, i64 24
  %shape = load ptr, ptr %shape.slot, align 8
  %must.slot = getelementptr i8, ptr %row, i64 8
  %must = load ptr, ptr %must.slot, align 8
  %strides.slot = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides.slot, align 8
  %other.rank = icmp ne i32 %rank.is, %rank.must
  br i1 %other.rank, label %bad, label %sizes
sizes:
  %n = zext i32 %rank.is to i64
  br label %size.head
size.head:
  %d = phi i64 [ %n, %sizes ], [ %d.next, %size.next ]
  %stride.must = phi i64 [ 1, %sizes ], [ %stride.next, %size.next ]
  %loose = phi i1 [ false, %sizes ], [ %loose.next, %size.next ]
  %empty = phi i1 [ false, %sizes ], [ %empty.next, %size.next ]
  %sized = icmp eq i64 %d, 0
  br i1 %sized, label %layout, label %size
size:
  %d.next = add i64 %d, -1
  %size.is.slot = getelementptr i64, ptr %shape, i64 %d.next
  %size.is = load i64, ptr %size.is.slot, align 8
  %size.must.slot = getelementptr i64, ptr %must, i64 %d.next
  %size.must = load i64, ptr %size.must.slot, align 8
  %any.size = icmp eq i64 %size.must, -1
  %unlike = icmp ne i64 %size.is, %size.must
  %forced = xor i1 %any.size, true
  %other.size = and i1 %unlike, %forced
  br i1 %other.size, label %bad, label %stride
stride:
  %compact = icmp eq ptr %strides, null
  %single = icmp eq i64 %size.is, 1
  %skip = or i1 %compact, %single
  br i1 %skip, label %size.next, label %stride.check
stride.check:
  %stride.slot = getelementptr i64, ptr %strides, i64 %d.next
  %stride.is = load i64, ptr %stride.slot, align 8
  %other.stride = icmp ne i64 %stride.is, %stride.must
  br label %size.next
size.next:
  %differs = phi i1 [ false, %stride ], [ %other.stride, %stride.check ]
  %loose.next = or i1 %loose, %differs
  %zero = icmp eq i64 %size.is, 0
  %empty.next = or i1 %empty, %zero
  %stride.next = mul i64 %stride.must, %size.is
  br label %size.head
layout:
  %full = xor i1 %empty, true
  %scattered = and i1 %loose, %full
  br i1 %scattered, label %bad, label %alignment
alignment:
  %data = call ptr @intarsia.data(ptr %tensor)
  %bits.slot = getelementptr i8, ptr %row, i64 1
  %bits = load i8, ptr %bits.slot, align 1
  %bytes = lshr i8 %bits, 3
  %mask.small = sub i8 %bytes, 1
  %mask = zext i8 %mask.small to i64
  %address = ptrtoint ptr %data to i64
  %low = and i64 %address, %mask
  %crooked = icmp ne i64 %low, 0
  br i1 %crooked, label %bad, label %accept
accept:
  %out.slot = getelementptr ptr, ptr %out, i64 %i
  store ptr %data, ptr %out.slot, align 8
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %argument, label %good
good:
  ret i32 0
bad:
  %fault = phi i64 [ 0, %argument ], [ 1, %device ], [ 2, %dtype ], [ 3, %rank ], [ 3, %size ],
                   [ 4, %layout ], [ 5, %alignment ]
  %message.slot = getelementptr ptr, ptr %messages, i64 %fault
  %message = load ptr, ptr %message.slot, align 8
  %failed = call i32 @intarsia.fail(ptr %message)
  ret i32 %failed
}
"""
"""Functions of every module that look at arguments."""
