"""A launch to key: the key's digest, or why there is none, beside what PyTorch says."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.analysis import Answer, pytorch_answer
from tritonstore.errors import Bypass
from tritonstore.keys import call_key


class Call(NamedTuple):
    kernel: Any
    kwargs: dict[str, Any]
    tma: dict[str, Any] | None = None


def digest(call: Call) -> str:
    """The key of the call. Raises Bypass."""
    return str(call_key(call.kernel, call.kwargs, call.tma).digest)


def outcome(call: Call) -> str:
    """The key's digest, or the reason of its Bypass; the two cannot be mistaken for one another."""
    try:
        return digest(call)
    except Bypass as bypass:
        return f"bypass: {bypass.reason}"


def answer(call: Call) -> Answer:
    return pytorch_answer(call.kernel, call.kwargs, call.tma)


def assert_told_apart(first: Call, second: Call) -> None:
    """PyTorch's answers differ, not both of them for want of an analysis, and so do the keys."""
    said = answer(first), answer(second)
    assert said[0] != said[1], "the two launches do not show the difference"
    assert not (said[0].failed and said[1].failed)
    assert digest(first) != digest(second)


def assert_same_key(first: Call, second: Call) -> None:
    """PyTorch's answers are equal, and so are the keys."""
    said = answer(first)
    assert said == answer(second), "the two launches are not the same question"
    assert not said.failed
    assert digest(first) == digest(second)
