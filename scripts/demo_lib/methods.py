"""The methods that the demo's decoder is exported as. The list itself needs no torch."""

from __future__ import annotations

from typing import Any, NamedTuple


class Method(NamedTuple):
    """One exported method; `dynamic` leaves the length open."""

    name: str
    batch: int
    length: int
    dynamic: bool = False

    def build(self, layers: int, device: str, plain: bool = False) -> tuple[Any, tuple[Any, Any], Any]:
        """The module, its example inputs and its dynamic shapes. The same method is the same model in each process."""
        import torch

        torch.manual_seed(0)
        model: Any
        if plain:
            from .plain import PlainDecoder

            model = PlainDecoder(layers, self.batch).to(device).eval()
        else:
            from .model import Decoder

            block = 64 if self.dynamic else min(64, max(16, 1 << (self.length - 1).bit_length()))
            model = Decoder(layers, self.batch, block).to(device).eval()
        tokens = torch.zeros(self.batch, self.length, dtype=torch.int64, device=device)
        positions = torch.arange(self.length, device=device)
        if not self.dynamic:
            return model, (tokens, positions), None
        length = torch.export.Dim("length", min=2, max=128)
        return model, (tokens, positions), ({1: length}, {0: length})


METHODS = (
    Method("decode", 1, 1),
    Method("decode_batch2", 2, 1),
    *(Method(f"prefill_{n}", 1, n) for n in (2, 4, 8, 16, 32, 64, 128)),
    Method("prefill_16_batch2", 2, 16),
    Method("prefill_64_batch2", 2, 64),
    Method("prefill_dynamic", 1, 48, dynamic=True),
)
