"""The parts of a journal: what it keeps of one kernel and one miss, and what a record says of its process."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from tritonstore.runrecord import FileName, KernelFacts, RunRecord

__all__ = ["Kernel", "Miss", "add_counts", "command", "drop_oldest", "facts_of", "file_name", "versions"]


class Kernel:
    __slots__ = ("analyses", "analysing", "bypasses", "hits", "misses", "saved", "shared", "unproven")

    def __init__(self) -> None:
        self.hits: dict[str, int] = {}
        self.misses = self.shared = self.analyses = 0
        self.bypasses: dict[str, int] = {}
        self.unproven: dict[str, int] = {}
        self.saved = self.analysing = 0.0


class Miss:
    __slots__ = ("at", "count", "key", "outcome", "seconds")

    def __init__(self, key: Any, at: float) -> None:
        self.key = key
        self.at = at
        self.count = 0
        self.seconds = 0.0
        self.outcome = "asked"


def add_counts(total: dict[str, Any], more: dict[str, Any]) -> None:
    """Add a `Counters.snapshot()` to another, in place; tables by their names."""
    for name, value in more.items():
        if isinstance(value, dict):
            add_counts(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


def facts_of(name: tuple[str, str], kernel: Kernel) -> KernelFacts:
    return KernelFacts(
        *name,
        dict(kernel.hits),
        kernel.misses,
        kernel.shared,
        dict(kernel.bypasses),
        kernel.analyses,
        dict(kernel.unproven),
        kernel.saved,
        kernel.analysing,
    )


def versions() -> dict[str, str]:
    found = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
    for name in ("tritonstore", "torch", "triton"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def command() -> str:
    """The program's name; not its arguments, which may hold secrets."""
    program = sys.argv[0] if sys.argv else ""
    return os.path.basename(program)[:200] or "python"


def file_name(record: RunRecord) -> FileName:
    host = re.sub("[^A-Za-z0-9-]", "-", record.host) or "host"
    return FileName(int(record.started * 1000), record.run, f"{host}-{record.pid}-{os.urandom(4).hex()}")


def drop_oldest(folder: str, most: int) -> None:
    """Keep the newest records. They are merged by `tritonstore prune`; this is for those who never call it."""
    names = sorted(name for name in os.listdir(folder) if FileName.parse(name))
    for name in names[: max(0, len(names) - most)]:
        os.unlink(os.path.join(folder, name))
