"""Threads and forks: never a wrong answer, never a hang."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import tritonstore
from tests.pytorch.conftest import TARGET, tensors
from tests.support.analysis import target
from tests.support.sources import load
from tritonstore.pytorch.answers import same_answer
from tritonstore.pytorch.lock import analysis_lock

Ask = Callable[..., Any]


def namesakes() -> list[Any]:
    """Kernels of one name, with helpers of one name, that write other arguments: PyTorch's memo mixes them up."""
    source = """
    @triton.jit
    def helper(p, q, v):
        tl.store({target}, v)

    @triton.jit
    def kernel(x, y, n):
        helper(x, y, tl.load({read}) + n)
    """
    return [load(source.format(target=t, read=r))["kernel"] for t, r in (("p", "y"), ("q", "x"))]


def together(count: int, work: Callable[[int], None]) -> None:
    """Run `work(i)` in `count` threads that start at the same moment; raises the first error."""
    ready, errors = threading.Barrier(count), []

    def run(index: int) -> None:
        try:
            ready.wait(60)
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("mode", ["readwrite", "off"])
def test_two_kernels_of_one_name_are_never_mixed_up(ask: Ask, url: str, count: int, mode: str) -> None:
    kernels = namesakes()
    with target("cuda", 90, 32):
        alone = [ask(kernel, tensors(n=1)) for kernel in kernels]
    assert not same_answer(*alone)
    wide = [1, 1 << 40]  # two questions for each kernel

    def work(index: int) -> None:
        for step in range(8):
            which = (index + step) % 2
            answer = ask(kernels[which], tensors(n=wide[step // 2 % 2]))
            assert same_answer(answer, alone[which])

    with tritonstore.installed(url=url, target=TARGET, mode=mode):
        together(count, work)
        stats = tritonstore.stats()
        assert stats["calls"] == 8 * count
        assert stats["unproven"] == {}
        if mode == "readwrite":
            assert (stats["analyses"], stats["publishes"]) == (4, 4)


def in_child(work: Callable[[], None]) -> int:
    """Fork, run `work`, and return the child's exit code. The alarm ends a child that hangs."""
    import signal

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_install_works_and_counts_for_itself(ask: Ask, kernels: Any, url: str) -> None:
    with tritonstore.installed(url=url, target=TARGET):
        ask(kernels.swap, tensors(n=7))

        def child() -> None:
            assert tritonstore.stats()["calls"] == 0
            ask(kernels.swap, tensors(n=7))
            assert tritonstore.stats()["analyses"] == 0
            ask(kernels.copy, tensors(n=7, BLOCK=64))
            assert tritonstore.stats()["publishes"] == 1

        assert in_child(child) == 0
        ask(kernels.copy, tensors(n=7, BLOCK=64))
        assert tritonstore.stats()["hits"] == {"file": 1}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_analyses_does_not_hang(ask: Ask, kernels: Any, url: str) -> None:
    held, done = threading.Event(), threading.Event()

    def analyse() -> None:
        with analysis_lock():
            held.set()
            done.wait(60)

    with tritonstore.installed(url=url, target=TARGET):
        thread = threading.Thread(target=analyse)
        thread.start()
        held.wait(60)
        code = in_child(lambda: ask(kernels.swap, tensors(n=7)) and None)
        done.set()
        thread.join()
        assert code == 0


def test_a_question_inside_a_question_waits_for_nobody(ask: Ask, kernels: Any, url: str, seam: Any) -> None:
    """Code generation may run user code that asks again, even the same question, while the lease is held."""
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    original, depth = getattr(wrap, seam.entry), []

    def again(kernel: Any, kwargs: Any, tma_descriptor_metadata: Any) -> Any:
        if not depth:
            depth.append(1)
            ask(kernel, dict(kwargs))
        return original(kernel, kwargs, tma_descriptor_metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrap, seam.entry, again)
        with tritonstore.installed(url=url, target=TARGET, lease_wait=3600):
            ask(kernels.swap, tensors(n=7))
            stats = tritonstore.stats()
            assert (stats["analyses"], stats["publishes"]) == (2, 1)
            assert stats["unproven"] == {"re-entrant": 1}
            assert (stats["lease_waits"], stats["misses"]) == (0, 2)
