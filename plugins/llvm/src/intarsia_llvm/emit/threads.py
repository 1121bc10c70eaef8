# SPDX-License-Identifier: Apache-2.0
"""Parallel loops run on threads of our own (``pool.ll``), or on OpenMP's where libraries use those.

Threads of both kinds that wait actively would take the processors from each other, so the runtime
calls ``intarsia_begin_threads`` only if nothing but compiled code runs.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_PAUSES = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.isb(i32 15)",
    "riscv64": "fence acquire",
}
"""Machines that have a pool, and how a thread says that it waits."""


def threads_text(count: int, triple: str) -> str:
    """Return ``@intarsia.parallel(body, frame, extent, long)`` and what the runtime calls.

    Args:
        count: Number of threads at first; 0 leaves it to who runs the code.
        triple: LLVM's name of the machine.
    """
    pause = _PAUSES.get(triple.partition("-")[0])
    text = _PARALLEL.replace("COUNT", str(count))
    if pause is None or "linux" not in triple:
        return text.replace("OWN", "")
    return "\n".join([text.replace("OWN", _OWN), _pool(), _PAUSE.replace("PAUSE", pause)])


@cache
def _pool() -> str:
    return files("intarsia_llvm.emit").joinpath("pool.ll").read_text(encoding="utf-8")


_PAUSE = """
define internal void @intarsia.pause() alwaysinline nounwind {
  PAUSE
  ret void
}
"""

_PARALLEL = """
@intarsia.threads = internal global i32 COUNT, align 4

declare extern_weak void @GOMP_parallel(ptr, ptr, i32, i32)
declare extern_weak i32 @omp_get_thread_num()
declare extern_weak i32 @omp_get_num_threads()

define void @intarsia_set_threads(i32 %count) noinline optnone #0 {
  store i32 %count, ptr @intarsia.threads, align 4
  ret void
}

define internal void @intarsia.worker(ptr %job) noinline optnone #0 {
  %thread = call i32 @omp_get_thread_num()
  %threads = call i32 @omp_get_num_threads()
  %body = load ptr, ptr %job, align 8
  %frame.slot = getelementptr i8, ptr %job, i64 8
  %frame = load ptr, ptr %frame.slot, align 8
  %extent.slot = getelementptr i8, ptr %job, i64 16
  %extent = load i64, ptr %extent.slot, align 8
  %t = zext i32 %thread to i64
  %n = zext i32 %threads to i64
  %next = add i64 %t, 1
  %a = mul i64 %extent, %t
  %b = mul i64 %extent, %next
  %low = udiv i64 %a, %n
  %high = udiv i64 %b, %n
  call void %body(ptr %frame, i64 %low, i64 %high)
  ret void
}

define hidden void @intarsia.parallel(ptr %body, ptr %frame, i64 %extent, i1 %long) noinline #0 {
start:
  %threads = load i32, ptr @intarsia.threads, align 4
  %one = icmp eq i32 %threads, 1
  %short = icmp sle i64 %extent, 1
  %lone = or i1 %one, %short
  br i1 %lone, label %alone, label %several
several:
OWN  %absent = icmp eq ptr @GOMP_parallel, null
  %brief = xor i1 %long, true
  %serial = or i1 %absent, %brief
  br i1 %serial, label %alone, label %together
alone:
  call void %body(ptr %frame, i64 0, i64 %extent)
  ret void
together:
  %job = alloca [3 x i64], align 8
  store ptr %body, ptr %job, align 8
  %frame.slot = getelementptr i8, ptr %job, i64 8
  store ptr %frame, ptr %frame.slot, align 8
  %extent.slot = getelementptr i8, ptr %job, i64 16
  store i64 %extent, ptr %extent.slot, align 8
  call void @GOMP_parallel(ptr @intarsia.worker, ptr %job, i32 %threads, i32 0)
  ret void
}
"""

_OWN = """\
  %pool = load ptr, ptr @intarsia.pool, align 8
  %foreign = icmp eq ptr %pool, null
  br i1 %foreign, label %openmp, label %own
own:
  %shared = call i1 @intarsia.share(ptr %pool, i32 %threads, ptr %body, ptr %frame, i64 %extent)
  br i1 %shared, label %over, label %alone
over:
  ret void
openmp:
"""
