"""Objects that are not what they seem: Triton's own classes and kernels, and globals that act when looked at."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.support.calls import Call, answer, digest, outcome
from tests.support.elsewhere import run_python
from tests.support.sources import load
from tests.support.switch import SAME_NAME, launch, switch_source
from tritonstore.keys import call_key


@pytest.mark.parametrize("owner", [tl.tensor, triton.Config], ids=lambda owner: str(owner.__qualname__))
def test_an_attribute_of_a_triton_class(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "FLAG", 1, raising=False)
    name = "tl.tensor" if owner is tl.tensor else "triton.Config"
    call = launch(load(switch_source(f"{name}.FLAG == 1"))["kernel"])
    said, key = answer(call), outcome(call)
    monkeypatch.setattr(owner, "FLAG", 2)
    assert answer(call) != said
    after = outcome(call)
    # A class that the integrity check does not watch must not be read from at all.
    assert after != key or after == key == "bypass: value-type"


def test_tritons_own_kernels_are_told_apart_by_their_code() -> None:
    own = [tl.standard.zeros_like, tl.standard.ravel, tl.standard.sigmoid, tl.standard.softmax, tl.standard.cdiv]
    codes = set()
    for kernel in own:
        arguments = {name: torch.zeros(4) if at == 0 else False for at, name in enumerate(kernel.arg_names)}
        codes.add(call_key(kernel, arguments).parts["code"])
    assert len(codes) == len(own)


def test_the_text_of_tritons_own_kernel_counts_where_that_is_the_question() -> None:
    kernel = tl.standard.zeros_like
    call = Call(kernel, {"input": torch.zeros(4)})
    said, key, text = answer(call), digest(call), kernel._src
    try:
        kernel._unsafe_update_src("def zeros_like(input):\n    core.store(input, 1.0)\n")
        assert answer(call) != said
        assert outcome(call) != key
    finally:
        kernel._unsafe_update_src(text)
    assert digest(call) == key


def test_a_users_helper_with_the_name_of_tritons_own() -> None:
    """Triton generates one function for both, whichever comes first."""
    ours, theirs = (launch(load(SAME_NAME, module=name)["kernel"]) for name in ("ours", "triton.language.standard"))
    assert answer(ours) != answer(theirs)
    assert not outcome(ours).startswith("bypass")
    assert outcome(theirs) == "bypass: name"


LOCAL = """
@triton.jit
def kernel(x, y, w):
    w = tl.load(y + tl.arange(0, 4)[:, None] + tl.arange(0, 4)[None, :])
    tl.store(x + tl.arange(0, 4)[:, None] + tl.arange(0, 4)[None, :], w.T)
"""


def test_a_globals_properties_are_not_run() -> None:
    class Connection:
        @property
        def T(self) -> None:
            runs.append(1)
            sys.exit(3)

    runs: list[int] = []
    call = launch(load(LOCAL, given={"w": Connection()})["kernel"], w=1)
    assert outcome(call) == "bypass: value-type"
    assert runs == []
    assert not answer(call).failed


def test_a_warning_of_a_globals_property_is_not_given() -> None:
    """`Tensor.T` of three dimensions warns, which here would be an exception."""
    call = launch(load(LOCAL, given={"w": torch.zeros(2, 2, 2)})["kernel"], w=1)
    assert digest(call) == digest(call)


def test_an_object_that_makes_attributes_on_demand_has_no_key() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> int:
            raise RuntimeError("outside of its context")

    call = launch(load(LOCAL, given={"w": Proxy()})["kernel"], w=1)
    assert outcome(call) == "bypass: value-type"


GONE = """
import os, tempfile
from tests.support.analysis import CUDA_90, target
from tests.support.calls import outcome
from tests.support.switch import launch, switch
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
with target(*CUDA_90):
    print(outcome(launch(switch("max(1, 2) == 2", ""))))
"""


def test_a_process_whose_working_directory_is_gone_has_the_same_keys() -> None:
    assert run_python(GONE) == digest(launch(load(switch_source("max(1, 2) == 2"))["kernel"]))
