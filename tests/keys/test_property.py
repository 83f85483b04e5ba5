"""Random programs: looks never change the key; where the answers differ, the keys do; and each switch is in the key."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.analysis import CUDA_90, NEWER, target
from tests.support.calls import answer, assert_told_apart, digest
from tests.support.programs import DTYPES, ROUTES, Looks, Meaning, build

SWITCHES: dict[str, Any] = {
    "stores_x": st.booleans(),
    "flag": st.sampled_from([1, 2, "1", True, 1.0, 0.0, -0.0]),
    "helper_flag": st.sampled_from([1, 2]),
    "helper_default": st.sampled_from([1, 2]),
    "module_value": st.sampled_from([1, 2]),
    "route": st.sampled_from(ROUTES),
    "depth": st.integers(1, 3),
    "loop": st.booleans(),
    "noinline": st.booleans(),
    "swapped": st.booleans(),
    "one_name": st.booleans(),
    "dtype": st.sampled_from(DTYPES),
    "wide": st.booleans(),
    "constexpr": st.sampled_from([16, 32]),
}
meanings = st.builds(Meaning, **SWITCHES)
looks = st.builds(
    Looks,
    seed=st.integers(0, 2**16),
    module=st.sampled_from(["kernels_under_test", "__main__", "a.b"]),
    lines_before=st.integers(0, 40),
    values=st.integers(1, 2**31 - 1) if NEWER else st.just(1),
    shape=st.integers(1, 9),
)
CHECKS = settings(
    max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@CHECKS
@given(meanings, looks, looks)
def test_looks_change_neither_answer_nor_key(meaning: Meaning, first: Looks, second: Looks) -> None:
    with target(*CUDA_90):
        left, right = build(meaning, first), build(meaning, second)
        assert answer(left) == answer(right)
        assert digest(left) == digest(right)


@CHECKS
@given(meanings, meanings, looks)
def test_different_answers_have_different_keys(first: Meaning, second: Meaning, look: Looks) -> None:
    with target(*CUDA_90):
        left, right = build(first, look), build(second, look)
        if answer(left) != answer(right):
            assert digest(left) != digest(right)


@CHECKS
@given(meanings, st.sampled_from(sorted(SWITCHES)), st.data())
def test_one_switch_alone_is_told_apart(meaning: Meaning, name: str, data: st.DataObject) -> None:
    """All else equal, so that nothing but this switch can tell the two keys apart."""
    other = meaning._replace(**{name: data.draw(SWITCHES[name])})
    with target(*CUDA_90):
        left, right = build(meaning, Looks()), build(other, Looks())
        same_switch = repr(getattr(meaning, name)) == repr(getattr(other, name))
        if same_switch:
            assert digest(left) == digest(right)
        elif answer(left) != answer(right):
            assert digest(left) != digest(right)


# A switch that never changed an answer would prove nothing about the key. Those not named here change how the program
# reaches the same answer: route, depth, loop, noinline.
SHOWN: dict[str, tuple[Meaning, Any]] = {
    "stores_x": (Meaning(helper_flag=2), False),
    "flag": (Meaning(), 2),
    "helper_flag": (Meaning(stores_x=False), 2),
    "helper_default": (Meaning(), 2),
    "module_value": (Meaning(), 2),
    "swapped": (Meaning(stores_x=False, helper_default=2), True),
    "one_name": (Meaning(), True),
    "dtype": (Meaning(), torch.float16),
    "wide": (Meaning(), True),
    "constexpr": (Meaning(), 32),
}
if not NEWER:
    # Reads are not part of torch 2.11's answer, and only reads of the program tell these apart.
    del SHOWN["dtype"]


@pytest.mark.parametrize("name", SHOWN)
def test_the_programs_show_each_switch(name: str) -> None:
    first, value = SHOWN[name]
    assert_told_apart(build(first, Looks()), build(first._replace(**{name: value}), Looks()))


@pytest.mark.parametrize("flag", ["1", True, 1.0, 0.0, -0.0])
def test_the_programs_show_the_type_of_a_constexpr(flag: Any) -> None:
    if NEWER:
        others: list[Any] = [1, "1", True, 1.0, 0.0, -0.0]
        differing = {answer(build(Meaning(flag=other), Looks())) for other in others}
        assert len(differing) == 5
    assert digest(build(Meaning(flag=flag), Looks())) != digest(build(Meaning(flag=1), Looks()))
