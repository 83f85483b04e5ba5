"""PyTorch's answer objects <-> AccessResult.

What `build` returns equals PyTorch's own answer in type, order and content, and is fresh on every call:
callers may keep or change it. `read` refuses an answer that `build` could not make again, so such an answer
is not stored.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from tritonstore.access import AccessResult
from tritonstore.pytorch.seam import Seam, dependency_types

_MAX_TABLES = 4096
"""Answers whose objects are kept; past that they are made again."""


class UnknownAnswer(ValueError):
    """PyTorch's answer has content that an AccessResult cannot hold."""


class Answers(Protocol):
    """How one form of the seam spells its answers."""

    def read(self, answer: Any) -> AccessResult: ...

    def build(self, access: AccessResult) -> Any: ...


def answers_of(seam: Seam) -> Answers:
    """The reader and builder for `seam`. Costs nothing: PyTorch's classes are looked up at the first use."""
    return AccessAnswers(seam.module) if seam.kind == "accesses" else MutationAnswers()


class AccessAnswers:
    """TensorAccesses (torch 2.13)."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._types: tuple[Any, Any] | None = None
        self._tables: dict[int, tuple[AccessResult, dict[Any, None], dict[Any, None]]] = {}

    def _dependency_types(self) -> tuple[Any, Any]:
        # Two threads may both look: the result is the same, so no lock is needed.
        if self._types is None:
            self._types = dependency_types(self._module)
        return self._types

    def _dependencies(self, access: AccessResult) -> tuple[dict[Any, None], dict[Any, None]]:
        """PyTorch's objects for the names read and written, which are frozen and so can be shared by all answers.

        As tables, because making them and their hashes, which are computed in Python, is most of a short call.
        """
        known = self._tables.get(id(access))
        if known is None or known[0] is not access:
            if access.reads is None or access.can_fuse_epilogue is None:
                raise UnknownAnswer("the stored answer holds only written names; this PyTorch also asks for reads")
            _, star = self._dependency_types()
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            known = (access, dict.fromkeys(map(star, access.reads)), dict.fromkeys(map(star, access.writes)))
            self._tables[id(access)] = known
        return known[1:]

    def build(self, access: AccessResult) -> Any:
        reads, writes = self._dependencies(access)
        read_writes, _ = self._dependency_types()
        ordered = self._module.OrderedSet
        return self._module.TensorAccesses(
            read_writes=read_writes(reads=ordered(reads), writes=ordered(writes), index_exprs=ordered()),
            can_fuse_epilogue=access.can_fuse_epilogue,
        )

    def read(self, answer: Any) -> AccessResult:
        try:
            accesses = answer.read_writes
            access = AccessResult(
                reads=tuple(dep.name for dep in accesses.reads),
                writes=tuple(dep.name for dep in accesses.writes),
                can_fuse_epilogue=answer.can_fuse_epilogue,
            )
        except (AttributeError, TypeError) as error:
            raise UnknownAnswer(f"PyTorch's answer is not the known kind: {error}") from error
        return _checked(self, access, answer)


class MutationAnswers:
    """A list of written names (torch 2.11)."""

    def build(self, access: AccessResult) -> Any:
        return list(access.writes)

    def read(self, answer: Any) -> AccessResult:
        if type(answer) is not list or not all(type(name) is str for name in answer):
            raise UnknownAnswer(f"PyTorch's answer is not a list of names but {type(answer).__name__}")
        return _checked(self, AccessResult(None, tuple(answer), None), answer)


def _checked(answers: Answers, access: AccessResult, answer: Any) -> AccessResult:
    if not same_answer(answers.build(access), answer):
        raise UnknownAnswer("PyTorch's answer holds more than names")
    return access


def same_answer(left: Any, right: Any) -> bool:
    """Equal in type, order and content, all the way down. `==` alone ignores the order of an OrderedSet."""
    if type(left) is not type(right):
        return False
    if dataclasses.is_dataclass(left):
        names = [field.name for field in dataclasses.fields(left)]
        return all(same_answer(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, (list, tuple)) or type(left).__name__ == "OrderedSet":
        ours, theirs = list(left), list(right)
        return len(ours) == len(theirs) and all(map(same_answer, ours, theirs))
    return bool(left == right)
