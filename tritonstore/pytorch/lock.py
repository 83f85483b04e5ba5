"""The one process-wide lock around PyTorch's analysis.

PyTorch's memo tables are process-wide and keyed by function *name*: with four threads and two kernels of one
name, 51 of 600 calls were wrong (keys.md, trap 3). So every original call is made under this lock, those that
bypass the store included. It is re-entrant, because code generation may run user code that asks again. Nobody
waits for a lease while holding it: the holder of the lease may be a thread that needs the lock to finish.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from tritonstore.forks import reset_in_children


class AnalysisLock:
    """`with lock():` is called, not entered: after a fork inside it, the block leaves the lock it took."""

    def __init__(self) -> None:
        self._start()
        reset_in_children(self)

    def _start(self) -> None:
        self._lock = threading.RLock()

    def _after_fork(self) -> None:
        self._start()

    def __call__(self) -> AbstractContextManager[Any]:
        return self._lock


analysis_lock = AnalysisLock()
