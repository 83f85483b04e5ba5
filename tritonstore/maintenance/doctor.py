"""Is all well? Facts about this installation, its settings and its stores, each with a verdict.

torch is looked at in a process of its own (`pytorch.probe`), so that nothing here imports it and nothing that it does
can end or hang the command.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import tritonstore
from tritonstore.access import AccessResult
from tritonstore.backends.base import Backend
from tritonstore.backends.leases import is_remote
from tritonstore.entry import Entry, Provenance, encode
from tritonstore.errors import SettingsError, StoreError
from tritonstore.keys.encoding import key_digest
from tritonstore.maintenance.inventory import innermost
from tritonstore.quarantine import Quarantine
from tritonstore.settings import Settings
from tritonstore.signing import keys_of
from tritonstore.store import WRITER

__all__ = ["Check", "installation", "pytorch", "store"]

Verdict = Literal["ok", "note", "warning", "problem"]

_PACKAGES = ("torch", "triton", "msgpack", "filelock", "click", "rich", "zstandard")
_PROBE_TIMEOUT = 300.0  # seconds; importing torch from a cold network disk takes minutes
_LITTLE_SPACE = 64 << 20
_SKEW = 60.0  # seconds between this clock and the store's; last use is kept to the hour


class Check(NamedTuple):
    """One fact: what was looked at, the verdict, and a sentence."""

    name: str
    verdict: Verdict
    text: str


def installation(settings: Settings) -> Iterator[Check]:
    """Versions, the entry point, the cache folder and the clock."""
    yield Check("tritonstore", "ok", f"{tritonstore.__version__} in {os.path.dirname(tritonstore.__file__)}")
    yield Check("python", "ok", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")
    for name in _PACKAGES:
        try:
            yield Check(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, "problem", f"is not installed; pip install {name}")
    yield _activation(settings)
    yield _cache_folder(settings.cache_folder)
    if settings.hmac_key_file is not None:
        yield _signing(settings)
    wrong = Quarantine(os.path.join(settings.cache_folder, "quarantine"))
    if wrong.digests():
        text = f"{len(wrong.digests())} answers in {wrong.folder} were found to be wrong; docs/trust.md says what to do"
        yield Check("quarantine", "warning", text)
    now = time.gmtime()
    right = now.tm_year >= 2026
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", now)
    yield Check("clock", "ok" if right else "problem", text + ("" if right else ": ages of entries will be wrong"))


def _activation(settings: Settings) -> Check:
    points = importlib.metadata.entry_points(group="torch.backends")
    if not any(point.name == "tritonstore" for point in points):
        return Check("activation", "warning", "not installed with its entry point: TRITONSTORE=1 does nothing")
    if settings.mode == "off":
        return Check("activation", "warning", f"mode is off (from {settings.origins['mode']}): the store is not used")
    if not settings.enabled:
        return Check("activation", "note", "TRITONSTORE is not set: a program must call tritonstore.install()")
    return Check("activation", "ok", "TRITONSTORE is set: every process that imports torch uses the store")


def _signing(settings: Settings) -> Check:
    try:
        keys = keys_of(settings)
    except SettingsError as error:
        return Check("signing", "problem", f"no store is used: {error}")
    more = f"; {len(keys) - 1} older ones are accepted" if keys is not None and len(keys) > 1 else ""
    return Check("signing", "ok", f"entries are signed, and others are not used{more}")


def _cache_folder(path: str) -> Check:
    there = _nearest(path)
    if not os.access(there, os.W_OK | os.X_OK):
        return Check("cache folder", "warning", f"{path} is not writable: no records of runs, and a slower start")
    return Check("cache folder", "ok", path if there == path else f"{path}, made when it is needed")


def pytorch(settings: Settings) -> Iterator[Check]:
    """The seam, the target and the toolchain, as a process that imports torch sees them."""
    # The child must find this very package, and must not install a store into itself.
    environment = {name: value for name, value in os.environ.items() if name != "TRITONSTORE"}
    home = os.path.dirname(os.path.dirname(tritonstore.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH", ""))))
    command = [sys.executable, "-W", "ignore", "-m", "tritonstore.pytorch.probe"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=False
        )
        found: dict[str, dict[str, str]] = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        yield Check("torch", "problem", f"could not be looked at within {_PROBE_TIMEOUT:.0f} s")
        return
    except (OSError, ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        yield Check("torch", "problem", f"could not be looked at (exit code {done.returncode}): {last}")
        return
    for name, fact in found.items():
        if not fact["problem"]:
            yield Check(name, "ok", fact["value"])
        else:
            hint = "; TRITONSTORE_TARGET=cuda:90:32 declares one" if name == "target" and not settings.target else ""
            yield Check(name, "problem", f"every call bypasses the store: {fact['problem'].rstrip('.')}{hint}")


def store(backend: Backend, settings: Settings) -> Iterator[Check]:
    """One tier: where it lies, who may write there, and whether an entry, a lease and a removal go through."""
    if backend.url == "memory:":
        yield Check("memory", "ok", "lives inside each process")
        return
    root = getattr(innermost(backend), "root", None)
    if root is not None:
        yield from _folder(root)
        if not os.path.isdir(root):
            return
    try:
        next(iter(backend.scan()), None)
        yield Check("readable", "ok", "its entries can be listed")
    except StoreError as error:
        yield Check("readable", "problem", str(error))
        return
    if settings.mode in ("readonly", "off") or backend.writes == "none":
        yield Check("writable", "note", "not tried: it is only read here")
        return
    yield from _probe(backend, root)


def _folder(root: str) -> Iterator[Check]:
    there = _nearest(root)
    kind = _file_system(there)
    remote = is_remote(there)
    yield Check("file system", "ok", kind + (", on a network: leases are marker files" if remote else ""))
    if not os.path.isdir(there):
        yield Check("folder", "problem", f"{there} is not a folder")
        return
    if there != root:
        if os.access(there, os.W_OK | os.X_OK):
            yield Check("folder", "note", f"{root} is not there yet; the first answer makes it")
        else:
            yield Check("folder", "problem", f"{root} is not there, and {there} is not writable for this user")
        return
    found = os.stat(root)
    mode = stat.S_IMODE(found.st_mode)
    text = f"owner {found.st_uid}, mode {mode:03o}"
    foreign = hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0)
    if foreign:
        yield Check("owner", "warning", f"{text}: it belongs to another user, who must be trusted")
    if mode & 0o002 and not mode & stat.S_ISVTX:
        yield Check("permissions", "warning", f"{text}: anybody can write here, and make exports wrong")
    elif mode & 0o020:
        yield Check("permissions", "note", f"{text}: everybody in group {found.st_gid} is trusted")
    else:
        yield Check("permissions", "ok", text)
    space = os.statvfs(root)
    free = space.f_bavail * space.f_frsize
    yield Check("space", "ok" if free > _LITTLE_SPACE else "warning", f"{free >> 20:,} MiB free")


def _probe(backend: Backend, root: str | None) -> Iterator[Check]:
    digest, data = _probe_entry()
    started = time.perf_counter()
    try:
        backend.put(digest, data)
        back = backend.get(digest)
        skew = _skew(backend, root, digest)
        removed = backend.delete(digest)
    except StoreError as error:
        yield Check("writable", "problem", str(error))
        return
    took = (time.perf_counter() - started) * 1000
    if back != data or not removed:
        what = "was not given back as it was" if back != data else "was not there any more"
        yield Check("writable", "problem", f"an entry that had just been stored {what}")
    else:
        yield Check("writable", "ok", f"an entry was stored, read and removed in {took:.1f} ms")
    if skew is not None:
        far = abs(skew) > _SKEW
        text = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this one: ages will be wrong"
        yield Check("its clock", "warning" if far else "ok", text if far else "agrees with this one")
    yield _lease(backend, digest)


def _lease(backend: Backend, digest: str) -> Check:
    try:
        lease = backend.lease(digest)
        if lease is None:
            return Check("leases", "note", "it has none: two workers may analyse the same call")
        held = lease.try_acquire()
        lease.release()
    except StoreError as error:
        return Check("leases", "warning", f"{error}; workers will not wait for each other")
    return Check("leases", "ok", "work" if held else "work (another worker holds this one)")


def _skew(backend: Backend, root: str | None, digest: str) -> float | None:
    """Seconds by which the clock that dates the store's files is ahead; None where this cannot be told."""
    if root is None:
        return None
    try:
        return os.stat(os.path.join(root, "v1", digest[:2], digest)).st_mtime - time.time()
    except OSError:
        return None


def _probe_entry() -> tuple[str, bytes]:
    """A sound entry that nothing asks for: one that a killed doctor leaves is no damage."""
    parts = {"doctor": sha256(os.urandom(32)).hexdigest()}
    digest = key_digest(parts)
    detail: dict[str, Any] = {"kernel": ["tritonstore", "doctor"]}
    made = Provenance(int(time.time()), 0.0, WRITER)
    return digest, encode(Entry(digest, parts, AccessResult((), (), False), detail, made))


def _nearest(path: str) -> str:
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _file_system(path: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that holds `path`; a question mark where this cannot be told."""
    try:
        device = os.stat(path).st_dev
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                # proc(5): "36 35 98:0 /root /mount/point options [optional fields] - type source options"
                before, _, after = line.partition(" - ")
                if before.split(" ")[2:3] == [f"{os.major(device)}:{os.minor(device)}"]:
                    return after.split(" ")[0]
    except OSError:
        return "?"
    return "?"
