"""One keyed question: deliver the stored answer, or let PyTorch analyse, prove its answer, and publish it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tritonstore import keys
from tritonstore.access import AccessResult
from tritonstore.counters import Counters
from tritonstore.errors import Bypass, FormatError, TritonStoreError
from tritonstore.pytorch import artifacts
from tritonstore.pytorch.answers import Answers, UnknownAnswer, same_answer
from tritonstore.pytorch.lock import analysis_lock
from tritonstore.pytorch.outcome import Observation, Watch
from tritonstore.recipes import ahead

Question = tuple[Any, Any, Any]
"""(kernel, kwargs, TMA descriptor metadata), as PyTorch asks it."""


class VerificationError(TritonStoreError):
    """A stored answer differs from what PyTorch says now. Raised only in strict mode."""


class Patched(Protocol):
    """What a call needs to know of the patched PyTorch."""

    watch: Watch
    answers: Answers
    original: Callable[..., Any]


class Owner(Protocol):
    """What a call needs to know of its session."""

    storing: bool

    @property
    def counters(self) -> Counters: ...
    def guard(self, kind: str) -> contextlib.AbstractContextManager[None]: ...
    def fault(self, kind: str, error: Exception) -> None: ...
    def distrust(self, why: str) -> None: ...
    def stop_storing(self, why: str) -> None: ...


def ask(patch: Patched, question: Question) -> tuple[Any, Observation, float]:
    """PyTorch's own answer, what was seen of its making, and its seconds. Its exceptions pass through."""
    with analysis_lock(), patch.watch.observing() as seen:
        started = time.perf_counter()
        answer = patch.original(*question)
        return answer, seen, time.perf_counter() - started


class Call:
    """One question with its key, on the way through one store."""

    def __init__(self, owner: Owner, patch: Patched, question: Question, store: Any, key: Any) -> None:
        self._owner = owner
        self._patch = patch
        self._question = question
        self._store = store
        self._key = key

    def deliver(self, access: AccessResult) -> Any:
        """A fresh answer. The caller's dict is left as after a miss: PyTorch pops backend options out."""
        kernel, kwargs, _ = self._question
        try:
            answer = self._patch.answers.build(access)
            popped = keys.popped_options(kernel, kwargs)
        except Exception as error:
            self._owner.fault("deliver", error)
            return self.analyse()
        for name in popped:
            kwargs.pop(name, None)
        return answer

    @contextlib.contextmanager
    def claimed(self) -> Iterator[AccessResult | None]:
        """Hold the claim to analyse; yields the answer instead if another worker published it meanwhile.

        A fault of the claim means: analyse anyway. An exception of the body passes through.
        """
        claim, appeared = None, None
        with self._owner.guard("claim"):
            entering = self._store.claim(self._key, ahead.patience(self._key.kernel))
            verb, value = entering.__enter__()
            claim, appeared = entering, value if verb == "answer" else None
        try:
            yield appeared
        finally:
            if claim is not None:
                with self._owner.guard("claim"):
                    claim.__exit__(None, None, None)

    def analyse(self) -> Any:
        """PyTorch's own answer; published if it is a proven success."""
        kernel, kwargs, metadata = self._question
        before = dict(kwargs)  # PyTorch edits the caller's dict
        moment = self._key.moment()
        answer, seen, seconds = ask(self._patch, self._question)
        self._owner.counters.analysis(seconds, self._key)
        if self._owner.storing:
            with self._owner.guard("publish"):
                access = self._proven(seen, answer, before)
                if access is not None and self._same_key(kernel, before, metadata, moment):
                    self._store.publish(self._key, access, seconds)
        return answer

    def verify(self, access: AccessResult) -> Any:
        """Ask PyTorch although the answer is stored. A difference ends the use of the store here."""
        kernel, kwargs, metadata = self._question
        before = dict(kwargs)
        moment = self._key.moment()
        answer, seen, seconds = ask(self._patch, self._question)
        self._owner.counters.analysis(seconds, self._key)
        with self._owner.guard("verify"):
            if self._proven(seen, answer, before) is None:
                return answer  # PyTorch failed just now, which says nothing about the stored answer
            same = same_answer(self._patch.answers.build(access), answer)
            # Of another question by now (a global was rebound), PyTorch's answer says nothing about the stored one.
            if not same and self._same_key(kernel, before, metadata, moment):
                self._differs(access, answer)
        return answer

    def _differs(self, access: AccessResult, answer: Any) -> None:
        kernel = getattr(getattr(self._question[0], "fn", None), "__name__", "?")
        why = (
            f"verification: the stored answer {self._key.digest[:16]} for kernel {kernel} is {access}, "
            f"but PyTorch says {self._patch.answers.read(answer)}"
        )
        self._owner.distrust(why)
        artifacts.withdraw(self._key.digest)
        kept = self._store.quarantine(self._key.digest)
        raise VerificationError(f"{why}. The entry lies in {kept}" if kept else why)

    def _proven(self, seen: Observation, answer: Any, before: dict[str, Any]) -> AccessResult | None:
        """The answer as plain data if it is a success and its invariants hold; else None, counted."""
        verdict = self._patch.watch.verdict(seen, answer)
        reason = verdict.reason
        if verdict.alarm:
            self._owner.stop_storing(f"PyTorch's analysis is not what this tritonstore knows ({reason})")
        if reason is None:
            try:
                access = self._patch.answers.read(answer)
                access.check(self._question[0].arg_names, _tensor_names(before))
                return access
            except UnknownAnswer:
                reason = "unknown-answer"
            except FormatError:
                reason = "invariant"
        self._owner.counters.unproven(reason, self._key)
        return None

    def _same_key(self, kernel: Any, before: dict[str, Any], metadata: Any, moment: list[int] | None) -> bool:
        """Whether the question is what it was at ``moment``, and was so all the while.

        Another thread may have rebound a global while PyTorch read it, and may have put it back by now.
        """
        try:
            again = keys.call_key(kernel, before, metadata)
        except Bypass:
            again = None
        same = again is not None and (again.digest, again.parts) == (self._key.digest, self._key.parts)
        if same and self._key.moment() == moment:
            return True
        self._owner.counters.unproven("key-changed", self._key)
        return False


def _tensor_names(kwargs: dict[str, Any]) -> set[str]:
    """The names that hold what PyTorch's analysis counts as a tensor."""
    import torch

    kinds: tuple[type, ...] = (torch.Tensor,)
    inductor = sys.modules.get("torch._inductor.ir")
    if inductor is not None:
        kinds += (inductor.TensorBox,)
    return {name for name, value in kwargs.items() if isinstance(value, kinds)}
