# SPDX-License-Identifier: Apache-2.0
"""Threads of compiled code: each round of a loop runs once, whoever takes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_llvm.codegen import llvm_text, tir_codegen
from intarsia_llvm.emit.threads import threads_text
from intarsia_llvm.loader import ObjectCode
from intarsia_llvm.optimize import compile_object
from intarsia_llvm.target import machine
from intarsia_loops.cpu.loops import load, parallel, serial, store
from intarsia_runtime.abi import ArgumentBlock, SafeCall
from intarsia_runtime.artifact.plan import CallPlan, TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.library import NativeLibrary
from intarsia_runtime.loading import NativeCode

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="code has threads of its own on Linux alone"
)

NO_PLAN = CallPlan((), (), (), (), 0, ())
COLUMNS = 32


class Counter:
    """Code that adds one to every element, with rows shared between threads."""

    def __init__(self, code: NativeCode, rows: int) -> None:
        self.code = code
        spec = TensorSpec("a", (rows, COLUMNS), DType.INT32)
        self.arguments = ArgumentBlock((spec,))
        self.function = SafeCall(code.required("__tvm_ffi_count"))
        self.array = np.zeros(spec.shape, np.int32)
        self.arguments.tensors[0].data = self.array.ctypes.data
        self.calls = 0

    def run(self, times: int = 1) -> None:
        block = self.arguments
        for _ in range(times):
            assert not self.function(None, block.address, block.count, block.result_address)
        self.calls += times

    def check(self) -> None:
        np.testing.assert_array_equal(self.array, self.calls)


def count(rows: int) -> TensorModule:
    a = Buffer("a", (rows, COLUMNS), DType.INT32)

    def row(i):
        return serial(COLUMNS, lambda j: store(a, (i, j), load(a, i, j) + 1))

    return TensorModule((PrimFunc("count", (a,), 1, parallel(rows, row)),), NO_PLAN)


@pytest.fixture
def make_counter(make_target):
    """Compile a counter of some rows, and let it have threads."""

    def make(rows, threads, **options):
        unit = tir_codegen(count(rows), make_target(**options))
        code = NativeLibrary(unit.files["lib.so"], "counter")
        assert code.begin_threads(threads)
        return Counter(code, rows)

    return make


def threads_now() -> frozenset[str]:
    return frozenset(task.name for task in Path("/proc/self/task").iterdir())


def become(count: int, before: frozenset[str] = frozenset()) -> bool:
    """Whether so many threads are there that were not before; those of other tests may yet end.

    The system lists a thread that was joined for a moment.
    """
    end = time.monotonic() + 5
    while len(threads_now() - before) != count and time.monotonic() < end:
        time.sleep(0.001)
    return len(threads_now() - before) == count


def facts_of(task: int | str) -> list[str]:
    """What the system says of a thread, from its state on."""
    return Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()


def fall_asleep(*tasks: int | str) -> bool:
    """Whether threads end to wait actively."""
    end = time.monotonic() + 20
    while any(facts_of(task)[0] != "S" for task in tasks) and time.monotonic() < end:
        time.sleep(0.001)
    return all(facts_of(task)[0] == "S" for task in tasks)


def leaves(worker: int, processor: int) -> bool:
    """Whether a thread gets to another processor, with what it may use as before."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        last = int(facts_of(worker)[36])
        if last != processor and processor in os.sched_getaffinity(worker):
            return True
        time.sleep(0.001)
    return False


@pytest.mark.parametrize("rows", [24, 97, 1003])
@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_each_round_runs_once(make_counter, rows: int, threads: int) -> None:
    before = threads_now()
    counter = make_counter(rows, threads)
    counter.run(300)
    counter.check()
    assert become(threads - 1, before)
    counter.code.close()
    assert become(0, before)


def test_short_loops_run_where_they_are(make_counter) -> None:
    before = threads_now()
    counter = make_counter(4, 2)
    counter.run()
    counter.check()
    assert become(0, before)
    counter.code.close()


def test_the_number_that_the_target_fixes_holds(make_counter) -> None:
    before = threads_now()
    counter = make_counter(97, 2, num_threads=4)
    counter.run()
    counter.check()
    assert become(3, before)
    counter.code.close()


def test_no_more_threads_than_the_pool_has_places(make_counter) -> None:
    before = threads_now()
    counter = make_counter(997, 2, num_threads=300)
    counter.run()
    counter.check()
    assert become(255, before)
    counter.code.close()
    assert become(0, before)


def test_all_code_of_a_process_shares_one_pool(make_counter) -> None:
    before = threads_now()
    first, second = make_counter(97, 3), make_counter(203, 3)
    for _ in range(100):
        first.run()
        second.run()
    assert become(2, before)
    first.code.close()  # whose code the threads run
    assert become(0, before)
    second.run(100)
    second.check()
    assert become(2, before)
    second.code.close()
    assert become(0, before)


def test_callers_at_once_and_one_that_leaves(make_counter) -> None:
    counters = [make_counter(rows, 3) for rows in (24, 97, 203, 500)]
    leaving = [make_counter(97, 2) for _ in range(20)]

    def leave() -> None:
        for counter in leaving:
            counter.run(5)
            counter.check()
            counter.code.close()

    callers = [threading.Thread(target=counter.run, args=(400,)) for counter in counters]
    callers.append(threading.Thread(target=leave))
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for counter in counters:
        counter.check()
        counter.code.close()


def test_threads_that_sleep_are_woken(make_counter) -> None:
    before = threads_now()
    counter = make_counter(2003, 2)
    for _ in range(5):
        counter.run()
        assert fall_asleep(*(threads_now() - before))
    counter.check()
    counter.code.close()


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a thread that has one processor cannot leave it"
)
def test_a_thread_woken_where_a_loop_runs_leaves(make_counter) -> None:
    allowed = os.sched_getaffinity(0)
    here = min(allowed)
    before = set(os.listdir("/proc/self/task"))
    counter = make_counter(20003, 2)
    counter.run()
    (worker,) = (int(task) for task in set(os.listdir("/proc/self/task")) - before)
    left: list[bool] = []
    try:
        os.sched_setaffinity(0, {here})  # of this thread alone
        for _ in range(10):
            os.sched_setaffinity(worker, {here})  # where it is when it is woken
            assert fall_asleep(worker)
            counter.run()
            assert os.sched_getaffinity(worker) == {here}
            assert fall_asleep(worker)
            os.sched_setaffinity(worker, allowed)  # asleep: it does not move
            counter.run()
            left.append(leaves(worker, here))
            assert os.sched_getaffinity(worker) == allowed
    finally:
        os.sched_setaffinity(0, allowed)
    assert sum(left) > 6  # the system may bring it back, where other work runs
    counter.check()
    counter.code.close()


def test_a_forked_process_has_threads_of_its_own(make_counter) -> None:
    counter = make_counter(203, 3)
    counter.run(10)
    child = os.fork()
    if not child:
        signal.alarm(20)
        counter.run(10)  # alone: nobody takes anything
        begun = counter.code.begin_threads(3)
        counter.run(10)
        right = bool((counter.array == 30).all()) and len(threads_now()) == 3
        counter.code.close()
        os._exit(0 if begun and right and become(1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    counter.run(10)
    counter.check()
    counter.code.close()


def test_an_object_linked_in_memory_has_them_too(make_target) -> None:
    before = threads_now()
    options = make_target().options
    machine_code = compile_object(llvm_text(count(97), options), machine(options), 3)
    code = ObjectCode(machine_code, "counter")
    assert code.begin_threads(3)
    counter = Counter(code, 97)
    counter.run(100)
    counter.check()
    assert become(2, before)
    code.close()
    assert become(0, before)


def test_a_process_ends_with_threads_that_still_run(tmp_path: Path, make_target) -> None:
    (tmp_path / "lib.so").write_bytes(tir_codegen(count(97), make_target()).files["lib.so"])
    script = (
        "from test_llvm_threads import Counter, NativeLibrary\n"
        f"code = NativeLibrary(open({str(tmp_path / 'lib.so')!r}, 'rb').read(), 'counter')\n"
        "assert code.begin_threads(3)\n"
        "counter = Counter(code, 97)\n"
        "counter.run(50)\n"
        "counter.check()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_code_without_a_pool_leaves_loops_to_openmp(make_target, tmp_path: Path) -> None:
    for triple in ("armv7-linux-gnueabihf", "x86_64-apple-darwin"):
        assert "intarsia_begin_threads" not in threads_text(0, triple)
    assert "call void @llvm.aarch64.isb" in threads_text(0, "aarch64-linux-gnu")
