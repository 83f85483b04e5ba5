"""aten.scaled_dot_product_attention: GQA, causal, mask; head dimensions 64 and 128."""

from __future__ import annotations

import math

import torch

from tritonstore.replacement.call import Call, order, same, static
from tritonstore.replacement.kernels.sdpa import sdpa
from tritonstore.replacement.planners.common import WORTH_IT, obstacle, power_of_2
from tritonstore.replacement.registry import Planner
from tritonstore.replacement.verdicts import Decision, optional, unsupported

HEAD_DIMS = (64, 128)


def _shape(call: Call) -> str | None:
    """Why the kernel cannot compute the call; None if it can."""
    q, k, v, mask = (call.value(name) for name in ("query", "key", "value", "attn_mask"))
    if {q.dim(), k.dim(), v.dim()} != {4}:
        return "the kernel takes (batch, heads, length, head dimension)"
    dim = static(q.shape[3])
    if dim not in HEAD_DIMS or static(k.shape[3]) != dim or static(v.shape[3]) != dim:
        return f"the kernel's head dimensions are {HEAD_DIMS[0]} and {HEAD_DIMS[1]}, alike for query, key and value"
    if call.arguments["dropout_p"]:
        return "the kernel knows no dropout"
    if not (same(q.shape[0], k.shape[0]) and same(k.shape[:3], v.shape[:3])):
        return "batches of query, key and value, or lengths of key and value, differ or may differ"
    heads, kv_heads = static(q.shape[1]), static(k.shape[1])
    if heads is None or kv_heads is None:
        return "the number of heads is open"
    if heads != kv_heads and not (call.arguments["enable_gqa"] and heads % kv_heads == 0):
        return f"{heads} query heads cannot share {kv_heads} key heads without enable_gqa"
    if mask is None:
        return None
    if call.arguments["is_causal"]:
        return "PyTorch takes either a mask or is_causal"
    if mask.dtype not in (torch.bool, q.dtype):
        return "the mask is neither boolean nor of the query's type"
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])[4 - mask.dim() :]
    if mask.dim() > 4 or not all(same(size, 1) or same(size, n) for size, n in zip(mask.shape, wanted, strict=True)):
        return "the mask's shape does not broadcast to (batch, heads, queries, keys) for certain"
    return None


def preflight(call: Call) -> Decision:
    q, k, v = (call.value(name) for name in ("query", "key", "value"))
    why = _shape(call) or obstacle(call, query=q, key=k, value=v)
    if why:
        return unsupported(why)
    laid = order(call.output)
    if laid is None:
        return unsupported("the output is not dense")
    scale = call.arguments["scale"]
    scale = 1 / math.sqrt(int(q.shape[3])) if scale is None else float(scale)
    # Half of the registers and of the shared memory that float32 takes for as many queries.
    largest = 32 if q.dtype == torch.float32 else 64
    block = min(largest, max(16, power_of_2(static(q.shape[2]) or largest)))
    operands = [call.arguments[name] for name in ("query", "key", "value", "attn_mask")]
    return optional(WORTH_IT, sdpa._opoverload, *operands, bool(call.arguments["is_causal"]), scale, block, laid)


PLANNER = Planner("sdpa", ("aten.scaled_dot_product_attention.default",), preflight)
