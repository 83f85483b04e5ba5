"""Code, read when a kernel is defined: defaults, annotations, names, and the source text that the kernel keeps.

Each row is one module text with a gap and two ways to fill it. Where Triton's own cache key takes both for the same
kernel, the row says so, and a test holds it to that: it is why that key is of no use here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.analysis import NEWER
from tests.support.calls import Call, assert_same_key, assert_told_apart, digest
from tests.support.sources import load
from tests.support.switch import launch, switch_source


class Row(NamedTuple):
    """`blind`: Triton's freshly computed cache key is the same for both."""

    source: str
    left: str
    right: str
    blind: bool = False


def on(condition: str, before: str, left: str, right: str, blind: bool = False) -> Row:
    return Row(switch_source(condition, preamble=before), left, right, blind)


def helped(helper: str, left: str, right: str, blind: bool = False, call: str = "helper(x, y)") -> Row:
    return Row(f"{helper}\n@triton.jit\ndef kernel(x, y):\n    {call}\n", left, right, blind)


DEFAULT = """
D = {gap}
@triton.jit
def helper(x, y, flag: tl.constexpr = D):
    if flag == 1:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)
D = 7
"""
ALIAS = """
A = {gap}
@triton.jit
def kernel(x, y, v: A):
    if v == 2:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)
"""
SAME_NAME = """
@triton.jit
def first(p):
    tl.store(p, 1.0)
one = first
@triton.jit
def {gap}(p):
    tl.load(p)
two = {gap}
@triton.jit
def kernel(x, y):
    one(x)
    two(y)
"""
CLOSURE = """
FLAG = tl.constexpr(1)
def make({gap}):
    @triton.jit
    def kernel(x, y):
        if FLAG == 1:
            tl.store(x, 1.0)
        else:
            tl.store(y, 1.0)
    return kernel
kernel = make(tl.constexpr(2))
"""
EDITED = """
import linecache
def edit(old, new):
    path = edit.__code__.co_filename
    size, stamp, lines, name = linecache.cache[path]
    lines = [line.replace(old, new) if line.startswith('    tl.') else line for line in lines]
    linecache.cache[path] = (size, stamp, lines, name)
def kernel(x, y):
    tl.store(x, 1.0)
edit('store(x', 'store({gap}')
kernel = triton.jit(kernel)
"""
LISTED = """
@triton.jit({gap})
def kernel(x, y, v: tl.constexpr):
    tl.store(x, 1.0)
"""
MODULE = """
import types
cfg = types.ModuleType("cfg")
cfg.X = {gap}
"""

ROWS = {
    "kernel body": on("{gap}", "", "True", "False"),
    "helper body": helped("@triton.jit\ndef helper(x, y):\n    tl.store({gap}, 1.0)", "x", "y"),
    "helper's default": helped(DEFAULT, "1", "2", blind=True),
    "helper's default, constexpr": helped(DEFAULT, "tl.constexpr(1)", "tl.constexpr(2)", blind=True),
    "helper's parameter order": helped("@triton.jit\ndef helper({gap}):\n    tl.store(x, 1.0)", "x, y", "y, x"),
    "swapped arguments": helped(
        "@triton.jit\ndef helper(p, q):\n    tl.store(p, 1.0)", "x, y", "y, x", call="helper({gap})"
    ),
    "two helpers of one full name": Row(SAME_NAME, "second", "first"),
    "closure that shadows a global": Row(CLOSURE, "FLAG", "OTHER"),
    "text edited between definition and decoration": Row(EDITED, "x", "y"),
    "constexpr parameter in do_not_specialize": Row(LISTED, "", "do_not_specialize=['v']", blind=True),
    "constexpr parameter in do_not_specialize_on_alignment": Row(
        LISTED, "", "do_not_specialize_on_alignment=[2]", blind=True
    ),
    "global 1 or '1'": on("F == 1", "F = tl.constexpr({gap})", "1", "'1'", blind=True),
    "global dtype or its name": on("F == tl.float32", "F = tl.constexpr({gap})", "tl.float32", "'fp32'"),
    "bare dtype global": on("x.dtype.element_ty == F", "F = {gap}", "tl.float32", "tl.float16", blind=True),
    "module attribute, int": on("cfg.X == 1", MODULE, "1", "2", blind=True),
    "module attribute, constexpr": on("cfg.X == 1", MODULE, "tl.constexpr(1)", "tl.constexpr(2)", blind=True),
    "global named like a builtin": on("min == 1", "min = {gap}", "1", "2", blind=True),
    "constant in the text": on("{gap} == 1", "", "1", "'1'"),
    "string constant": on("'{gap}' == 'a'", "", "a", "b"),
    "operator": on("1 {gap} 1", "", "==", "!="),
    "keyword argument's name": helped(
        "@triton.jit\ndef helper(p, q):\n    tl.store(p, tl.load(q))", "p=x, q=y", "q=x, p=y", call="helper({gap})"
    ),
}

# torch 2.11 hands every scalar over as a constant, whatever its annotation says.
if NEWER:
    ROWS |= {
        "annotation alias": Row(ALIAS, "tl.constexpr", "tl.int32", blind=True),
        "annotation alias, plain int": Row(ALIAS, "tl.constexpr", "int", blind=True),
        "annotation in quotes": Row(ALIAS.replace("v: A", "v: {gap}"), "'tl.constexpr'", "'tl.int32'"),
    }


def filled(row: Row, text: str) -> Call:
    kernel = load(row.source.replace("{gap}", text), path=None)["kernel"]
    return launch(kernel, **({"v": 2} if "v" in kernel.arg_names else {}))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_two_definitions_are_told_apart(row: Row) -> None:
    assert_told_apart(filled(row, row.left), filled(row, row.right))


BLIND = {name: row for name, row in ROWS.items() if row.blind}


@pytest.mark.parametrize("row", BLIND.values(), ids=BLIND.keys())
def test_tritons_own_key_is_blind_to_it(row: Row) -> None:
    left, right = filled(row, row.left), filled(row, row.right)
    assert left.kernel.cache_key == right.kernel.cache_key


def test_the_text_wins_over_the_bytecode() -> None:
    """`kernel.fn` still stores to x; the text it was decorated with stores to y."""
    row = ROWS["text edited between definition and decoration"]
    edited = filled(row, "y")
    assert "store(y" in edited.kernel._src
    plain = load("@triton.jit\ndef kernel(x, y):\n    tl.store(y, 1.0)")["kernel"]
    assert_same_key(edited, launch(plain))


def test_tritons_cache_key_is_never_computed_on_the_way() -> None:
    """Its dependency walk leaves a placeholder behind when it raises, and launches read it later."""
    call = filled(ROWS["helper's default"], "1")
    digest(call)
    assert call.kernel.hash is None
