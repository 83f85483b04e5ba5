"""A global that a local hides: it is none of the key's business where a plain assignment comes before any use."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton.language as tl

from tests.support.calls import Call, answer, assert_same_key, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch

SWITCH = """
    if F == 1:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)
"""
KERNEL = """
OFF = tl.constexpr(False)
@triton.jit
def helper(p, v):
    tl.store(p, v)
@triton.jit
def kernel(x, y):
"""
OTHER = load("@triton.jit\ndef other(p):\n    return p\n")["other"]

GLOBALS: dict[str, Callable[[], Any]] = {
    "constexpr 1": lambda: tl.constexpr(1),
    "constexpr 2": lambda: tl.constexpr(2),
    "int": lambda: 3,
    "None": lambda: None,
    "text": lambda: "text",
    "tensor": lambda: torch.zeros(3),
    "a JIT function": lambda: OTHER,
    "a module": lambda: types,
    "a class": lambda: Call,
    "Triton's load": lambda: tl.load,
    "a dtype": lambda: tl.float32,
}


def called(body: str, **given: Any) -> Call:
    return launch(load(KERNEL + body, given=given)["kernel"])


HIDDEN = {
    "a constant": "    F = 1" + SWITCH,
    "after the docstring": "    'F'\n    F = 1" + SWITCH,
    "a tensor": "    F = tl.load(x)\n    tl.store(y, F)\n",
    "used by another": "    F = 1\n    G = F + F\n    tl.store(x, G)\n",
    "set twice": "    F = 2\n    F = F - 1" + SWITCH,
    "changed in place later": "    F = 0\n    F += 1" + SWITCH,
    "a loop over it later": "    F = 0\n    for i in range(4):\n        F += i\n    tl.store(x, F)\n",
    "a while over it later": "    F = 0\n    while F < 3:\n        F += 1\n    tl.store(x, F)\n",
    "a branch over it later": "    F = 1\n    if OFF:\n        F = 2" + SWITCH,
    "after a branch without it": "    if OFF:\n        tl.store(y, 1.0)\n    F = 1" + SWITCH,
    "a keyword of its name": "    helper(p=x, v=1.0)\n    F = 1" + SWITCH,
    "an attribute of its name": "    G = x.dtype\n    F = 1" + SWITCH,
    "handed to a helper": "    F = 1.0\n    helper(x, F)\n",
    "a tuple": "    F = (1, 2)\n    F = F[0]" + SWITCH,
}


@pytest.mark.parametrize("hidden", GLOBALS.values(), ids=GLOBALS.keys())
@pytest.mark.parametrize("body", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_global_hidden_from_the_start_is_neutral(body: str, hidden: Callable[[], Any]) -> None:
    assert_same_key(called(body), called(body, F=hidden()))


def test_a_hidden_global_that_comes_and_goes_is_neutral() -> None:
    namespace = load(KERNEL + HIDDEN["a constant"])
    call = launch(namespace["kernel"])
    key = digest(call)
    for make in GLOBALS.values():
        namespace["F"] = make()
        assert digest(call) == key


SEEN = {
    "used first": SWITCH + "    F = 1\n",
    "used in its own value": "    F = F" + SWITCH,
    "used deep in its own value": "    F = (0, F + 0)[1]" + SWITCH,
    "changed in place": "    F += 0" + SWITCH,
    "set in one branch": "    if OFF:\n        F = 3" + SWITCH,
    "set in a loop that is not entered": "    for i in tl.static_range(0):\n        F = 3" + SWITCH,
    "set by a loop that is not entered": "    for F in tl.static_range(0):\n        tl.store(y, 1.0)" + SWITCH,
    "used in an earlier value": "    G = F + 1\n    F = 1\n    tl.store(x, G)\n",
    "used in an earlier tuple": "    G = (F, 2)\n    F = 1" + SWITCH,
    "used in an earlier call": "    helper(x, F)\n    F = 1\n",
    "used in an earlier text": "    tl.static_assert(f'{F}' == '1')\n    F = 1" + SWITCH,
    "used in an earlier index": "    tl.store(x, (1.0, 2.0)[F])\n    F = 1\n",
    "its attribute used first": "    G = F.value\n    F = 1" + SWITCH,
    "used in a comprehension first": "    G = [F + 0 for i in (1, 2)]\n    F = 1" + SWITCH,
    "used in a loop's bounds first": "    for i in tl.static_range(F):\n        tl.store(y, 1.0)\n    F = 1" + SWITCH,
    "used in a branch first": "    if OFF == (F == 1):\n        tl.store(y, 1.0)\n    F = 1\n    tl.store(x, F)\n",
}


@pytest.mark.parametrize("body", SEEN.values(), ids=SEEN.keys())
def test_a_global_that_is_seen_before_it_is_hidden_counts(body: str) -> None:
    calls = [called(body), *(called(body, F=make()) for make in GLOBALS.values())]
    said = [answer(call) for call in calls]
    assert len(set(said)) > 1, "the global does not show"
    by_key: dict[str, set[Any]] = {}
    for call, each in zip(calls, said, strict=True):
        key = outcome(call)
        if not key.startswith("bypass"):
            by_key.setdefault(key, set()).add(each)
    assert all(len(answers) == 1 for answers in by_key.values())


# Not plain assignments: whether they hide the global or fail, each has one key for each global, or the right one.
ODD = {
    "a walrus": "    G = (F := 1)" + SWITCH,
    "a walrus in a condition": "    if (F := 1) == 1:\n        tl.store(x, 1.0)" + SWITCH,
    "a walrus in its own value": "    F = (F := 1)" + SWITCH,
    "annotated": "    F: tl.constexpr = 1" + SWITCH,
    "annotated by itself": "    F: F = 1" + SWITCH,
    "several at once": "    F, G = 1, 2" + SWITCH,
    "several targets": "    F = G = 1" + SWITCH,
    "set in both branches": "    if OFF:\n        F = 1\n    else:\n        F = 1" + SWITCH,
    "a comprehension's name": "    G = [F for F in (1, 2)]" + SWITCH,
    "a comprehension's name, then set": "    G = [F for F in (1, 2)]\n    F = 1" + SWITCH,
    "a loop's name": "    for F in range(1):\n        tl.store(y, F)" + SWITCH,
    "deleted": "    F = 1\n    del F" + SWITCH,
    "a function": "    def F():\n        return 1" + SWITCH,
    "in a with block": "    with tl.load(x) as F:\n        F = 1" + SWITCH,
    "a global statement": "    global F\n    F = 1" + SWITCH,
    "its attribute": "    F = tl.load(x)\n    F.dtype\n    tl.store(y, F)\n",
    "its attribute, in a branch": "    F = tl.load(x)\n    if F > 0:\n        F.to(tl.int32)\n    tl.store(y, F)",
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_no_key_stands_for_two_answers(body: str) -> None:
    by_key: dict[str, set[Any]] = {}
    for given in ({}, *({"F": make()} for make in GLOBALS.values())):
        call = called(body, **given)
        key = outcome(call)
        if not key.startswith("bypass"):
            by_key.setdefault(key, set()).add(answer(call))
    assert all(len(answers) == 1 for answers in by_key.values())
