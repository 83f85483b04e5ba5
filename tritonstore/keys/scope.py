"""How code generation would resolve the names that one function mentions.

A name is looked up among the locals, then in the capture scope (where a closure variable hides a global), then among
Triton's builtins. Each lookup leaves a token for the key and is watched, so that the record is read again when it would
go another way.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Protocol

import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.jit import JITCallable

from tritonstore.errors import Bypass
from tritonstore.keys.integrity import WATCHED
from tritonstore.keys.members import STUBS, native_enum
from tritonstore.keys.syntax import ANNOTATION, BODY, DEFAULT, Mention, Syntax
from tritonstore.keys.values import Token, is_frozen, is_tritons_dtype
from tritonstore.keys.watch import ABSENT, Watch

_BUILTIN_NAMES = frozenset(CodeGenerator.builtin_namespace)
_MARKS = ("__triton_builtin__", "__triton_aggregate__")
_FAILS: Token = ("lookup-fails",)
_TRITON_VALUE_MODULES = ("triton.language", "triton.experimental.gluon")


class Walk(Protocol):
    """What a scope needs of the walk over a kernel's functions."""

    watch: Watch
    handed: bool
    read_off: set[str]
    spells: bool
    builtin: bool

    def own(self, value: Any) -> Token | None: ...
    def value(self, value: Any) -> Token: ...
    def jit_token(self, function: Any) -> Token: ...


class Scope:
    """How code generation would resolve the names of one function."""

    def __init__(self, function: Any, syntax: Syntax, walk: Walk) -> None:
        self.walk = walk
        self.syntax = syntax
        self.globals: dict[str, Any] = function.__globals__
        closure = function.fn.__closure__ or ()
        self.cells = dict(zip(function.fn.__code__.co_freevars, closure, strict=True))

    def lookup(self, name: str) -> Any:
        """The value in the capture scope, where a closure variable hides a global; ABSENT where there is none."""
        cell = self.cells.get(name)
        if cell is not None:
            try:
                value = cell.cell_contents
            except ValueError as error:
                raise Bypass("source", f"the closure variable {name} has no value yet") from error
            self.walk.watch.cell(cell, value)
            return value
        value = self.globals.get(name, ABSENT)
        # An absent name is watched too: a global named like a builtin or a local may appear later.
        self.walk.watch.item(self.globals, name, value)
        return value

    def is_constexpr(self, names: tuple[str, ...]) -> bool:
        """Whether a dotted name of an annotation is ``tl.constexpr`` itself; Triton goes by its spelling elsewhere."""
        return self._named(names) is tl.constexpr

    def refuse_identity(self) -> None:
        """Of two equal numbers or texts it is chance whether they are one object; a dtype of Triton's there is once.

        Raises Bypass("identity").
        """
        uses = self.syntax.uses
        for sides in uses.same:
            free = [names for names in sides if names[0] not in self.syntax.bound and names[0] not in uses.stored]
            if not any(is_tritons_dtype(self._named(names)) for names in free):
                raise Bypass("identity", "two values are compared with `is`")

    def _named(self, names: tuple[str, ...]) -> Any:
        """What a dotted name stands for outside of the function; None where that is nothing."""
        value = self.lookup(names[0]) if names else None
        for name in names[1:]:
            value = vars(value).get(name) if type(value) is types.ModuleType else None
        return value

    def tokens(self, mention: Mention) -> list[Token]:
        value = self.lookup(mention.root)
        name, path = mention.root, mention.path
        uses = self.syntax.uses
        local = value is ABSENT or name in self.syntax.bound or name in uses.stored
        if local or type(value) is not types.ModuleType:
            self.walk.read_off.update(path)
        if name in uses.spelled and (local or not _is_plain(value)):
            self.walk.spells = True
        if value is ABSENT:
            # Elsewhere presence leaves a token and absence none; an annotation leaves one only where it fails.
            fails = mention.place == ANNOTATION and name not in _BUILTIN_NAMES
            return [(mention.place, (name, *path), _FAILS)] if fails else []
        out: list[Token] = []
        hidden = name in self.syntax.bound and mention.place == BODY
        if path and (hidden or not isinstance(value, types.ModuleType)):
            # The return checker reads the first attribute off the global even where a local hides the name.
            out.append((mention.place, (name, path[0]), ("has", self._has(value, path[0]))))
        if hidden:
            return out
        if isinstance(value, types.ModuleType):
            if not path:
                raise Bypass("module-value", f"the module {name} is used as a value")
            token = self._module_chain(mention, value)
        else:
            if path and isinstance(value, JITCallable):
                raise Bypass("jit-attribute", f"an attribute of the function {name} is read")
            token = self._name_token(name, value, mention.place)
        if token[0] == "jit" and (name, path) in uses.handed:
            self.walk.handed = True
        if token[0] == "triton" and (name, path) in uses.handed:
            self.walk.builtin |= isinstance(self._named((name, *path)), types.FunctionType)
        if mention.place == ANNOTATION and token != _FAILS:
            # Evaluated and thrown away; what it decides (constexpr or not) stands among the parameters.
            return out
        out.append((mention.place, (name, *path), token))
        return out

    def _has(self, owner: Any, attribute: str) -> bool:
        if isinstance(owner, types.ModuleType):
            return self._attribute(owner.__name__, owner, attribute) is not ABSENT
        return self.walk.watch.attribute(owner, attribute)

    def _attribute(self, trail: str, module: types.ModuleType, attribute: str) -> Any:
        """What a module's namespace holds under this name; ABSENT where reading it fails."""
        namespace = self._plain_module(trail, module)
        found = namespace.get(attribute, ABSENT)
        self.walk.watch.item(namespace, attribute, found)
        if found is ABSENT:
            if "__getattr__" in namespace:
                raise Bypass("lazy-module", f"{trail}.{attribute} is made on demand by its module")
            self.walk.watch.item(namespace, "__getattr__", ABSENT)  # from then on it is made on demand
        return found

    def _plain_module(self, name: str, module: types.ModuleType) -> dict[str, Any]:
        """The namespace of a module whose class has no say in what its attributes are."""
        if type(module) is not types.ModuleType:
            raise Bypass("lazy-module", f"{name} is a {type(module).__qualname__}, which makes attributes on demand")
        self.walk.watch.kind(module)
        namespace = vars(module)
        # By this name Triton puts the backend's own module in its place.
        called = namespace.get("__name__", ABSENT)
        self.walk.watch.item(namespace, "__name__", called)
        if called == STUBS and module is not sys.modules.get(STUBS):
            raise Bypass("patched", f"{name} is named {STUBS}, but is not Triton's")
        return namespace

    def _name_token(self, name: str, value: Any, place: str) -> Token:
        """As CodeGenerator's global lookup: what it lets pass is a value, all else fails when it is reached."""
        walk = self.walk
        kind = type(value)
        if value is None or kind in (tl.constexpr, tl.dtype):
            return walk.value(value)
        if isinstance(value, JITCallable):
            return walk.jit_token(value)
        own = walk.own(value)
        if own is not None:
            return own
        if getattr(value, "__triton_builtin__", False) or getattr(value, "__triton_aggregate__", False):
            raise Bypass("value-type", f"{name} is a Triton builtin or aggregate defined outside Triton")
        module = getattr(value, "__module__", "")
        if isinstance(module, str) and module.startswith(_TRITON_VALUE_MODULES):
            raise Bypass("value-type", f"{name} claims to be part of {module} but is not what that module holds")
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            raise Bypass("value-type", f"{name} is a namedtuple class")
        if isinstance(value, (tl.constexpr, tl.dtype)):
            raise Bypass("value-type", f"{name} is a {kind.__module__}.{kind.__qualname__}")
        if name in _BUILTIN_NAMES or place == DEFAULT:
            token = walk.value(value)
            # No tl.constexpr, which an f-string tells; a default by itself becomes one.
            return ("bare", token) if place != DEFAULT or name in self.syntax.uses.spelled else token
        for mark in _MARKS:
            walk.watch.attribute(value, mark)  # with one of these it would no longer fail
        return _FAILS

    def _module_chain(self, mention: Mention, module: types.ModuleType) -> Token:
        """Follow ``module.a.b`` to the object that it names; plain values are allowed here, unlike in globals."""
        value: Any = module
        trail = mention.root
        for depth, attribute in enumerate(mention.path):
            value = self._attribute(trail, value, attribute)
            trail = f"{trail}.{attribute}"
            if value is ABSENT:
                return _FAILS
            if not isinstance(value, types.ModuleType):
                return self._leaf(trail, value, mention.path[depth + 1 :], mention.place)
        raise Bypass("module-value", f"the module {trail} is used as a value")

    def _leaf(self, trail: str, value: Any, rest: tuple[str, ...], place: str) -> Token:
        walk = self.walk
        if isinstance(value, JITCallable):
            if rest:
                raise Bypass("jit-attribute", f"an attribute of the function {trail} is read")
            return walk.jit_token(value)
        if place == ANNOTATION:
            # Reading it is all that happens to it, and that went well.
            return ("evaluated",)
        if len(rest) == 1 and (native := native_enum(value, rest[0])) is not None:
            walk.watch.member(value, rest[0])
            return ("triton", native)
        walk.read_off.update(rest)
        own = walk.own(value)
        if own is not None and rest and value.__module__ not in WATCHED:
            raise Bypass("value-type", f"an attribute of {trail} is read, which may change unseen")
        if own is not None:
            return own
        token = walk.value(value)
        return ("tl.constexpr", token) if type(value) is tl.constexpr else token


def _is_plain(value: Any) -> bool:
    return type(value) is tl.constexpr and is_frozen(value.value)
