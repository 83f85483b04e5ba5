"""Changes that leave every name and every line in place: in the objects themselves, behind their attributes.

Each row is a module and statements that are run in it after the first key. PyTorch's answer changes with them, so the
key does, or there is none; and the verdict is the same whether or not a key was built before.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import pytest
import triton

from tests.support.calls import Call, answer, digest, outcome
from tests.support.sources import load
from tests.support.switch import SAME_NAME, launch, switch_source


class Row(NamedTuple):
    """`reason`: why the changed state has no key; "" where it has one of its own, "*" where both are right."""

    source: str
    change: str
    reason: str = ""


HELPER = """
import ast, inspect
FLAG = tl.constexpr(1)
@triton.jit
def helper(p, q, extra: tl.constexpr = 1):
    if FLAG == 1:
        if extra == 1:
            tl.store(p, 1.0)
        else:
            tl.store(q, 1.0)
    else:
        tl.store(q, 1.0)
@triton.jit
def kernel(x, y):
    helper(x, y)
def bind(**changes):
    listed = [each.replace(**changes.get(name, {})) for name, each in helper.signature.parameters.items()]
    helper.signature = helper.signature.replace(parameters=listed)
"""
ODD = """
class Odd(type(kernel)):
    def get_capture_scope(self):
        return {**self.__globals__, "FLAG": tl.constexpr(2)}
"""
FLAG = switch_source("FLAG == 1", preamble="import ast\nFLAG = tl.constexpr(1)\n")
VALUE = switch_source("True", "v: tl.constexpr")
LISTED = """
@triton.jit(do_not_specialize=['v'])
def helper(p, v):
    tl.store(p, 1.0)
@triton.jit
def kernel(x, y):
    helper(x, 3)
"""
RESULT = """
@triton.jit
def helper(p):
    tl.store(p, 1.0)
    return 1
@triton.jit
def kernel(x, y):
    helper(x)
"""
MODULE = """
import types
class Odd(types.ModuleType):
    X = property(lambda self: 2)
class Asked(types.ModuleType):
    def __getattribute__(self, name):
        return 2 if name == "X" else super().__getattribute__(name)
def plain(kind=types.ModuleType, **attributes):
    module = kind("cfg")
    vars(module).update(attributes)
    return module
def lazy(name):
    if name != "X":
        raise AttributeError(name)
    return 1
"""
ROOT = switch_source("cfg.X == 1", preamble=MODULE + "cfg = plain(X=1)\n")
INNER = switch_source("pkg.cfg.X == 1", preamble=MODULE + "cfg = plain(X=1)\npkg = plain(cfg=cfg)\n")
OTHER_TEXT = "lambda: ast.parse('def f({0}):\\n    tl.store({1}, 1.0)')"

BY_SIGNATURE = tuple(int(number) for number in triton.__version__.split(".")[:2]) >= (3, 7)

ROWS = {
    "get_capture_scope of the kernel": Row(
        FLAG, "kernel.get_capture_scope = lambda: {**globals(), 'FLAG': tl.constexpr(2)}", "kernel-type"
    ),
    "get_capture_scope of a helper": Row(
        HELPER, "helper.get_capture_scope = lambda: {**globals(), 'FLAG': tl.constexpr(2)}", "kernel-type"
    ),
    "parse of the kernel": Row(FLAG, f"kernel.parse = {OTHER_TEXT.format('x, y', 'y')}", "kernel-type"),
    "parse of a helper": Row(HELPER, f"helper.parse = {OTHER_TEXT.format('p, q, extra', 'q')}", "kernel-type"),
    "repr of the kernel": Row(FLAG, "kernel.repr = lambda proxy: 'no name'", "kernel-type"),
    "class of the kernel": Row(FLAG, ODD + "kernel.__class__ = Odd", "kernel-type"),
    "class of a helper": Row(HELPER, ODD + "helper.__class__ = Odd", "value-type"),
    "do_not_specialize of the kernel": Row(VALUE, "kernel.params[2].do_not_specialize = True"),
    "do_not_specialize_on_alignment of the kernel": Row(
        VALUE, "kernel.params[2].do_not_specialize_on_alignment = True"
    ),
    "do_not_specialize of a helper": Row(HELPER, "helper.params[2].do_not_specialize = True"),
    "a helper's parameter becomes a constexpr": Row(LISTED, "vars(helper.params[1])['is_constexpr'] = True"),
    "must_use_result": Row(RESULT, "triton.must_use_result(helper)"),
    "must_use_result with words": Row(RESULT, "triton.must_use_result('Use it!')(helper)"),
    "class of a module": Row(ROOT, "cfg.__class__ = Odd", "lazy-module"),
    "class of a module in a module": Row(INNER, "cfg.__class__ = Odd", "lazy-module"),
    "class of the outer module": Row(
        INNER, "Odd.cfg = property(lambda self: plain(X=2)); pkg.__class__ = Odd", "lazy-module"
    ),
    "class of a module, by __getattribute__": Row(ROOT, "cfg.__class__ = Asked", "lazy-module"),
    "module of a class with a property": Row(ROOT, "cfg = plain(Odd, X=1)", "lazy-module"),
    "module in a module, of a class with a property": Row(INNER, "pkg.cfg = plain(Odd, X=1)", "lazy-module"),
    "module that makes attributes from now on": Row(
        ROOT.replace("plain(X=1)", "plain()"), "cfg.__getattr__ = lazy", "lazy-module"
    ),
    "class of a constexpr": Row(
        FLAG,
        "FLAG.__class__ = type('C', (tl.constexpr,), {'__eq__': lambda self, other: tl.constexpr(False)})",
        "value-type",
    ),
    "class of a dtype": Row(
        switch_source("T == x.dtype.element_ty", preamble="T = tl.dtype('fp32')\n"),
        "T.__class__ = type('D', (tl.dtype,), {'__eq__': lambda self, other: False})",
        "value-type",
    ),
    "helper named like Triton's": Row(
        SAME_NAME, "cdiv.__module__, cdiv.__qualname__ = 'triton.language.standard', 'cdiv'", "name"
    ),
}


# Triton 3.6 binds a helper's arguments by its Python function, later ones by the signature read at the decoration.
if BY_SIGNATURE:
    ROWS |= {
        "default in a helper's signature": Row(HELPER, "bind(extra={'default': 2})", "*"),
        "no default in a helper's signature": Row(HELPER, "bind(extra={'default': inspect.Parameter.empty})", "*"),
        "order in a helper's signature": Row(
            HELPER,
            "p, q, e = helper.signature.parameters.values(); helper.signature = inspect.Signature([q, p, e])",
            "*",
        ),
        "kind in a helper's signature": Row(
            HELPER, "bind(**dict.fromkeys(('q', 'extra'), {'kind': inspect.Parameter.KEYWORD_ONLY}))", "*"
        ),
        "fewer in a helper's signature": Row(
            HELPER,
            "p, q, e = helper.signature.parameters.values(); helper.signature = inspect.Signature([p, e])",
            "*",
        ),
    }
else:
    ROWS |= {
        "default of a helper's Python function": Row(HELPER, "helper.fn.__defaults__ = (2,)", "*"),
        "no default of a helper's Python function": Row(HELPER, "helper.fn.__defaults__ = None", "*"),
    }


def call_of(namespace: dict[str, Any]) -> Call:
    kernel = namespace["kernel"]
    return launch(kernel, **({"v": 1} if "v" in kernel.arg_names else {}))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_hidden_change_is_noticed(row: Row) -> None:
    namespace = load(row.source)
    call = call_of(namespace)
    said, key = answer(call), digest(call)
    exec(row.change, namespace)
    assert answer(call) != said, "the change does not show"
    after = outcome(call)
    assert after != key
    if row.reason != "*":
        assert after == f"bypass: {row.reason}" or not (row.reason or after.startswith("bypass"))
    assert outcome(call) == after, "and it stays noticed"


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_verdict_does_not_depend_on_earlier_keys(row: Row) -> None:
    early, late = load(row.source), load(row.source)
    key = digest(call_of(early))
    for namespace in (early, late):
        exec(row.change, namespace)
    assert outcome(call_of(early)) == outcome(call_of(late))
    assert digest(call_of(load(row.source))) == key


def test_a_hidden_change_that_is_undone_gives_the_first_key() -> None:
    namespace = load(FLAG)
    call = call_of(namespace)
    key = digest(call)
    for change, undo in (
        ("kernel.parse = None", "del kernel.parse"),
        ("triton.must_use_result(kernel)", "del kernel._must_use_result"),
        ("FLAG.value = 2", "FLAG.value = 1"),
    ):
        exec(change, namespace)
        assert outcome(call) != key
        exec(undo, namespace)
        assert outcome(call) == key


def test_what_a_module_makes_on_demand_has_no_key() -> None:
    """Two answers of one kernel, whose first key said that the attribute is missing."""
    cfg = types.ModuleType("cfg")
    call = launch(load(switch_source("cfg.X == 1"), given={"cfg": cfg})["kernel"])
    outcome(call)
    said = []
    for value in (1, 2):

        def lazy(name: str, value: int = value) -> int:
            if name != "X":
                raise AttributeError(name)
            return value

        cfg.__getattr__ = lazy  # type: ignore[method-assign]
        said.append(answer(call))
        assert outcome(call) == "bypass: lazy-module"
    assert said[0] != said[1]
    assert not any(each.failed for each in said)
