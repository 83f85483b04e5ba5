from __future__ import annotations

import pickle

import pytest

from tritonstore import errors
from tritonstore.errors import (
    Bypass,
    FormatError,
    ReplacementError,
    SeamError,
    SettingsError,
    StoreError,
    StoreUnavailable,
    StoreUnreachable,
    TritonStoreError,
)

EXAMPLES: list[TritonStoreError] = [
    TritonStoreError("any"),
    SettingsError("max_size = x cannot be used", "max_size", "environment TRITONSTORE_MAX_SIZE"),
    StoreError("get failed", "file:///x", "get"),
    StoreUnavailable("put failed", url="file:///x", operation="put"),
    StoreUnreachable("get failed", url="redis://x", operation="get"),
    FormatError("has a wrong checksum"),
    SeamError("this PyTorch lacks a, b", ("a", "b")),
    Bypass("heuristics", "a kernel with Heuristics is not keyed"),
    Bypass("heuristics"),
    ReplacementError("topk must be replaced, and that failed", "topk", ("aten.topk.default", 8)),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=repr)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_field_survives_a_pickle_round_trip(error: TritonStoreError, protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.args == error.args


def test_there_is_an_example_of_every_class() -> None:
    assert {type(error).__name__ for error in EXAMPLES} == set(errors.__all__)


def test_the_tree() -> None:
    assert issubclass(StoreUnavailable, StoreError)
    assert issubclass(SettingsError, ValueError)
    assert issubclass(FormatError, ValueError)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), TritonStoreError)
        assert name in (errors.__doc__ or "")


def test_a_bypass_reads_as_reason_and_detail() -> None:
    assert str(Bypass("heuristics")) == "heuristics"
    assert str(Bypass("heuristics", "not keyed")) == "heuristics: not keyed"
