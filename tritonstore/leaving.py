"""Call functions when this process ends: at its exit, at SIGTERM, and in workers that skip `atexit`.

`multiprocessing` ends its children with `os._exit`, after their finalizers only. SIGTERM ends a process without any
exit code of Python's; a handler is set only where the signal still has its default meaning, and it ends the process by
the same signal. A program that sets a handler of its own simply replaces ours.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from tritonstore.forks import reset_in_children

__all__ = ["at_end"]

Leave = Callable[[str], None]
"""Called with the ending: ``exit``, ``SIGTERM``, or the name of the exception that nothing caught."""


class _Leavers:
    def __init__(self) -> None:
        self.functions: list[Leave] = []
        self._registered = False
        reset_in_children(self)

    def _after_fork(self) -> None:
        # The parent's functions are the parent's to call; the `atexit` entry itself lives on in the child.
        self.functions = []
        self._finalized = False

    _finalized = False

    def add(self, function: Leave) -> None:
        self.functions.append(function)
        if not self._registered:
            self._registered = True
            atexit.register(self.leave)
        if not self._finalized:
            self._finalized = True
            util = sys.modules.get("multiprocessing.util")
            if util is not None:  # always there in a child of multiprocessing, which clears inherited finalizers
                util.Finalize(None, self.leave, exitpriority=0)
            self._catch_sigterm()

    def leave(self, ending: str = "") -> None:
        ending = ending or getattr(getattr(sys, "last_type", None), "__name__", "exit")
        for function in self.functions:
            with contextlib.suppress(Exception):
                function(ending)

    def _catch_sigterm(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        with contextlib.suppress(ValueError, OSError, RuntimeError):
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.leave("SIGTERM")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_leavers = _Leavers()


def at_end(function: Leave) -> None:
    """Call `function` once or more, each time with what is known of the ending, before this process is gone.

    In a forked child it must be asked for again. What it raises is swallowed.
    """
    _leavers.add(function)
