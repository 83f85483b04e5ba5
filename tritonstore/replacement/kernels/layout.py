"""Outputs with the order of dimensions that the replaced ATen op gives them: later views were traced for it."""

from __future__ import annotations

import torch
from torch import Tensor


def empty(like: Tensor, size: list[int], order: list[int]) -> Tensor:
    """An empty dense tensor of `size` whose dimensions lie in memory in `order`, the slowest first."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return torch.empty([size[dim] for dim in order], dtype=like.dtype, device=like.device).permute(inverse)


def laid(value: Tensor, order: list[int]) -> Tensor:
    """A copy of `value` with its dimensions in `order`."""
    return empty(value, list(value.shape), order).copy_(value)
