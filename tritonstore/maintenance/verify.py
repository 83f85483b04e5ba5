"""Check stored entries: checksum, structure, name and digest. PyTorch is not asked."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tritonstore.backends.base import Backend, Record
from tritonstore.entry import MAX_SIZE
from tritonstore.errors import FormatError, StoreError
from tritonstore.maintenance.inventory import Unreadable, check

__all__ = ["Finding", "findings"]

Step = Callable[[], object]


def _no_step() -> None:
    """Nobody watches."""


class Finding(NamedTuple):
    """One entry that was looked at: `problem` says what is wrong ("" if nothing), `removed` whether it is gone."""

    digest: str
    size: int
    problem: str
    removed: bool


def findings(
    backend: Backend, *, sample: int | None = None, fix: bool = False, step: Step = _no_step
) -> Iterator[Finding]:
    """Look at every entry of one tier, or at `sample` of them by chance; with `fix` damaged ones are removed.

    What cannot be read just now is a problem, and is never removed: a permission or a network is no damage.
    Constant memory, but for the sample. Raises StoreError where the store cannot be listed or repaired.
    """
    for record in backend.scan() if sample is None else _sample(backend, sample):
        step()
        try:
            data = backend.get(record.digest)
            if data is None:
                if record.size <= MAX_SIZE:
                    continue  # deleted meanwhile
                raise FormatError("is larger than an entry can be")
            check(record.digest, data)
        except StoreError as error:
            yield Finding(record.digest, record.size, Unreadable(f"cannot be read: {error}").problem, False)
        except FormatError as error:
            removed = fix and _remove_same(backend, record.digest, data)
            yield Finding(record.digest, record.size, error.problem, removed)
        else:
            yield Finding(record.digest, record.size, "", False)


def _remove_same(backend: Backend, digest: str, data: bytes | None) -> bool:
    # A worker may have made the entry anew since it was read; good bytes are not ours to remove.
    return backend.get(digest) == data and backend.delete(digest)


def _sample(backend: Backend, wanted: int) -> list[Record]:
    """`wanted` records by chance, each equally likely, in one pass and without holding the others."""
    chosen: list[tuple[float, Record]] = []
    for record in backend.scan():
        lot = random.random()
        if len(chosen) < wanted:
            heapq.heappush(chosen, (lot, record))
        elif wanted and lot > chosen[0][0]:
            heapq.heapreplace(chosen, (lot, record))
    return [record for _, record in chosen]
