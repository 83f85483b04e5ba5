"""Code that cannot be keyed: PyTorch answers, nothing is stored, and the reason is a short stable word."""

from __future__ import annotations

from typing import Any

import pytest
import triton

from tests.support.calls import outcome
from tests.support.sources import load
from tests.support.switch import launch, switch_source


def on(condition: str, before: str, parameters: str = "") -> str:
    return switch_source(condition, parameters, before)


DATACLASS = """
import dataclasses
Box = dataclasses.make_dataclass("Box", [("v", int, dataclasses.field(default=1, repr=False))])
"""
ENUM = "import enum\nclass Mode(enum.IntEnum):\n    A = 1\n"
NAMED = "import collections\nPair = collections.namedtuple('Pair', 'a b')\n"
MODULE = "import types\ncfg = types.ModuleType('cfg')\ncfg.X = 1\n"
LAZY = MODULE + "del cfg.X\ncfg.__getattr__ = lambda name: 1\n"
SUBCLASS = "import types\nclass M(types.ModuleType):\n    X = 1\ncfg = M('cfg')\n"
HELPER = "@triton.jit\ndef helper(p):\n    tl.store(p, 1.0)\n"
KERNEL = "\n@triton.jit\ndef kernel(x, y):\n    {}\n"
PLAIN = KERNEL.format("tl.store(x, 1.0)")
AGGREGATE = """
from triton.language.core import _aggregate as aggregate
@aggregate
class Pair:
    a: tl.constexpr
    def __init__(self, a):
        self.a = tl.constexpr(a)
"""

ROWS = {
    "constexpr_function": ("value-type", on("f() == 1", "@triton.constexpr_function\ndef f():\n    return 1\n")),
    "constexpr_function that reads a global": (
        "value-type",
        on("f() == 1", "G = 1\n@triton.constexpr_function\ndef f():\n    return G\n"),
    ),
    "constexpr_function of a helper": (
        "value-type",
        "@triton.constexpr_function\ndef f():\n    return 1\n@triton.jit\ndef helper(p):\n    tl.store(p, f())\n"
        + KERNEL.format("helper(x)"),
    ),
    "@builtin": ("value-type", on("f() == 1", "@tl.core.builtin\ndef f(_semantic=None):\n    return 1\n")),
    "aggregate": ("value-type", on("Pair(1).a == 1", AGGREGATE)),
    "namedtuple class": ("value-type", on("Pair(1, 2).a == 1", NAMED)),
    "namedtuple in a constexpr": ("value-type", on("P.a == 1", NAMED + "P = tl.constexpr(Pair(1, 2))\n")),
    "enum member in a constexpr": ("value-type", on("F == 1", ENUM + "F = tl.constexpr(Mode.A)\n")),
    "enum member of a module": ("value-type", on("cfg.X == 1", ENUM + MODULE + "cfg.X = Mode.A\n")),
    "dataclass in a constexpr": ("value-type", on("F.v == 1", DATACLASS + "F = tl.constexpr(Box())\n")),
    "dataclass of a module": ("value-type", on("cfg.X.v == 1", DATACLASS + MODULE + "cfg.X = Box()\n")),
    "object in a constexpr": ("value-type", on("F == 1", "F = tl.constexpr(object())\n")),
    "callable in a constexpr": ("value-type", on("F == 1", "F = tl.constexpr(len)\n")),
    "int subclass in a constexpr": ("value-type", on("F == 1", "class N(int): pass\nF = tl.constexpr(N(1))\n")),
    "callable of a module": ("value-type", on("cfg.X() == 1", MODULE + "cfg.X = lambda: 1\n")),
    "object that claims to be Triton's": (
        "value-type",
        on("F.v == 1", "class N:\n    v = 1\nN.__module__ = 'triton.language.core'\nF = N()\n"),
    ),
    "getattr of a module": ("module-value", on("getattr(cfg, 'X') == 1", MODULE)),
    "module handed to a helper": (
        "module-value",
        MODULE + "@triton.jit\ndef helper(m, p):\n    tl.store(p, m.X)\n" + KERNEL.format("helper(cfg, x)"),
    ),
    "module as a module's attribute": ("module-value", on("getattr(cfg.sub, 'X') == 1", MODULE + "cfg.sub = cfg\n")),
    "module subclass": ("lazy-module", on("cfg.X == 1", SUBCLASS)),
    "module with lazy attributes": ("lazy-module", on("cfg.X == 1", LAZY)),
    "attribute of a JIT function": ("jit-attribute", on("helper.noinline == 1", HELPER)),
    "attribute of a module's JIT function": (
        "jit-attribute",
        on("cfg.f.noinline == 1", HELPER + MODULE + "cfg.f = helper\n"),
    ),
    "repr=": ("kernel-repr", PLAIN.replace("@triton.jit", "@triton.jit(repr=lambda spec: 'kernel')")),
    "star arguments": ("parameters", PLAIN.replace("x, y", "x, *y")),
    "keyword-only parameter": ("parameters", PLAIN.replace("x, y", "x, *, y")),
    "positional-only parameter": ("parameters", PLAIN.replace("x, y", "x, /, y")),
    "text that does not parse": ("source", PLAIN + "kernel._unsafe_update_src('def kernel(x, y:')\n"),
    "text that is not one def": ("source", PLAIN + "kernel._unsafe_update_src(kernel._src + '\\nz = 1')\n"),
    "text that is a class": ("source", PLAIN + "kernel._unsafe_update_src('class kernel: pass')\n"),
    "name not part of the TTIR name": ("name", PLAIN + "kernel.fn.__name__ = 'another'\n"),
    "heuristics": ("kernel-type", PLAIN + "kernel = triton.heuristics({})(kernel)\n"),
    "autotuner over autotuner": (
        "kernel-type",
        PLAIN + "kernel = triton.autotune([], key=[])(triton.autotune([], key=[])(kernel))\n",
    ),
    "JITFunction subclass": (
        "kernel-type",
        "class Mine(triton.JITFunction): pass\n" + PLAIN.replace("@triton.jit", "") + "kernel = Mine(kernel)\n",
    ),
    "gluon": (
        "kernel-type",
        "from triton.experimental import gluon\n" + PLAIN.replace("@triton.jit", "@gluon.jit"),
    ),
    "plain function": ("kernel-type", PLAIN.replace("@triton.jit", "")),
}


@pytest.mark.parametrize(("reason", "source"), ROWS.values(), ids=ROWS.keys())
def test_code_that_cannot_be_keyed_says_why(reason: str, source: str) -> None:
    assert outcome(launch(load(source)["kernel"])) == f"bypass: {reason}"


class InterpretedFunction(triton.runtime.KernelInterface):  # type: ignore[misc]
    """What TRITON_INTERPRET=1 makes of a kernel; Triton's own needs NumPy."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.arg_names = ["x", "y"]


def test_an_interpreted_kernel() -> None:
    assert outcome(launch(InterpretedFunction(print))) == "bypass: kernel-type"


class Tuner(triton.runtime.Autotuner):  # type: ignore[misc]
    """As people subclass it to add a cache: `fn` and `configs` are plain."""


def test_an_autotuner_subclass_with_plain_fields_has_the_key_of_what_it_wraps() -> None:
    kernel = load(PLAIN)["kernel"]
    tuned: Any = triton.autotune([triton.Config({})], key=[])(kernel)
    subclass = Tuner.__new__(Tuner)
    subclass.__dict__.update(tuned.__dict__)
    assert outcome(launch(subclass)) == outcome(launch(tuned)) == outcome(launch(kernel))


class Computed(triton.runtime.Autotuner):  # type: ignore[misc]
    """One whose configs are worked out on each look."""

    configs = property(lambda self: [triton.Config({})], lambda self, value: None)


def test_an_autotuner_subclass_with_computed_configs_is_not_keyed() -> None:
    kernel = load(PLAIN)["kernel"]
    subclass = Computed.__new__(Computed)
    subclass.__dict__.update(fn=kernel, keys=[])
    assert outcome(launch(subclass)) == "bypass: kernel-type"


def test_nothing_that_the_key_meets_escapes_as_another_exception() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    kernel = load(on("F == 1", "F = 1\n"))["kernel"]
    kernel.__globals__["F"] = Hostile()
    assert outcome(launch(kernel)).startswith("bypass: ")
