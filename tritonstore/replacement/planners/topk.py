"""aten.topk along the last dimension of rows of at most 4096 elements."""

from __future__ import annotations

from tritonstore.replacement.call import Call, bound, static
from tritonstore.replacement.kernels.topk import topk
from tritonstore.replacement.planners.common import WORTH_IT, obstacle, power_of_2
from tritonstore.replacement.registry import Planner
from tritonstore.replacement.verdicts import Decision, optional, unsupported

LONGEST = 4096


def preflight(call: Call) -> Decision:
    x = call.value("self")
    if x.dim() == 0 or call.arguments["dim"] not in (-1, x.dim() - 1):
        return unsupported("the kernel works along the last dimension only")
    why = obstacle(call, self=x)
    if why:
        return unsupported(why)
    longest = bound(x.shape[-1])
    if longest is None or longest > LONGEST:
        return unsupported(f"the kernel holds rows of at most {LONGEST} elements, these may have {longest or 'any'}")
    k = static(call.value("k"))
    if k is None or k < 1:
        return unsupported("k must be a number that is known at export, and not 0")
    # No smaller than k's own block, of which the kernel chooses.
    block = max(power_of_2(longest), 2)
    return optional(WORTH_IT, topk._opoverload, call.arguments["self"], k, bool(call.arguments["largest"]), block)


PLANNER = Planner("topk", ("aten.topk.default",), preflight)
