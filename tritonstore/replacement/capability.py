"""Can a kernel run on the GPU that a model is exported for?"""

from __future__ import annotations

from typing import Any

from tritonstore.settings import Settings, Target

__all__ = ["device_supports", "target_of"]


def target_of(device: Any) -> Target | None:
    """The GPU that a model on `device` is exported for; None if there is none.

    A real GPU counts before a declared target (unless `prefer_target` is set). Without a GPU, and for a model on the
    CPU, it is the declared target: of the installed store, else of the settings.
    """
    import torch

    device = torch.device(device)
    settings = _settings()
    real = device.type == "cuda" and torch.cuda.is_available() and not (settings.target and settings.prefer_target)
    if not real:
        return settings.target if device.type in ("cuda", "cpu") else None
    if torch.version.hip is not None:
        return Target("hip", torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0], 64)
    major, minor = torch.cuda.get_device_capability(device)
    return Target("cuda", 10 * major + minor, 32)


def device_supports(min_capability: int, device: Any) -> bool:
    """Whether a kernel that needs compute capability `min_capability` (80 is 8.0) can run there.

    False on ROCm, and where there is neither a GPU nor a declared target. A newer GPU than the one exported for runs
    the package through its PTX, so there is no upper bound.
    """
    target = target_of(device)
    return target is not None and target.backend == "cuda" and int(target.arch) >= min_capability


def _settings() -> Settings:
    from tritonstore.pytorch.install import active

    session = active()
    return Settings.load() if session is None else session.settings
