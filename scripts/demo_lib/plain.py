"""The demo's decoder in plain ATen ops, and the pass that brings Triton kernels into its exported program.

The pass takes the norms, the attention and the top-k; what it has no kernel for (the rotary embedding, SwiGLU, the
softmax of the head) stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .target import TARGET, gpu_available

DIM, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB, CACHE, TOP_K, EPS = 128, 4, 2, 64, 344, 512, 160, 8, 1e-5


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x is (batch, heads, length, head dimension)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, batch: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(DIM, EPS)
        self.ffn_norm = nn.RMSNorm(DIM, EPS)
        self.qkv = nn.Linear(DIM, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
        self.gate = nn.Linear(DIM, INNER, bias=False)
        self.up = nn.Linear(DIM, INNER, bias=False)
        self.down = nn.Linear(INNER, DIM, bias=False)
        self.register_buffer("k_cache", torch.zeros(batch, KV_HEADS, CACHE, HEAD_DIM))
        self.register_buffer("v_cache", torch.zeros(batch, KV_HEADS, CACHE, HEAD_DIM))

    def forward(self, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, seen: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        parts = self.qkv(self.attention_norm(x)).split([n * HEAD_DIM for n in (HEADS, KV_HEADS, KV_HEADS)], dim=-1)
        q, k, v = (part.reshape(batch, length, -1, HEAD_DIM).transpose(1, 2) for part in parts)
        self.k_cache.index_copy_(2, positions, rotated(k, cos, sin))
        self.v_cache.index_copy_(2, positions, v)
        h = functional.scaled_dot_product_attention(
            rotated(q, cos, sin), self.k_cache, self.v_cache, seen, enable_gqa=True
        )
        x = x + self.out(h.transpose(1, 2).reshape(batch, length, -1))
        h = self.ffn_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class PlainDecoder(nn.Module):
    """tokens (batch, length), positions (length) -> the TOP_K most likely next tokens and their probabilities."""

    def __init__(self, layers: int, batch: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer(batch) for _ in range(layers))
        self.norm = nn.RMSNorm(DIM, EPS)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        turns = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = torch.outer(torch.arange(CACHE), torch.cat([turns, turns]))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[positions], self.sin[positions]
        seen = torch.arange(CACHE, device=tokens.device) <= positions[:, None]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, positions, cos, sin, seen)
        values, indices = torch.topk(self.head(self.norm(x)[:, -1]).softmax(-1), TOP_K)
        return values, indices


def replace(exported: Any, stored: bool) -> None:
    """Bring the kernels in. The kernels' access is asked for like any other; without a store PyTorch answers."""
    from tritonstore import open_store, replacement

    # Switched off, a store passes every question on to PyTorch, or to the dict that stands before it.
    target = {} if gpu_available() else {"target": TARGET}
    store = None if stored else open_store("memory:", mode="off", **target)
    planned = replacement.plan(exported, store=store)
    applied = replacement.apply(planned)
    if len(applied.replaced) != len(planned.rows):
        raise SystemExit(f"demo: not every call was replaced\n{planned}")
