"""The law: a call that was rebuilt from its entry has the same key, and PyTorch gives it the same answer."""

from __future__ import annotations

import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.keys.test_property import CHECKS, looks, meanings
from tests.recipes.conftest import HEADER, KERNELS, recipe_of, tensors, write
from tests.support.analysis import pytorch_answer
from tests.support.calls import Call
from tests.support.case import CACHEABLE, Case
from tests.support.kernels import CASES
from tests.support.programs import Looks, Meaning, build
from tritonstore.errors import Bypass
from tritonstore.keys import call_key
from tritonstore.keys.arguments import ELEMENTS
from tritonstore.pytorch.rebuild import NotRebuilt, rebuild
from tritonstore.recipes.recipe import Recipe


def assert_law(call: Call) -> None:
    recipe = recipe_of(call.kernel, call.kwargs, call.tma)
    kernel, arguments = rebuild(recipe)
    again, first = call_key(kernel, arguments), call_key(call.kernel, call.kwargs, call.tma)
    assert (again.digest, again.parts) == (first.digest, first.parts)
    assert pytorch_answer(kernel, arguments) == pytorch_answer(call.kernel, call.kwargs, call.tma)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_corpus(case: Case) -> None:
    call = Call(case.kernel, case.kwargs(), case.tma)
    if case.expect != CACHEABLE:
        with pytest.raises(Bypass) as bypass:
            recipe_of(*call)
        assert bypass.value.reason == case.expect
        return
    recipe = recipe_of(*call)
    # Kernels of executed text and of a notebook's cell have no import path.
    if recipe.module not in sys.modules or recipe.module == "__main__":
        with pytest.raises(NotRebuilt) as error:
            rebuild(recipe)
        assert error.value.reason == ("main" if recipe.module == "__main__" else "gone")
        return
    assert_law(call)


@CHECKS
@given(meanings, looks)
def test_random_programs(meaning: Meaning, look: Looks) -> None:
    look = look._replace(module="kernels_to_import")
    call = build(meaning, look)
    function = call.kernel
    module = types.ModuleType("kernels_to_import")
    vars(module).update(function.fn.__globals__)
    for value in function.fn.__globals__.values():
        if type(value).__name__ == "JITFunction":
            setattr(module, value.__name__, value)
    sys.modules["kernels_to_import"] = module
    try:
        if meaning.route == "closure":
            with pytest.raises(NotRebuilt) as error:
                rebuild(recipe_of(*call))
            assert error.value.reason == "local"
        else:
            assert_law(call)
    finally:
        del sys.modules["kernels_to_import"]


SCALARS = [None, True, False, 0, 1, 2, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64 - 1, 0.0, -0.0, 1.5]
SCALARS += [float("inf"), float("nan")]


def pair_of(call_kernel: Any, value: Any) -> Call:
    return Call(call_kernel, {**tensors("x", "y"), "factor": value, "SIZE": 16})


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_every_scalar(folder: Path, value: Any) -> None:
    write(folder, "scalars", KERNELS)
    import scalars  # type: ignore[import-not-found]

    assert_law(pair_of(scalars.scale, value))


@pytest.mark.parametrize(
    "value",
    [
        *SCALARS,
        *("", "text", "café", "a\x00b", "\ud800"),
        *(10**400, -(10**400), 2**80, -(2**63) - 1),
        *((), (1, "a", (None, 2.5)), [1, [2, []]], [True, 1, 1.0]),
        *(tl.float16, tl.int1, tl.bfloat16, torch.float32, torch.uint8, torch.float8_e5m2),
        *(tl.constexpr(3), tl.constexpr("x"), tl.constexpr(tl.constexpr(4)), (tl.constexpr(1), 1, [tl.constexpr("y")])),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_every_compile_time_value(folder: Path, value: Any) -> None:
    write(
        folder,
        "values_of_kernels",
        "@triton.jit\ndef kernel(x, y, V: tl.constexpr):\n    tl.store(y, tl.load(x))\n",
    )
    import values_of_kernels  # type: ignore[import-not-found]

    call = Call(values_of_kernels.kernel, {**tensors("x", "y"), "V": value})
    try:
        recipe = recipe_of(*call)
    except Bypass:
        return
    if value == "\ud800":  # an entry cannot hold it, and what it holds instead is another text
        kernel, arguments = rebuild(recipe)
        assert call_key(kernel, arguments).digest != recipe.digest
        return
    assert_law(call)


def test_a_constant_whose_value_was_changed(folder: Path) -> None:
    write(folder, "changed", "@triton.jit\ndef kernel(x, V: tl.constexpr):\n    tl.store(x, V)\n")
    import changed  # type: ignore[import-not-found]

    held = tl.constexpr(1)
    held.value = 2
    assert_law(Call(changed.kernel, {**tensors("x"), "V": held}))


@pytest.mark.parametrize("dtype", sorted(ELEMENTS, key=str), ids=str)
@pytest.mark.parametrize("fake", [False, True], ids=["real", "fake"])
def test_every_element_type(folder: Path, dtype: torch.dtype, fake: bool) -> None:
    write(folder, "elements", "@triton.jit\ndef kernel(x, y):\n    tl.store(y, tl.load(x))\n")
    import elements  # type: ignore[import-not-found]

    tensor = torch.empty(4, dtype=dtype)
    if fake:
        with FakeTensorMode() as mode:
            tensor = mode.from_tensor(tensor)
    assert_law(Call(elements.kernel, {"x": tensor, "y": tensor}))


@pytest.mark.parametrize("given", [None, 5, torch.zeros(4)], ids=["nothing", "number", "tensor"])
def test_a_configuration_in_place_of_an_argument(folder: Path, given: Any) -> None:
    """PyTorch filters by what the caller's own dict holds, and analyses what the first configuration says."""
    text = "@triton.autotune(configs=[triton.Config({'SIZE': 16, 'n': 3})], key=[])\n@triton.jit\n"
    text += "def kernel(x, y, n, SIZE: tl.constexpr):\n    tl.store(y + tl.arange(0, SIZE), tl.load(x) + n)\n"
    write(folder, "tuned", text)
    import tuned  # type: ignore[import-not-found]

    arguments = tensors("x", "y") | ({} if given is None else {"n": given})
    assert_law(Call(tuned.kernel, arguments))


def test_functions_as_arguments(folder: Path) -> None:
    text = "@triton.jit\ndef once(p):\n    tl.store(p, 1)\n\n\nclass Inside:\n    @triton.jit\n    def held(p):\n"
    text += "        tl.store(p, 2)\n\n\n"
    text += "@triton.jit\ndef kernel(x, y, f: tl.constexpr, g: tl.constexpr, h: tl.constexpr):\n    f(x)\n    g(y)\n"
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    write(folder / "package", "inner", text)
    import package.inner as inner  # type: ignore[import-not-found]

    held = inner.Inside.__dict__["held"]
    assert_law(Call(inner.kernel, {**tensors("x", "y"), "f": inner.once, "g": held, "h": inner.once}))
    assert_law(Call(inner.kernel, {**tensors("x", "y"), "f": inner.once, "g": inner.once, "h": tl.cdiv}))


def lost(recipe: Recipe) -> tuple[str, str]:
    with pytest.raises(NotRebuilt) as error:
        rebuild(recipe)
    return error.value.reason, str(error.value)


@pytest.fixture
def recorded(folder: Path) -> Recipe:
    """A call of `lately.scale`, whose module has been forgotten since."""
    write(folder, "lately", KERNELS)
    import lately  # type: ignore[import-not-found]

    recipe = recipe_of(*pair_of(lately.scale, 2.0))
    del sys.modules["lately"]
    return recipe


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        ("", "gone", "no scale in lately"),
        ("raise ValueError('not today')", "import", "ValueError: not today"),
        ("raise SystemExit(3)", "import", "SystemExit: 3"),
        (
            "class Mute(BaseException):\n    def __str__(self):\n        raise ValueError\nraise Mute",
            "import",
            "Mute, importing",
        ),
        ("import a_package_that_is_not_there", "import", "a_package_that_is_not_there"),
        ("def scale(): pass", "no-kernel", "no @triton.jit function any more"),
        ("scale = 3", "no-kernel", "no @triton.jit function any more"),
        ("@triton.jit\ndef scale(x, y, SIZE: tl.constexpr): pass", "signature", "factor"),
        ("@triton.jit\ndef scale(x, y, factor, more, SIZE: tl.constexpr): pass", "signature", "more"),
        ("@triton.jit\ndef scale(x, y: tl.constexpr, factor, SIZE): pass", "signature", "y is a constexpr now"),
    ],
)
def test_what_has_become_of_the_kernel_is_named(
    folder: Path, recorded: Recipe, text: str, reason: str, said: str
) -> None:
    (folder / "lately.py").write_text(HEADER + text)
    (found, why) = lost(recorded)
    assert found == reason
    assert said in why


def test_a_module_that_is_gone(folder: Path, recorded: Recipe) -> None:
    (folder / "lately.py").unlink()
    assert lost(recorded)[0] == "gone"


def test_a_kernel_inside_a_function_has_no_path(recorded: Recipe) -> None:
    assert lost(recorded._replace(name="make.<locals>.scale"))[0] == "local"


def test_new_source_is_followed(folder: Path, recorded: Recipe) -> None:
    write(folder, "lately", KERNELS.replace("* factor", "+ factor"))
    kernel, arguments = rebuild(recorded)
    key = call_key(kernel, arguments)
    assert [part for part in key.parts if key.parts[part] != recorded.parts[part]] == ["code"]


def test_an_autotuner_that_was_put_around_it(folder: Path, recorded: Recipe) -> None:
    tuned = "@triton.autotune(configs=[triton.Config({'SIZE': 64})], key=[])\n@triton.heuristics({})\n"
    tuned += "@triton.jit\ndef scale"
    write(folder, "lately", KERNELS.replace("@triton.jit\ndef scale", tuned))
    kernel, arguments = rebuild(recorded)
    assert arguments["SIZE"] == 16
    assert call_key(kernel, arguments).parts["arguments"] == recorded.parts["arguments"]


tokens = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=8), st.floats()),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
KINDS = ["pointer", "scalar", "none", "constexpr", "constant", "int", "float", "str", "dtype", "jit", "triton", "tuple"]


@CHECKS
@given(st.sampled_from(KINDS), st.sampled_from(KINDS), tokens)
def test_a_token_of_any_shape_is_a_value_or_is_lost(outer: str, inner: str, given: Any) -> None:
    """Whoever can write to a store writes the tokens, too."""
    module = types.ModuleType("hostile")
    vars(module)["kernel"] = _KERNEL
    sys.modules["hostile"] = module
    arguments = [["x", [outer, [inner, given]], False], ["y", ["pointer", "*fp32"], True]]
    recipe = Recipe("hostile", "kernel", arguments, ["hostile.kernel"], "cuda:90:32", 0.1, "0" * 64, {})
    try:
        rebuild(recipe)
    except NotRebuilt:
        pass
    finally:
        del sys.modules["hostile"]


@triton.jit
def _KERNEL(x, y):  # type: ignore[no-untyped-def]
    tl.store(y, tl.load(x))


def test_only_triton_itself_is_reached_by_a_token_of_its_own() -> None:
    arguments = [["x", ["constexpr", ["triton", "os:system"]], False], ["y", ["pointer", "*fp32"], True]]
    recipe = Recipe(__name__, "_KERNEL", arguments, ["x"], "cuda:90:32", 0.1, "0" * 64, {})
    assert lost(recipe) == ("value", lost(recipe)[1])
    assert "outside Triton" in lost(recipe)[1]


def test_floats_keep_their_bits(folder: Path) -> None:
    write(folder, "bits", "@triton.jit\ndef kernel(x, V: tl.constexpr):\n    tl.store(x, V)\n")
    import bits  # type: ignore[import-not-found]

    nan = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]
    recipe = recipe_of(bits.kernel, {**tensors("x"), "V": nan})
    _, arguments = rebuild(recipe)
    assert struct.pack(">d", arguments["V"]).hex() == "7ff8000000000123"
