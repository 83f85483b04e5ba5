"""The contract of a backend: it moves bytes under a digest, and knows nothing of what they mean.

- A **digest** is 64 lower-case hex digits; anything else is a ValueError before it can become a path or a
  command.
- `get` gives exactly the bytes that one `put` was given, or None. A digest that is not there is None, never
  an error, and so is something in its place that no `put` has left there (a folder, a pipe, a device, a file
  beyond MAX_SIZE). Empty bytes are a value like any other.
- `get_many` is `get` for many digests, in fewer round trips where a backend can.
- `put` is atomic: a reader sees the old bytes, the new bytes or None, never a part, whatever dies in between.
  The last put wins; a backend may say that the first one does (create-only), since equal questions have equal
  answers. What was just put is never evicted by that same put.
- `delete` says whether something was there. It is no error to delete what is gone.
- `scan` yields every entry once, in no order, in constant memory, and nothing that is not an entry. What is
  put or deleted meanwhile may or may not be seen.
- `lease` gives a try-lock on a digest across all workers of this store, or None if the backend has none. It
  is an optimisation: it may be coarser than a digest, and it ends when its holder's process does.
- A **fault** is a StoreError, or a StoreUnavailable when the next operation would fail as well; a
  StoreUnreachable if nothing answers at all. No other exception leaves a backend, and nothing waits without bound.
- All methods are safe in threads and after a fork. `close` may be called twice.
- `url` is safe to print. `writes` is for tiers to read: which puts go there. The backend does not look at it.

Sizes are bytes, times are Unix seconds. Policy (order of tiers, what to do about faults, formats) lives
elsewhere.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

__all__ = ["MAX_SIZE", "Backend", "Lease", "Record", "Writes", "check_digest", "is_digest"]

MAX_SIZE = (
    1 << 20
)  # bytes; nothing larger is put or read. entry.MAX_SIZE is the same number, and a test holds them together

is_digest = re.compile(r"[0-9a-f]{64}\Z").match
"""Whether a text is the name of an entry: truthy for 64 lower-case hex digits."""


Writes = Literal["all", "publish", "none"]
"""What tiers put to a backend: all, only new answers (nothing that was found further down), or nothing."""


class Record(NamedTuple):
    """One stored value: its digest, its size in bytes, and when it was last used (to the hour) in Unix
    seconds.
    """

    digest: str
    size: int
    used: float


class Lease(Protocol):
    """A try-lock. One object serves one worker; it is not shared between threads."""

    def try_acquire(self) -> bool:
        """Take it if it is free, without waiting. Raises StoreError."""

    def release(self) -> None:
        """Give it back. Nothing happens if it is not held (any more). Never raises."""


class Backend(ABC):
    """See the module's docstring: it is the contract."""

    url: str
    writes: Writes = "all"

    @abstractmethod
    def get(self, digest: str) -> bytes | None: ...

    def get_many(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """(digest, bytes) of those that are there, in the order asked for, in constant memory."""
        for digest in digests:
            data = self.get(digest)
            if data is not None:
                yield digest, data

    @abstractmethod
    def put(self, digest: str, data: bytes) -> None: ...

    @abstractmethod
    def delete(self, digest: str) -> bool: ...

    @abstractmethod
    def scan(self) -> Iterator[Record]: ...

    @abstractmethod
    def lease(self, digest: str) -> Lease | None: ...

    @abstractmethod
    def close(self) -> None: ...


def check_digest(digest: str) -> str:
    """`digest` itself. Raises ValueError unless it is 64 lower-case hex digits."""
    if is_digest(digest) is None:
        raise ValueError(f"not a digest (64 lower-case hex digits): {digest[:80]!r}")
    return digest
