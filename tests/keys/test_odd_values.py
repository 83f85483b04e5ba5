"""Compile-time values at the edges of what an entry can hold: their answers are stored like any other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sources import load
from tests.support.switch import launch
from tritonstore.access import AccessResult
from tritonstore.entry import Entry, Provenance, decode, encode
from tritonstore.keys import call_key

SOURCE = "@triton.jit\ndef kernel(x, y, v: tl.constexpr):\n    tl.store(y, tl.load(x))\n"

VALUES: dict[str, Any] = {
    "an integer of 64 bits and one more": 2**64,
    "an integer that Python does not spell out": 10**5000,
    "the same below zero": -(10**5000),
    "a lone surrogate": "\ud800",
    "text beyond ASCII": "größe",
    "long text": "x" * 100_000,
    "many numbers": tuple(range(5000)),
    "not a number": float("nan"),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_its_answer_can_be_stored(value: Any) -> None:
    call = launch(load(SOURCE)["kernel"], v=value)
    key = call_key(call.kernel, call.kwargs)
    access = AccessResult(("x",), ("y",), True)
    entry = Entry(key.digest, dict(key.parts), access, key.describe(), Provenance(1, 0.5, "test"))
    assert decode(encode(entry)).digest == key.digest


def test_equal_only_to_themselves() -> None:
    kernel = load(SOURCE)["kernel"]
    values = [*VALUES.values(), "\\ud800", hex(10**5000), 10**5000 + 1]
    keys = [call_key(kernel, launch(kernel, v=value).kwargs).digest for value in values]
    assert len(set(keys)) == len(keys)
