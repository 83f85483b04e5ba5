"""When this process started. A forked child keeps its parent's answer, as it keeps its parent's code."""

from __future__ import annotations

import os
import time

__all__ = ["born"]


def born() -> float:
    """The start of this very process, in seconds since the epoch; now, where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - age
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()
