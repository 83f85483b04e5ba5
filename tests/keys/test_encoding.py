"""One byte string for one value: the property on which every digest stands."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstore.keys.encoding import encode, key_digest, packed_digest, part_digest

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(alphabet=st.characters())
    | st.binary()
)
VALUES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple))


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down; lists and tuples count as one type, floats by their bits."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if type(left) is float and type(right) is float:
        return struct.pack(">d", left) == struct.pack(">d", right)
    return type(left) is type(right) and bool(left == right)


@given(VALUES, VALUES)
def test_equal_bytes_exactly_for_equal_values(left: Any, right: Any) -> None:
    assert (encode(left) == encode(right)) is same(left, right)
    assert (packed_digest("p", left) == packed_digest("p", right)) is same(left, right)


@given(VALUES)
def test_packed_or_not_a_record_has_one_digest_for_each_name(value: Any) -> None:
    again = tuple(value) if type(value) is list else value
    assert packed_digest("p", value) == packed_digest("p", again)
    assert len({packed_digest("p", value), packed_digest("q", value), part_digest("p", value)}) == 3


@given(st.lists(st.text()), st.lists(st.text()))
def test_items_cannot_flow_into_each_other(left: list[str], right: list[str]) -> None:
    assert (encode([left, right]) == encode([left + right, []])) is (right == [])


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, True), (1, 1.0), (0, False), (0.0, -0.0), ("1", 1), ("a", b"a"), (None, "None"), ([], ""), ([[]], [])],
)
def test_python_equality_is_not_ours(left: Any, right: Any) -> None:
    assert encode(left) != encode(right)
    assert packed_digest("p", left) != packed_digest("p", right)


def test_a_nan_is_equal_to_itself() -> None:
    assert encode(math.nan) == encode(math.nan)


@pytest.mark.parametrize("value", [1j, type("Text", (str,), {})("x"), type("Number", (int,), {})(1)])
def test_nothing_of_another_type_is_packed(value: object) -> None:
    with pytest.raises(TypeError, match="a key record holds a"):
        packed_digest("p", [value])


@pytest.mark.parametrize("value", [{}, set(), object(), 1j, range(3), bytearray(b"a")])
def test_nothing_else_is_encoded(value: object) -> None:
    with pytest.raises(TypeError, match="a key record holds a"):
        encode([value])


def test_digests_are_pinned() -> None:
    assert part_digest("code", ["x", 1]) == "a2d743979599a801097200615a4ff7133e8b43de9fd075cf8d3d766dc5912b50"
    assert (
        key_digest({"a": "1" * 64, "b": "2" * 64}) == "42020654fd2a31b73900d7e998c3e7c3d3658c0136972666e9ebcbd893368dfe"
    )


def test_the_order_and_names_of_parts_count() -> None:
    one, two = "1" * 64, "2" * 64
    assert key_digest({"a": one, "b": two}) != key_digest({"b": two, "a": one})
    assert key_digest({"a": one, "b": two}) != key_digest({"a": two, "b": one})
    assert part_digest("a", []) != part_digest("b", [])
