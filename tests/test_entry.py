from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstore.access import AccessResult
from tritonstore.entry import MAGIC, MAX_DEPTH, MAX_SIZE, VERSION, Entry, Provenance, decode, decode_answer, encode
from tritonstore.errors import FormatError

GOLDEN = Path(__file__).parent / "golden"


def sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()


ENTRIES = {
    "newer": Entry(
        digest=sha("newer"),
        parts={name: sha(name) for name in ("toolchain", "target", "ops", "arguments", "code")},
        access=AccessResult(("x_ptr", "y_ptr"), ("out_ptr",), True),
        detail={
            "torch": "2.13.0",
            "target": ["cuda", 90, 32],
            "arguments": [["x_ptr", "*fp32", True], ["n", "i32", False], ["BLOCK", -(1 << 63), None]],
            "eps": 1e-6,
            "big": (1 << 64) - 1,
            "raw": b"\x00\xff",
            "name": "kernel_é",
            "nested": {"a": {"b": []}, "empty": {}},
        },
        provenance=Provenance(1760000000, 0.0625, "tritonstore 0.1.0"),
    ),
    "older": Entry(
        digest=sha("older"),
        parts={"code": sha("code"), "arguments": sha("arguments")},
        access=AccessResult(None, ("out_ptr", "n"), None),
        detail={},
        provenance=Provenance(0, 0.0, ""),
    ),
    "reads-only": Entry(
        digest=sha("reads-only"),
        parts={"one": sha("one")},
        access=AccessResult(("x",), (), False),
        detail={"note": None},
        provenance=Provenance(1, -0.0, "w"),
    ),
}
ENTRY = ENTRIES["newer"]
DATA = encode(ENTRY)


def sealed(payload: bytes, version: int = VERSION) -> bytes:
    """An entry with a right checksum around any payload."""
    return MAGIC + struct.pack(">BI", version, len(payload)) + sha256(payload).digest() + payload


def fields(entry: Entry = ENTRY) -> list[Any]:
    unpacked: list[Any] = msgpack.unpackb(encode(entry)[45:])
    return unpacked


# Golden files: these bytes may not change as long as VERSION does not


@pytest.mark.parametrize("name", list(ENTRIES))
def test_golden_files(name: str) -> None:
    data = (GOLDEN / f"entry-v1-{name}.bin").read_bytes()
    assert decode(data) == ENTRIES[name]
    assert list(decode(data).parts) == list(ENTRIES[name].parts)
    assert encode(ENTRIES[name]) == data


def test_every_golden_file_is_tested() -> None:
    assert {path.name for path in GOLDEN.glob("entry-*")} == {f"entry-v1-{name}.bin" for name in ENTRIES}


def test_the_header_by_hand() -> None:
    payload = DATA[45:]
    assert sealed(payload) == DATA
    assert DATA[:8] == b"\x8fTSE\r\n\x1a\n"


# Round trip


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
names = st.lists(st.text(min_size=1, max_size=12), max_size=6, unique=True).map(tuple)


@st.composite
def accesses(draw: st.DrawFn) -> AccessResult:
    writes = draw(names)
    if draw(st.booleans()):
        return AccessResult(None, writes, None)
    reads = draw(names)
    fuse = draw(st.booleans()) and len(writes) == 1 and writes[0] not in reads
    return AccessResult(reads, writes, fuse)


entries = st.builds(
    Entry,
    digest=digests,
    parts=st.dictionaries(st.text(max_size=12), digests, min_size=1, max_size=6),
    access=accesses(),
    detail=st.dictionaries(st.text(max_size=8), plain, max_size=6),
    provenance=st.builds(Provenance, st.integers(0, (1 << 64) - 1), st.floats(allow_nan=False), st.text(max_size=30)),
)


@given(entries)
def test_round_trip_keeps_types_and_order_and_has_one_spelling(entry: Entry) -> None:
    data = encode(entry)
    again = decode(data)
    assert again == entry
    assert repr(again) == repr(entry)  # types and order as well: 1, True and 1.0 are equal
    assert encode(again) == data


def test_nan_keeps_its_bytes() -> None:
    data = encode(ENTRY._replace(detail={"nan": float("nan")}))
    assert encode(decode(data)) == data


# Damage


def test_every_flipped_bit_and_every_truncation_is_refused() -> None:
    for index in range(len(DATA)):
        for bit in (1, 16, 128):
            damaged = bytearray(DATA)
            damaged[index] ^= bit
            with pytest.raises(FormatError):
                decode(bytes(damaged))
            assert answered(bytes(damaged)) is None
        with pytest.raises(FormatError):
            decode(DATA[:index])
        assert answered(DATA[:index]) is None
    last = msgpack.packb(fields()[-1])
    for payload in (DATA[45:] + last, b"\x96" + DATA[46:] + last, b"\x94" + DATA[46 : -len(last)]):
        assert decoded(sealed(payload)) is None is answered(sealed(payload))
    for tail in (b"\0", b"\n", DATA):
        with pytest.raises(FormatError):
            decode(DATA + tail)


def decoded(data: bytes) -> Entry | None:
    try:
        return decode(data)
    except FormatError:
        return None


def answered(data: bytes, key: Entry = ENTRY) -> tuple[AccessResult, Provenance] | None:
    try:
        return decode_answer(data, key)
    except FormatError:
        return None


def accepted_only_in_its_one_spelling(data: bytes) -> None:
    entry, answer = decoded(data), answered(data)
    if entry is not None:
        assert encode(entry) == data
        assert repr(answered(data, entry)) == repr((entry.access, entry.provenance))  # no NaN equals itself
        same = entry.digest == ENTRY.digest and list(entry.parts.items()) == list(ENTRY.parts.items())
        assert (answer is not None) is same


@given(st.binary(max_size=300))
def test_any_bytes_raise_only_format_error(data: bytes) -> None:
    accepted_only_in_its_one_spelling(data)
    accepted_only_in_its_one_spelling(MAGIC + data)
    accepted_only_in_its_one_spelling(sealed(data))


@given(st.data())
def test_mutations_behind_a_right_checksum_raise_only_format_error(data: st.DataObject) -> None:
    payload = bytearray(DATA[45:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        cut = data.draw(st.integers(0, 3))
        payload[at : at + cut] = data.draw(st.binary(max_size=3))
        if not payload:
            break
    accepted_only_in_its_one_spelling(sealed(bytes(payload)))


@given(
    st.recursive(plain | st.just(msgpack.Timestamp(1, 2)) | st.just(msgpack.ExtType(5, b"x")), st.lists, max_leaves=9)
)
def test_any_msgpack_in_any_field_raises_only_format_error(value: Any) -> None:
    for index in range(5):
        changed = fields()
        changed[index] = value
        data = sealed(msgpack.packb(changed))
        accepted_only_in_its_one_spelling(data)
        # What the answer is made of is judged alike, with the detail and without.
        assert index in (0, 1, 3) or (decoded(data) is None) is (answered(data) is None)
    accepted_only_in_its_one_spelling(sealed(msgpack.packb(value)))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "shorter"),
        (DATA[:44], "shorter"),
        (b"\x89PNG\r\n\x1a\n" + DATA[8:], "does not start"),
        (sealed(DATA[45:], version=2), "version 2"),
        (DATA + b"\0", "another length"),
        (b"\0" * (MAX_SIZE + 1), "larger than"),
        (sealed(DATA[45:] + b"\xc0"), "closed kind"),
        (sealed(b"\x91" * 100_000), "closed kind"),
        (sealed(b"\xdd\xff\xff\xff\xff"), "closed kind"),
        (sealed(b"\xdf\xff\xff\xff\xff"), "closed kind"),
        (sealed(b"\xc6\xff\xff\xff\xff"), "closed kind"),
        (sealed(b"\xa1\xff"), "closed kind"),
        (sealed(msgpack.packb([*fields(), None])), "payload is not a list of 5"),
        (sealed(msgpack.packb(fields()[:4])), "payload is not a list of 5"),
        (sealed(DATA[45:].replace(b"\xa3big\xcf", b"\xa3eps\xcf")), "one spelling"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_with_its_problem(data: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        decode(data)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (b"\xa3eps", b"\xd9\x03eps"),
        (b"\xa5x_ptr", b"\xd9\x05x_ptr"),
        (b"\x85", b"\xdc\x00\x05"),
        (struct.pack(">Bd", 0xCB, 0.0625), struct.pack(">Bf", 0xCA, 0.0625)),
        (struct.pack(">BI", 0xCE, 1760000000), struct.pack(">BQ", 0xCF, 1760000000)),
    ],
)
def test_another_spelling_of_the_same_is_refused(short: bytes, long: bytes) -> None:
    payload = DATA[45:]
    if short == b"\x85":
        short, long = b"\x95", b"\xdc\x00\x05"
    assert short in payload
    data = sealed(payload.replace(short, long, 1))
    with pytest.raises(FormatError, match="one spelling"):
        decode(data)
    assert (answered(data) is None) is (short != b"\xa3eps")  # which stands in the detail


# What is not written


class Sub(str):
    pass


class Pair(NamedTuple):
    a: int


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "ab"},
        {"digest": "A" * 64},
        {"digest": None},
        {"parts": {}},
        {"parts": {"a": "b"}},
        {"parts": {1: sha("x")}},
        {"access": AccessResult((), (), True)},
        {"access": AccessResult((), ("\ud800",), False)},
        {"detail": []},
        {"detail": {1: 2}},
        {"detail": {b"a": 2}},
        {"detail": {"a": (1, 2)}},
        {"detail": {"a": Pair(1)}},
        {"detail": {"a": Sub("x")}},
        {"detail": {"a": {Sub("x"): 1}}},
        {"detail": {"a": {1, 2}}},
        {"detail": {"a": NotImplemented}},
        {"detail": {"a": 1 << 64}},
        {"detail": {"a": -(1 << 63) - 1}},
        {"detail": {"a": "\ud800"}},
        {"detail": {"a": bytearray(b"x")}},
        {"detail": {"a": deep(MAX_DEPTH)}},
        {"detail": {"a": "x" * MAX_SIZE}},
        {"provenance": Provenance(-1, 0.0, "")},
        {"provenance": Provenance(1 << 64, 0.0, "")},
        {"provenance": Provenance(1.0, 0.0, "")},  # type: ignore[arg-type]
        {"provenance": Provenance(True, 0.0, "")},
        {"provenance": Provenance(1, 0, "")},
        {"provenance": Provenance(1, 0.0, None)},  # type: ignore[arg-type]
    ],
    ids=lambda change: repr(change)[:60],
)
def test_what_breaks_the_grammar_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        encode(ENTRY._replace(**change))


def test_the_depth_limit_is_exact() -> None:
    entry = ENTRY._replace(detail={"a": deep(MAX_DEPTH - 1)})
    assert decode(encode(entry)) == entry


def test_an_entry_answers_only_the_same_digest_and_the_same_parts_in_the_same_order() -> None:
    answer = ENTRY.access, ENTRY.provenance
    assert decode_answer(DATA, ENTRY) == answer == decode_answer(encode(ENTRY._replace(detail={})), ENTRY)
    others = (
        ENTRY._replace(digest=sha("other")),
        ENTRY._replace(parts={**ENTRY.parts, "code": sha("other")}),
        ENTRY._replace(parts=dict(reversed(ENTRY.parts.items()))),
        ENTRY._replace(parts={**ENTRY.parts, "more": sha("more")}),
        ENTRY._replace(parts=dict(list(ENTRY.parts.items())[:-1])),
    )
    for other in others:
        assert decode_answer(DATA, other) is None
        assert decode_answer(encode(other), ENTRY) is None
