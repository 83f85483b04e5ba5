"""Check stored entries: checksum, structure, name and digest. PyTorch is not asked."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tritonstore.backends.base import Backend, Record
from tritonstore.entry import MAX_SIZE
from tritonstore.errors import FormatError, StoreError
from tritonstore.maintenance.inventory import Unreadable, check
from tritonstore.signing import Keys, Unsigned

__all__ = ["Finding", "chosen", "findings"]

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
    backend: Backend,
    *,
    sample: int | None = None,
    fix: bool = False,
    step: Step = _no_step,
    signing: Keys | None = None,
) -> Iterator[Finding]:
    """Look at every entry of one tier, or at `sample` of them by chance; with `fix` damaged ones are removed.

    What cannot be read just now is a problem, and is never removed: a permission or a network is no damage. So is what
    is not signed, where `signing` asks for it: others may have its key, or ours may be the wrong one.
    Constant memory, but for the sample. Raises StoreError where the store cannot be listed or repaired.
    """
    for record in chosen(backend, sample):
        step()
        try:
            data = backend.get(record.digest)
            if data is None:
                if record.size <= MAX_SIZE:
                    continue  # deleted meanwhile
                raise FormatError("is larger than an entry can be")
            check(record.digest, data, signing)
        except StoreError as error:
            yield Finding(record.digest, record.size, Unreadable(f"cannot be read: {error}").problem, False)
        except Unsigned as error:
            yield Finding(record.digest, record.size, error.problem, False)
        except FormatError as error:
            removed = fix and _remove_same(backend, record.digest, data)
            yield Finding(record.digest, record.size, error.problem, removed)
        else:
            yield Finding(record.digest, record.size, "", False)


def _remove_same(backend: Backend, digest: str, data: bytes | None) -> bool:
    # A worker may have made the entry anew since it was read; good bytes are not ours to remove.
    return backend.get(digest) == data and backend.delete(digest)


def chosen(backend: Backend, sample: int | None) -> Iterable[Record]:
    """All records of a tier, or `sample` of them by chance: each equally likely, in one pass, holding no others."""
    if sample is None:
        return backend.scan()
    lots: list[tuple[float, Record]] = []
    for record in backend.scan():
        lot = random.random()
        if len(lots) < sample:
            heapq.heappush(lots, (lot, record))
        elif sample and lot > lots[0][0]:
            heapq.heapreplace(lots, (lot, record))
    return [record for _, record in lots]
