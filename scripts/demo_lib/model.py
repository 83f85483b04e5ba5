"""A small Llama-style decoder with a static key/value cache."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import ops

DIM, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB, CACHE, TOP_K, EPS = 128, 4, 2, 32, 344, 512, 160, 8, 1e-5


class Layer(nn.Module):
    def __init__(self, batch: int) -> None:
        super().__init__()
        self.attention_norm = nn.Parameter(torch.ones(DIM))
        self.ffn_norm = nn.Parameter(torch.ones(DIM))
        self.qkv = nn.Linear(DIM, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
        self.gate = nn.Linear(DIM, INNER, bias=False)
        self.up = nn.Linear(DIM, INNER, bias=False)
        self.down = nn.Linear(INNER, DIM, bias=False)
        self.register_buffer("k_cache", torch.zeros(batch, KV_HEADS, CACHE, HEAD_DIM))
        self.register_buffer("v_cache", torch.zeros(batch, KV_HEADS, CACHE, HEAD_DIM))

    def forward(
        self, x: Tensor, residual: Tensor | None, positions: Tensor, cos: Tensor, sin: Tensor, block: int
    ) -> tuple[Tensor, Tensor]:
        if residual is None:
            h, residual = ops.rms_norm(x, self.attention_norm, EPS), x
        else:
            h, residual = ops.add_rms_norm(x, residual, self.attention_norm, EPS)
        q, k, v = self.qkv(h).split([HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM], dim=-1)
        batch, length = x.shape[:2]
        q, k = ops.rope(
            q.reshape(batch, length, HEADS, HEAD_DIM), k.reshape(batch, length, KV_HEADS, HEAD_DIM), cos, sin
        )
        self.k_cache.index_copy_(2, positions, k.transpose(1, 2))
        self.v_cache.index_copy_(2, positions, v.reshape(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2))
        h = ops.attention(q, self.k_cache, self.v_cache, positions, block).reshape(batch, length, -1)
        h, residual = ops.add_rms_norm(self.out(h), residual, self.ffn_norm, EPS)
        return self.down(ops.swiglu(self.gate(h), self.up(h))), residual


class Decoder(nn.Module):
    """tokens (batch, length), positions (length) -> the TOP_K most likely next tokens and their probabilities."""

    def __init__(self, layers: int, batch: int, block: int) -> None:
        super().__init__()
        self.block = block
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer(batch) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(DIM))
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        turns = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = torch.outer(torch.arange(CACHE), torch.cat([turns, turns]))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[positions].unsqueeze(0), self.sin[positions].unsqueeze(0)
        x, residual = self.embedding(tokens), None
        for layer in self.layers:
            x, residual = layer(x, residual, positions, cos, sin, self.block)
        assert residual is not None
        h, _ = ops.add_rms_norm(x, residual, self.norm, EPS)
        return ops.top_k(ops.softmax(self.head(h[:, -1])), TOP_K)
