"""ARGUMENTS: what the analysis can tell apart about the arguments of one launch, and nothing more.

PyTorch analyses without values: a tensor counts by its element type, a scalar by its type and width. Only constexpr
parameters count by value. Keeping the rest out is what makes one answer serve every shape (see docs/keys.md).
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
import torch._higher_order_ops.triton_kernel_wrap as analysis
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensor
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from tritonstore.errors import Bypass
from tritonstore.keys.values import Token, exact_token, value_token

# Triton's names of pointers by element type (triton._utils.type_canonicalisation_dict).
ELEMENTS: dict[torch.dtype, str] = {
    torch.uint8: "*u8",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint16: "*u16",
    torch.uint32: "*u32",
    torch.uint64: "*u64",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.float8_e5m2: "*fp8e5",
    torch.float8_e4m3fnuz: "*fp8e4b8",
    torch.float8_e5m2fnuz: "*fp8e5b16",
}


def _nested_code() -> Iterator[types.CodeType]:
    """The code of PyTorch's generation of TTIR and of the functions in it."""
    # Our own wrapper may stand around it (tritonstore.pytorch.outcome).
    pending = [inspect.unwrap(analysis.generate_ttir).__code__]
    while pending:
        code = pending.pop()
        yield code
        pending.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))


# torch 2.13 analyses a bool tensor as a uint8 tensor, 2.11 does not.
_BOOL_IS_UINT8 = any("*u8" in code.co_consts and ("*i1", "*u1") in code.co_consts for code in _nested_code())
ELEMENTS[torch.bool] = "*u8" if _BOOL_IS_UINT8 else "*i1"

# torch 2.11 makes every argument that is not a tensor a constant of the kernel, 2.13 only those that Triton's own
# launch makes one. A PyTorch that we do not know is treated as the former: too many keys, never a wrong one.
SCALARS_BY_TYPE = any(code.co_name == "_is_constexpr_or_none" for code in _nested_code())

_POINTERS: dict[torch.dtype, Token] = {dtype: ("pointer", name) for dtype, name in ELEMENTS.items()}

SYMBOL, TENSOR, STAND_IN, OTHER = "symbol", "tensor", "stand-in", "other"
_kinds: dict[type, str] = {}
_SYMBOL_VALUE = 2
"""What PyTorch puts in the place of every symbolic number (generate_ttir)."""


def kind_of(argument: Any) -> str:
    """How PyTorch treats arguments of this type; worked out once per type."""
    kind = type(argument)
    found = _kinds.get(kind)
    if found is None:
        if issubclass(kind, (torch.SymInt, torch.SymFloat, torch.SymBool, sympy.Expr)):
            found = SYMBOL
        elif kind is FakeTensor or kind is _tensor_box():
            # PyTorch makes a tensor of the same element type in its place.
            found = STAND_IN
        elif kind in (torch.Tensor, torch.nn.Parameter):
            found = TENSOR
        else:
            found = OTHER
        if found != OTHER or kind.__module__ != "torch._inductor.ir":
            _kinds[kind] = found
    return found


def _tensor_box() -> type | None:
    # Importing Inductor costs most of a second; before somebody has, there can be no TensorBox either.
    module = sys.modules.get("torch._inductor.ir")
    return getattr(module, "TensorBox", None)


def unwrap(kernel: Any) -> tuple[Any, dict[str, Any] | None]:
    """The JITFunction to be analysed, and the first configuration's arguments of an Autotuner (None: there is none).

    Raises Bypass("kernel-type", "kernel-repr").
    """
    config: dict[str, Any] | None = None
    if type(kernel) is not JITFunction:
        kernel, config = _unwrap_autotuner(kernel)
    if kernel._repr is not None:
        raise Bypass("kernel-repr", "the kernel has a repr= function, which may name it anything")
    return kernel, config


def _unwrap_autotuner(kernel: Any) -> tuple[Any, dict[str, Any] | None]:
    kind = type(kernel)
    if not isinstance(kernel, Autotuner):
        raise Bypass("kernel-type", f"a {kind.__module__}.{kind.__qualname__} is not a @triton.jit function")
    if "fn" not in vars(kernel) or "configs" not in vars(kernel) or _intercepts(kind):
        raise Bypass("kernel-type", f"{kind.__qualname__} computes its fn or configs")
    if type(kernel.fn) is not JITFunction:
        inner = type(kernel.fn).__qualname__
        raise Bypass("kernel-type", f"the autotuner wraps a {inner}, not a @triton.jit function")
    configs = kernel.configs
    if type(configs) is not list:
        raise Bypass("kernel-type", "the autotuner's configs are not a list")
    if not configs:
        return kernel.fn, None
    first = configs[0]
    if type(first) is not Config or type(first.kwargs) is not dict:
        raise Bypass("kernel-type", f"the autotuner's first config is a {type(first).__qualname__}")
    return kernel.fn, first.kwargs


def _intercepts(kind: type) -> bool:
    overridden: Any = kind.__getattribute__
    if overridden is not object.__getattribute__:
        return True
    return any(hasattr(getattr(kind, name, None), "__set__") for name in ("fn", "configs"))


def effective(
    kernel: Any, kwargs: dict[str, Any], config: dict[str, Any] | None, options: frozenset[str]
) -> dict[str, Any]:
    """The arguments as PyTorch will see them: configuration merged in, backend options taken out.

    Raises Bypass("argument-names") where PyTorch would refuse the call for their number.
    """
    merged = {**kwargs, **config} if config else kwargs
    if len(merged) == len(kernel.arg_names):
        return merged
    known = set(kernel.arg_names)
    merged = {name: value for name, value in merged.items() if name in known or name not in options}
    if len(merged) != len(kernel.arg_names):
        raise _wrong_names(kernel, merged)
    return merged


def _wrong_names(kernel: Any, arguments: dict[str, Any]) -> Bypass:
    odd = ", ".join(sorted(map(str, arguments.keys() ^ set(kernel.arg_names))))
    return Bypass("argument-names", f"the arguments are not the kernel's parameters: {odd}")


def popped(kernel: Any, kwargs: dict[str, Any], options: frozenset[str]) -> tuple[str, ...]:
    """The names that PyTorch removes from the caller's own dict for this plain kernel."""
    known = kernel.arg_names
    return tuple(name for name in kwargs if name not in known and name in options)


def argument_tokens(
    kernel: Any,
    arguments: dict[str, Any],
    metadata: dict[str, Any] | None,
    jit_token: Callable[[Any], Token],
) -> list[Token]:
    """One token for each parameter, in order.

    Raises Bypass: argument-names, argument-type, dtype, integer-range, value-type, tma.
    """
    tokens: list[Token] = []
    for parameter in kernel.params:
        name = parameter.name
        try:
            value = arguments[name]
        except KeyError:
            raise _wrong_names(kernel, arguments) from None
        kind = type(value)
        if metadata and _is_stable(metadata.get(name)) and kind_of(value) != SYMBOL:
            raise Bypass("tma", f"{name} is a host-side TMA descriptor, whose answer depends on the machine")
        if parameter.is_constexpr:
            if kind is not int and kind_of(value) == SYMBOL:
                value = _SYMBOL_VALUE
            tokens.append(("constexpr", _given_token(value, jit_token)))
        elif kind is FakeTensor:
            tokens.append(_pointer(name, value))
        else:
            token = _scalar_or_tensor(name, value, kind)
            if not SCALARS_BY_TYPE and token[0] != "pointer":
                token = _constant(parameter, value)
            tokens.append(token)
    return tokens


def _given_token(value: Any, jit_token: Callable[[Any], Token] | None = None) -> Token:
    """A number and a ``tl.constexpr`` of it are one question. A text is not: PyTorch reads a bare one as a hint."""
    number = type(value) is tl.constexpr and type(value.value) in (bool, int, float)
    return value_token(value, jit_token) if number else exact_token(value, jit_token)


def _constant(parameter: Any, value: Any) -> Token:
    """The token of a scalar whose value PyTorch hands to the kernel as a constant."""
    held = _given_token(_SYMBOL_VALUE if kind_of(value) == SYMBOL else value)
    # Triton's hints about the number (divisible by 16) go with the constant, and can make generation fail.
    hints = (bool(parameter.do_not_specialize), bool(parameter.do_not_specialize_on_alignment), parameter.is_const)
    return ("constant", held, *hints)


def _scalar_or_tensor(name: str, value: Any, kind: type) -> Token:
    if kind is int:
        if -(2**31) <= value < 2**31:
            return _I32
        if -(2**63) <= value < 2**63:
            return _I64
        if 2**63 <= value < 2**64:
            return _U64
        raise Bypass("integer-range", f"{name} does not fit 64 bits")
    if kind is float:
        return _FP32
    if value is None:
        return _NONE
    if kind is bool:
        return _I1
    family = kind_of(value)
    if family == SYMBOL:
        return _I32
    if family == STAND_IN:
        return _pointer(name, value)
    if family == TENSOR:
        try:
            value.data_ptr()
        except Exception as error:
            raise Bypass("argument-type", f"{name} is a tensor without a data pointer") from error
        return _pointer(name, value)
    raise Bypass("argument-type", f"{name} is a {kind.__module__}.{kind.__qualname__}")


_I1, _I32, _I64, _U64, _FP32 = (("scalar", name) for name in ("i1", "i32", "i64", "u64", "fp32"))
_NONE: Token = ("none",)


def _pointer(name: str, tensor: Any) -> Token:
    token = _POINTERS.get(tensor.dtype)
    if token is None:
        raise Bypass("dtype", f"{name} has the element type {tensor.dtype}, which Triton has no name for")
    return token


def _is_stable(metadata: Any) -> bool:
    return bool(metadata) and len(metadata) == 2 and metadata[0] == "stable"


def tensor_flags(tokens: list[Token], overridden: tuple[tuple[str, bool], ...], names: list[str]) -> list[bool]:
    """For each parameter, whether the caller's own dict holds a tensor under its name: PyTorch filters by that.

    Where no configuration took its place, exactly the arguments with a pointer's token are tensors.
    """
    other = dict(overridden)
    return [other.get(name, token[0] == "pointer") for name, token in zip(names, tokens, strict=True)]


def overridden(kwargs: dict[str, Any], config: dict[str, Any] | None) -> tuple[tuple[str, bool], ...]:
    """The arguments whose token is the configuration's, and whether the caller's own value is a tensor."""
    if not config:
        return ()
    box = _tensor_box()
    kinds = (torch.Tensor,) if box is None else (torch.Tensor, box)
    return tuple((name, isinstance(kwargs.get(name), kinds)) for name in sorted(config))
