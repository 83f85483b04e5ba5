"""Defaults of parameters: evaluated in an order of their own, thrown away for the kernel, bound for a helper."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.support.calls import Call, answer, assert_same_key, assert_told_apart, outcome
from tests.support.sources import load
from tests.support.switch import launch

KERNEL = """
{before}
@triton.jit
def kernel(x, y, {parameters}):
    tl.store(x, 1.0)
"""


def called(parameters: str, before: str = "", **values: Any) -> Call:
    kernel = load(KERNEL.format(before=before, parameters=parameters))["kernel"]
    return launch(kernel, **{name: values.get(name, 1) for name in kernel.arg_names[2:]})


class Pair(NamedTuple):
    left: str
    right: str
    before: str = ""


APART = {
    "text for a constexpr, or for one in quotes": Pair("v: tl.constexpr = 'abc'", "v: 'tl.constexpr' = 'abc'"),
    "text for a constexpr, or for another dotted name": Pair(
        "v: tl.constexpr = 'abc'",
        "v: cfg.constexpr = 'abc'",
        "import types\ncfg = types.ModuleType('cfg')\ncfg.constexpr = tl.int32",
    ),
    "text for a constexpr, or for its alias in quotes": Pair("v: C = 'abc'", "v: 'C' = 'abc'", "C = tl.constexpr"),
    "text or a number for no constexpr": Pair("v=1", "v='abc'"),
    "number within 64 bits or beyond": Pair("v=9223372036854775807", "v=99999999999999999999"),
    "number within 64 bits or beyond, negative": Pair("v=-9223372036854775807", "v=-99999999999999999999"),
    "a later default, by value": Pair(
        "a: tl.constexpr = 5 // c, c: tl.constexpr = 1", "a: tl.constexpr = 5 // c, c: tl.constexpr = 0", "c = 2"
    ),
    "a later default, by type": Pair(
        "a: tl.constexpr = c[0], c: tl.constexpr = 'text'", "a: tl.constexpr = c[0], c: tl.constexpr = 1", "c = (2,)"
    ),
    "a later default that hides a global": Pair(
        "a: tl.constexpr = 5 // c, c: tl.constexpr = 0", "a: tl.constexpr = 5 // d, c: tl.constexpr = 0", "c = d = 2"
    ),
    "two steps of later defaults": Pair(
        "a: tl.constexpr = 5 // b, b: tl.constexpr = c, c: tl.constexpr = 1",
        "a: tl.constexpr = 5 // b, b: tl.constexpr = c, c: tl.constexpr = 0",
        "b = c = 2",
    ),
}


@pytest.mark.parametrize("pair", APART.values(), ids=APART.keys())
def test_two_defaults_are_told_apart(pair: Pair) -> None:
    assert_told_apart(called(pair.left, pair.before), called(pair.right, pair.before))


SAME = {
    "a constexpr's number": Pair("v: tl.constexpr = 16", "v: tl.constexpr = 32"),
    "a constexpr's number or none": Pair("v: tl.constexpr", "v: tl.constexpr = 16"),
    "a constexpr's text": Pair("v: tl.constexpr = 'tf32'", "v: tl.constexpr = 'ieee'"),
    "a constexpr's text or number": Pair("v: tl.constexpr = 'tf32'", "v: tl.constexpr = 1"),
    "a constexpr's None or bool": Pair("v: tl.constexpr = None", "v: tl.constexpr = True"),
    "a constexpr's huge number": Pair("v: tl.constexpr = 1", "v: tl.constexpr = 99999999999999999999"),
    "a constexpr's negative number": Pair("v: tl.constexpr = 100", "v: tl.constexpr = -100"),
    "a constexpr's text, by an alias": Pair("v: C = 'abc'", "v: C = 'abd'", "C = tl.constexpr"),
    "a constexpr's text, by an alias in a module": Pair(
        "v: tl.constexpr = 'abc'",
        "v: cfg.C = 'abc'",
        "import types\ncfg = types.ModuleType('cfg')\ncfg.C = tl.constexpr",
    ),
    "a number": Pair("v=1", "v=2"),
    "a negative number": Pair("v", "v=-1"),
    "a negative float": Pair("v", "v=-1.5"),
    "u-text": Pair("v: tl.constexpr = 'abc'", "v: tl.constexpr = u'abc'"),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME.keys())
def test_literal_defaults_of_the_kernel_are_neutral(pair: Pair) -> None:
    assert_same_key(called(pair.left, pair.before), called(pair.right, pair.before))


def test_a_default_that_reads_a_later_one_follows_it_through_every_change() -> None:
    """The later parameter's default is a literal of a constexpr, which elsewhere stays out of the key."""
    text = "a: tl.constexpr = 5 // c, c: tl.constexpr = {}"
    seen: dict[Any, set[str]] = {}
    for value in ("1", "2", "0", "-1", "'text'", "None"):
        call = called(text.format(value), "c = 3", a=1, c=1)
        seen.setdefault(answer(call), set()).add(outcome(call))
    assert len(seen) == 2
    keys = [key for found in seen.values() for key in found]
    assert len(keys) == len(set(keys)), "a key is shared between two answers"


ALIAS = """
C = {}
@triton.jit
def kernel(x, y, v: C = 'abc'):
    tl.store(x, 1.0)
"""


@pytest.mark.parametrize("other", ["tl.int32", "'tl.constexpr'", "int"])
def test_an_annotation_rebound_after_the_definition(other: str) -> None:
    """Triton decides at the definition what is a constexpr, and evaluates the annotation again at each analysis."""
    namespace = load(ALIAS.format("tl.constexpr"))
    call = launch(namespace["kernel"], v=1)
    said, key = answer(call), outcome(call)
    exec(f"C = {other}", namespace)
    assert answer(call) != said
    assert outcome(call) != key
    exec("C = tl.constexpr", namespace)
    assert outcome(call) == key


HELPER = """
@triton.jit
def helper(p, q, v: tl.constexpr = {}):
    if v == 1:
        tl.store(p, 1.0)
    else:
        tl.store(q, 1.0)
@triton.jit
def kernel(x, y):
    helper(x, y)
"""


@pytest.mark.parametrize("right", ["-1", "2", "'1'", "None"])
def test_a_helpers_literal_default_counts(right: str) -> None:
    assert_told_apart(*(launch(load(HELPER.format(value))["kernel"]) for value in ("1", right)))
