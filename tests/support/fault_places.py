"""Places where a store cannot be used: full, read-only, missing, deleted, limited; and a clock that jumps."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Block
from pathlib import Path
from typing import Any

from tests.support.fault_exports import Exporter, Outcome, environment, wrong
from tests.support.fault_mounts import become, own_namespace, read_only, tmpfs
from tests.support.fault_trace import ERRORS, run


class Place:
    """Folders for one scenario: `store`, and `cache` for records and fingerprints, in the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.cache = folder / "cache"

    @property
    def url(self) -> str:
        return f"file://{self.store}"


Scenario = Callable[[Place, Exporter], Iterator[Outcome]]


def full_disk(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """Nothing more can be written, neither entries nor records nor fingerprints."""
    with tmpfs(place.folder / "full", "size=16k") as disk:
        with open(disk / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        with environment(TRITONSTORE_CACHE_FOLDER=str(disk)):
            yield exporter.export("full disk", f"file://{disk}/store")


def filling_disk(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """The disk gets full in the middle: room for some inodes, and for none after that."""
    with tmpfs(place.folder / "filling", "nr_inodes=12") as disk:
        yield exporter.export("disk that fills up", f"file://{disk}/store")


def read_only_store(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """All there: answered without a word. Something missing: one warning, as it cannot be published."""
    exporter.export("", place.url)
    with read_only(place.store):
        yield exporter.export("read-only, all there", place.url)
    for shard in list((place.store / "v1").glob("[0-9a-f][0-9a-f]"))[:1]:
        shutil.rmtree(shard)
    with read_only(place.store):
        yield exporter.export("read-only, one missing", place.url)


def file_size(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    with limit(resource.RLIMIT_FSIZE, 100):
        yield exporter.export("RLIMIT_FSIZE", place.url)


def open_files(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """No file can be opened, as where a program has too many open; from the start on, and from the middle on."""
    taken: list[int] = []

    def take_all() -> None:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/", os.O_RDONLY))

    with limit(resource.RLIMIT_NOFILE, max(int(name) for name in os.listdir("/proc/self/fd")) + 40):
        for name, soon in (("RLIMIT_NOFILE", True), ("RLIMIT_NOFILE, later", False)):
            if soon:
                take_all()
            with after_each_put(take_all):
                yield exporter.export(name, place.url)
            while taken:
                os.close(taken.pop())


def deleted(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """Somebody removes the store after each publishing: it is made anew."""
    with after_each_put(lambda: shutil.rmtree(place.store)):
        yield exporter.export("store deleted", place.url)


def replaced(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """Somebody removes the store in the middle, and a file stands in its place."""

    def replace() -> None:
        if place.store.is_dir():
            shutil.rmtree(place.store)
            place.store.write_text("not a folder")

    with after_each_put(replace):
        yield exporter.export("store replaced by a file", place.url)


def no_home(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """A home folder that is not there, and that nobody can make."""
    with environment(HOME="/proc/no-such-home", XDG_CACHE_HOME=None, TRITONSTORE_CACHE_FOLDER=None):
        yield exporter.export("no home folder", None)


def no_user(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """A user without an entry in /etc/passwd, and without HOME: a private folder among the temporary ones serves."""

    def work() -> bytes:
        become(54_321)
        names = ("no passwd entry", "no passwd entry, warm")
        return json.dumps([exporter.export(name, None) for name in names]).encode()

    temporary = place.folder / "tmp"
    temporary.mkdir(mode=0o700)
    before, tempfile.tempdir = tempfile.tempdir, str(temporary)
    try:
        with environment(HOME=None, XDG_CACHE_HOME=None, TRITONSTORE_CACHE_FOLDER=None, USER=None, LOGNAME=None):
            done = run(work, only=frozenset())  # in a child, which stays that user
    finally:
        tempfile.tempdir = before
    if done.code:
        raise AssertionError(done.said.decode())
    assert (temporary / "tritonstore-54321" / "store").is_dir()
    yield from (Outcome(*told) for told in json.loads(done.said))


def clock(place: Place, exporter: Exporter) -> Iterator[Outcome]:
    """The clock jumps back two days in the middle; then all that lies there is dated ahead by two days."""
    real = time.time

    def jump() -> None:
        time.time = lambda: real() - 2 * 86400

    try:
        with after_each_put(jump):
            yield exporter.export("clock jumps back", place.url)
    finally:
        time.time = real
    ahead = time.time() + 2 * 86400
    for path in (*place.store.rglob("*"), *place.cache.rglob("*")):
        os.utime(path, (ahead, ahead))
    yield exporter.export("all dated ahead", place.url)


SCENARIOS: tuple[Scenario, ...] = (
    full_disk, filling_disk, read_only_store, file_size, open_files, deleted, replaced, no_home, no_user, clock,
)  # fmt: skip


def real(exporter: Exporter, folder: Path) -> Iterator[Outcome]:
    """All scenarios, each in a folder of its own."""
    for scenario in SCENARIOS:
        place = Place(folder / scenario.__name__)
        place.folder.mkdir(parents=True)
        with environment(TRITONSTORE_CACHE_FOLDER=str(place.cache)):
            outcomes = list(scenario(place, exporter))
        yield from outcomes  # when no limit of theirs holds any more


@contextlib.contextmanager
def limit(what: int, soft: int) -> Iterator[None]:
    """A limit of this process for the block."""
    before = resource.getrlimit(what)
    resource.setrlimit(what, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def after_each_put(act: Callable[[], None]) -> Block[None]:
    """`act` is called after each publishing to a files store."""
    import pytest

    from tritonstore.backends.files import FilesBackend

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        put = FilesBackend.put

        def counted(self: FilesBackend, digest: str, data: bytes) -> None:
            put(self, digest, data)
            act()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FilesBackend, "put", counted)
            yield

    return block()


def lines(folder: Path, *, short: bool, seconds: float) -> Iterator[dict[str, Any]]:
    """What `scripts/faults exports` shows: the real places, then errors at system calls until the time is up."""
    own_namespace()
    exporter = Exporter()
    for outcome in real(exporter, folder / "real"):
        yield {"name": outcome.name, "wrong": wrong(outcome), **outcome._asdict()}
    place, until, tried = Place(folder / "injected"), time.monotonic() + seconds, 0
    with environment(TRITONSTORE_CACHE_FOLDER=str(place.cache)):
        for error, number, lasting in _some() if short else _many(exporter, place):
            if not short and time.monotonic() > until:
                break
            shutil.rmtree(place.folder, ignore_errors=True)
            place.folder.mkdir(parents=True)
            outcome, done = exporter.injected(place.folder, error, number, lasting=lasting)
            tried += 1
            named = f"{error} at call {number}{' and after' if lasting else ''}"
            found = wrong(outcome) + ([] if done.changed else [f"there were only {len(done.stops)} calls"])
            yield {"name": named, "injected": len(done.changed), "wrong": found, "faults": outcome.faults}


def _some() -> Iterator[tuple[str, int, bool]]:
    """Every error once: from the first call on, in the middle, or one call alone."""
    for index, error in enumerate(ERRORS):
        yield error, (1, 30 + 3 * index, 40 + index)[index % 3], index % 3 < 2 and error != "EINTR"


def _many(exporter: Exporter, place: Place) -> Iterator[tuple[str, int, bool]]:
    """Each call, with the errors in turn, lasting and alone; round by round with other errors."""
    place.folder.mkdir(parents=True)
    _, done = exporter.injected(place.folder, "EIO", 1 << 30, lasting=False)
    for turn in range(len(ERRORS)):
        for stop in done.stops:
            error = ERRORS[(stop.number + turn) % len(ERRORS)]
            lasting = bool((stop.number + turn) % 2) and error != "EINTR"
            yield error, max(1, stop.number // 2) if lasting else stop.number, lasting
