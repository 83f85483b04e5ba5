"""Numbers of dicts stand for their contents only where they were seen to change with them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.language import core
from triton.runtime.jit import JITFunction

from tests.support.calls import Call, digest, outcome
from tests.support.sources import Namespace, load
from tritonstore.errors import Bypass
from tritonstore.keys import versions
from tritonstore.keys.integrity import snapshot
from tritonstore.keys.versions import Versions, notices_changes, plain_dict


def contents(namespace: dict[Any, Any]) -> int:
    """As `dict_version` should be: another number after each change, the same after none, and none for two dicts."""
    return id(namespace) ^ of_contents(namespace)


def of_contents(namespace: dict[Any, Any]) -> int:
    return hash(repr([(name, id(value)) for name, value in namespace.items() if not str(name).startswith("__")]))


def of_names(namespace: dict[Any, Any]) -> int:
    return id(namespace) ^ hash(repr(list(namespace)))


def of_length(namespace: dict[Any, Any]) -> int:
    return id(namespace) ^ (len(namespace) << 64)


def ever_new(namespace: dict[Any, Any], seen: list[int] = []) -> int:  # noqa: B006  (it is meant to stay)
    seen.append(1)
    return len(seen)


def refuses(namespace: dict[Any, Any]) -> int:
    raise TypeError("not this dict")


def test_pytorchs_own_is_believed() -> None:
    """With this PyTorch and Python; where it is not, keys are as right and take longer."""
    assert versions._version is not None
    assert notices_changes(versions._version)


def test_what_notices_every_change_is_believed() -> None:
    assert notices_changes(contents)


@pytest.mark.parametrize("version", [of_names, of_length, of_contents, ever_new, refuses, id, lambda namespace: 7])
def test_what_misses_a_change_is_not_believed(version: Callable[[Any], int]) -> None:
    assert not notices_changes(version)


def test_a_change_between_looking_and_keeping_is_seen_by_the_next_check() -> None:
    table = {"a": 1}
    held = Versions([table])
    now = held.now()
    assert not held.known(now)
    table["a"] = 2
    held.keep(now)
    assert not held.known(held.now())
    held.keep(held.now())
    assert held.known(held.now())


def test_an_empty_dict_that_was_filled_proves_nothing() -> None:
    table: dict[str, int] = {}
    held = Versions([table, {"a": 1}])
    held.keep(held.now())
    assert held.known(held.now())
    table.update({"b": 1})
    assert held.now() is None
    assert not held.known(held.now())
    held.keep(held.now())
    assert not held.known(held.now())


def test_a_dict_of_a_kind_of_its_own_proves_nothing() -> None:
    held = Versions([types.SimpleNamespace(a=1).__dict__, type("Own", (dict,), {})(a=1)])
    held.keep(held.now())
    assert not held.known(held.now())


def test_a_class_is_known_by_its_own_dict() -> None:
    owner = type("Owner", (), {"name": 1})
    namespace = plain_dict(vars(owner))
    assert type(namespace) is dict
    assert namespace["name"] == 1
    held = Versions([vars(owner)])
    held.keep(held.now())
    owner.name = 2  # type: ignore[attr-defined]
    assert not held.known(held.now())


def test_a_dict_that_takes_anothers_place_in_its_owner_is_seen() -> None:
    owner = type("Owner", (), {})()
    owner.a = 1
    held = Versions([], [owner])
    held.keep(held.now())
    assert held.known(held.now())
    before, owner.__dict__ = owner.__dict__, dict(owner.__dict__)
    assert not held.known(held.now())
    owner.__dict__ = before
    assert held.known(held.now())
    owner.a = 2
    assert not held.known(held.now())
    bare = Versions([], [type("Owner", (), {})()])
    bare.keep(bare.now())
    assert not bare.known(bare.now()), "an empty dict may take another one over unseen"


@pytest.fixture(params=["versions", "contents"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the interpreter's numbers, and as where there are none."""
    if request.param == "contents":
        monkeypatch.setattr(versions, "_version", None)
    monkeypatch.setattr("tritonstore.keys.integrity._snapshot", None)
    monkeypatch.setattr("tritonstore.keys.target._memo", None)


@pytest.mark.usefixtures("either_way")
def test_patches_are_noticed_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot().digest
    for owner, name in ((tl, "load"), (core.tensor, "__add__")):
        assert snapshot().digest == before
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *args: None)
            with pytest.raises(Bypass, match=name):
                snapshot()
        assert snapshot().digest == before


SOURCE = """
FLAG = tl.constexpr(1)

@triton.jit
def helper(x):
    if FLAG == 1:
        tl.store(x, 1)

@triton.jit
def kernel(x, n, SIZE: tl.constexpr):
    helper(x)
"""


class OfAnotherKind(JITFunction):  # type: ignore[misc]
    pass


def set_flag(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(namespace, "FLAG", tl.constexpr(2))


def make_scalar(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(vars(namespace["kernel"].params[2]), "is_constexpr", False)


def swap_parameters(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    parameters = namespace["helper"].params
    patch.setattr(namespace["helper"], "params", parameters)
    parameters.append(parameters[0])


def rename_in_place(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    namespace["kernel"].arg_names[1] = "m"


def replace_code(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(namespace["kernel"].fn, "__name__", "other")


def change_kind(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    namespace["helper"].__class__ = OfAnotherKind


def set_variable(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("TRITON_F32_DEFAULT", "ieee")


def set_knob(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(vars(triton.knobs.language), "fp32_default", "ieee")


def keep_out_of_line(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(namespace["helper"], "noinline", True)


def replace_attributes(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    """All of them at once: the dict that was watched stays as it was."""
    helper = namespace["helper"]
    patch.setattr(helper, "__dict__", {**vars(helper), "noinline": True})


def replace_hints(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    parameter = namespace["kernel"].params[2]
    patch.setattr(parameter, "__dict__", {**vars(parameter), "is_constexpr": False})


def fail_hash(namespace: Namespace, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(namespace["helper"], "hash", "recursion:kernels_under_test:helper")


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    "change",
    [
        *(set_flag, make_scalar, swap_parameters, rename_in_place, replace_code, change_kind),
        *(set_variable, set_knob, keep_out_of_line, replace_attributes, replace_hints, fail_hash),
    ],
)
def test_a_change_around_a_kernel_is_noticed_either_way(
    change: Callable[[Namespace, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = load(SOURCE)
    call = Call(namespace["kernel"], {"x": torch.zeros(4), "n": 1, "SIZE": 16})
    first = digest(call)
    namespace["unrelated"] = 1
    assert [digest(call) for _ in range(3)] == [first] * 3  # the last of them need not look into any dict
    change(namespace, monkeypatch)
    second = outcome(call)
    assert second != first
    assert [outcome(call) for _ in range(2)] == [second] * 2
    monkeypatch.undo()
