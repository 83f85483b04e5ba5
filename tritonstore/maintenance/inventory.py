"""What is in a store: its entries one by one in constant memory, each checked, and what they say in words.

An entry's `detail` is plain data of any shape, written by whoever can write to the store: everything here that reads
it gives text, and never raises for what it finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple

from tritonstore.backends.base import Backend, Record
from tritonstore.backends.registry import open_backend
from tritonstore.entry import MAX_SIZE, Entry, decode
from tritonstore.errors import FormatError, StoreError
from tritonstore.keys.encoding import key_digest
from tritonstore.settings import Settings
from tritonstore.signing import Keys

__all__ = [
    "Filter",
    "Row",
    "Unreadable",
    "check",
    "entries",
    "find",
    "innermost",
    "kernel_of",
    "open_backends",
    "patient",
    "row_of",
    "target_of",
    "toolchain_of",
]

_FAULTS_IN_A_ROW = 3
_BATCH = 64  # entries that are asked for at once: a store may be far away


class Unreadable(FormatError):
    """The store could not hand these bytes out just now, which says nothing about them."""


def open_backends(settings: Settings) -> list[Backend]:
    """The tiers that `settings` name, nearest first. Reading leaves no trace: entries do not look used by it, also not
    by a pruning that looks into them and keeps them.

    Raises SettingsError.
    """
    chosen = settings._replace(mode="readonly")  # which the backends take as: do not note that this was used
    return [open_backend(url, chosen) for url in settings.urls]


def innermost(backend: Backend) -> Backend:
    """The backend that does the work, inside all wrappers."""
    while isinstance(inner := getattr(backend, "inner", None), Backend):
        backend = inner
    return backend


def check(digest: str, data: bytes, signing: Keys | None = None) -> Entry:
    """The entry in `data`, stored under `digest`. Raises FormatError unless everything about it holds:

    checksum, structure, that it answers under its own digest, and that this is the digest of its key's parts. With
    `signing` it must be signed as well (else Unsigned, which is raised last).
    """
    entry = decode(data)
    if entry.digest != digest:
        raise FormatError(f"is the entry {entry.digest[:16]}…, under another name")
    if key_digest(entry.parts) != digest:
        raise FormatError("has a digest that is not that of its parts (or has another key schema)")
    if signing is not None:
        signing.check(data)
    return entry


def entries(backend: Backend) -> Iterator[tuple[Record, Entry | FormatError]]:
    """Every entry of one tier, checked, or what is wrong with it; constant memory, order of the store.

    Entries that are deleted meanwhile are left out. Raises StoreError where the store fails three times in a row.
    """
    records = backend.scan()
    faults = 0
    while batch := {record.digest: record for record in islice(records, _BATCH)}:
        fetched: dict[str, bytes] | None = None
        with contextlib.suppress(StoreError):  # one by one then, to know which
            fetched = dict(backend.get_many(batch))
        for digest, record in batch.items():
            try:
                data = backend.get(digest) if fetched is None else fetched.get(digest)
            except StoreError as error:
                faults += 1
                if faults >= _FAULTS_IN_A_ROW:
                    raise
                yield record, Unreadable(f"cannot be read: {error}")
                continue
            faults = 0
            if data is not None:
                yield record, _checked(digest, data)
            elif record.size > MAX_SIZE:
                yield record, FormatError("is larger than an entry can be")


def patient(backend: Backend) -> Callable[[str], bytes | None]:
    """`backend.get`, whose StoreError is an Unreadable entry until the store fails three times in a row."""
    faults = 0

    def get(digest: str) -> bytes | None:
        nonlocal faults
        try:
            data = backend.get(digest)
        except StoreError as error:
            faults += 1
            if faults >= _FAULTS_IN_A_ROW:
                raise
            raise Unreadable(f"cannot be read: {error}") from error
        faults = 0
        return data

    return get


def _checked(digest: str, data: bytes) -> Entry | FormatError:
    try:
        return check(digest, data)
    except FormatError as error:
        return error


def find(backend: Backend, prefix: str, limit: int = 10) -> list[str]:
    """The digests of one tier that start with `prefix`, `limit` at most. Raises StoreError."""
    found: list[str] = []
    if len(prefix) == 64:
        return [prefix] if backend.get(prefix) is not None else []
    for record in backend.scan():
        if record.digest.startswith(prefix):
            found.append(record.digest)
            if len(found) == limit:
                break
    return found


def kernel_of(entry: Entry) -> tuple[str, str]:
    """(module, qualified name) of the kernel; question marks where the entry does not say."""
    kernel = entry.detail.get("kernel")
    if isinstance(kernel, list) and len(kernel) == 2 and all(isinstance(part, str) for part in kernel):
        return kernel[0], kernel[1]
    return "?", "?"


def toolchain_of(entry: Entry) -> tuple[str, str]:
    """(torch's version, triton's version); question marks where the entry does not say."""
    toolchain = _map(entry.detail.get("toolchain"))
    return _text(toolchain.get("torch")), _text(toolchain.get("triton"))


def target_of(entry: Entry) -> str:
    """``cuda:90:32``, or a question mark."""
    target = _map(entry.detail.get("target"))
    parts = [target.get(name) for name in ("backend", "arch", "warp_size")]
    return ":".join(map(str, parts)) if all(isinstance(part, (str, int)) for part in parts) else "?"


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "?"


class Row(NamedTuple):
    """One entry in a line. Sizes in bytes, times in Unix seconds, `seconds` what the analysis cost."""

    digest: str
    kernel: str
    module: str
    torch: str
    triton: str
    target: str
    size: int
    used: float
    created: int
    seconds: float


def row_of(record: Record, entry: Entry) -> Row:
    module, kernel = kernel_of(entry)
    torch, triton = toolchain_of(entry)
    made = entry.provenance
    target = target_of(entry)
    return Row(
        record.digest, kernel, module, torch, triton, target, record.size, record.used, made.created, made.seconds
    )


@dataclass(frozen=True)
class Filter:
    """Which entries are meant: all that match one pattern of each kind that has any. ``*``, ``?`` and ``[…]`` match."""

    kernels: Sequence[str] = ()
    toolchains: Sequence[str] = ()
    targets: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.kernels or self.toolchains or self.targets)

    def takes_kernel(self, module: str, name: str) -> bool:
        """Whether the kernel matches, whatever the rest."""
        return _any(self.kernels, (name, name.rpartition(".")[2], f"{module}.{name}"))

    def takes(self, entry: Entry) -> bool:
        torch, triton = toolchain_of(entry)
        return (
            self.takes_kernel(*kernel_of(entry))
            and _any(self.toolchains, (f"torch {torch}", f"triton {triton}", f"torch {torch}, triton {triton}"))
            and _any(self.targets, (target_of(entry),))
        )


def _any(patterns: Sequence[str], texts: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns for text in texts)
