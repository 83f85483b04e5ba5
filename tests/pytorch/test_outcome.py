"""Proven successes, PyTorch's failure path, and the signs that must not be trusted."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

from tests.pytorch.fakes import FakeModule, failing_at, kernel, question
from tritonstore.pytorch.outcome import PROVEN, Verdict, Watch
from tritonstore.pytorch.seam import Seam

FORMS = {
    "accesses": ("identify_accessed_tensors", "analyze_kernel_access"),
    "mutations": ("identify_mutated_tensors", "analyze_kernel_mutations"),
}


class Watched:
    """A fake module with the watch's wrappers in place."""

    def __init__(self, kind: Any) -> None:
        self.module: Any = FakeModule(kind)
        self.seam = Seam(kind, self.module, *FORMS[kind])
        self.watch = Watch(self.seam)
        self.entry = getattr(self.module, self.seam.entry)
        for name in self.seam.observed:
            setattr(self.module, name, self.watch.wrap(name, getattr(self.module, name)))

    def verdict(self, asked: Any = None, entry: Any = None) -> Verdict:
        with self.watch.observing() as seen:
            answer = (entry or self.entry)(*question(asked))
        return self.watch.verdict(seen, answer)


@pytest.fixture(params=sorted(FORMS))
def watched(request: pytest.FixtureRequest) -> Watched:
    return Watched(request.param)


def test_a_success_is_proven(watched: Watched) -> None:
    assert watched.verdict() == PROVEN
    assert watched.verdict() == PROVEN


@pytest.mark.parametrize("step", ["generate", "walk helper", "walk kernel"])
def test_the_failure_path_is_known(watched: Watched, step: str) -> None:
    assert watched.verdict(failing_at(step)) == Verdict("failure-path")


def test_a_failure_after_the_walk_is_never_proven(watched: Watched) -> None:
    # For the older form the two signs disagree: the walk ended, but the answer is not what it selected.
    verdict = watched.verdict(failing_at("end"))
    expected = {"accesses": Verdict("failure-path"), "mutations": Verdict("signs-disagree", alarm=True)}
    assert verdict == expected[watched.seam.kind]


def test_a_success_after_a_failure_is_proven(watched: Watched) -> None:
    watched.verdict(failing_at("walk kernel"))
    assert watched.verdict() == PROVEN


def test_a_cache_below_that_answers_is_no_analysis_and_no_alarm(watched: Watched) -> None:
    kept = watched.entry(*question())
    assert watched.verdict(entry=lambda *asked: kept) == Verdict("no-analysis")


def test_a_cache_below_that_asks_pytorch_is_proven(watched: Watched) -> None:
    assert watched.verdict(entry=lambda *asked: watched.entry(*asked)) == PROVEN


def test_another_object_than_the_walks_is_an_alarm() -> None:
    watched = Watched("accesses")
    verdict = watched.verdict(entry=lambda *asked: copy.deepcopy(watched.entry(*asked)))
    assert verdict == Verdict("signs-disagree", alarm=True)


def test_one_shared_set_in_the_walks_own_answer_is_an_alarm() -> None:
    watched = Watched("accesses")

    def share(*asked: Any) -> Any:
        answer = watched.entry(*asked)
        answer.read_writes.writes = answer.read_writes.reads
        return answer

    assert watched.verdict(entry=share) == Verdict("signs-disagree", alarm=True)


def test_other_names_than_the_walk_selects_are_an_alarm() -> None:
    watched = Watched("mutations")
    verdict = watched.verdict(entry=lambda *asked: [*watched.entry(*asked), "n"])
    assert verdict == Verdict("signs-disagree", alarm=True)


def test_an_answer_of_unknown_kind_is_an_alarm() -> None:
    assert Watched("accesses").verdict(entry=lambda *asked: None) == Verdict("unknown-answer", alarm=True)


def test_a_vanished_wrapper_is_an_alarm(watched: Watched) -> None:
    fresh = FakeModule(watched.seam.kind)
    for name in watched.seam.observed:
        setattr(watched.module, name, getattr(fresh, name))
    assert watched.verdict() == Verdict("wrapper-vanished", alarm=True)


def test_a_wrapper_around_ours_is_fine(watched: Watched) -> None:
    ours = getattr(watched.module, watched.seam.inner)

    class Theirs:
        def __call__(self, *args: Any) -> Any:
            return ours(*args)

        def reset(self) -> None:
            ours.reset()

    setattr(watched.module, watched.seam.inner, Theirs())
    assert watched.verdict() == PROVEN


def test_an_analysis_inside_an_analysis_spoils_the_outer_one_only(watched: Watched) -> None:
    inner: list[Verdict] = []

    def script(step: str) -> None:
        if step == "walk kernel" and not inner:
            assert watched.watch.nested
            inner.append(watched.verdict())

    assert watched.verdict(kernel(script)) == Verdict("re-entrant")
    assert inner == [PROVEN]
    assert not watched.watch.nested


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_walk_of_an_unlocked_thread_spoils_ours(watched: Watched, ours_first: bool) -> None:
    """Somebody kept PyTorch's entry from before install() and calls it while we analyse."""
    walking, done = threading.Event(), threading.Event()

    def stay(step: str) -> None:
        if step == "walk kernel":
            walking.set()
            done.wait(30)

    stranger = threading.Thread(target=lambda: watched.entry(*question(kernel(stay))))

    def start(step: str) -> None:
        if step == "walk kernel" and not stranger.ident:
            stranger.start()
            walking.wait(30)

    if not ours_first:
        stranger.start()
        walking.wait(30)
    verdict = watched.verdict(kernel(start))
    done.set()
    stranger.join()
    assert verdict == Verdict("disturbed")
    assert watched.verdict() == PROVEN


def test_the_wrapper_is_the_walk_to_everybody_else(watched: Watched) -> None:
    original = getattr(FakeModule(watched.seam.kind), watched.seam.inner)
    wrapper = watched.watch.wrap(watched.seam.inner, original)
    original.cache["k"] = 1
    assert wrapper.cache == {"k": 1}
    assert wrapper.fn is original.fn
    wrapper.reset()
    assert original.cache == {}
    wrapper.cache = {"other": 2}
    assert original.cache == {"other": 2}


def test_exceptions_of_pytorch_pass_through(watched: Watched) -> None:
    with pytest.raises(KeyboardInterrupt):
        watched.verdict(failing_at("walk helper", KeyboardInterrupt()))
    assert watched.verdict() == PROVEN
