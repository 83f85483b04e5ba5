"""AnalysisStore: look up, claim, publish. Keys in, AccessResults out; every fault on the way is a counted
miss.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

from tritonstore.access import AccessResult
from tritonstore.backends.registry import open_backend
from tritonstore.counters import Counters
from tritonstore.entry import Entry, KeyLike, Provenance, decode, decode_answer, encode
from tritonstore.errors import FormatError, StoreError
from tritonstore.flight import Flight
from tritonstore.forks import reset_in_children
from tritonstore.keys.encoding import key_digest
from tritonstore.quarantine import Quarantine
from tritonstore.settings import Settings
from tritonstore.signing import Keys, Unsigned, keys_of
from tritonstore.tiers import Tiers

__all__ = ["AnalysisStore", "Key", "open_settings", "open_store"]

WRITER = "tritonstore 0.1.0"
_LONGEST = 86400.0  # seconds that an analysis may have taken, to be counted
_REMEMBERED = 65536  # answers; some hundred bytes each


class Key(KeyLike, Protocol):
    """What the store needs of a `CallKey`."""

    def describe(self) -> dict[str, Any]: ...


class _Remembered(NamedTuple):
    parts: dict[str, str]
    access: AccessResult
    seconds: float


class AnalysisStore:
    """The answers of all workers that share `tiers`, and those of this process in memory.

    mode       lookup                              publish      claim
    readwrite  memory, then tiers                  both         one worker among all
    readonly   memory, then tiers                  memory only  one thread of this process
    refresh    what this process has published     both         one thread of this process
    off        always a miss                       nothing      nobody waits

    No fault of a store leaves these methods, unless `settings.strict`. With `signing` what is published is signed, and
    an entry of a tier that is not counts as a miss; it stays, for those who have its key.
    """

    def __init__(self, settings: Settings, tiers: Tiers, counters: Counters, signing: Keys | None = None) -> None:
        self.settings = settings
        self.tiers = tiers
        self.counters = counters
        shared = tiers if settings.mode == "readwrite" else None
        self._flight = Flight(shared, settings.lease_wait, counters, strict=settings.strict)
        self._off = settings.mode == "off"
        self._reads_tiers = settings.mode in ("readwrite", "readonly")
        self._memory: dict[str, _Remembered] = {}
        self._signing = signing
        self._quarantine = Quarantine(os.path.join(settings.cache_folder, "quarantine"))
        self._refused: set[str] = set()
        self.on_entry: Callable[[str, bytes], None] | None = None
        """Called with the digest and the bytes of each entry that this process uses or makes, once for each."""
        self._lock = threading.Lock()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def lookup(self, key: Key) -> AccessResult | None:
        """The stored answer to exactly `key`, or None; counted as a hit of its tier or as a miss."""
        found = self._found(key)
        if found is None:
            self.counters.miss(key)
            return None
        answer, tier = found
        self.counters.hit(tier, answer.seconds, key)
        return answer.access

    def publish(self, key: Key, access: AccessResult, seconds: float) -> None:
        """Store PyTorch's proven answer to `key`, which took `seconds`. A fault costs only that it is not
        stored.
        """
        if self._off or self.set_aside(key.digest):
            return
        started = time.perf_counter()
        try:
            entry = Entry(
                digest=key.digest,
                parts=dict(key.parts),
                access=access,
                detail=key.describe(),
                provenance=Provenance(int(time.time()), float(seconds), WRITER),
            )
            data = encode(entry) if self._signing is None else self._signing.sign(encode(entry))
            self._remember(key, access, entry.provenance, data)
            if key.digest in self._refused:  # a store that never overwrites would keep the entry that was refused
                self.tiers.delete(key.digest)
            if self.tiers.put(key.digest, data):
                self.counters.publish(key)
        except Exception as error:
            if self.settings.strict:
                raise
            format_error = isinstance(error, FormatError)
            cause = str(error) if format_error else type(error).__name__
            self.counters.fault("encode" if format_error else "publish", f"an answer was not stored: {cause}")
        finally:
            self.counters.spend("store", time.perf_counter() - started)

    @contextmanager
    def claim(
        self, key: Key, wait: float | None = None
    ) -> Iterator[tuple[Literal["answer"], AccessResult] | tuple[Literal["analyse"], None]]:
        """After a miss: yield ``("answer", access)`` if another worker has it by now, else ``("analyse",
        None)``.

        Whoever is told to analyse publishes inside the block. See `Flight.claim`.
        """
        if self._off:
            yield "analyse", None
            return
        with self._flight.claim(key.digest, lambda: self._found(key), wait) as outcome:
            if outcome[0] == "answer":
                answer = outcome[1][0]
                self.counters.share(answer.seconds, key)
                yield "answer", answer.access
            else:
                yield "analyse", None

    def adopt(self, digest: str, data: bytes) -> bool:
        """Take over an entry that another machine made, and put it where it is lacking; whether anything was stored.

        Raises FormatError for one that is not sound or not signed as it should be, and StoreError only if strict.
        """
        entry = self._sound(digest, data)
        if not self._reads_tiers or digest in self._memory:  # a mode that asks PyTorch anew takes no answers over
            return False
        if self.set_aside(digest):
            return False
        self._remember(entry, entry.access, entry.provenance, data)
        return self.tiers.get(digest, lambda found: self._is_sound(digest, found)) is None and bool(
            self.tiers.put(digest, data)
        )

    def quarantine(self, digest: str) -> str:
        """The answer under `digest` is wrong: neither this process nor others with its cache folder use it again.

        It is removed from every tier that may be written, also if strict. Where its bytes are kept; empty if they
        could not be.
        """
        with self._lock:
            self._memory.pop(digest, None)
        held: list[bytes] = []
        try:
            self.tiers.get(digest, held.append)  # says neither yes nor no, so that each tier is asked
        except StoreError:
            held.append(b"")  # counted; what can be removed is removed all the same
        kept = ""
        try:
            kept = self._quarantine.put(digest, held[0] if held else b"")
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.counters.fault("quarantine", f"a wrong entry could not be put on record: {why}")
        self.tiers.delete(digest)
        return kept

    def set_aside(self, digest: str) -> bool:
        """Whether the answer under `digest` was found to be wrong, so that none is used or stored."""
        return digest in self._quarantine.digests()

    def close(self) -> None:
        """Close the tiers. May be called twice."""
        self.tiers.close()

    def _found(self, key: Key) -> tuple[_Remembered, str] | None:
        """`_find`, whose exceptions of any kind are a counted miss."""
        try:
            return self._find(key)
        except Exception as error:
            if self.settings.strict:
                raise
            self.counters.fault("lookup", f"a look-up failed: {type(error).__name__}")
            return None

    def _find(self, key: Key) -> tuple[_Remembered, str] | None:
        """The answer and where it stood. Counts faults, not hits or misses: a waiting claim asks many times."""
        if self._off:
            return None
        remembered = self._memory.get(key.digest)
        if remembered is not None and remembered.parts == key.parts:
            return remembered, "memory"
        if not self._reads_tiers:
            return None
        if self.set_aside(key.digest):
            self._refuse(key.digest, "quarantined", f"is not used: verification put it into {self._quarantine.folder}")
            return None
        started = time.perf_counter()
        accepted: list[tuple[AccessResult, Provenance]] = []

        def accept(data: bytes) -> bool | None:
            answer = self._decode(key, data)
            if answer is None:
                return False
            try:
                if self._signing is not None:
                    self._signing.check(data)
            except Unsigned as error:
                self._refuse(key.digest, "unsigned", f"{error.problem}; it is made anew")
                return None  # others may have its key: it stays until a signed one takes its place
            accepted.append(answer)
            return True

        try:
            found = self.tiers.get(key.digest, accept)
        finally:
            self.counters.spend("store", time.perf_counter() - started)
        return None if found is None else (self._remember(key, *accepted[0], found[0]), self.tiers.names[found[1]])

    def _decode(self, key: Key, data: bytes) -> tuple[AccessResult, Provenance] | None:
        # Not raised even if strict: damage on a disk is expected, and the answer to it is to analyse again.
        try:
            answer = decode_answer(data, key)
        except FormatError as error:
            self.counters.fault("format", f"entry {key.digest} cannot be used ({error.problem}) and is made anew")
            return None
        if answer is None:
            self.counters.fault("mismatch", f"entry {key.digest} answers another question and is made anew")
        return answer

    def _refuse(self, digest: str, kind: str, why: str) -> None:
        # Once for each: a claim that waits for another worker looks many times.
        if digest not in self._refused and len(self._refused) < _REMEMBERED:
            self._refused.add(digest)
            self.counters.fault(kind, f"entry {digest} {why}")

    def _sound(self, digest: str, data: bytes) -> Entry:
        entry = decode(data)
        if entry.digest != digest or key_digest(entry.parts) != digest:
            raise FormatError("answers another question than its name says")
        if self._signing is not None:
            self._signing.check(data)
        return entry

    def _is_sound(self, digest: str, data: bytes) -> bool | None:
        try:
            self._sound(digest, data)
        except Unsigned:
            return None
        except FormatError:
            return False
        return True

    def _remember(self, key: KeyLike, access: AccessResult, origin: Provenance, data: bytes) -> _Remembered:
        seconds = origin.seconds  # whoever wrote it; sums and records take no NaN and no centuries
        remembered = _Remembered(dict(key.parts), access, seconds if 0.0 <= seconds < _LONGEST else 0.0)
        with self._lock:
            self._memory[key.digest] = remembered
            if len(self._memory) > _REMEMBERED:
                del self._memory[next(iter(self._memory))]
        if self.on_entry is not None:
            self.on_entry(key.digest, data)
        return remembered


def open_store(url: str | None = None, **settings: Any) -> AnalysisStore:
    """Open the store at `url` (several with commas between them: tiers, nearest first), default
    TRITONSTORE_URL.

    `settings` are fields of Settings and win over the environment. Nothing is touched on disk yet. Raises
    SettingsError.
    """
    return open_settings(Settings.load(url=url, **settings))


def open_settings(loaded: Settings) -> AnalysisStore:
    """`open_store` for settings that are read already, whose values keep their origin. Raises SettingsError."""
    counters = Counters()
    signing = keys_of(loaded)
    backends = [open_backend(each, loaded) for each in loaded.urls]
    tiers = Tiers(backends, counters, writable=loaded.mode in ("readwrite", "refresh"), strict=loaded.strict)
    return AnalysisStore(loaded, tiers, counters, signing)
