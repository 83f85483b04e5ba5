"""What a GPU can show beyond the exports, each in a fresh process: `python -m gpu_lib.checks NAME STORE_URL`.

A check prints one JSON object of what it saw, and ends with a traceback where that is not what must be.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from demo_lib.measure import Meter, seam_name, wrapper_module


def _pair() -> tuple[Any, Any]:
    """y = x * scale and its gradient, each a hand-written kernel, as one differentiable function."""
    import torch

    from gpu_lib.kernels import scale_backward, scale_forward

    class Scale(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, factor: float) -> Any:
            ctx.factor = factor
            y = torch.empty_like(x)
            scale_forward[(x.numel() + 255) // 256,](x, y, factor, x.numel(), BLOCK=256)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            grad = grad.contiguous()  # of a sum, it is one number seen many times
            out = torch.empty_like(grad)
            scale_backward[(grad.numel() + 255) // 256,](grad, out, ctx.factor, grad.numel(), BLOCK=256)
            return out, None

    return Scale, torch


def compiled(url: str) -> dict[str, Any]:
    """torch.compile, forward and backward: the numbers are eager's, and every launch was asked for."""
    scale, torch = _pair()
    import tritonstore

    def run(x: Any) -> Any:
        return scale.apply(torch.sin(x), 3.0).sum()

    x = torch.randn(1000, device="cuda", requires_grad=True)
    run(x).backward()
    expected, x.grad = x.grad.clone(), None
    meter = Meter(None)
    with tritonstore.installed(url=url):
        seam = getattr(wrapper_module(), seam_name())
        meter.count_calls()
        torch.compile(run)(x).backward()
        stats = tritonstore.stats()
        setattr(wrapper_module(), seam_name(), seam)  # what was installed takes itself away again
    torch.testing.assert_close(x.grad, expected)
    return {**_shown(stats), "callers": dict(meter.callers)}


def uncached(url: str) -> dict[str, Any]:
    """The same with Inductor's own caches off: the second process asks again, and the store answers each call."""
    import torch._inductor.config

    torch._inductor.config.force_disable_caches = True
    seen = compiled(url)
    assert seen["calls"], "nothing was asked, with Inductor's caches off"
    return seen


def in_worker() -> dict[str, Any]:
    """What one of Inductor's compile workers says of the store that its environment switches on."""
    import tritonstore

    assert tritonstore.stats(), "the store is off in a compile worker"
    return {"stats": _shown(tritonstore.stats()), "written": _ask()}


def workers(url: str) -> dict[str, Any]:
    """TRITONSTORE=1 reaches Inductor's compile workers, which find this process's answers."""
    os.environ |= {"TRITONSTORE": "1", "TRITONSTORE_URL": url, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    from torch._inductor.compile_worker.subproc_pool import SubprocKind, SubprocPool

    import tritonstore
    from gpu_lib import checks

    expected = _ask()
    pool = SubprocPool(2, kind=SubprocKind.SPAWN)
    try:
        told = [pool.submit(checks.in_worker).result(timeout=200) for _ in range(2)]
    finally:
        pool.shutdown()
    assert all(each["written"] == expected for each in told), (expected, told)
    return {"process": _shown(tritonstore.stats()), "workers": [each["stats"] for each in told]}


def _ask(x: Any = None) -> list[str]:
    """The names that PyTorch says `scale_forward` writes, where `x` (default: a new tensor) is what it reads."""
    import torch
    import torch._higher_order_ops.triton_kernel_wrap as wrap

    from gpu_lib.kernels import scale_forward

    x = torch.zeros(8, device="cuda") if x is None else x
    name = "identify_accessed_tensors" if hasattr(wrap, "identify_accessed_tensors") else "identify_mutated_tensors"
    answer = getattr(wrap, name)(scale_forward, {"x": x, "y": x, "factor": 2.0, "n": 8, "BLOCK": 256}, {})
    return answer if isinstance(answer, list) else [dep.name for dep in answer.read_writes.writes]


def forked(url: str) -> dict[str, Any]:
    """A process forked after CUDA has started cannot use the driver; its answers must be right all the same."""
    import torch

    import tritonstore

    x = torch.zeros(8, device="cuda")
    tritonstore.install(url=url)
    parent = _ask(x)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # What PyTorch itself would say here, with and without us; only sets of names, so order does not matter.
        os._exit(0 if set(_ask(x)) >= set(parent) else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the forked child ended with {status}"
    assert _ask(x) == parent
    return _shown(tritonstore.stats())


def host_tma(url: str) -> dict[str, Any]:
    """Host-side TMA descriptors under torch.compile: right numbers, and the calls bypass the store."""
    import torch
    from triton.tools.tensor_descriptor import TensorDescriptor

    import tritonstore
    from gpu_lib.kernels import copy_by_descriptor

    def run(x: Any) -> Any:
        y = torch.zeros_like(x)
        source, target = (TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, y))
        copy_by_descriptor[(x.shape[0] // 16, x.shape[1] // 16)](source, target, BLOCK=16)
        return y + 1

    x = torch.randn(64, 64, device="cuda")
    with tritonstore.installed(url=url):
        found = torch.compile(run)(x)
        stats = tritonstore.stats()
    torch.testing.assert_close(found, x + 1)
    # Inductor's own cache may answer before anybody is asked.
    assert not stats["calls"] or stats["bypasses"].get("tma"), stats
    return _shown(stats)


def tma_answers(url: str) -> dict[str, Any]:
    """Why these calls bypass: PyTorch's answer with this machine's ability for host TMA, and as if it had none."""
    import time

    import torch
    import torch._higher_order_ops.triton_kernel_wrap as wrap
    import torch.utils._triton as ability

    from gpu_lib.kernels import copy_by_descriptor

    name = "identify_accessed_tensors" if hasattr(wrap, "identify_accessed_tensors") else "identify_mutated_tensors"
    x, y = torch.randn(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda")
    metadata = {each: wrap.create_tma_stable_metadata([16, 16]) for each in ("source", "target")}
    seen = {}
    real = ability.has_triton_tensor_descriptor_host_tma
    for able in (real(), not real()):
        ability.has_triton_tensor_descriptor_host_tma = lambda able=able: able
        started = time.perf_counter()
        answer = getattr(wrap, name)(copy_by_descriptor, {"source": x, "target": y, "BLOCK": 16}, metadata)
        seconds = time.perf_counter() - started
        written = answer if isinstance(answer, list) else [dep.name for dep in answer.read_writes.writes]
        seen[f"able={able}"] = {"written": written, "seconds": round(seconds, 4)}
    ability.has_triton_tensor_descriptor_host_tma = real
    return {"this machine": real(), **seen}


def targets(url: str) -> dict[str, Any]:
    """The target is the current device's, each in turn; a declared target does not push a real one aside."""
    import torch

    import tritonstore
    from gpu_lib.kernels import scale_forward
    from tritonstore import keys

    found = []
    with tritonstore.installed(url=url, target="cuda:75:32"):
        # Twice round: what was worked out for one device must not stay when another becomes the current one.
        for index in 2 * list(range(torch.cuda.device_count())):
            with torch.cuda.device(index):
                x = torch.zeros(8, device="cuda")
                arguments = {"x": x, "y": x, "factor": 2.0, "n": 8, "BLOCK": 256}
                real = keys.call_key(scale_forward, arguments).describe()["target"]
            major, minor = torch.cuda.get_device_capability(index)
            assert real["arch"] == 10 * major + minor, (index, real)
            found.append(real["arch"])
    return {"devices": torch.cuda.device_count(), "arch": found}


def _shown(stats: dict[str, Any]) -> dict[str, Any]:
    return {name: stats[name] for name in ("calls", "hits", "misses", "bypasses", "analyses", "unproven", "faults")}


CHECKS: dict[str, Callable[[str], dict[str, Any]]] = {
    "compiled": compiled,
    "uncached": uncached,
    "workers": workers,
    "forked": forked,
    "host_tma": host_tma,
    "tma_answers": tma_answers,
    "targets": targets,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(CHECKS[sys.argv[1]](sys.argv[2])))
