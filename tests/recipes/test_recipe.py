"""Recipes as plain data: what of an entry's description makes one, and what is one question."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.keys.test_property import CHECKS
from tritonstore.access import AccessResult
from tritonstore.entry import Entry, Provenance
from tritonstore.recipes.recipe import Recipe, of_entry, of_miss, question
from tritonstore.runrecord import MissFacts

DETAIL: dict[str, Any] = {
    "kernel": ["package.module", "Outer.kernel"],
    "arguments": [["x", ["pointer", "*fp32"], True], ["f", ["constexpr", ["jit", 1]], False]],
    "code": [{"name": "package.module.kernel"}, {"name": "package.other.f"}, {"name": "package.other.helper"}],
    "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
}
PARTS = {"arguments": "a" * 64}


def entry(detail: dict[str, Any], digest: str = "0" * 64) -> Entry:
    return Entry(digest, PARTS, AccessResult(("x",), (), False), detail, Provenance(1, 0.25, "test"))


def recipe(**changes: Any) -> Recipe:
    found = of_entry(entry({**DETAIL, **changes}))
    assert found is not None
    return found


def test_a_recipe_holds_what_is_needed() -> None:
    assert recipe() == Recipe(
        *("package.module", "Outer.kernel", DETAIL["arguments"]),
        *(["package.module.kernel", "package.other.f"], "cuda:90:32", 0.25),
        *("0" * 64, PARTS, [["x"], [], False]),
    )
    assert recipe().kernel == "package.module.Outer.kernel"


def test_a_miss_on_record_holds_the_same_question() -> None:
    miss = MissFacts("1" * 64, "package.module", "Outer.kernel", 5.0, 1, 0.5, "published", PARTS, DETAIL)
    found = of_miss(miss)
    assert found is not None
    assert (found.access, found.seconds) == (None, 0.5)
    assert question(found) == question(recipe())
    assert of_miss(miss._replace(detail={})) is None


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": ["package.module", "another"]},
        {"arguments": [["x", ["pointer", "*fp16"], True], ["f", ["constexpr", ["jit", 1]], False]]},
        {"arguments": [["x", ["pointer", "*fp32"], False], ["f", ["constexpr", ["jit", 1]], False]]},
        {"code": [{"name": "package.module.kernel"}, {"name": "package.other.g"}]},
        {"target": {"backend": "cuda", "arch": 80, "warp_size": 32}},
    ],
)
def test_another_question(change: dict[str, Any]) -> None:
    assert question(recipe(**change)) != question(recipe())


@pytest.mark.parametrize(
    "change",
    [
        {"toolchain": {"torch": "2.14", "triton": "3.8"}},
        {"code": [{"name": "package.module.kernel", "body": "another"}, {"name": "package.other.f"}]},
        {"code": [{"name": "package.moved.kernel"}, {"name": "package.other.f"}, {"name": "more"}]},
        {"target": {**DETAIL["target"], "options": []}},
    ],
)
def test_the_same_question_after_an_upgrade_or_an_edit(change: dict[str, Any]) -> None:
    assert question(recipe(**change)) == question(recipe())


@pytest.mark.parametrize(
    "change",
    [
        *({"kernel": value} for value in (None, [], ["a"], ["a", 1], ["a", "b", "c"], "ab")),
        *({"arguments": value} for value in ([["x"]], [["x", [], True]], [[1, ["none"], True]], [["x", ["i", 1]]])),
        {"arguments": [["x", "none", True]]},
        *({"code": value} for value in (None, [], [{}], [{"name": 3}], [{"name": "only the kernel"}], ["a"])),
        *({"target": value} for value in (None, {}, {"backend": "cuda"}, {"backend": [], "arch": 1, "warp_size": 1})),
        {"arguments": [["x", ["constexpr", ["jit", 2**40]], True]]},
    ],
)
def test_a_description_that_lacks_something_is_no_recipe(change: dict[str, Any]) -> None:
    assert of_entry(entry({**DETAIL, **change})) is None


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e9])
def test_seconds_that_nobody_measured_are_none(seconds: float) -> None:
    """Somebody waits by them, and NaN is never over."""
    made = entry(DETAIL)._replace(provenance=Provenance(1, seconds, "test"))
    found = of_entry(made)
    assert found is not None
    assert found.seconds == 0.0


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=4), st.binary(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=12,
)


@CHECKS
@given(st.sampled_from(sorted(DETAIL)), plain)
def test_whatever_stands_there_is_read_without_an_exception(field: str, value: Any) -> None:
    found = of_entry(entry({**DETAIL, field: value}))
    assert found is None or len(question(found)) == 16


@CHECKS
@given(plain)
def test_whatever_stands_in_a_token_has_a_name(value: Any) -> None:
    found = of_entry(entry({**DETAIL, "arguments": [["x", ["constexpr", value], value]]}))
    assert found is None or len(question(found)) == 16
