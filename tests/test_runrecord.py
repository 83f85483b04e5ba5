from __future__ import annotations

import os
import zlib
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records import STARTED, miss, record, sha
from tritonstore.errors import FormatError
from tritonstore.runrecord import MAGIC, MAX_SIZE, FileName, RunRecord, decode, encode, write


def test_what_is_written_is_read() -> None:
    made = record(dropped={"misses": 3}, sources=["a.run"])
    assert decode(encode(made)) == made


def test_equal_parts_are_described_once() -> None:
    """Thousands of calls of one kernel share its code and their toolchain."""
    code = [
        {
            "name": "model.kernels._rms",
            "body": sha("body"),
            "names": [["body", f"N{i}", ["int", i], "global"] for i in range(50)],
        }
    ]
    misses = []
    for number in range(500):
        one = miss(number)
        misses.append(one._replace(parts={**one.parts, "code": sha("code")}, detail={**one.detail, "code": code}))
    data = encode(record(misses=misses))
    assert len(data) < 500 * 300
    assert decode(data).misses == misses


def test_an_undescribed_miss_stays_undescribed() -> None:
    made = record(misses=[miss(1, detail={}, parts={})])
    assert decode(encode(made)) == made


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"X" + data[1:],
        lambda data: data[: len(MAGIC)] + b"\x02" + data[len(MAGIC) + 1 :],
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: data + b"\0" * MAX_SIZE,
    ],
)
def test_damage_is_a_format_error(damage: object) -> None:
    with pytest.raises(FormatError):
        decode(damage(encode(record())))  # type: ignore[operator]


def packed(fields: object) -> bytes:
    """A record's bytes around any content, checksum and all."""
    from hashlib import sha256

    from tritonstore.runrecord import _HEADER, VERSION

    payload = zlib.compress(msgpack.packb(fields))
    return _HEADER.pack(MAGIC, VERSION, len(payload), sha256(payload).digest()) + payload


def content(made: RunRecord) -> dict[str, object]:
    from tritonstore.runrecord import _HEADER

    fields: dict[str, object] = msgpack.unpackb(zlib.decompress(encode(made)[_HEADER.size :]))
    return fields


@pytest.mark.parametrize("name", [*RunRecord.__slots__, "described"])
@pytest.mark.parametrize("value", [None, 3, 1.5, "text", b"bytes", [], [3], {"a": 1.5}, [[1, 2]]])
def test_content_of_another_type_is_a_format_error_or_whole(name: str, value: object) -> None:
    try:
        found = decode(packed({**content(record()), name: value}))
    except FormatError:
        return
    assert encode(found)


@given(
    st.recursive(
        st.none() | st.integers(0, 9) | st.text(max_size=3),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=9), x),
    )
)
def test_no_content_raises_anything_else(fields: object) -> None:
    with pytest.raises(FormatError):
        decode(packed(fields))


def test_a_bomb_is_refused() -> None:
    from hashlib import sha256

    from tritonstore.runrecord import _HEADER, MAX_PLAIN, VERSION

    payload = zlib.compress(b"\0" * (MAX_PLAIN + 1), 9)
    with pytest.raises(FormatError, match="longer"):
        decode(_HEADER.pack(MAGIC, VERSION, len(payload), sha256(payload).digest()) + payload)


def test_what_is_too_large_is_not_written() -> None:
    with pytest.raises(FormatError, match="larger"):
        encode(record(used=[os.urandom(32).hex() for _ in range(MAX_SIZE // 32 + 1)]))


def test_text_that_is_no_unicode_is_written_all_the_same() -> None:
    made = decode(encode(replace(record(), command="caf\udce9.py")))
    assert made.command == "caf?.py"


def test_file_names_sort_by_time_and_tell_the_run() -> None:
    early, late = FileName(1_000, "run-b", "host-1-ab"), FileName(1_780_000_000_000, "run-a", "host-2-cd")
    assert sorted([str(late), str(early)]) == [str(early), str(late)]
    assert FileName.parse(str(late)) == late
    for other in ("x.run", ".host-1.tmp", f"{late}.tmp", "0000000001000@a/b@c.run", ".compacting"):
        assert FileName.parse(other) is None


def test_writing_makes_the_folder_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder, name = tmp_path / "cache" / "runs", FileName(int(STARTED * 1000), "run-1", "host-1-ab")
    for data in (encode(record()), encode(record(ending="SIGTERM"))):
        write(str(folder), name, data)
    assert os.listdir(folder) == [str(name)]
    assert decode((folder / str(name)).read_bytes()).ending == "SIGTERM"
    assert (folder.stat().st_mode & 0o777, (folder / str(name)).stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write(str(tmp_path), FileName(1, "run", "owner"), b"data")
    assert os.listdir(tmp_path) == []
