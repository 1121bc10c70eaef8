; SPDX-License-Identifier: Apache-2.0
;
; Threads of compiled code. A loop is cut into chunks. Every thread begins with those of its share, the
; same in every loop of that length, so that its caches hold them, and then takes chunks of others. Who
; shares a loop never waits for a thread that took nothing: where other programs keep the processors
; busy, a loop takes as long as it does on the processors that are left.
;
; Threads wait actively for long: a virtual processor that its system halts is given to somebody else,
; and comes back late. Who shares a loop waits for a chunk whose thread stands still, 50 ms and more,
; the others for the next loop, some milliseconds.
;
; The pool lies in memory that the runtime gives, one for all code in a process (POOL_BYTES of
; intarsia_runtime.threads), zero at first:
;
;     0   int32_t epoch          of the newest loop
;    64   void (*body)(void *frame, int64_t low, int64_t high); void *frame;
;         int64_t extent; int32_t chunks, threads;               the newest loop
;    96   int32_t processor      of who shared the loop that woke others
;   128   int32_t done           its chunks that are done
;   192   int32_t asleep         threads
;   196   int32_t waiting        whether who shares the loop sleeps until it is done
;   256   sem_t wake
;   288   sem_t over             of 32 bytes, as everywhere with 64-bit pointers
;   320   int32_t busy           whether a loop runs
;   384   int32_t started        threads, beside those that share loops
;   388   int32_t stop           whether they shall end
;   392   int32_t process        whose threads they are
;   448   pthread_t handles[256]
;  2560   struct { uint64_t chunks; struct pool *pool; int32_t number; } shares[256], 64 bytes each
;
; A share is one word, epoch << 32 | first << 16 | end. A thread takes a chunk by exchanging the word for
; that of a smaller share. The word says of which loop it is, and a loop with chunks left has not been
; replaced: what the thread read of the loop before is right if the exchange succeeds.

@intarsia.pool = internal global ptr null, align 8
@intarsia.hired = internal global i1 false, align 1

declare extern_weak i32 @pthread_create(ptr, ptr, ptr, ptr)
declare extern_weak i32 @pthread_join(i64, ptr)
declare extern_weak i32 @sem_init(ptr, i32, i32)
declare extern_weak i32 @sem_post(ptr)
declare extern_weak i32 @sem_wait(ptr)
declare extern_weak i32 @sched_yield()
declare extern_weak i32 @getpid()
declare extern_weak i32 @sched_getcpu()
declare extern_weak i32 @sched_getaffinity(i32, i64, ptr)
declare extern_weak i32 @sched_setaffinity(i32, i64, ptr)

; Let loops be shared between %count threads of the pool in %pool, unless the target fixed the number.
; Memory that is new, or of the process that this one was forked from, is made ready first. -1: there
; are no threads here.
define i32 @intarsia_begin_threads(ptr %pool, i32 %count) noinline optnone #0 {
start:
  %create = icmp eq ptr @pthread_create, null
  %sem = icmp eq ptr @sem_init, null
  %lacks = or i1 %create, %sem
  br i1 %lacks, label %cannot, label %can
cannot:
  ret i32 -1
can:
  %now = call i32 @getpid()
  %process.slot = getelementptr i8, ptr %pool, i64 392
  %process = load i32, ptr %process.slot, align 4
  %same = icmp eq i32 %now, %process
  br i1 %same, label %ready, label %fresh
fresh:
  %sleepers = getelementptr i8, ptr %pool, i64 192
  store i64 0, ptr %sleepers, align 8
  %taken = getelementptr i8, ptr %pool, i64 320
  store i32 0, ptr %taken, align 4
  %crew = getelementptr i8, ptr %pool, i64 384
  store i64 0, ptr %crew, align 8
  %wake = getelementptr i8, ptr %pool, i64 256
  %made = call i32 @sem_init(ptr %wake, i32 0, i32 0)
  %finished = getelementptr i8, ptr %pool, i64 288
  %ended = call i32 @sem_init(ptr %finished, i32 0, i32 0)
  store i32 %now, ptr %process.slot, align 4
  br label %ready
ready:
  %fixed = load i32, ptr @intarsia.threads, align 4
  %free = icmp eq i32 %fixed, 0
  %wanted = select i1 %free, i32 %count, i32 %fixed
  %few = call i32 @llvm.umin.i32(i32 %wanted, i32 256)
  store i32 %few, ptr @intarsia.threads, align 4
  store ptr %pool, ptr @intarsia.pool, align 8
  ret i32 0
}

; Leave the pool. If this code made threads of it, all end, since they run this code; whoever shares a
; loop next makes new ones.
define void @intarsia_end_threads() noinline optnone #0 {
start:
  %pool = load ptr, ptr @intarsia.pool, align 8
  %none = icmp eq ptr %pool, null
  br i1 %none, label %over, label %own
own:
  store ptr null, ptr @intarsia.pool, align 8
  %now = call i32 @getpid()
  %process.slot = getelementptr i8, ptr %pool, i64 392
  %process = load i32, ptr %process.slot, align 4
  %same = icmp eq i32 %now, %process
  br i1 %same, label %wait, label %over
wait:
  %busy = getelementptr i8, ptr %pool, i64 320
  %held = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %held, 1
  br i1 %got, label %mine, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
mine:
  %ours = load i1, ptr @intarsia.hired, align 1
  br i1 %ours, label %stop, label %release
stop:
  %stop.slot = getelementptr i8, ptr %pool, i64 388
  store atomic i32 1, ptr %stop.slot seq_cst, align 4
  %epoch = load atomic i32, ptr %pool monotonic, align 4
  %next = add i32 %epoch, 1
  store atomic i32 %next, ptr %pool seq_cst, align 4
  %started.slot = getelementptr i8, ptr %pool, i64 384
  %started = load i32, ptr %started.slot, align 4
  %wake = getelementptr i8, ptr %pool, i64 256
  %any = icmp sgt i32 %started, 0
  br i1 %any, label %post, label %stopped
post:
  %p = phi i32 [ 0, %stop ], [ %p.next, %post ]
  %posted = call i32 @sem_post(ptr %wake)
  %p.next = add i32 %p, 1
  %more = icmp slt i32 %p.next, %started
  br i1 %more, label %post, label %join
join:
  %j = phi i32 [ 0, %post ], [ %j.next, %join ]
  %j.wide = zext i32 %j to i64
  %handles = getelementptr i8, ptr %pool, i64 448
  %handle.slot = getelementptr i64, ptr %handles, i64 %j.wide
  %handle = load i64, ptr %handle.slot, align 8
  %joined = call i32 @pthread_join(i64 %handle, ptr null)
  %j.next = add i32 %j, 1
  %again = icmp slt i32 %j.next, %started
  br i1 %again, label %join, label %stopped
stopped:
  store i32 0, ptr %started.slot, align 4
  store i32 0, ptr %stop.slot, align 4
  %asleep = getelementptr i8, ptr %pool, i64 192
  store i32 0, ptr %asleep, align 4
  %reset = call i32 @sem_init(ptr %wake, i32 0, i32 0)
  br label %release
release:
  store atomic i32 0, ptr %busy release, align 4
  br label %over
over:
  ret void
}

; Run a loop on %threads threads; false if the pool is busy with another.
define internal i1 @intarsia.share(ptr %pool, i32 %threads, ptr %body, ptr %frame, i64 %extent) #0 {
start:
  %busy = getelementptr i8, ptr %pool, i64 320
  %taken = load atomic i32, ptr %busy monotonic, align 4
  %free = icmp eq i32 %taken, 0
  br i1 %free, label %take, label %refuse
take:
  %held = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %held, 1
  br i1 %got, label %enter, label %refuse
refuse:
  ret i1 false
enter:
  %others = sub i32 %threads, 1
  %started.slot = getelementptr i8, ptr %pool, i64 384
  %started = load i32, ptr %started.slot, align 4
  %enough = icmp sge i32 %started, %others
  br i1 %enough, label %publish, label %hire
hire:
  call void @intarsia.hire(ptr %pool, i32 %others)
  br label %publish
publish:
  %most = mul i32 %threads, 8
  %most.wide = zext i32 %most to i64
  %chunks = call i64 @llvm.umin.i64(i64 %most.wide, i64 %extent)
  %loop = getelementptr i8, ptr %pool, i64 64
  %frame.slot = getelementptr i8, ptr %pool, i64 72
  %extent.slot = getelementptr i8, ptr %pool, i64 80
  %chunks.slot = getelementptr i8, ptr %pool, i64 88
  %threads.slot = getelementptr i8, ptr %pool, i64 92
  %chunks.short = trunc i64 %chunks to i32
  store atomic ptr %body, ptr %loop monotonic, align 8
  store atomic ptr %frame, ptr %frame.slot monotonic, align 8
  store atomic i64 %extent, ptr %extent.slot monotonic, align 8
  store atomic i32 %chunks.short, ptr %chunks.slot monotonic, align 4
  store atomic i32 %threads, ptr %threads.slot monotonic, align 4
  %done.slot = getelementptr i8, ptr %pool, i64 128
  store atomic i32 0, ptr %done.slot monotonic, align 4
  %before = load atomic i32, ptr %pool monotonic, align 4
  %epoch = add i32 %before, 1
  %epoch.wide = zext i32 %epoch to i64
  %tag = shl i64 %epoch.wide, 32
  %n = zext i32 %threads to i64
  %shares = getelementptr i8, ptr %pool, i64 2560
  br label %deal
deal:
  %t = phi i64 [ 0, %publish ], [ %t.next, %deal ]
  %t.next = add i64 %t, 1
  %a = mul i64 %chunks, %t
  %b = mul i64 %chunks, %t.next
  %first = udiv i64 %a, %n
  %end = udiv i64 %b, %n
  %high = shl i64 %first, 16
  %both = or i64 %high, %end
  %word = or i64 %tag, %both
  %share.slot = getelementptr [64 x i8], ptr %shares, i64 %t
  store atomic i64 %word, ptr %share.slot release, align 8
  %dealt = icmp eq i64 %t.next, %n
  br i1 %dealt, label %announce, label %deal
announce:
  store atomic i32 %epoch, ptr %pool seq_cst, align 4
  %asleep.slot = getelementptr i8, ptr %pool, i64 192
  %asleep = load atomic i32, ptr %asleep.slot seq_cst, align 4
  %sleepers = icmp sgt i32 %asleep, 0
  br i1 %sleepers, label %rouse, label %work
rouse:
  %processor = call i32 @sched_getcpu()
  %processor.slot = getelementptr i8, ptr %pool, i64 96
  store atomic i32 %processor, ptr %processor.slot monotonic, align 4
  %sleeping = atomicrmw xchg ptr %asleep.slot, i32 0 seq_cst
  %wake = getelementptr i8, ptr %pool, i64 256
  %any = icmp sgt i32 %sleeping, 0
  br i1 %any, label %post, label %work
post:
  %p = phi i32 [ 0, %rouse ], [ %p.next, %post ]
  %posted = call i32 @sem_post(ptr %wake)
  %p.next = add i32 %p, 1
  %more = icmp slt i32 %p.next, %sleeping
  br i1 %more, label %post, label %work
work:
  call void @intarsia.work(ptr %pool, i32 0, i32 %epoch)
  %waiting = getelementptr i8, ptr %pool, i64 196
  %finished = getelementptr i8, ptr %pool, i64 288
  br label %wait
wait:
  %w = phi i32 [ 0, %work ], [ %w.next, %pause ], [ 0, %sleep ]
  %done = load atomic i32, ptr %done.slot acquire, align 4
  %all = icmp eq i32 %done, %chunks.short
  br i1 %all, label %over, label %still
still:
  %long = icmp sgt i32 %w, 1000000
  br i1 %long, label %tire, label %pause
pause:
  call void @intarsia.pause()
  %w.next = add i32 %w, 1
  br label %wait
tire:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  %again = load atomic i32, ptr %done.slot seq_cst, align 4
  %now = icmp eq i32 %again, %chunks.short
  br i1 %now, label %retract, label %sleep
retract:
  %told = atomicrmw xchg ptr %waiting, i32 0 seq_cst
  %untold = icmp eq i32 %told, 1
  br i1 %untold, label %over, label %sleep
sleep:
  %woken = call i32 @sem_wait(ptr %finished)
  br label %wait
over:
  store atomic i32 0, ptr %busy release, align 4
  ret i1 true
}

; Make threads until there are %others; fewer if the system gives no more.
define internal void @intarsia.hire(ptr %pool, i32 %others) noinline optnone #0 {
start:
  %started.slot = getelementptr i8, ptr %pool, i64 384
  %started = load i32, ptr %started.slot, align 4
  store i1 true, ptr @intarsia.hired, align 1
  br label %loop
loop:
  %count = phi i32 [ %started, %start ], [ %number, %next ]
  %more = icmp slt i32 %count, %others
  br i1 %more, label %make, label %over
make:
  %number = add i32 %count, 1
  %wide = zext i32 %count to i64
  %handles = getelementptr i8, ptr %pool, i64 448
  %handle = getelementptr i64, ptr %handles, i64 %wide
  %arguments = getelementptr i8, ptr %pool, i64 2560
  %self.wide = zext i32 %number to i64
  %self = getelementptr [64 x i8], ptr %arguments, i64 %self.wide
  %pool.slot = getelementptr i8, ptr %self, i64 8
  %number.slot = getelementptr i8, ptr %self, i64 16
  store ptr %pool, ptr %pool.slot, align 8
  store i32 %number, ptr %number.slot, align 4
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @intarsia.serve, ptr %self)
  %made = icmp eq i32 %failed, 0
  br i1 %made, label %next, label %over
next:
  store i32 %number, ptr %started.slot, align 4
  br label %loop
over:
  ret void
}

; What a thread of the pool does: look out for a loop, at first actively, then asleep.
define internal ptr @intarsia.serve(ptr %self) #0 {
start:
  %pool.slot = getelementptr i8, ptr %self, i64 8
  %number.slot = getelementptr i8, ptr %self, i64 16
  %pool = load ptr, ptr %pool.slot, align 8
  %number = load i32, ptr %number.slot, align 4
  %stop.slot = getelementptr i8, ptr %pool, i64 388
  %threads.slot = getelementptr i8, ptr %pool, i64 92
  %asleep = getelementptr i8, ptr %pool, i64 192
  %wake = getelementptr i8, ptr %pool, i64 256
  %processor.slot = getelementptr i8, ptr %pool, i64 96
  br label %spin
spin:
  %seen = phi i32 [ 0, %start ], [ %epoch, %done ], [ %seen, %pause ], [ %seen, %sleep ], [ %seen, %part ]
  %rounds = phi i32 [ 0, %start ], [ 0, %done ], [ %rounds.next, %pause ], [ 0, %sleep ], [ 0, %part ]
  %epoch = load atomic i32, ptr %pool acquire, align 4
  %same = icmp eq i32 %epoch, %seen
  br i1 %same, label %still, label %go
still:
  %long = icmp sgt i32 %rounds, 100000
  br i1 %long, label %tire, label %pause
pause:
  call void @intarsia.pause()
  %rounds.next = add i32 %rounds, 1
  br label %spin
tire:
  %counted = atomicrmw add ptr %asleep, i32 1 seq_cst
  br label %sleep
sleep:
  %woken = call i32 @sem_wait(ptr %wake)
  %there = load atomic i32, ptr %processor.slot monotonic, align 4
  %here = call i32 @sched_getcpu()
  %crowded = icmp eq i32 %here, %there
  br i1 %crowded, label %part, label %spin
part:
  call void @intarsia.part(i32 %here)
  br label %spin
go:
  %stop = load atomic i32, ptr %stop.slot acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %leave, label %work
work:
  %threads = load atomic i32, ptr %threads.slot monotonic, align 4
  %wanted = icmp slt i32 %number, %threads
  br i1 %wanted, label %help, label %done
help:
  call void @intarsia.work(ptr %pool, i32 %number, i32 %epoch)
  br label %done
done:
  br label %spin
leave:
  ret ptr null
}

; Leave %processor, where the thread that shares a loop runs, for another one, if this thread may.
; A system that wakes a thread beside the one that called it, although others idle, would have them take
; turns: who waits actively keeps the other from its work, and asleep again, is no load that anybody moves.
define internal void @intarsia.part(i32 %processor) noinline #0 {
start:
  %mask = alloca [128 x i8], align 8
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %known = icmp eq i32 %failed, 0
  %small = icmp ult i32 %processor, 1024
  %both = and i1 %known, %small
  br i1 %both, label %move, label %over
move:
  %position = lshr i32 %processor, 3
  %wide = zext i32 %position to i64
  %slot = getelementptr i8, ptr %mask, i64 %wide
  %allowed = load i8, ptr %slot, align 1
  %low = and i32 %processor, 7
  %bit = shl i32 1, %low
  %short = trunc i32 %bit to i8
  %others = xor i8 %short, -1
  %rest = and i8 %allowed, %others
  store i8 %rest, ptr %slot, align 1
  %alone = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  %moved = icmp eq i32 %alone, 0
  br i1 %moved, label %restore, label %over
restore:
  store i8 %allowed, ptr %slot, align 1
  %restored = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %over
over:
  ret void
}

; Take chunks until none is left: first from the front of the own share, then from the ends of others.
define internal void @intarsia.work(ptr %pool, i32 %self, i32 %epoch) noinline #0 {
start:
  %body.slot = getelementptr i8, ptr %pool, i64 64
  %frame.slot = getelementptr i8, ptr %pool, i64 72
  %extent.slot = getelementptr i8, ptr %pool, i64 80
  %chunks.slot = getelementptr i8, ptr %pool, i64 88
  %threads.slot = getelementptr i8, ptr %pool, i64 92
  %done.slot = getelementptr i8, ptr %pool, i64 128
  %shares = getelementptr i8, ptr %pool, i64 2560
  br label %victim
victim:
  %whose = phi i32 [ %self, %start ], [ %after, %following ]
  %count = phi i32 [ 0, %start ], [ %count.now, %following ]
  %whose.wide = zext i32 %whose to i64
  %share = getelementptr [64 x i8], ptr %shares, i64 %whose.wide
  %mine = icmp eq i32 %whose, %self
  %front = select i1 %mine, i64 65536, i64 -1
  br label %try
try:
  %count.now = phi i32 [ %count, %victim ], [ %count.now, %attempt ], [ %count.next, %run ]
  %word = load atomic i64, ptr %share acquire, align 8
  %tag.wide = lshr i64 %word, 32
  %tag = trunc i64 %tag.wide to i32
  %current = icmp eq i32 %tag, %epoch
  br i1 %current, label %look, label %leave
look:
  %short = trunc i64 %word to i32
  %first = lshr i32 %short, 16
  %end = and i32 %short, 65535
  %left = icmp ult i32 %first, %end
  br i1 %left, label %attempt, label %following
attempt:
  %body = load atomic ptr, ptr %body.slot monotonic, align 8
  %frame = load atomic ptr, ptr %frame.slot monotonic, align 8
  %extent = load atomic i64, ptr %extent.slot monotonic, align 8
  %chunks = load atomic i32, ptr %chunks.slot monotonic, align 4
  %rest = add i64 %word, %front
  %exchanged = cmpxchg ptr %share, i64 %word, i64 %rest acq_rel monotonic
  %got = extractvalue { i64, i1 } %exchanged, 1
  br i1 %got, label %run, label %try
run:
  %last = sub i32 %end, 1
  %chunk = select i1 %mine, i32 %first, i32 %last
  %chunk.next = add i32 %chunk, 1
  %c = zext i32 %chunk to i64
  %d = zext i32 %chunk.next to i64
  %n = zext i32 %chunks to i64
  %a = mul i64 %extent, %c
  %b = mul i64 %extent, %d
  %low = udiv i64 %a, %n
  %high = udiv i64 %b, %n
  call void %body(ptr %frame, i64 %low, i64 %high)
  %count.next = add i32 %count.now, 1
  br label %try
following:
  %threads = load atomic i32, ptr %threads.slot monotonic, align 4
  %up = add i32 %whose, 1
  %wrap = icmp sge i32 %up, %threads
  %after = select i1 %wrap, i32 0, i32 %up
  %round = icmp eq i32 %after, %self
  br i1 %round, label %leave, label %victim
leave:
  %counted = phi i32 [ %count.now, %try ], [ %count.now, %following ]
  %some = icmp sgt i32 %counted, 0
  br i1 %some, label %tell, label %over
tell:
  %chunks.now = load atomic i32, ptr %chunks.slot monotonic, align 4
  %before = atomicrmw add ptr %done.slot, i32 %counted seq_cst
  %done = add i32 %before, %counted
  %all = icmp eq i32 %done, %chunks.now
  br i1 %all, label %final, label %over
final:
  %waiting = getelementptr i8, ptr %pool, i64 196
  %asked = load atomic i32, ptr %waiting seq_cst, align 4
  %sleeps = icmp eq i32 %asked, 1
  br i1 %sleeps, label %answer, label %over
answer:
  %was = atomicrmw xchg ptr %waiting, i32 0 seq_cst
  %still = icmp eq i32 %was, 1
  br i1 %still, label %rouse, label %over
rouse:
  %finished = getelementptr i8, ptr %pool, i64 288
  %posted = call i32 @sem_post(ptr %finished)
  br label %over
over:
  ret void
}

declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.umin.i64(i64, i64)
