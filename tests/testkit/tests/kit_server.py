# SPDX-License-Identifier: Apache-2.0
"""Runs pytest again and again, each time in a fork of a process that has imported the host once.

A job is a line of JSON on stdin: ``arguments``, ``folder``, ``environment``, ``path`` (put before
``sys.path``), ``output`` (a file) and ``seconds``. The answer is a line with the exit code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import hypothesis  # noqa: F401  (with the next one, what takes most of a run's time to import)
import pytest

import intarsia.driver.build  # noqa: F401


def serve() -> None:
    """Do jobs until stdin ends."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _work(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _work(job: dict[str, Any]) -> None:
    """Do a job and end this process, which a job that takes too long does by itself."""
    code = 70
    try:
        signal.alarm(job["seconds"])
        os.chdir(job["folder"])
        os.environ.clear()
        os.environ.update(job["environment"])
        sys.path[:0] = job["path"]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main(job["arguments"]))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
