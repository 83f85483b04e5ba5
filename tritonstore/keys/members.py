"""What one object of Triton's front end is: where it was made, as plain data, or a bypass where it is not Triton's.

The files are in the toolchain's digest, so a line of one of them is as good as a function's text.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITCallable

from tritonstore.errors import Bypass

TRITON_ROOT = os.path.dirname(os.path.abspath(triton.__file__)) + os.sep
STUBS = "triton.language.extra.libdevice"
"""The module of functions that stand for each backend's own."""

_STANDARD_ROOT = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_STANDARD = sys.stdlib_module_names | {"builtins", "typing_extensions"}


def is_kind(value: Any, kinds: Any) -> bool:
    """isinstance, without asking ``value.__class__``, which a mock answers as it likes."""
    return issubclass(type(value), kinds)


def member(place: str, value: Any) -> Any:
    """The identity of what stands at ``place``, as plain data; None where it is nothing that runs or is a constant.

    Raises Bypass("patched") for a class or callable that neither Triton nor the standard library defines.
    """
    kind = type(value)
    if kind is types.FunctionType:  # nine of ten, so first
        return _function(place, value)
    if is_kind(value, (staticmethod, classmethod)):
        return (type(value).__name__, member(place, value.__func__))
    if is_kind(value, property):
        return ("property", *(member(place, part) for part in (value.fget, value.fset, value.fdel)))
    if is_kind(value, functools.cached_property):
        return ("cached-property", member(place, value.func))
    if is_kind(value, JITCallable):
        # Its text can be replaced without touching the function that it was read from.
        read = "".join(value.raw_src)
        if not (read.endswith(value._src) or textwrap.dedent(read).endswith(value._src)):  # the second one is slow
            raise Bypass("patched", f"the text of {place} was replaced")
        return (type(value).__name__, member(place, value.fn))
    if is_kind(value, types.FunctionType):
        return _function(place, value)
    if is_kind(value, type):
        top = (value.__module__ or "").partition(".")[0]
        if top != "triton" and top not in _STANDARD:
            raise Bypass("patched", f"{place} is {value.__module__}.{value.__qualname__}, which is not Triton's")
        return ("class", value.__module__, value.__qualname__)
    if value is None or type(value) in (bool, int, float, str):
        return (type(value).__name__, value)
    if is_kind(value, types.BuiltinFunctionType):
        return ("builtin", str(value.__module__), value.__qualname__)
    if type(value) is tl.constexpr and type(value.value) in (bool, int, float, str):
        return ("constexpr", type(value.value).__name__, value.value)
    if type(value) is functools._lru_cache_wrapper:
        return ("cached", member(place, value.__wrapped__))
    if callable(value) and not _known_callable(value):
        raise Bypass("patched", f"{place} is a {type(value).__module__}.{type(value).__qualname__} from elsewhere")
    return None


def _function(place: str, function: types.FunctionType) -> Any:
    code = function.__code__
    where = _home(code.co_filename)
    if where is None and code.co_filename == "<string>" and re.fullmatch("__[a-z]+__", code.co_name):
        where = "generated"  # a method that a dataclass or namedtuple compiles from text of its own
    if where is None:
        raise Bypass("patched", f"{place} is a function of {code.co_filename}, which is not Triton's")
    line = code.co_firstlineno if where != "standard" else 0
    # One text for each of a thousand functions: encoding five atoms each would take most of this module's time.
    text = f"function\0{where}\0{line}\0{function.__module__}\0{function.__qualname__}"
    defaults, named = function.__defaults__, function.__kwdefaults__
    if not (function.__closure__ or defaults or named):
        return text
    held = (*_enclosed(function), *(defaults or ()), *(named or {}).values())
    return (text, *[member(place, value) for value in held]) if held else text


@functools.lru_cache(maxsize=1024)
def _home(file: str) -> str | None:
    """A file's name within Triton, "standard" for the standard library, None for any other."""
    try:
        path = os.path.abspath(file)
    except OSError:  # a relative path, and the working directory is gone
        path = file
    if path.startswith(TRITON_ROOT):
        return path.removeprefix(TRITON_ROOT).replace(os.sep, "/")
    standard = path.startswith(_STANDARD_ROOT) and "-packages" not in path
    return "standard" if standard or file.startswith("<frozen ") else None


def _enclosed(function: types.FunctionType) -> list[Any]:
    """The callables in a function's closure: Triton's builtins share one wrapper and differ by these."""
    found = []
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # it has none yet
            continue
        if callable(held):
            found.append(held)
    return found


def _known_callable(value: Any) -> bool:
    if is_kind(value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return True
    return (type(value).__module__ or "").partition(".")[0] in ("triton", "typing", "typing_extensions")


def own_object(value: Any) -> str | None:
    """ "module:qualified name" of an object that the Triton package defines and still holds there; else None.

    Raises Bypass("patched") where Triton holds it, but somebody has replaced what is in it.
    """
    if not is_kind(value, (JITCallable, types.FunctionType, type)):
        return None
    source = value.fn if is_kind(value, JITCallable) else value
    module = getattr(source, "__module__", None)
    name = getattr(source, "__qualname__", None)
    if type(module) is not str or type(name) is not str or not (module == "triton" or module.startswith("triton.")):
        return None
    held: Any = sys.modules.get(module)
    path = getattr(held, "__file__", None)
    if path is None or not os.path.abspath(path).startswith(TRITON_ROOT):
        return None
    for part in name.split("."):
        held = getattr(held, part, None)
    if held is not value:
        return None
    member(f"{module}.{name}", value)
    return f"{module}:{name}"


def native_enum(value: Any, name: str) -> str | None:
    """As `own_object`, of a member of an enum in Triton's library (``tl.PropagateNan.ALL``)."""
    if not is_kind(value, type) or type(value).__module__ != "pybind11_builtins":
        return None
    module, found = value.__module__, vars(value).get(name)
    if not str(module).startswith("triton._C.") or type(found) is not value or getattr(found, "name", None) != name:
        return None
    return f"{module}:{value.__qualname__}.{name}"


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The Python functions that a member runs: itself, or what it wraps."""
    if is_kind(value, types.FunctionType):
        yield value
        for enclosed in _enclosed(value):
            yield from functions_of(enclosed)
    elif is_kind(value, (staticmethod, classmethod)):
        yield from functions_of(value.__func__)
    elif is_kind(value, property):
        for part in (value.fget, value.fset, value.fdel):
            yield from functions_of(part)
    elif is_kind(value, JITCallable):
        yield from functions_of(value.fn)


def replaceable(value: Any) -> list[tuple[Any, str, Any]]:
    """(object, attribute, its present value): what could be replaced inside one of Triton's own objects."""
    if is_kind(value, JITCallable):
        return [(value, "_src", value._src), *replaceable(value.fn)]
    if is_kind(value, types.FunctionType):
        inner = [entry for enclosed in _enclosed(value) for entry in replaceable(enclosed)]
        return [(value, "__code__", value.__code__), *inner]
    return []
