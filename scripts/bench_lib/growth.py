"""Growth: the memory of one process over a million hits, and after more answers than it may remember."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import child

# Counts its own resident memory after each tenth of the hits; the answers' recorders are there as in an export.
PROGRAM = """
import json, os, sys
from pathlib import Path
from tritonstore import open_store
from tritonstore.access import AccessResult
from tritonstore.pytorch.observer import Observer
from bench_lib.made import Made
hits, digests = int(sys.argv[1]), int(sys.argv[2])

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

store = open_store("memory:")
Observer.of(store.settings).watch(store.counters)
access = AccessResult(("x_ptr",), ("y_ptr",), True)
questions = [Made(number, {}) for number in range(digests)]
for question in questions:
    store.publish(question, access, 0.1)
    store.lookup(question)
seen = [resident()]
for tenth in range(10):
    for number in range(hits // 10):
        store.lookup(questions[number * 7919 % digests])
    seen.append(resident())
told = {"hits": sum(store.counters.snapshot()["hits"].values()), "resident_mib": seen}
more = int(sys.argv[3])
for number in range(digests, digests + more):
    store.publish(Made(number, {}), access, 0.1)
told |= {"answers_made": digests + more, "answers_held": len(store._memory)}
told |= {"tier_bytes": store.tiers.backends[0]._size, "tier_values": len(store.tiers.backends[0]._values)}
told["resident_after_more_mib"] = resident()
print(json.dumps(told))
"""


def section(folder: Path, scale: float) -> dict[str, Any]:
    counts = [int(1_000_000 * scale), max(10, int(10_000 * scale)), int(100_000 * scale)]
    env = child.environment(folder / "cache")
    done = child.run(["-c", PROGRAM, *map(str, counts)], env)
    return {**json.loads(done.out), "digests": counts[1], "peak_mib": done.peak_mib, "seconds": done.seconds}
