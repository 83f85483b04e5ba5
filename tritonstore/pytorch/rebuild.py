"""Recipe → a kernel and arguments that ask the same question: the inverse of keys/arguments.py.

The law: for every call that has a key, ``call_key(*rebuild(recipe of its entry)) == call_key(the call)`` as long as
torch, Triton and the kernel's source are the same. Where they are not, the rebuilt call asks today's question.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import struct
import sys
from typing import Any

import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.runtime.jit import JITFunction

from tritonstore.keys.arguments import ELEMENTS
from tritonstore.recipes.recipe import Recipe

__all__ = ["NotRebuilt", "rebuild"]

_SCALARS: dict[str, Any] = {"i1": True, "i32": 2, "i64": 1 << 40, "u64": 1 << 63, "fp32": 0.5}
"""One value of each width; never 1, which Triton's own launch turns into a constant."""

_DTYPES = {name: dtype for dtype, name in reversed(ELEMENTS.items())}  # the first of those that share a name
_MAX_WRAPPERS = 8


class NotRebuilt(Exception):
    """A recipe that cannot be asked again here: `reason` is a short stable name, the text says what was found."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def rebuild(recipe: Recipe) -> tuple[Any, dict[str, Any]]:
    """The kernel, imported by its path, and keyword arguments for it. Imports the kernel's module.

    Raises NotRebuilt: main, local, import, gone, no-kernel, signature, value.
    """
    kernel = _function(recipe.module, recipe.name)
    arguments = {}
    configured = {}
    constexprs = {parameter.name: parameter.is_constexpr for parameter in kernel.params}
    names = [argument[0] for argument in recipe.arguments]
    if sorted(names) != sorted(constexprs):
        odd = ", ".join(sorted(set(names) ^ set(constexprs)))
        raise NotRebuilt("signature", f"its parameters are not those of the recorded call: {odd}")
    functions = _Functions(kernel, recipe.functions)
    for name, token, is_tensor in recipe.arguments:
        if constexprs[name] and token[0] in ("scalar", "pointer"):
            raise NotRebuilt("signature", f"{name} is a constexpr now, and its value is not on record")
        value = _argument(token, functions)
        arguments[name] = value
        if bool(is_tensor) != isinstance(value, torch.Tensor):
            # A configuration took the place of the caller's own value, and PyTorch looks at both.
            configured[name] = value
            arguments[name] = _tensor("*fp32") if is_tensor else None
    if configured:
        kernel = triton.autotune(configs=[triton.Config(configured)], key=[])(kernel)
    return kernel, arguments


class _Functions:
    """The @triton.jit functions that a token speaks of, by position; imported when they are asked for."""

    def __init__(self, kernel: Any, names: list[str]) -> None:
        self._found = {0: kernel}
        self._names = names

    def __getitem__(self, position: int) -> Any:
        if position not in self._found:
            self._found[position] = _by_full_name(self._names[position])
        return self._found[position]


def _function(module: str, name: str) -> Any:
    """The @triton.jit function of that name, out of its autotuners and heuristics."""
    if module == "__main__":
        raise NotRebuilt("main", "it is defined in the program itself (__main__), which has no import path")
    if "<locals>" in name:
        raise NotRebuilt("local", f"{name} is defined inside a function, which has no import path")
    found = _member(_module(module), name)
    for _ in range(_MAX_WRAPPERS):
        if type(found) is JITFunction:
            return found
        found = inspect.getattr_static(found, "fn", None)
    raise NotRebuilt("no-kernel", f"{module}.{name} is no @triton.jit function any more")


def _by_full_name(full_name: str) -> Any:
    """As `_function`; the name does not tell where the module ends, so the longest that can be imported counts."""
    parts = full_name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:end]), ".".join(parts[end:])
        if "<locals>" in module or (end > 1 and not _exists(module)):
            continue
        return _function(module, name)
    raise NotRebuilt("gone", f"there is no {full_name}")


def _exists(module: str) -> bool:
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # its parent is a class, or is not there
        return False


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may also end the program (SystemExit)
        missing = isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name))
        reason, text = ("gone", "there is no module") if missing else ("import", f"{_said(error)}, importing")
        raise NotRebuilt(reason, f"{text} {name}") from error


def _member(module: Any, name: str) -> Any:
    try:
        return operator.attrgetter(name)(module)
    except Exception as error:
        raise NotRebuilt("gone", f"there is no {name} in {module.__name__} ({module.__file__})") from error


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:  # a module's own exception, whose words are its own affair
        return type(error).__name__


def _argument(token: list[Any], functions: _Functions) -> Any:
    try:
        if token[0] == "pointer":
            return _tensor(token[1])
        if token[0] == "scalar":
            return _SCALARS[token[1]]
        if token[0] == "none":
            return None
        if token[0] in ("constexpr", "constant"):
            return _value(token[1], functions)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NotRebuilt("value", f"the recorded argument {token!r} has no value here ({_said(error)})") from error
    raise NotRebuilt("value", f"an argument of an unknown kind: {token[0]!r}")


def _tensor(name: str) -> Any:
    with FakeTensorMode():
        return torch.empty(1, dtype=_DTYPES[name])


def _value(token: list[Any], functions: _Functions) -> Any:
    """The inverse of keys.values.value_token. Raises what a token that is none makes Python raise."""
    kind, *rest = token
    if kind == "none":
        return None
    if kind in ("tuple", "list"):
        items = [_value(item, functions) for item in rest]
        return tuple(items) if kind == "tuple" else items
    if kind == "changed":
        held = tl.constexpr(_value(rest[1], functions))
        held.value = _value(rest[0], functions)
        return held
    if kind == "dtype" and rest[1:] == ["copy"]:
        return tl.dtype(rest[0])
    (given,) = rest
    if kind == "tl.constexpr":
        return tl.constexpr(_value(given, functions))
    if kind == "int":
        return int(given, 0) if isinstance(given, str) else int(given)
    if kind == "float":
        return struct.unpack(">d", bytes.fromhex(given))[0]
    if kind in ("bool", "str"):
        if type(given) is not {"bool": bool, "str": str}[kind]:
            raise TypeError(f"no {kind}")
        return given
    if kind == "dtype":
        return _dtype(tl, tl.dtype, given)
    if kind == "torch.dtype":
        return _dtype(torch, torch.dtype, given)
    if kind == "jit":
        return functions[given]
    if kind == "triton":
        return _own(given)
    raise ValueError(f"no kind of value: {kind!r}")


def _dtype(module: Any, kind: type, name: str) -> Any:
    found = next((each for each in vars(module).values() if type(each) is kind and _name_of(each) == name), None)
    if found is None:
        raise LookupError(f"no {kind.__name__} {name!r}")
    return found


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if type(dtype) is torch.dtype else str(dtype.name)


def _own(identity: str) -> Any:
    """One of Triton's own objects, by the place that keys/members.py gives it."""
    module, _, name = identity.partition(":")
    if module.partition(".")[0] != "triton":
        raise ValueError(f"{identity} is outside Triton")
    return operator.attrgetter(name)(importlib.import_module(module))
