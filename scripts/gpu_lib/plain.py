"""A small model of plain ATen ops, each of which a shipped planner knows; and one convolution that none does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS, KV_HEADS, DIM = 4, 2, 64


class Plain(nn.Module):
    def __init__(self, attention: bool = True) -> None:
        super().__init__()
        self.attention = attention
        self.norm = nn.RMSNorm(HEADS * DIM)
        self.mix = nn.Conv1d(HEADS * DIM, HEADS * DIM, 4, groups=HEADS * DIM, padding=3)
        self.dense = nn.Conv1d(HEADS * DIM, HEADS * DIM, 1)
        self.project = nn.Linear(HEADS * DIM, (HEADS + 2 * KV_HEADS) * DIM)
        self.final = nn.RMSNorm(HEADS * DIM, eps=1e-5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, length, HEADS * DIM) -> what it becomes, and the 8 largest of each of its rows."""
        batch, length = x.shape[:2]
        mixed = self.dense(self.mix(self.norm(x).transpose(1, 2))[..., :length]).transpose(1, 2)
        q, k, v = self.project(mixed).split([HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM], dim=-1)
        q, k, v = (part.reshape(batch, length, -1, DIM).transpose(1, 2) for part in (q, k, v))
        seen = (
            functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) if self.attention else q
        )
        out = self.final(seen.transpose(1, 2).reshape(batch, length, -1) + x)
        return out, torch.topk(out, 8).values

    def example(self, device: str, dtype: torch.dtype, length: int = 70) -> tuple[Tensor]:
        generator = torch.Generator(device).manual_seed(length)
        return (torch.randn(2, length, HEADS * DIM, device=device, generator=generator).to(dtype),)

    def dynamic(self) -> Any:
        return ({1: torch.export.Dim("length", min=8, max=512)},)
