# SPDX-License-Identifier: Apache-2.0
"""Ends a command that is told to terminate as one that is interrupted: what it began is put away.

Without a handler the system ends the process where it is, and folders for temporary files stay, as
do halves of files beside those that they were to become.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_HEEDED = (signal.SIGTERM, signal.SIGHUP) if os.name == "posix" else (signal.SIGTERM,)


class Termination:
    """Remembers the signal that ends the command.

    Attributes:
        number: The signal; 0 if none came.
    """

    def __init__(self) -> None:
        self.number = 0

    def heed(self) -> None:
        """Raise KeyboardInterrupt in the main thread when the first such signal comes.

        A signal that is ignored already, as ``nohup`` has it, stays so.
        """
        for number in _HEEDED:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for each in _HEEDED:  # one more would stop the putting away
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    def pass_on(self) -> None:
        """End this process by the signal, if one came, so that whoever waits knows of it."""
        if self.number:
            signal.signal(self.number, signal.SIG_DFL)
            os.kill(os.getpid(), self.number)
