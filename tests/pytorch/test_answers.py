"""Answer objects made again: equal in type, order and content, fresh each time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch._higher_order_ops.triton_kernel_wrap as wrap
from torch._inductor.dependencies import ReadWrites, StarDep
from torch.utils._ordered_set import OrderedSet

from tests.pytorch.fakes import FakeModule
from tritonstore.access import AccessResult
from tritonstore.pytorch.answers import AccessAnswers, MutationAnswers, UnknownAnswer, answers_of, same_answer
from tritonstore.pytorch.seam import find

ACCESS = AccessResult(("a", "b"), ("c",), True)


@pytest.fixture
def module() -> Any:
    """The newer form's module with Inductor's real classes, under any PyTorch."""
    return FakeModule("accesses")


@pytest.fixture
def answers(module: Any) -> AccessAnswers:
    return AccessAnswers(module)


def pytorchs(module: Any, **changes: Any) -> Any:
    """What PyTorch would return for ACCESS."""
    fields = {
        "reads": OrderedSet([StarDep("a"), StarDep("b")]),
        "writes": OrderedSet([StarDep("c")]),
        "index_exprs": OrderedSet(),
    }
    return module.TensorAccesses(ReadWrites(**{**fields, **changes}), can_fuse_epilogue=True)


def test_equal_to_pytorchs_own(answers: AccessAnswers, module: Any) -> None:
    built = answers.build(ACCESS)
    assert same_answer(built, pytorchs(module))
    assert built == pytorchs(module)
    assert answers.read(built) == ACCESS


def test_fresh_at_every_call(answers: AccessAnswers) -> None:
    first, second = answers.build(ACCESS), answers.build(ACCESS)
    first.read_writes.reads.add(StarDep("z"))
    assert same_answer(second, answers.build(ACCESS))
    assert first.read_writes.reads is not first.read_writes.writes


def test_order_and_type_count(answers: AccessAnswers, module: Any) -> None:
    turned = pytorchs(module, reads=OrderedSet([StarDep("b"), StarDep("a")]))
    assert turned == pytorchs(module)  # what == does not see
    assert not same_answer(turned, pytorchs(module))
    assert not same_answer(pytorchs(module, reads={StarDep("a"), StarDep("b")}), pytorchs(module))
    assert not same_answer(["a"], ("a",))
    assert not same_answer(["a"], ["a", "b"])


@pytest.mark.parametrize(
    "changes",
    [
        {"reads": OrderedSet([StarDep("a", mode="atomic_add")])},
        {"reads": {StarDep("a")}},
        {"writes": [StarDep("c")]},
        {"index_exprs": OrderedSet(["i"])},
        {"range_vars": []},
        {"var_ranges": {}},
        {"reads": None},
    ],
)
def test_an_answer_that_holds_more_than_names_is_refused(
    answers: AccessAnswers, module: Any, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnknownAnswer):
        answers.read(pytorchs(module, **changes))


def test_a_subclass_is_another_type(answers: AccessAnswers, module: Any) -> None:
    class Special(module.TensorAccesses):  # type: ignore[misc, name-defined]
        pass

    plain = pytorchs(module)
    with pytest.raises(UnknownAnswer):
        answers.read(Special(plain.read_writes, True))
    with pytest.raises(UnknownAnswer):
        answers.read(None)


def test_names_alone_do_not_make_the_newer_answer(answers: AccessAnswers) -> None:
    with pytest.raises(UnknownAnswer, match="reads"):
        answers.build(AccessResult(None, ("c",), None))


def test_the_older_form_is_a_fresh_list() -> None:
    answers = MutationAnswers()
    access = answers.read(["b", "a"])
    assert access == AccessResult(None, ("b", "a"), None)
    first = answers.build(access)
    assert first == ["b", "a"]
    first.append("z")
    assert answers.build(access) == ["b", "a"]
    for other in (("a",), [1], None):
        with pytest.raises(UnknownAnswer):
            answers.read(other)


def test_the_seam_decides() -> None:
    kind = find(wrap).kind
    assert isinstance(answers_of(find(wrap)), AccessAnswers if kind == "accesses" else MutationAnswers)
    other = find(FakeModule("mutations" if kind == "accesses" else "accesses"))
    assert type(answers_of(other)) is not type(answers_of(find(wrap)))
    assert dataclasses.is_dataclass(ReadWrites)
