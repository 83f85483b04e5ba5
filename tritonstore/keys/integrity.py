"""Are Triton and PyTorch's analysis in memory what they are on disk? The toolchain names files, Python runs memory.

Libraries patch Triton at run time (a tensor method, ``tl.load``, a semantic rule). Such a patch changes answers without
changing a file. So every function, class and plain constant in the modules that code generation runs through is
identified by where it was defined; what comes from elsewhere makes every call bypass the store, and what Triton itself
holds in another arrangement (an alias moved, a constant changed) gives another digest. After the first look, each call
only asks whether a namespace was changed (``versions``), and compares them with a copy where one was.
"""

from __future__ import annotations

import operator
import os
import sys
import types
from itertools import chain
from typing import Any

import torch._higher_order_ops.triton_kernel_wrap as analysis
import triton
import triton._utils
import triton.backends
import triton.backends.compiler
import triton.compiler.code_generator
import triton.compiler.compiler
import triton.language as tl
import triton.language.core
import triton.language.extra
import triton.language.math
import triton.language.random
import triton.language.semantic
import triton.language.standard
import triton.language.target_info
import triton.runtime.jit
from triton.runtime.jit import JITCallable

from tritonstore.errors import Bypass
from tritonstore.keys.encoding import encode, packed_digest
from tritonstore.keys.members import TRITON_ROOT, functions_of, is_kind, member, own_object
from tritonstore.keys.versions import Versions

_OWN_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ANALYSIS_FILE = os.path.abspath(analysis.__file__)

# The backends that come with Triton; one from elsewhere makes a call bypass in target.py.
_BACKENDS = tuple(
    module
    for backend in triton.backends.backends.values()
    if (file := getattr(module := sys.modules[backend.compiler.__module__], "__file__", None))
    and os.path.abspath(file).startswith(TRITON_ROOT)
)

# What the backends take from there; the device libraries, two hundred names each, are looked at one by one. Triton
# makes some of these modules twice: what an import names is an attribute, and the other one stands in sys.modules.
_EXTRAS = tuple(
    module
    for backend in ("cuda", "hip")
    for held in (getattr(triton.language.extra, backend, None), sys.modules.get(f"triton.language.extra.{backend}"))
    for module in (held, *(getattr(held, part, None) for part in ("utils", "gdc")))
    if type(module) is types.ModuleType
)

_MODULES = (
    tl,
    triton.language.core,
    triton.language.semantic,
    triton.language.standard,
    triton.language.math,
    triton.language.random,
    triton.compiler.code_generator,
    triton.compiler.compiler,
    triton.runtime.jit,
    triton.language.target_info,
    triton.backends.compiler,
    triton._utils,
    *_BACKENDS,
    *_EXTRAS,
)

WATCHED = frozenset(module.__name__ for module in _MODULES)
"""The modules whose own members, and those of their classes, cannot change unseen."""

# PyTorch's generation and walk of the TTIR. Its entry is left out: other caches live there, and what they return is
# stored only if PyTorch's own walk is seen to have made it.
_ANALYSIS = (
    "generate_ttir",
    "ttir_to_functions",
    "get_tma_stores",
    "analyze_kernel_access",
    "analyze_kernel_mutations",
    "maybe_unpack_tma_stable_metadata",
    "Param",
    "Intermediate",
    "Op",
)

# Written by the interpreter or the import system; they say nothing about what the code does, and differ by path.
_WRITTEN = (
    "annotations builtins cached doc file loader name package path spec dict weakref module qualname slots "
    "firstlineno static_attributes annotate annotate_func annotations_cache classdictcell orig_bases parameters "
    "abstractmethods"
)
_IGNORED = frozenset({"_abc_impl", *(f"__{name}__" for name in _WRITTEN.split())})

# Filled as kernels are defined; code generation does not read it.
_GROWING = "_triton_jit_function_registry"


# What becomes of TTIR, and the launch: no part of an answer, and libraries patch them (attributes of a compiled kernel,
# hooks, records of what is launched).
_LATER = frozenset({"AsmDict", "CompiledKernel", "CompileTimer", "IRSource", "LazyDict"})
_LAUNCH = frozenset(
    f"triton.runtime.jit:{place}"
    for place in ("JITFunction.run", "JITFunction.warmup", "JITFunction.preload", "KernelInterface.__getitem__")
)


def _namespaces() -> tuple[tuple[str, Any], ...]:
    found: dict[str, Any] = {}
    for module in _MODULES:
        place = module.__name__
        while found.setdefault(place, module) is not module:
            place += "'"
        for value in vars(module).values():
            if is_kind(value, type) and value.__module__ == module.__name__ and value.__name__ not in _LATER:
                found[f"{value.__module__}:{value.__qualname__}"] = value
    return tuple(sorted(found.items()))


def watched_object(value: Any) -> str | None:
    """As `own_object`. Raises Bypass("value-type") for a function that reaches parts of Triton that nobody watches."""
    identity = own_object(value)
    if identity is not None and is_kind(value, JITCallable) and value.__module__ not in WATCHED:
        code = value.fn.__code__
        # One without names reaches nothing (triton.cdiv, triton.next_power_of_2).
        if code.co_names or code.co_freevars or any(type(each) is types.CodeType for each in code.co_consts):
            raise Bypass("value-type", f"{identity} is outside the parts of Triton that are watched for changes")
    return identity


class Snapshot:
    """A verified state of the namespaces: equal copies mean that nothing moved since. ``digest`` says what it is."""

    def __init__(self) -> None:
        self.namespaces = _namespaces()
        # Live views first: copying before looking means that a change in between is seen by the next call.
        self.copies: list[tuple[Any, Any]] = [(vars(owner), dict(vars(owner))) for _, owner in self.namespaces]
        self.analysis = tuple(map(vars(analysis).get, _ANALYSIS))
        members: list[Any] = [
            (name, _analysis_member(name, value)) for name, value in zip(_ANALYSIS, self.analysis, strict=True)
        ]
        functions = [own for value in self.analysis if (own := _analysis_function(value)) is not None]
        # The copies: what another thread changes meanwhile is seen by the next call, and no name is gone in between.
        for (owner_place, _), (_, namespace) in list(zip(self.namespaces, self.copies, strict=True)):
            for name in sorted(namespace):
                if name in _IGNORED:
                    continue
                value = namespace[name]
                place = f"{owner_place}.{name}"
                if place in _LAUNCH:
                    continue
                identity = member(place, value)
                if type(identity) is str:  # most of them: a function with nothing in it
                    members.append(f"{place}\0{identity}")
                    functions.append(value)
                    continue
                functions.extend(functions_of(value))
                if is_kind(value, (dict, list)) and not name.startswith("__") and name != _GROWING:
                    identity = self._table(place, value)
                if identity is not None:
                    members.append((place, identity))
        self.functions = list({id(each): each for each in functions}.values())
        self.insides = [_inside(each) for each in self.functions]
        self.digest = packed_digest("triton-in-memory", members)
        self._lists = [live for live, _ in self.copies if is_kind(live, list)]
        self._list_copies = [copy for live, copy in self.copies if is_kind(live, list)]
        self._versions = Versions([vars(analysis), *(live for live, _ in self.copies if not is_kind(live, list))])

    def _table(self, place: str, table: Any) -> Any:
        """A dict or list that code generation goes by can change without its name moving."""
        self.copies.append((table, table.copy()))
        if is_kind(table, dict):
            # In an order of its own: what was taken out and put back stands last, and is the same table.
            return sorted(((member(place, key), member(place, value)) for key, value in table.items()), key=encode)
        return [member(place, value) for value in table]

    def inside_holds(self) -> bool:
        """Whether no function was given other code or defaults in place. Asked once for each key."""
        now = chain.from_iterable(map(_inside, self.functions))
        return all(map(operator.is_, now, chain.from_iterable(self.insides)))

    def holds(self) -> bool:
        """Whether nothing was set, removed or replaced in the namespaces and tables."""
        now = self._versions.now()
        try:
            if self._versions.known(now):
                return self._lists == self._list_copies
            if not all(map(operator.is_, map(vars(analysis).get, _ANALYSIS), self.analysis)):
                return False
            for live, copy in self.copies:
                if live != copy:
                    return False
        except Exception:
            # A patched-in object whose comparison fails has changed the namespace all the same.
            return False
        self._versions.keep(now)
        return True


_inside = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")

_snapshot: Snapshot | None = None


def snapshot(deep: bool = False) -> Snapshot:
    """The verified state of Triton's front end in memory; the same object as long as nothing has moved.

    ``deep``: look into the functions, too, whose code somebody may have replaced in place.

    Raises Bypass("patched") naming a member that neither Triton nor the standard library defines.
    """
    global _snapshot
    known = _snapshot
    if known is None or not known.holds() or (deep and not known.inside_holds()):
        _snapshot = None
        known = _snapshot = Snapshot()
    return known


def _analysis_function(value: Any) -> types.FunctionType | None:
    """The Python function in what stands in PyTorch's module: there itself, or in our wrapper around it."""
    kind = type(value)
    if is_kind(value, types.FunctionType):
        if value.__code__.co_filename.startswith(_OWN_ROOT):
            value = getattr(value, "__wrapped__", None)
    elif kind is getattr(analysis, "MemoizeWithCycleCheck", None) or kind.__module__ == "tritonstore.pytorch.outcome":
        value = getattr(value, "fn", None)
    return value if is_kind(value, types.FunctionType) else None


def _analysis_member(name: str, value: Any) -> Any:
    """The identity of PyTorch's own function; None where this PyTorch has no such name. Raises Bypass("patched")."""
    if value is None:
        return None
    if is_kind(value, type) and (value.__module__, value.__qualname__) == (analysis.__name__, name):
        return ("class", name)
    function = _analysis_function(value)
    if function is not None and os.path.abspath(function.__code__.co_filename) == _ANALYSIS_FILE:
        return (function.__qualname__, function.__code__.co_firstlineno)
    raise Bypass("patched", f"{analysis.__name__}.{name} is not PyTorch's own")
