# SPDX-License-Identifier: Apache-2.0
"""``intarsia_run_steps``: walks a table of C calls; its layout is told in
``intarsia_runtime.loading``.
"""

from __future__ import annotations

RUN_STEPS_TEXT = """
define i32 @intarsia_run_steps(ptr %table, ptr %args, i32 %n, ptr %result) #0 {
start:
  %bindings.count = load i64, ptr %table, align 8
  %bindings.slot = getelementptr i8, ptr %table, i64 8
  %bindings = load ptr, ptr %bindings.slot, align 8
  %steps.count.slot = getelementptr i8, ptr %table, i64 16
  %steps.count = load i64, ptr %steps.count.slot, align 8
  %steps.slot = getelementptr i8, ptr %table, i64 24
  %steps = load ptr, ptr %steps.slot, align 8
  br label %bind.head
bind.head:
  %i = phi i64 [ 0, %start ], [ %i.next, %bind.store ]
  %bound = icmp sge i64 %i, %bindings.count
  br i1 %bound, label %step.head, label %bind
bind:
  %binding = getelementptr [16 x i8], ptr %bindings, i64 %i
  %step.number = load i64, ptr %binding, align 8
  %argument.slot = getelementptr i8, ptr %binding, i64 8
  %argument = load i64, ptr %argument.slot, align 8
  %any = getelementptr [16 x i8], ptr %args, i64 %argument
  %tensor = call ptr @intarsia.tensor(ptr %any)
  %no.tensor = icmp eq ptr %tensor, null
  br i1 %no.tensor, label %bind.bad, label %bind.store
bind.bad:
  %said = call i32 @intarsia.fail(ptr @intarsia.error.region)
  ret i32 %said
bind.store:
  %data = call ptr @intarsia.data(ptr %tensor)
  %bound.step = getelementptr [40 x i8], ptr %steps, i64 %step.number
  %b.bound = getelementptr i8, ptr %bound.step, i64 16
  store ptr %data, ptr %b.bound, align 8
  %i.next = add i64 %i, 1
  br label %bind.head
step.head:
  %s = phi i64 [ 0, %bind.head ], [ %s.next, %step.good ]
  %finished = icmp sge i64 %s, %steps.count
  br i1 %finished, label %good, label %step
step:
  %this = getelementptr [40 x i8], ptr %steps, i64 %s
  %function = load ptr, ptr %this, align 8
  %a.slot = getelementptr i8, ptr %this, i64 8
  %a = load ptr, ptr %a.slot, align 8
  %b.slot = getelementptr i8, ptr %this, i64 16
  %b = load ptr, ptr %b.slot, align 8
  %c.slot = getelementptr i8, ptr %this, i64 24
  %c = load i64, ptr %c.slot, align 8
  %d.slot = getelementptr i8, ptr %this, i64 32
  %d = load ptr, ptr %d.slot, align 8
  %status = call i32 %function(ptr %a, ptr %b, i64 %c, ptr %d)
  %wrong = icmp ne i32 %status, 0
  br i1 %wrong, label %step.bad, label %step.good
step.good:
  %s.next = add i64 %s, 1
  br label %step.head
step.bad:
  %failed.slot = getelementptr i8, ptr %table, i64 32
  store i64 %s, ptr %failed.slot, align 8
  %status.slot = getelementptr i8, ptr %table, i64 40
  %status.wide = sext i32 %status to i64
  store i64 %status.wide, ptr %status.slot, align 8
  %told = call i32 @intarsia.fail(ptr @intarsia.error.step)
  ret i32 %told
good:
  ret i32 0
}

@intarsia.error.step = private unnamed_addr constant [26 x i8] c"a step of a region failed\\00"
@intarsia.error.region = private unnamed_addr constant [25 x i8] c"an argument is no tensor\\00"
"""
"""The function's text."""
