# SPDX-License-Identifier: Apache-2.0
"""A native walker of step tables, as compiled modules have."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intarsia_dnnl import isa, profitable
from intarsia_dnnl.speed import EVEN

WALKER = """
#include <stdint.h>
struct step { int32_t (*function)(void *, void *, int64_t, void *);
              void *a, *b; int64_t c; void *d; };
struct binding { int64_t step, argument; };
struct table { int64_t bindings_count; struct binding *bindings;
               int64_t steps_count; struct step *steps; int64_t failed_step, status; };
int run(struct table *t, void **data) {
  for (int64_t i = 0; i < t->bindings_count; i++)
    t->steps[t->bindings[i].step].b = data[t->bindings[i].argument];
  for (int64_t i = 0; i < t->steps_count; i++) {
    struct step *s = &t->steps[i];
    int32_t status = s->function(s->a, s->b, s->c, s->d);
    if (status) { t->failed_step = i; t->status = status; return -1; }
  }
  return 0;
}
"""


@pytest.fixture(scope="session")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, list[np.ndarray]], int]:
    """Return a native walker of step tables: ``walker(handle, arrays) -> status``."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the walker with")
    folder: Path = tmp_path_factory.mktemp("walker")
    (folder / "walker.c").write_text(WALKER)
    library = folder / "walker.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(folder / "walker.c")]
    subprocess.run(command, check=True)
    run = ctypes.CDLL(str(library)).run

    def walk(handle: int, arrays: list[np.ndarray]) -> int:
        data = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        return int(run(ctypes.c_void_p(handle), data))

    return walk


@pytest.fixture
def shown_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have AMX, if it is there, as processors show it; for tests that place and do not compute."""
    monkeypatch.setattr(isa, "describes_tiles", lambda _: True)


@pytest.fixture(autouse=True)
def even_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have other limits decide, as where the library is a little faster: on every processor."""
    monkeypatch.setattr(profitable, "lead", lambda *_, **__: EVEN)
