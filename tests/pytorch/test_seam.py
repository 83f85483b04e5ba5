"""Which PyTorch can be patched: found by what the module has, and refused with everything that is missing."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as wrap

from tests.pytorch.fakes import FakeModule, ReadWrites, StarDep
from tritonstore.errors import SeamError
from tritonstore.pytorch import seam as seams
from tritonstore.pytorch.seam import dependency_types, find


@pytest.fixture(params=["accesses", "mutations"])
def module(request: pytest.FixtureRequest) -> Any:
    return FakeModule(request.param)


def entry_of(module: Any) -> str:
    newer = hasattr(module, "identify_accessed_tensors")
    return "identify_accessed_tensors" if newer else "identify_mutated_tensors"


def missing(module: Any) -> tuple[str, ...]:
    before = dict(vars(module))
    with pytest.raises(SeamError) as caught:
        find(module)
    assert vars(module) == before
    for name in caught.value.missing:
        assert name in str(caught.value)
    return caught.value.missing


def test_this_pytorch_is_known() -> None:
    seam = find(wrap)
    assert seam.entry == entry_of(wrap)
    assert seam.module is wrap


def test_both_forms_are_told_apart_by_what_they_have(module: Any) -> None:
    seam = find(module)
    assert seam.entry == entry_of(module)
    assert seam.kind == ("accesses" if seam.entry == "identify_accessed_tensors" else "mutations")
    assert seam.inner in seam.observed
    assert (seam.generate in seam.observed) is (seam.kind == "mutations")


def test_a_module_with_nothing_names_both_forms() -> None:
    assert missing(ModuleType("empty")) == ("identify_accessed_tensors or identify_mutated_tensors",)


def test_everything_missing_is_named_at_once(module: Any) -> None:
    walk = find(module).inner
    for name in (walk, "generate_ttir", "get_tma_stores"):
        delattr(module, name)
    assert {walk, "generate_ttir", "get_tma_stores"} <= set(missing(module))


@pytest.mark.parametrize("name", ["TensorAccesses", "OrderedSet"])
def test_the_answers_classes_are_needed(name: str) -> None:
    module = FakeModule("accesses")
    delattr(module, name)
    assert name in missing(module)


def test_a_renamed_field_is_missing() -> None:
    module: Any = FakeModule("accesses")
    module.TensorAccesses = dataclasses.make_dataclass("TensorAccesses", ["read_writes", "can_fuse"])
    assert missing(module) == ("TensorAccesses.can_fuse_epilogue", "TensorAccesses without the unknown field can_fuse")


def test_a_walk_without_reset_is_missing(module: Any) -> None:
    walk = find(module).inner
    setattr(module, walk, lambda *args: None)
    assert missing(module) == (f"{walk}.reset",)


def test_a_fourth_argument_could_change_answers(module: Any) -> None:
    def entry(kernel: Any, kwargs: Any, tma_descriptor_metadata: Any, fast: bool = False) -> None: ...

    setattr(module, entry_of(module), entry)
    assert missing(module) == (f"{entry_of(module)}(kernel, kwargs, tma_descriptor_metadata)",)


def test_a_name_that_is_no_function_is_missing(module: Any) -> None:
    setattr(module, entry_of(module), None)
    assert entry_of(module) in missing(module)


def test_another_cache_in_front_is_accepted(module: Any) -> None:
    original = getattr(module, entry_of(module))
    setattr(module, entry_of(module), lambda *args, **kwargs: original(*args, **kwargs))
    assert find(module).entry == entry_of(module)


def test_an_entry_that_does_not_call_the_walk_by_name_is_refused(module: Any) -> None:
    walk = find(module).inner
    exec(f"def {entry_of(module)}(kernel, kwargs, tma_descriptor_metadata): return None", vars(module))
    assert missing(module) == (f"{entry_of(module)} calling {walk} and generate_ttir",)


def test_inductors_classes_are_checked_where_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    dependencies: Any = ModuleType("dependencies")
    dependencies.ReadWrites = ReadWrites
    monkeypatch.setitem(sys.modules, seams.DEPENDENCIES, dependencies)
    module = FakeModule("accesses")
    assert missing(module) == ("StarDep",)
    with pytest.raises(SeamError, match="StarDep"):
        dependency_types(module)
    dependencies.StarDep = StarDep
    assert dependency_types(module) == (ReadWrites, StarDep)
    find(module)


def test_inductors_file_must_be_there_where_it_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, seams.DEPENDENCIES, raising=False)
    module = FakeModule("accesses")
    find(module)
    monkeypatch.setattr(seams, "_has_file", lambda *parts: False)
    assert missing(module) == (seams.DEPENDENCIES,)
