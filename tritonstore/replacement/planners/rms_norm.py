"""aten.rms_norm over the last dimension."""

from __future__ import annotations

import torch

from tritonstore.replacement.call import Call, static
from tritonstore.replacement.kernels.rms_norm import rms_norm
from tritonstore.replacement.planners.common import WORTH_IT, obstacle
from tritonstore.replacement.registry import Planner
from tritonstore.replacement.verdicts import Decision, optional, unsupported


def preflight(call: Call) -> Decision:
    x, weight = call.value("input"), call.value("weight")
    if len(call.arguments["normalized_shape"]) != 1:
        return unsupported("the kernel norms over the last dimension only")
    why = obstacle(call, input=x, weight=weight)
    if why:
        return unsupported(why)
    if static(x.shape[-1]) is None:
        return unsupported("the length of the rows is open, and the kernel's block depends on it")
    eps = call.arguments["eps"]
    # As ATen: the epsilon of the type that it computes in, which for the half types is float32's.
    eps = torch.finfo(torch.float32).eps if eps is None else float(eps)
    return optional(WORTH_IT, rms_norm._opoverload, call.arguments["input"], call.arguments["weight"], eps)


PLANNER = Planner("rms_norm", ("aten.rms_norm.default",), preflight)
