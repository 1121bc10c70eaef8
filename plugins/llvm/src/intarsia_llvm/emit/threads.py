# SPDX-License-Identifier: Apache-2.0
"""Parallel loops run on libgomp's pool, which the runtime preloads; without it, serially."""

from __future__ import annotations


def threads_text(count: int) -> str:
    """Return ``@intarsia.parallel(body, frame, extent)`` and the exported ``intarsia_set_threads``.

    Args:
        count: Number of threads at first; 0 leaves it to OpenMP.
    """
    return _TEXT.replace("COUNT", str(count))


_TEXT = """
@intarsia.threads = internal global i32 COUNT, align 4

declare extern_weak void @GOMP_parallel(ptr, ptr, i32, i32)
declare extern_weak i32 @omp_get_thread_num()
declare extern_weak i32 @omp_get_num_threads()

define void @intarsia_set_threads(i32 %count) #0 {
  store i32 %count, ptr @intarsia.threads, align 4
  ret void
}

define internal void @intarsia.worker(ptr %job) #0 {
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

define internal void @intarsia.parallel(ptr %body, ptr %frame, i64 %extent) noinline #0 {
start:
  %threads = load i32, ptr @intarsia.threads, align 4
  %one = icmp eq i32 %threads, 1
  %absent = icmp eq ptr @GOMP_parallel, null
  %short = icmp sle i64 %extent, 1
  %or = or i1 %one, %absent
  %serial = or i1 %or, %short
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
