"""Which GPU a model is exported for, and which kernels can run there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import tritonstore
from tritonstore.replacement import Registry, Verdict, apply, device_supports, plan
from tritonstore.replacement.call import Call
from tritonstore.replacement.capability import target_of

from .conftest import export


def gpu(patch: pytest.MonkeyPatch, capability: int = 90, hip: str | None = None) -> None:
    """As if PyTorch saw a GPU of that capability, or one of AMD's."""
    properties = type("Properties", (), {"gcnArchName": "gfx942:sramecc+:xnack-"})
    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "get_device_capability", lambda device=None: divmod(capability, 10))
    patch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
    patch.setattr(torch.version, "hip", hip)


@pytest.mark.parametrize("have", [75, 80, 90, 100])
@pytest.mark.parametrize("need", [75, 80, 90, 100])
def test_a_newer_gpu_runs_what_an_older_one_does(monkeypatch: pytest.MonkeyPatch, have: int, need: int) -> None:
    """The package carries PTX, so there is no upper bound."""
    with tritonstore.installed(url="memory:", target=f"cuda:{have}:32"):
        assert device_supports(need, "cuda") is (have >= need)
        assert device_supports(need, "cpu") is (have >= need)
    with tritonstore.installed(url="memory:", target="cuda:75:32"):
        gpu(monkeypatch, have)
        assert device_supports(need, "cuda") is (have >= need)
        assert device_supports(need, torch.device("cuda", 0)) is (have >= need)


def test_rocm_supports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with tritonstore.installed(url="memory:", target="hip:gfx942:64"):
        assert not device_supports(75, "cuda")
    gpu(monkeypatch, hip="6.2")
    assert not device_supports(0, "cuda")
    target = target_of("cuda")
    assert target is not None
    assert (target.backend, target.arch) == ("hip", "gfx942")


def test_the_declared_target_is_that_of_the_installed_store_else_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITONSTORE_TARGET", "cuda:75:32")
    assert device_supports(90, "cuda")
    tritonstore.uninstall()
    assert device_supports(75, "cuda")
    assert not device_supports(80, "cuda")
    monkeypatch.delenv("TRITONSTORE_TARGET")
    assert not device_supports(0, "cuda")
    assert not device_supports(0, "cpu")
    assert target_of("cpu") is None


def test_other_devices_have_no_kernels() -> None:
    assert not device_supports(0, "meta")
    assert not device_supports(0, "xpu")


def test_a_model_on_the_cpu_of_a_machine_with_a_gpu_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch)
    with tritonstore.installed(url="memory:"):
        assert device_supports(90, "cuda")
        assert not device_supports(75, "cpu")


def test_a_preferred_target_counts_before_a_real_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch, 90)
    with tritonstore.installed(url="memory:", target="cuda:75:32", prefer_target=True):
        assert not device_supports(80, "cuda")


class Small(nn.Module):
    """Two calls that a kernel can do, one that none can."""

    def forward(self, x: Any, weight: Any) -> Any:
        x = functional.rms_norm(x, (8,))
        return functional.conv1d(x, weight, groups=6), functional.conv1d(x, weight.expand(6, 6, 2))


@pytest.fixture(scope="module")
def programs() -> dict[torch.dtype, Any]:
    inputs = (torch.randn(2, 6, 8), torch.randn(6, 1, 2))
    return {dtype: export(Small(), *(x.to(dtype) for x in inputs)) for dtype in (torch.float32, torch.bfloat16)}


@pytest.mark.parametrize("arch", [75, 80, 90, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_planned_for_each_capability(programs: dict[torch.dtype, Any], dtype: torch.dtype, arch: int) -> None:
    with tritonstore.installed(url="memory:", target=f"cuda:{arch}:32"):
        rows = plan(programs[dtype]).rows
    optional = [row.op for row in rows if row.verdict is Verdict.OPTIONAL]
    if dtype is torch.bfloat16 and arch < 80:
        assert optional == []
        reasons = {row.reason for row in rows if "depthwise" not in row.reason}
        assert reasons == {"no GPU of capability 8.0 or higher to export for (or ROCm)"}
    else:
        assert optional == ["aten.rms_norm.default", "aten.conv1d.default"]
        assert len(rows) == 3


def test_on_rocm_nothing_is_planned_and_applying_it_changes_nothing(programs: dict[torch.dtype, Any]) -> None:
    program = programs[torch.float32]
    before = str(program.graph)
    with tritonstore.installed(url="memory:", target="hip:gfx942:64"):
        planned = plan(program)
    assert {row.verdict for row in planned.rows} == {Verdict.UNSUPPORTED}
    assert apply(planned).replaced == ()
    assert str(program.graph) == before


def test_a_preflight_can_ask_for_its_own_device() -> None:
    registry, asked = Registry(), []

    @registry.planner("aten.relu.default")
    def curious(call: Call) -> Any:
        asked.append((call.device, call.supports(90), call.supports(100)))

    plan(export(nn.ReLU(), torch.randn(3)), registry)
    assert asked == [(torch.device("cpu"), True, False)]
