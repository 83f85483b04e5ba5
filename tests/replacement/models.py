"""Models of plain ATen ops, and their inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Plain(nn.Module):
    """Each op that a shipped planner knows; a convolution that none does; a topk in the branches of a torch.cond."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.RMSNorm(256)
        self.mix = nn.Conv1d(256, 256, 4, groups=256, padding=3)
        self.dense = nn.Conv1d(256, 256, 1)
        self.project = nn.Linear(256, 512)

    def forward(self, x: Tensor) -> Any:
        batch, length = x.shape[:2]
        mixed = self.dense(self.mix(self.norm(x).transpose(1, 2))[..., :length]).transpose(1, 2)
        q, k, v = self.project(mixed).split([256, 128, 128], dim=-1)
        q, k, v = (part.reshape(batch, length, -1, 64).transpose(1, 2) for part in (q, k, v))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        out = seen.transpose(1, 2).reshape(batch, length, -1) + x
        top = torch.cond(
            out.sum() > 0,
            lambda y: y.topk(8).values,
            lambda y: y.topk(8, largest=False).values,
            (out,),
        )
        return out, top, out.topk(5).indices


def example(length: int = 9) -> tuple[Tensor]:
    generator = torch.Generator().manual_seed(length)
    return (torch.randn(2, length, 256, generator=generator),)


def length() -> Any:
    return torch.export.Dim("length", min=5, max=128)
