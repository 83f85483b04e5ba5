"""A kernel whose answer shows one condition: it writes x where the condition holds, y where it does not, and both
where code generation cannot tell."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.calls import Call
from tests.support.sources import load

SAME_NAME = """
@triton.jit
def cdiv(p, q):
    return p * 1.0
@triton.jit
def kernel(x, y):
    i = tl.program_id(0)
    tl.cdiv(i, i)
    if cdiv(i, i).dtype == tl.int32:
        tl.store(x, 1.0)
    else:
        tl.store(y, 1.0)
"""
"""A helper that is named as one of Triton's own."""


def switch(condition: str, parameters: str = "v", preamble: str = "") -> Any:
    """The kernel `kernel(x, y, <parameters>)`, defined after the preamble."""
    return load(switch_source(condition, parameters, preamble))["kernel"]


def switch_source(condition: str, parameters: str = "", preamble: str = "") -> str:
    """The text of such a kernel."""
    return (
        f"{preamble}\n@triton.jit\ndef kernel(x, y, {parameters}):\n"
        f"    if {condition}:\n        tl.store(x, 1.0)\n    else:\n        tl.store(y, 1.0)\n"
    )


def launch(kernel: Any, **others: Any) -> Call:
    """A call of the kernel with fresh tensors for x and y, and the other arguments as given."""
    return Call(kernel, {"x": torch.zeros(4), "y": torch.zeros(4), **others})
