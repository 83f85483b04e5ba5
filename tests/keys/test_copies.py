"""Copies of a kernel: a shallow one shares the state of the original, and may differ from it in what it says."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.calls import Call, answer, assert_told_apart, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch
from tritonstore.keys.code import _SLOT

SOURCE = """
@triton.jit
def kernel(x, y):
    tl.store(x, tl.load(y))
"""
OTHER = SOURCE.replace("store(x, tl.load(y))", "store(y, tl.load(x))")
HELPED = SOURCE.replace("kernel", "helper") + "@triton.jit\ndef kernel(x, y):\n    helper(x, y)\n"


def by_source(kernel: Any) -> None:
    kernel._unsafe_update_src(load(OTHER)["kernel"]._src)


def by_function(kernel: Any) -> None:
    other = load(OTHER)["kernel"]
    vars(kernel).update(fn=other.fn, _src=other._src)


def by_state(kernel: Any) -> None:
    vars(kernel).update({name: value for name, value in vars(load(OTHER)["kernel"]).items() if name != _SLOT})


EDITS = [by_source, by_function, by_state]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("keyed", ["original", "copy", "neither"])
def test_an_edited_copy_and_its_original_are_told_apart(edit: Callable[[Any], None], keyed: str) -> None:
    kernel = load(SOURCE)["kernel"]
    original = launch(kernel)
    if keyed == "original":
        digest(original)
    changed = launch(copy.copy(kernel))
    if keyed == "copy":
        digest(changed)
    edit(changed.kernel)
    assert_told_apart(original, changed)
    expected = digest(launch(load(SOURCE)["kernel"])), digest(launch(load(OTHER)["kernel"]))
    for _ in range(2):  # each by turns, as a program with both would ask
        assert (digest(original), digest(changed)) == expected


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_copy_of_a_helper(edit: Callable[[Any], None]) -> None:
    namespace = load(HELPED)
    call = launch(namespace["kernel"])
    said, key = answer(call), digest(call)
    helper = namespace["helper"]
    namespace["helper"] = copy.copy(helper)
    assert digest(call) == key
    edit(namespace["helper"])
    assert answer(call) != said
    assert outcome(call) != key
    namespace["helper"] = helper
    assert digest(call) == key


def test_an_edit_of_the_original_leaves_the_copys_key() -> None:
    kernel = load(SOURCE)["kernel"]
    key = digest(launch(kernel))
    same = copy.copy(kernel)
    by_source(kernel)
    assert digest(launch(kernel)) != key
    assert digest(launch(same)) == key


def deep(kernel: Any) -> Any:
    """As `copy.deepcopy`, which stops at a lock and at modules, of which a kernel has both."""
    kept = (kernel._hash_lock, kernel.__globals__)
    return copy.deepcopy(kernel, {id(each): each for each in kept})


class Pickler(pickle.Pickler):
    """As the picklers that send functions to workers: what cannot travel is sent by name."""

    def __init__(self, file: io.BytesIO, kernel: Any) -> None:
        super().__init__(file)
        self.kept = [kernel._hash_lock, kernel.fn, kernel.__globals__]

    def persistent_id(self, value: Any) -> int | None:
        return next((at for at, each in enumerate(self.kept) if each is value), None)


def pickled(kernel: Any) -> Any:
    file = io.BytesIO()
    pickler = Pickler(file, kernel)
    pickler.dump(kernel)
    assert len(file.getvalue()) < 10_000, "the record's world went along"
    unpickler = pickle.Unpickler(io.BytesIO(file.getvalue()))
    unpickler.persistent_load = pickler.kept.__getitem__  # type: ignore[assignment,method-assign]
    return unpickler.load()


@pytest.mark.parametrize("make", [copy.copy, deep, pickled])
@pytest.mark.parametrize("keyed", [True, False], ids=["with a record", "without"])
def test_a_copy_asks_the_same_question(make: Callable[[Any], Any], keyed: bool) -> None:
    kernel = load(SOURCE)["kernel"]
    key = digest(launch(load(SOURCE)["kernel"]))
    if keyed:
        digest(launch(kernel))
    made = launch(make(kernel))
    assert made.kernel is not kernel
    for _ in range(2):
        assert outcome(made) == key
    by_source(made.kernel)
    assert_told_apart(Call(kernel, made.kwargs), made)


@pytest.mark.parametrize("send", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_record_does_not_travel(send: Callable[[Any], Any]) -> None:
    kernel = load(SOURCE)["kernel"]
    digest(launch(kernel))
    assert send(vars(kernel)[_SLOT]) == {(): None}
