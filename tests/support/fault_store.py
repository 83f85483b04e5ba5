"""Questions with answers of their own, a store of them, and what must hold for it whatever has happened."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from tests.support.synthetic import CREATED, sha
from tritonstore.access import AccessResult
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.folders import TEMPORARY
from tritonstore.entry import Entry, Provenance, encode
from tritonstore.keys.encoding import key_digest
from tritonstore.maintenance.prune import sweep
from tritonstore.maintenance.verify import findings
from tritonstore.store import AnalysisStore, open_store

HOUR = 3600.0
_KNOWN = re.compile(
    r"[0-9a-f]{64}|[0-9a-f]{2}(\.lock)?|.*\.run|.*\.tsb|file-digests-v1|\.compacting|report-\d+\.json|(one|two)\.py"
)
_LITTER = re.compile(r"\..*\.tmp|\.file-digests-.*")


class Key(NamedTuple):
    """A question whose digest is that of its parts, so that `verify` takes what is stored under it."""

    number: int
    digest: str
    parts: dict[str, str]
    kernel: tuple[str, str] = ("model.kernels", "_rms")

    def describe(self, parts: object = None) -> dict[str, Any]:
        return {"kernel": list(self.kernel), "arguments": [["n", ["scalar", "i32"], False]]}


@lru_cache(16384)
def key(number: int) -> Key:
    parts = {name: sha(f"{name} {number}") for name in ("toolchain", "target", "ops", "arguments", "code")}
    return Key(number, key_digest(parts), parts)


def answer(number: int) -> AccessResult:
    """Another one for each number, so that a mixed-up entry is a wrong answer."""
    return AccessResult((f"x_{number}",), (f"y_{number}",), True)


@lru_cache(4096)
def data(number: int) -> bytes:
    of = key(number)
    made = Provenance(CREATED, 0.5, "tritonstore 0.1.0")
    return encode(Entry(of.digest, of.parts, answer(number), of.describe(), made))


def in_shard(shard: str) -> Iterator[int]:
    """Numbers whose keys lie in one shard: limits are kept shard by shard."""
    return (number for number in range(1_000_000) if key(number).digest.startswith(shard))


def place(root: str, number: int) -> str:
    digest = key(number).digest
    return os.path.join(root, "v1", digest[:2], digest)


def set_age(path: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def fill(root: str, numbers: Iterable[int], *, age: float = 0.0, apart: float = 0.0) -> None:
    """Put these entries, the first last used `age` seconds ago, each next one `apart` seconds later."""
    backend = FilesBackend(root)
    for index, number in enumerate(numbers):
        backend.put(key(number).digest, data(number))
        set_age(place(root, number), age - index * apart)


def opened(url: str, **settings: Any) -> AnalysisStore:
    """A store as a new process opens it; a fault is an error, and it waits for nobody."""
    return open_store(url, **{"strict": True, "lease_wait": 0.0, **settings})


def work_on(url: str, *numbers: int, **settings: Any) -> AnalysisStore:
    """What a worker does with each question: look it up, else claim, analyse and publish it."""
    store = open_store(url, **{"strict": False, "lease_wait": 0.0, **settings})
    for number in numbers:
        ask(store, number)
    return store


def ask(store: AnalysisStore, number: int) -> bool:
    """The same for one question, at a store that is open; whether the answer was published."""
    found = store.lookup(key(number))
    if found is None:
        with store.claim(key(number)) as (outcome, found):
            if outcome == "analyse":
                store.publish(key(number), answer(number), 0.001)
                return True
    assert found == answer(number), f"key {number} was answered with {found}"
    return False


def sound(root: str, stay: Iterable[int] = (), may: Iterable[int] = ()) -> set[int]:
    """Every entry of `stay` is there and right, those of `may` are right or not there, nothing else is. Those there."""
    stay, may = set(stay), set(may)
    store = opened(f"file://{root}", mode="readonly")
    there = set()
    for number in sorted(stay | may):
        found = store.lookup(key(number))
        assert found == answer(number) or (found is None and number not in stay), f"key {number}: {found}"
        there |= set() if found is None else {number}
    assert store.counters.snapshot()["faults"] == {}
    seen = list(findings(FilesBackend(root, touch=False)))
    assert [each for each in seen if each.problem] == []
    assert {each.digest for each in seen} == {key(number).digest for number in there}
    return there


def litter(folder: str) -> list[str]:
    """The temporary files under `folder`, beside which nothing lies that is not known."""
    found = []
    for path, folders, files in os.walk(folder):
        for name in [*files, *(each for each in folders if each.startswith("."))]:
            if _LITTER.fullmatch(name):
                found.append(os.path.join(path, name))
            else:
                assert _KNOWN.fullmatch(name), f"{path}/{name} is neither an entry nor a temporary file"
    return found


def swept(root: str) -> int:
    """The sweep knows all that was left, leaves it alone while it is young, and removes it after that. How much."""
    left = litter(root)
    assert all(TEMPORARY.match(os.path.basename(path)) for path in left), left
    backend = FilesBackend(root)
    assert sweep(backend) == 0
    for path in left:
        set_age(path, 2 * HOUR)
    assert sweep(backend) == len(left)
    assert litter(root) == []
    return len(left)
