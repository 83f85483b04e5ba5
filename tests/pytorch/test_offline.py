"""A declared target: what export needs of it, that real drivers win, and that it goes away again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import triton
from torch.library import triton_op, wrap_triton
from triton.backends import backends
from triton.runtime import driver

import tritonstore
from tests.support.analysis import OfflineDriver, target
from tritonstore.errors import TritonStoreError
from tritonstore.pytorch.offline import DeclaredTarget, DeclaredTargetError
from tritonstore.settings import Target

CUDA = Target("cuda", 90, 32)
HIP = Target("hip", "gfx942", 64)


@pytest.fixture
def real() -> Any:
    """A driver that stands for a real one, active."""
    from triton.backends.compiler import GPUTarget

    made = OfflineDriver(GPUTarget("cuda", 80, 32))
    driver.set_active(made)
    return made


@pytest.mark.parametrize("wanted", [CUDA, HIP])
def test_it_is_the_target_until_it_is_taken_away(wanted: Target) -> None:
    declared = DeclaredTarget(wanted)
    assert driver._active is None
    declared.ensure()
    found = driver.active.get_current_target()
    assert (found.backend, found.arch, found.warp_size) == tuple(wanted)
    first = driver.active
    declared.ensure()
    assert driver.active is first
    declared.restore()
    assert driver._active is None
    declared.restore()


def test_a_real_driver_wins(real: Any) -> None:
    declared = DeclaredTarget(CUDA)
    declared.ensure()
    assert driver.active is real
    declared.restore()
    assert driver.active is real


def test_a_gpu_that_triton_would_find_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next(iter(backends.values())).driver, "is_active", classmethod(lambda cls: True))
    DeclaredTarget(CUDA).ensure()
    assert driver._active is None


def test_unless_the_target_is_preferred(real: Any) -> None:
    declared = DeclaredTarget(HIP, prefer=True)
    declared.ensure()
    assert driver.active.get_current_target().backend == "hip"
    declared.restore()
    assert driver.active is real


def test_a_driver_set_later_is_left_alone() -> None:
    declared = DeclaredTarget(CUDA)
    declared.ensure()
    with target("hip", "gfx942", 64):
        present = driver.active
        declared.restore()
        assert driver.active is present


def test_targets_may_be_nested() -> None:
    outer, inner = DeclaredTarget(CUDA), DeclaredTarget(HIP)
    outer.ensure()
    inner.ensure()
    assert driver.active.get_current_target().backend == "hip"
    inner.restore()
    assert driver.active.get_current_target().backend == "cuda"
    outer.restore()
    assert driver._active is None


def test_everything_else_says_that_there_is_no_gpu(kernels: Any) -> None:
    declared = DeclaredTarget(CUDA)
    declared.ensure()
    try:
        for ask in (
            lambda: driver.active.get_benchmarker(),
            lambda: driver.active.get_active_torch_device(),
            lambda: driver.active.map_python_to_cpp_type("i32"),
            lambda: driver.active.utils,
            lambda: kernels.swap[(1,)](torch.zeros(4), torch.zeros(4), 1),
        ):
            with pytest.raises(DeclaredTargetError, match=r"declared target cuda:90:32.*TRITONSTORE_TARGET"):
                ask()
        assert issubclass(DeclaredTargetError, TritonStoreError)
        assert not hasattr(driver.active, "launcher_cls")
        assert not type(driver.active).is_active()
        assert copy.copy(driver.active).get_current_target() == driver.active.get_current_target()
        assert not torch.utils._triton.has_triton()
    finally:
        declared.restore()


def test_export_needs_nothing_but_the_target(kernels: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    @triton_op("tritonstore_offline::copy", mutates_args={})
    def copy_op(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        wrap_triton(kernels.copy)[(1,)](x, y, x.numel(), BLOCK=64)
        wrap_triton(kernels.tuned)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return copy_op(x)

    def export() -> str:
        program = torch.export.export(Model(), (torch.zeros(64),))
        return str(program.run_decompositions({}, decompose_custom_triton_ops=True).graph)

    with torch.no_grad():
        with target("cuda", 90, 32):
            monkeypatch.setattr(OfflineDriver, "__getattr__", lambda self, name: asked.append(name), raising=False)
            alone = export()
        assert asked == []  # nothing but get_current_target, which the class has
        for hits in (False, True):
            with tritonstore.installed(url=f"file://{tmp_path}/store", target="cuda:90:32"):
                assert plain(export()) == plain(alone)
                assert bool(tritonstore.stats()["hits"].get("file")) is hits
                assert (tritonstore.stats()["analyses"] == 0) is hits
    assert driver._active is None


def plain(graph: str) -> str:
    """The graph without the numbers of PyTorch's table of constant arguments, which count up in a process."""
    import re

    return re.sub(r"constant_args_idx: \d+", "constant_args_idx", graph)
