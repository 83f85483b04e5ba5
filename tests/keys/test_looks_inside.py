"""What a kernel may ask of a value beyond what it is: its name, what was set on it, whether it is the very same object.

No key holds any of that, so a kernel that asks has none; one that merely could, in other surroundings, keeps its key.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
import triton
import triton.language as tl

from tests.support.analysis import NEWER
from tests.support.calls import answer, assert_same_key, assert_told_apart, digest, outcome
from tests.support.sources import load
from tests.support.switch import launch, switch, switch_source
from tritonstore.keys.watch import OF_VALUES

FUNCTIONS = """
@triton.jit
def f(p):
    return p
@triton.jit
def g(p):
    return p
f.FLAG = 1
F = tl.constexpr(f)
"""
MIDDLE = """
@triton.jit
def middle(x, y, FN: tl.constexpr):
    if FN.FLAG == 1:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)
"""
READS = {
    "a parameter's": switch_source("FN.FLAG == 1", "FN: tl.constexpr", FUNCTIONS),
    "an item's": switch_source("(FN,)[0].FLAG == 1", "FN: tl.constexpr", FUNCTIONS),
    "a choice's": switch_source("(FN if True else FN).FLAG == 1", "FN: tl.constexpr", FUNCTIONS),
    "a parameter's named like a module": switch_source("cfg.FLAG == 1", "cfg: tl.constexpr", FUNCTIONS),
    "by its type": switch_source("FN.type.value.FLAG == 1", "FN: tl.constexpr", FUNCTIONS),
    "by getattr": switch_source("getattr(FN, 'FLAG') == 1", "FN: tl.constexpr", FUNCTIONS),
    "by getattr, of a global": switch_source("getattr(f, 'FLAG') == 1", "", FUNCTIONS),
    "a local's": FUNCTIONS
    + "@triton.jit\ndef kernel(x, y):\n    h: tl.constexpr = f\n    if h.FLAG == 1:\n        tl.store(x, 1.0)\n"
    + "    else:\n        tl.store(y, 1.0)\n",
    "in a helper": FUNCTIONS + MIDDLE + "@triton.jit\ndef kernel(x, y):\n    middle(x, y, f)\n",
    "in a helper, by default": FUNCTIONS
    + MIDDLE.replace("FN: tl.constexpr", "FN: tl.constexpr = f")
    + "@triton.jit\ndef kernel(x, y):\n    middle(x, y)\n",
}


def handed(source: str) -> Any:
    namespace = load(source, given={"cfg": types.ModuleType("cfg")})
    names = namespace["kernel"].arg_names[2:]
    return namespace, launch(namespace["kernel"], **dict.fromkeys(names, namespace["f"]))


@pytest.mark.parametrize("source", READS.values(), ids=READS.keys())
def test_an_attribute_of_a_function_that_is_handed_around(source: str) -> None:
    namespace, call = handed(source)
    said = answer(call)
    assert outcome(call) == "bypass: jit-attribute"
    namespace["f"].FLAG = 2
    assert answer(call) != said
    assert outcome(call) == "bypass: jit-attribute"


NAMES = {"its name": "FN.__name__ == 'f'", "whether it has an attribute": "hasattr(FN, 'FLAG')"}


@pytest.mark.parametrize("condition", NAMES.values(), ids=NAMES.keys())
def test_the_name_of_a_function_that_is_handed_around(condition: str) -> None:
    namespace = load(switch_source(condition, "FN: tl.constexpr", FUNCTIONS))
    calls = [launch(namespace["kernel"], FN=namespace[name]) for name in "fg"]
    assert answer(calls[0]) != answer(calls[1])
    assert [outcome(call) for call in calls] == ["bypass: jit-attribute"] * 2


TEXT = "JITFunction(kernels_under_test:f)"
TEXTS = {
    "f-string": "f'{FN}' == '" + TEXT + "'",
    "f-string of an expression": "f'{(FN,)[0]}' == '" + TEXT + "'",
    "format": "'%s' % FN == '" + TEXT + "'",
    "format of its type": "'%s' % FN.type == 'constexpr_type[" + TEXT + "]'",
    "a tuple's type": "(FN,).type.name == '[constexpr_type[" + TEXT + "]]'",
}


@pytest.mark.parametrize("condition", TEXTS.values(), ids=TEXTS.keys())
def test_a_function_in_a_text_shows_its_name(condition: str) -> None:
    """So there the name is in the key; functions that differ in nothing else share one everywhere else."""
    kernel = load(switch_source(condition, "FN: tl.constexpr", FUNCTIONS))
    assert_told_apart(*(launch(kernel["kernel"], FN=kernel[name]) for name in "fg"))
    other = load(switch_source("FN(1) == 1", "FN: tl.constexpr", FUNCTIONS))
    assert_same_key(*(launch(other["kernel"], FN=other[name]) for name in "fg"))


def test_the_text_of_a_global_that_holds_a_function() -> None:
    namespace = load(switch_source(f"f'{{F}}' == '{TEXT}'", "", FUNCTIONS))
    call = launch(namespace["kernel"])
    said, key = answer(call), digest(call)
    namespace["F"] = tl.constexpr(namespace["g"])
    assert answer(call) != said
    assert digest(call) != key


def test_the_kernel_handed_to_itself() -> None:
    namespace = load(switch_source("FN.FLAG == 1", "FN: tl.constexpr"))
    assert outcome(launch(namespace["kernel"], FN=namespace["kernel"])) == "bypass: value-type"
    assert outcome(launch(namespace["kernel"], FN=(namespace["kernel"],))) == "bypass: value-type"


WRITTEN = {
    "an attribute in a default": "V: tl.constexpr = (f,)[0].FLAG",
    "an attribute in an annotation": "V: (f,)[0].FLAG = 1",
    "getattr in a default": "V: tl.constexpr = getattr(f, 'FLAG')",
    "hasattr in an annotation": "V: 1 // int(hasattr(f, 'FLAG')) = 1",
}


@pytest.mark.parametrize("parameter", WRITTEN.values(), ids=WRITTEN.keys())
@pytest.mark.parametrize("where", ["kernel", "helper"])
def test_defaults_and_annotations_are_looked_at_as_the_body_is(parameter: str, where: str) -> None:
    source = f"{FUNCTIONS}@triton.jit\ndef {where}(x, y, {parameter}):\n    tl.store(x, 1.0)\n"
    if where == "helper":
        source += "@triton.jit\ndef kernel(x, y):\n    helper(x, y)\n"
    kernel = load(source)["kernel"]
    call = launch(kernel, **({"V": 1} if where == "kernel" else {}))
    assert outcome(call) == "bypass: jit-attribute"


def test_identity_in_a_default() -> None:
    kernel = load("A = B = tl.constexpr(1000)\n" + switch_source("v", "v: tl.constexpr = int(A is B)"))["kernel"]
    assert outcome(launch(kernel, v=1)) == "bypass: identity"


def test_an_operator_that_is_set_on_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = load(switch_source("f == g", "", FUNCTIONS))
    call = launch(namespace["kernel"])
    said, key = answer(call), digest(call)
    namespace["f"].__eq__ = lambda other: True
    assert answer(call) != said
    assert outcome(call) == "bypass: kernel-type"
    del namespace["f"].__eq__
    assert (answer(call), digest(call)) == (said, key)


@pytest.mark.parametrize(
    "source",
    [
        switch_source("f'{len}' == '1'", "v"),
        "@triton.jit\ndef kernel(x, y, v: tl.constexpr = f'{len}'):\n    tl.store(x, 1.0)\n",
        "@triton.jit\ndef kernel(x, y, v: tl.constexpr = f'{N}'):\n    tl.store(x, 1.0)\n",
    ],
)
def test_a_number_in_a_text_is_told_from_a_constexpr(source: str) -> None:
    """Triton refuses it there; other globals that are no constexpr cannot be read at all."""
    namespace = load("len = N = 1\n" + source)
    call = launch(namespace["kernel"], v=1)
    said, key = answer(call), digest(call)
    namespace["len"] = namespace["N"] = tl.constexpr(1)
    assert answer(call) != said
    assert digest(call) != key


def test_a_builtin_in_a_text_tells_where_it_lies_in_memory() -> None:
    assert outcome(launch(switch("'%s' % tl.load == 'x'", ""))) == "bypass: identity"


COMBINE = """
N = tl.constexpr(4)
@triton.jit
def add(p, q):
    return p + q
@triton.jit
def apply(FN: tl.constexpr, p):
    return FN(p.to(tl.float32), 1.0)
@triton.jit
def kernel(x, y, FN: tl.constexpr):
    if f'{N}' == '4' and x.dtype.element_ty == tl.float32:
        values = tl.load(x + tl.arange(0, 4))
        total = tl.reduce(values, 0, add) + apply(FN, values).sum(0)
        tl.static_assert(N % x.dtype.element_ty.itemsize == 0, f"{x.dtype.element_ty} by {N}")
        total += tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL) * 'ab'.startswith('a') * (5).bit_length()
        tl.store(y, total.to(y.type.element_ty))
"""


def test_handing_functions_around_is_no_reason() -> None:
    namespace = load(COMBINE)
    call = launch(namespace["kernel"], FN=namespace["add"])
    assert not answer(call).failed
    assert digest(call) == digest(call)


def test_a_function_that_is_only_called_may_be_beside_any_attribute() -> None:
    source = FUNCTIONS + switch_source("v.unknown == 1", "v: tl.constexpr", "").replace("    if", "    f(x)\n    if")
    assert not outcome(launch(load(source)["kernel"], v=1)).startswith("bypass")


@pytest.mark.parametrize("name", ["FLAG", "shape", "T", "value", "mangle", "repr"])
def test_what_values_have_a_function_has_not(name: str) -> None:
    """Else an attribute that is taken for a tensor's could be read off a function; set later, it counts at once."""
    namespace = load(FUNCTIONS + "@triton.jit\ndef kernel(x, y):\n    f(x)\n    tl.store(y, 1.0)\n")
    call = launch(namespace["kernel"])
    assert not outcome(call).startswith("bypass")
    setattr(namespace["f"], name, 1)
    assert outcome(call).startswith("bypass") == (name != "FLAG")
    assert {each for each in dir(namespace["g"]) if each in OF_VALUES} == {"type"}


MANGLED = """
def first():
    @triton.jit
    def f(x, y):
        tl.store(x, 1.0)
    return f
def second():
    @triton.jit
    def f(x, y):
        tl.store(y, 1.0)
    return f
one, two = first(), second()
@triton.jit
def call(x, y, FN: tl.constexpr):
    FN(x, y)
@triton.jit
def kernel(x, y):
    call(x, y, one)
    call(x, y, two)
"""


@pytest.mark.parametrize("where", ["qualname", "module"])
def test_two_functions_that_triton_takes_for_one(where: str) -> None:
    """Where they are handed to a helper, it goes by the module and by the Python function's qualified name."""
    namespace = load(MANGLED)
    one, two = namespace["one"], namespace["two"]
    if where == "module":
        two.fn.__qualname__ = one.fn.__qualname__
        one.module, two.module = "another", "kernels_under_test"
    call = launch(namespace["kernel"])
    said, before = answer(call), outcome(call)
    if where == "module":
        two.module = one.module
    else:
        two.fn.__qualname__ = one.fn.__qualname__
    assert answer(call) != said
    assert outcome(call) == "bypass: name"
    assert before == "bypass: name" or where == "qualname"


SAME = {
    "numbers": ("A is B", int("1000"), int("1000")),
    "texts": ("A is B", "".join("fast"), "".join("fast")),
    "not": ("A is not B", int("1000"), int("1000")),
}


@pytest.mark.parametrize(("condition", "one", "other"), SAME.values(), ids=SAME.keys())
def test_whether_two_values_are_one_object(condition: str, one: Any, other: Any) -> None:
    kernel = switch(condition, "A: tl.constexpr, B: tl.constexpr")
    calls = [launch(kernel, A=one, B=one), launch(kernel, A=other, B=one)]
    assert answer(calls[0]) != answer(calls[1])
    assert [outcome(call) for call in calls] == ["bypass: identity"] * 2


DTYPE = "v is tl.float32", "v: tl.constexpr", ""
DTYPES = {
    "a parameter": DTYPE,
    "the other way round": ("tl.float32 is v", *DTYPE[1:]),
    "not": ("v is not tl.float32", *DTYPE[1:]),
    "a global": ("v is T", DTYPE[1], "T = tl.float32\n"),
}


@pytest.mark.parametrize(("condition", "parameter", "preamble"), DTYPES.values(), ids=DTYPES.keys())
def test_there_is_but_one_float32(condition: str, parameter: str, preamble: str) -> None:
    """FlagGems asks so in seventy kernels. A copy, as out of a pickle, is another object and another question."""
    kernel = switch(condition, parameter, preamble)
    given = [tl.float32, tl.float16, copy.deepcopy(tl.float32)]
    assert answer(launch(kernel, v=given[0])) != answer(launch(kernel, v=given[2]))
    keys = [digest(launch(kernel, v=value)) for value in given]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("condition", "preamble"), [("v is T", "T = tl.dtype('fp32')"), ("v is w", "w = tl.float32")])
def test_a_copy_of_a_dtype_is_no_measure(condition: str, preamble: str) -> None:
    kernel = switch(condition, "v: tl.constexpr, w: tl.constexpr", preamble)
    assert outcome(launch(kernel, v=tl.float32, w=tl.float32)) == "bypass: identity"


@pytest.mark.parametrize("condition", ["v is None", "None is not v", "v is True", "v is not False"])
def test_there_is_but_one_none_and_one_true(condition: str) -> None:
    kernel = switch(condition, "v: tl.constexpr")
    keys = [digest(launch(kernel, v=value)) for value in (None, True, False, 1)]
    assert len(set(keys)) == len(keys)


SPECIAL = {
    "a hash": ("v.__hash__() == 1", "v: tl.constexpr"),
    "a hash by getattr": ("getattr(v, '__hash__')() == 1", "v: tl.constexpr"),
    "what an attribute is called decides": ("getattr(v, NAME)() == 1", "v: tl.constexpr"),
    "getattr by another name": ("(getattr,)[0](v, 'T') == 1", "v: tl.constexpr"),
    "a module's dict": ("cfg.__dict__.get('X') == 1", "v"),
    "a class": ("v.__class__ == 1", "v: tl.constexpr"),
}


@pytest.mark.parametrize(("condition", "parameter"), SPECIAL.values(), ids=SPECIAL.keys())
def test_a_special_attribute(condition: str, parameter: str) -> None:
    kernel = load(switch_source(condition, parameter), given={"cfg": types.ModuleType("cfg")})["kernel"]
    assert outcome(launch(kernel, v=1)) == "bypass: identity"


def test_a_modules_version_is_a_name_like_any_other() -> None:
    cfg = types.ModuleType("cfg")
    cfg.__version__ = "1"  # type: ignore[attr-defined]
    call = launch(load(switch_source("cfg.__version__ == '1'"), given={"cfg": cfg})["kernel"])
    said, key = answer(call), digest(call)
    cfg.__version__ = "2"  # type: ignore[attr-defined]
    assert answer(call) != said
    assert digest(call) != key


def test_a_nan_in_a_tuple_is_equal_to_itself_only() -> None:
    kernel = switch("A == B", "A: tl.constexpr, B: tl.constexpr")
    nan = float("nan")
    calls = [launch(kernel, A=(nan,), B=(nan,)), launch(kernel, A=(nan,), B=(float("nan"),))]
    assert answer(calls[0]) != answer(calls[1])
    assert [outcome(call) for call in calls] == ["bypass: value-type"] * 2
    assert digest(launch(kernel, A=nan, B=nan)) == digest(launch(kernel, A=nan, B=float("nan")))


def test_a_constexpr_in_a_tuple_is_not_what_it_holds() -> None:
    kernel = switch("f'{v}' == '(1,)'", "v: tl.constexpr")
    assert_told_apart(launch(kernel, v=(1,)), launch(kernel, v=(tl.constexpr(1),)))


def test_a_text_and_a_constexpr_of_it() -> None:
    """torch 2.13 takes a bare "D" for Triton's hint about an argument, and fails."""
    calls = [launch(switch("v == 'D'", "v: tl.constexpr"), v=value) for value in (tl.constexpr("D"), "D")]
    assert (answer(calls[0]) != answer(calls[1])) == NEWER
    assert digest(calls[0]) != digest(calls[1])


@pytest.mark.parametrize("condition", ["triton.cdiv(v, 2) == 2", "triton.next_power_of_2(v) == 4"])
def test_tritons_own_arithmetic_has_a_key(condition: str) -> None:
    kernel = switch(condition, "v: tl.constexpr")
    assert_told_apart(launch(kernel, v=3), launch(kernel, v=7))


def test_members_of_tritons_enums_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "@triton.jit\ndef kernel(x, y):\n    value = tl.maximum(tl.load(y), 1.0, propagate_nan=tl.PropagateNan.{})\n"
    )
    source += "    tl.store(x, value)\n"
    calls = [launch(load(source.format(name))["kernel"]) for name in ("ALL", "NONE", "ANY")]
    assert len({digest(call) for call in calls[:2]}) == 2
    assert answer(calls[2]).failed
    assert outcome(calls[2]) == "bypass: value-type"
    monkeypatch.setattr(tl.PropagateNan, "ALL", tl.PropagateNan.NONE)
    assert outcome(calls[0]) == "bypass: value-type"


def test_patches_of_what_follows_the_analysis_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries change what is compiled and how it is launched: Unsloth and SGLang do at their import."""
    call = launch(switch("True", ""))
    key = digest(call)
    monkeypatch.setattr(triton.compiler.compiler.CompiledKernel, "__init__", lambda self, *arguments: None)
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", lambda self, *arguments, **others: None)
    monkeypatch.setattr(triton.runtime.jit.KernelInterface, "__getitem__", lambda self, grid: None)
    assert digest(call) == key


def test_the_code_of_tritons_own_arithmetic_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    call = launch(switch("triton.cdiv(3, 2) == 2", ""))
    said, key = answer(call), digest(call)
    monkeypatch.setattr(triton.cdiv.fn, "__code__", (lambda x, y: 7).__code__)
    assert answer(call) != said
    assert outcome(call) != key
    monkeypatch.undo()
    assert (answer(call), digest(call)) == (said, key)


def test_tritons_own_function_that_reaches_unwatched_parts() -> None:
    """As the kernel's text mentions it, so where it is handed over: its helpers could be replaced unseen."""
    ragged = pytest.importorskip("triton.tools.ragged_tma")
    mentioned = switch("r.store_ragged(x, 0, 8, (0, 0), 1.0)", "", "import triton.tools.ragged_tma as r")
    assert outcome(launch(mentioned)) == "bypass: value-type"
    kernel = switch("FN(x, 0, 8, (0, 0), 1.0)", "FN: tl.constexpr")
    assert outcome(launch(kernel, FN=ragged.store_ragged)) == "bypass: value-type"


class Slots:
    __slots__ = ("to",)


class Asked:
    to = 1

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("kind", [Slots, Asked])
def test_a_global_that_decides_what_it_has(kind: type) -> None:
    """PyTorch's compiler looks at a global's attribute also where a local of that name hides it."""
    source = "@triton.jit\ndef kernel(x, y, p):\n    p.to(tl.float32)\n    tl.store(y, 1.0)\n"
    call = launch(load(source, given={"p": kind()})["kernel"], p=3)
    assert outcome(call) == "bypass: value-type"


def test_a_class_that_gains_a_getattr(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Kind", (), {})
    source = "@triton.jit\ndef kernel(x, y, p):\n    tl.store(y, p.to(tl.float32))\n"
    call = launch(load(source, given={"p": kind()})["kernel"], p=3)
    assert digest(call) == digest(call)
    monkeypatch.setattr(kind, "__getattr__", lambda self, name: 1, raising=False)
    assert outcome(call) == "bypass: value-type"
