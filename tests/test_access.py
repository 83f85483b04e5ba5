from __future__ import annotations

import pytest

from tritonstore.access import AccessResult
from tritonstore.errors import FormatError

PARAMETERS = ("x", "y", "out", "n")
TENSORS = {"x", "y", "out"}


@pytest.mark.parametrize(
    "result",
    [
        AccessResult((), (), False),
        AccessResult(("x", "y"), ("out",), True),
        AccessResult(("x", "out"), ("out",), False),
        AccessResult(("x", "y", "out"), ("x", "y", "out"), False),
        AccessResult(None, (), None),
        AccessResult(None, ("out", "n"), None),  # torch 2.11 names scalars
    ],
)
def test_possible_answers(result: AccessResult) -> None:
    result.check_shape()
    result.check(PARAMETERS, TENSORS)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (AccessResult(None, (), False), "together"),
        (AccessResult((), (), None), "together"),
        (AccessResult((), (), 1), "not a bool"),  # type: ignore[arg-type]
        (AccessResult(["x"], (), False), "not a tuple"),  # type: ignore[arg-type]
        (AccessResult((), ["x"], False), "not a tuple"),  # type: ignore[arg-type]
        (AccessResult((), None, False), "not a tuple"),  # type: ignore[arg-type]
        (AccessResult((1,), (), False), "not a name"),  # type: ignore[arg-type]
        (AccessResult(("",), (), False), "not a name"),
        (AccessResult(("x", "x"), (), False), "twice"),
        (AccessResult((), (), True), "exactly one write"),
        (AccessResult((), ("x", "y"), True), "exactly one write"),
        (AccessResult(("x",), ("x",), True), "not read"),
    ],
)
def test_impossible_shapes(result: AccessResult, problem: str) -> None:
    for check in (result.check_shape, lambda: result.check(PARAMETERS, TENSORS)):
        with pytest.raises(FormatError, match=problem):
            check()


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (AccessResult(("z",), (), False), "'z', which is not a parameter"),
        (AccessResult((), ("z",), False), "writes names 'z'"),
        (AccessResult(("y", "x"), (), False), "parameter order at 'x'"),
        (AccessResult(None, ("n", "x"), None), "parameter order"),
        (AccessResult(("n",), (), False), "'n', which is not a tensor"),
        (AccessResult((), ("n",), False), "not a tensor"),
    ],
)
def test_impossible_for_this_kernel(result: AccessResult, problem: str) -> None:
    result.check_shape()
    with pytest.raises(FormatError, match=problem):
        result.check(PARAMETERS, TENSORS)


def test_frozen_and_hashable() -> None:
    result = AccessResult((), ("x",), True)
    with pytest.raises(AttributeError):
        result.writes = ()  # type: ignore[misc]
    assert len({result, AccessResult((), ("x",), True)}) == 1
