# SPDX-License-Identifier: Apache-2.0
"""``intarsia_run_steps``: walks a table of C calls; ``intarsia_run_open_steps``: chooses the table
by sizes of the run. Their layouts are told in ``intarsia_runtime.loading``.
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

RUN_OPEN_STEPS_TEXT = """
define i32 @intarsia_run_open_steps(ptr %all, ptr %args, i32 %n, ptr %result) #0 {
start:
  %tensors = load i64, ptr %all, align 8
  %sizes.slot = getelementptr i8, ptr %all, i64 8
  %sizes = load i64, ptr %sizes.slot, align 8
  %count.slot = getelementptr i8, ptr %all, i64 16
  %count = load i64, ptr %count.slot, align 8
  %keys.slot = getelementptr i8, ptr %all, i64 24
  %keys = load ptr, ptr %keys.slot, align 8
  %last.slot = getelementptr i8, ptr %all, i64 64
  %last = load i64, ptr %last.slot, align 8
  %given = sext i32 %n to i64
  %expected = add i64 %tensors, %sizes
  %complete = icmp eq i64 %given, %expected
  br i1 %complete, label %counted, label %bad
bad:
  %said = call i32 @intarsia.fail(ptr @intarsia.error.count)
  ret i32 %said
counted:
  %values = getelementptr [16 x i8], ptr %args, i64 %tensors
  %none = icmp eq i64 %count, 0
  br i1 %none, label %new, label %table.head
table.head:
  %i = phi i64 [ -1, %counted ], [ %i.next, %table.next ]
  %is.first = icmp slt i64 %i, 0
  %number = select i1 %is.first, i64 %last, i64 %i
  %key.start = mul i64 %number, %sizes
  %key = getelementptr i64, ptr %keys, i64 %key.start
  br label %size.head
size.head:
  %j = phi i64 [ 0, %table.head ], [ %j.next, %size.next ]
  %found = icmp eq i64 %j, %sizes
  br i1 %found, label %run, label %size
size:
  %any = getelementptr [16 x i8], ptr %values, i64 %j
  %value.slot = getelementptr i8, ptr %any, i64 8
  %value = load i64, ptr %value.slot, align 8
  %wanted.slot = getelementptr i64, ptr %key, i64 %j
  %wanted = load i64, ptr %wanted.slot, align 8
  %same = icmp eq i64 %value, %wanted
  br i1 %same, label %size.next, label %table.next
size.next:
  %j.next = add i64 %j, 1
  br label %size.head
table.next:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %table.head, label %new
new:
  %add.slot = getelementptr i8, ptr %all, i64 56
  %add = load ptr, ptr %add.slot, align 8
  %added = call i64 %add(ptr %args, i64 %given)
  %failed = icmp slt i64 %added, 0
  br i1 %failed, label %new.bad, label %run
new.bad:
  %told = call i32 @intarsia.fail(ptr @intarsia.error.sizes)
  ret i32 %told
run:
  %chosen = phi i64 [ %number, %size.head ], [ %added, %new ]
  store i64 %chosen, ptr %last.slot, align 8
  %clock.slot = getelementptr i8, ptr %all, i64 48
  %clock = load i64, ptr %clock.slot, align 8
  %now = add i64 %clock, 1
  store i64 %now, ptr %clock.slot, align 8
  %used.slot = getelementptr i8, ptr %all, i64 40
  %used = load ptr, ptr %used.slot, align 8
  %mine = getelementptr i64, ptr %used, i64 %chosen
  store i64 %now, ptr %mine, align 8
  %tables.slot = getelementptr i8, ptr %all, i64 32
  %tables = load ptr, ptr %tables.slot, align 8
  %table.slot = getelementptr ptr, ptr %tables, i64 %chosen
  %table = load ptr, ptr %table.slot, align 8
  %few = trunc i64 %tensors to i32
  %status = call i32 @intarsia_run_steps(ptr %table, ptr %args, i32 %few, ptr %result)
  ret i32 %status
}

@intarsia.error.sizes = private unnamed_addr constant [29 x i8] c"a region refuses these sizes\\00"
"""
"""The function's text; of plans that call regions of open sizes."""
