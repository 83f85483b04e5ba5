"""The shipped planners: each says for which calls of its op the kernel of the same name may stand in."""

from __future__ import annotations

from tritonstore.replacement.registry import Registry

__all__ = ["shipped"]


def shipped() -> Registry:
    """A new registry with the planners of this package. Imports triton, and registers the operators."""
    from tritonstore.replacement.planners import conv1d, rms_norm, sdpa, topk

    return Registry(module.PLANNER for module in (sdpa, rms_norm, topk, conv1d))
