"""The fuzz targets: the kept inputs again, a short run, and that they would notice what they are there for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import fuzz
from tests.support.fuzz import TARGETS, Escaped, nothing_but_decoding, one, plain, seeds
from tests.support.records import full_record
from tests.support.synthetic import fill
from tests.test_store import SimpleKey
from tritonstore import entry, runrecord
from tritonstore.entry import encode
from tritonstore.errors import FormatError
from tritonstore.maintenance.runs import merge
from tritonstore.store import open_store


@pytest.mark.parametrize("target", list(TARGETS))
def test_the_kept_inputs(target: str) -> None:
    kept = sorted((fuzz.CORPUS / target).iterdir())
    assert len(kept) >= 20
    for path in kept:
        one(target, path.read_bytes())
    for data in seeds(target):
        one(target, data)


@pytest.mark.parametrize("target", list(TARGETS))
def test_a_short_run(target: str) -> None:
    assert plain(target, 4_000, 600.0, seed=1) == 4_000


@given(st.binary(max_size=600))
def test_any_bytes_for_every_target(data: bytes) -> None:
    for target in TARGETS:
        for how in range(4):
            one(target, bytes([how]) + data)


def test_as_a_script(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(root / "scripts" / "fuzz"), "entry", "--inputs", "5000", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "5000 runs" in done.stderr or "5,000 inputs, nothing found" in done.stdout


# They notice


def test_an_exception_that_is_no_format_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> Any:
        raise KeyError("x") if len(data) > 700 else FormatError("x")

    monkeypatch.setattr(entry, "decode", broken)
    with pytest.raises(Escaped, match=r"entry fails on [0-9a-f]+"):
        plain("entry", 4_000, 600.0, 1)


def test_a_second_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = entry.decode
    monkeypatch.setattr(entry, "decode", lambda data: decode(data[:-1]) if data.endswith(b"\0") else decode(data))
    with pytest.raises(Escaped, match="second spelling"):
        one("entry", b"\0" + encode(fuzz.made_entry(0)) + b"\0")


def test_a_tag_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz.KEYS.__class__, "check", lambda self, data: None)
    with pytest.raises(Escaped, match="a tag that nobody made"):
        one("entry", b"\2" + encode(fuzz.made_entry(0))[45:] + bytes(32))


def _import() -> None:
    import this_is_not_there  # type: ignore[import-not-found]  # noqa: F401


RUNS: dict[str, Callable[[], object]] = {
    "import": _import,
    "open": lambda: Path("/nowhere").read_bytes(),
    "compile": lambda: compile("1", "x", "eval"),
    "exec": lambda: exec(compile("1", "x", "exec")),
    "os.system": lambda: os.system("true"),
    "os.remove": lambda: os.unlink("/nowhere/x"),
    "subprocess.Popen": lambda: subprocess.run(["/nowhere"], check=False),
    "socket": lambda: socket.socket().close(),
}


@pytest.mark.parametrize("event", list(RUNS))
def test_code_that_is_run(event: str) -> None:
    def block() -> None:
        try:
            RUNS[event]()
        except (OSError, ImportError):
            raise FormatError("as a decoder would") from None

    with pytest.raises(Escaped, match=event), nothing_but_decoding():
        block()


# What the targets found, and its kind


def record_with(**changes: Any) -> bytes:
    fields = {name: getattr(full_record(), name) for name in runrecord.RunRecord.__slots__}
    return b"\2" + msgpack.packb({**fields, "misses": [], "described": {}, "used": b"", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {"hits": 1}},
        {"counters": {"hits": {"memory": "x"}}},
        {"counters": {"hits": {"memory": {}}}},
        {"counters": {"misses": {}}},
        {"counters": {"misses": [1]}},
        {"counters": {"seconds_key": float("nan")}},
        {"counters": {b"misses": 1}},
        {"dropped": {"misses": "x"}},
        {"dropped": {"misses": 1 << 62}},
        {"counters": {"misses": -(1 << 63)}},
        {"versions": {"torch": 2}},
        {"started": 1e300},
        {"started": float("nan")},
        {"ended": float("inf")},
        {"ended": 2},
        {"ended": -1.0},
        {"processes": -1},
        {"timeline": [[1.0, 0.0, [1], [2], [0], [0], [0.25]]]},
        {"timeline": [[1.0, 0.5, [1], [2], [0], [0, 1], [0.25]]]},
        {"kernels": [["m", "k", {"file": 1.5}, 0, 0, {}, 0, {}, 0.0, 0.0]]},
        {"timeline": [[0.0, 1.0, [1], [1], [1], [1], [float("inf")]]]},
    ],
    ids=str,
)
def test_a_record_whose_numbers_cannot_be_added_or_shown_is_refused(changes: dict[str, Any]) -> None:
    """One list in the counters of any record was a TypeError in `tritonstore stats`."""
    one("record", record_with())
    seen: list[Any] = []
    decode = runrecord.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runrecord, "decode", lambda data: seen.append(decode(data)))
        one("record", record_with())
        assert len(seen) == 1
        one("record", record_with(**changes))
        assert len(seen) == 1


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0, 1e12])
def test_an_entry_cannot_spoil_the_counts_of_those_who_use_it(seconds: float, tmp_path: Path) -> None:
    made = fuzz.made_entry(1)
    fill(str(tmp_path), [made._replace(provenance=made.provenance._replace(seconds=seconds))])
    store = open_store(f"file://{tmp_path}")
    assert store.lookup(SimpleKey(made.digest, made.parts)) == made.access
    assert store.counters.snapshot()["seconds_saved"] == 0.0


def test_records_of_any_two_processes_add_up() -> None:
    record = full_record()
    assert merge([record, record]).counters == {"hits": {"memory": 2}, "misses": 4, "seconds_key": 1.0}
