"""aten.convolution: the one-dimensional depthwise causal one. All others are UNSUPPORTED."""

from __future__ import annotations

from typing import Any

from tritonstore.replacement.call import Call, order, same, static
from tritonstore.replacement.kernels.conv1d import conv1d
from tritonstore.replacement.planners.common import WORTH_IT, obstacle
from tritonstore.replacement.registry import Planner
from tritonstore.replacement.verdicts import Decision, optional, unsupported

WIDTHS = (2, 3, 4)


def _numbers(value: Any) -> list[int | None]:
    return [static(item) for item in (value if isinstance(value, (list, tuple)) else [value])]


def _shape(call: Call) -> str | None:
    """Why the call is not a depthwise causal convolution in one dimension; None if it is."""
    x, weight = call.value("input"), call.value("weight")
    if weight.dim() != 3 or x.dim() != 3:
        return "the kernel convolves (batch, channels, length)"
    if call.arguments.get("transposed"):
        return "the kernel knows no transposed convolution"
    if not same(call.value("groups"), x.shape[1]) or not same(weight.shape[0], x.shape[1]):
        return "not depthwise: groups and filters must be as many as the channels"
    if _numbers(call.value("stride")) != [1] or _numbers(call.value("dilation")) != [1]:
        return "the kernel's stride and dilation are 1"
    width = static(weight.shape[2])
    if width not in WIDTHS:
        return f"the kernel's widths are {', '.join(map(str, WIDTHS))}, not {width}"
    if isinstance(call.arguments["padding"], str) or _numbers(call.value("padding")) not in ([0], [width - 1]):
        return "not causal: padding must be width - 1 (of which the caller drops the end), or 0"
    return None


def preflight(call: Call) -> Decision:
    x, weight, bias = call.value("input"), call.value("weight"), call.value("bias")
    why = _shape(call) or obstacle(call, input=x, weight=weight, bias=bias)
    if why:
        return unsupported(why)
    laid = order(call.output)
    if laid is None:
        return unsupported("the output is not dense")
    (padding,) = _numbers(call.value("padding"))
    operands = (call.arguments[name] for name in ("input", "weight", "bias"))
    return optional(WORTH_IT, conv1d._opoverload, *operands, padding, laid)


PLANNER = Planner(
    "conv1d",
    (
        "aten.convolution.default",
        *(f"aten.conv{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "padding")),
    ),
    preflight,
)
