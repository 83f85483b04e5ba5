"""The demo under torchrun: each rank exports its share of the methods, and all share one store.

The ranks meet through the store of torch.distributed (no process group, no GPU): to start the runs together, and to
bring their figures to rank 0, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from .report import Progress
from .runs import DemoError, Options, run

RUNS = ("pytorch", "cold", "warm-moved")
SUMMED = ("workers", "calls", "analyses", "analysis_seconds", "export_seconds")


def is_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun has started this process."""
    return "RANK" in environ and "WORLD_SIZE" in environ and "MASTER_PORT" in environ


class Meeting:
    """Where the ranks of one torchrun meet."""

    def __init__(self) -> None:
        from torch.distributed.rendezvous import rendezvous

        self._store, self.rank, self.size = next(iter(rendezvous("env://")))
        self._met = 0

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order, as soon as the last one is there."""
        self._met += 1
        self._store.set(f"demo-{self._met}-{self.rank}", json.dumps(value))
        return [json.loads(self._store.get(f"demo-{self._met}-{rank}")) for rank in range(self.size)]


def lines(options: Options, meeting: Meeting, progress: Progress) -> tuple[list[dict[str, Any]], bool]:
    """The runs, each over all ranks, and whether this rank has a GPU. Raises DemoError."""
    share = options.methods[meeting.rank :: meeting.size]
    if not share:
        raise DemoError(
            f"rank {meeting.rank} of {meeting.size} has nothing to do: there are {len(options.methods)} methods"
        )
    mine = dataclasses.replace(options, methods=share, workers=1)
    result = []
    for name in RUNS:
        meeting.gather(name)  # all start together, and after all have published
        done = run(name, mine, progress)
        found = meeting.gather({**done.line, "keys": sorted(done.keys) if done.keys is not None else None})
        result.append(merged(name, found))
    return result, done.gpu


def merged(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """One line for all ranks."""
    keys = None if name == "pytorch" else len({key for line in found for key in line["keys"]})
    sums = {field: round(sum(line[field] for line in found), 3) for field in SUMMED}
    return {"name": name, **sums, "distinct_keys": keys, "identical": all(line["identical"] for line in found)}


def verdict(found: list[dict[str, Any]], leases: bool) -> list[str]:
    """What the runs were to show and did not; empty if all is well."""
    plain, cold, moved = found
    wrong = [f"{line['name']}: the graphs are not those of PyTorch alone" for line in found if not line["identical"]]
    if leases and cold["analyses"] not in (0, cold["distinct_keys"]):
        wrong.append(f"cold: {cold['analyses']} analyses for {cold['distinct_keys']} distinct keys")
    if cold["analyses"] >= plain["analyses"]:
        wrong.append(f"cold: {cold['analyses']} analyses, no fewer than PyTorch's {plain['analyses']}")
    if moved["analyses"]:
        wrong.append(f"warm-moved: {moved['analyses']} analyses, not 0")
    return wrong
