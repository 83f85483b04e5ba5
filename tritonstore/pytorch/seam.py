"""Find the place in PyTorch that answers "which arguments does this kernel read and write?", and check it.

Two forms exist. They are told apart by what the module has, never by a version number:

* ``accesses`` (torch 2.13, 2.14): ``identify_accessed_tensors`` returns a ``TensorAccesses``;
  its walk is ``analyze_kernel_access``.
* ``mutations`` (torch 2.11): ``identify_mutated_tensors`` returns a list of written names;
  its walk is ``analyze_kernel_mutations``.

Nothing here changes PyTorch. `find` only looks, and names everything that is missing at once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Literal

from tritonstore.errors import SeamError

DEPENDENCIES = "torch._inductor.dependencies"

QUESTION = ("kernel", "kwargs", "tma_descriptor_metadata")
_FORMS: dict[Literal["accesses", "mutations"], tuple[str, str]] = {
    "accesses": ("identify_accessed_tensors", "analyze_kernel_access"),
    "mutations": ("identify_mutated_tensors", "analyze_kernel_mutations"),
}
_MEMBERS: dict[Any, tuple[str, ...]] = {
    "ReadWrites": ("reads", "writes", "index_exprs"),
    "StarDep": ("name", "mode"),
    "TensorAccesses": ("read_writes", "can_fuse_epilogue"),
}


@dataclasses.dataclass(frozen=True)
class Seam:
    """The names of one PyTorch's analysis. ``entry`` is what PyTorch calls, ``inner`` the walk inside it."""

    kind: Literal["accesses", "mutations"]
    module: Any
    entry: str
    inner: str
    generate: str = "generate_ttir"

    @property
    def observed(self) -> tuple[str, ...]:
        """The names that are wrapped to tell a success from PyTorch's failure path (see outcome.py)."""
        return (self.inner,) if self.kind == "accesses" else (self.inner, self.generate)


def find(module: Any) -> Seam:
    """The checked seam of `module`. Raises SeamError, naming all that is missing; changes nothing."""
    for kind, (entry, inner) in _FORMS.items():
        if hasattr(module, entry):
            seam = Seam(kind, module, entry, inner)
            break
    else:
        names = " or ".join(entry for entry, _ in _FORMS.values())
        raise _error(module, (names,))
    missing = tuple(_missing(seam))
    if missing:
        raise _error(module, missing)
    return seam


def dependency_types(module: Any) -> tuple[Any, Any]:
    """(ReadWrites, StarDep) of PyTorch, imported at the first answer because Inductor costs 0.8 s.

    Raises SeamError where their fields are not the known ones.
    """
    import importlib

    dependencies = importlib.import_module(DEPENDENCIES)
    missing = tuple(_missing_members(dependencies, "ReadWrites", "StarDep"))
    if missing:
        raise _error(module, missing)
    return dependencies.ReadWrites, dependencies.StarDep


def _error(module: Any, missing: tuple[str, ...]) -> SeamError:
    version = getattr(sys.modules.get("torch"), "__version__", "unknown")
    text = (
        f"this PyTorch ({version}) lacks what tritonstore needs in {getattr(module, '__name__', module)}: "
        f"{', '.join(missing)}. Nothing was changed; use a PyTorch that this tritonstore knows (2.11 to 2.14)"
    )
    return SeamError(text, missing=missing)


def _missing(seam: Seam) -> Iterator[str]:
    module = seam.module
    yield from _missing_question(module, seam.entry)
    yield from _missing_question(module, seam.generate)
    yield from _missing_walk(module, seam.inner)
    yield from _missing_walk(module, "get_tma_stores")
    if not _entry_uses(module, seam):
        yield f"{seam.entry} calling {seam.inner} and {seam.generate}"
    if seam.kind == "accesses":
        yield from _missing_members(module, "TensorAccesses")
        if not isinstance(getattr(module, "OrderedSet", None), type):
            yield "OrderedSet"
        yield from _missing_dependencies()


def _missing_question(module: Any, name: str) -> Iterator[str]:
    """`module.name` must take exactly the three known arguments: a fourth one could change answers."""
    function = getattr(module, name, None)
    if not callable(function):
        yield name
        return
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        yield f"{name}'s signature"
        return
    fixed = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    known = [p.name for p in fixed] == list(QUESTION)
    positional = all(p.kind is not p.KEYWORD_ONLY for p in fixed)
    # Another cache may have wrapped the function as (*args, **kwargs); that is fine.
    if not (positional and (known or (open_ended and not fixed))):
        yield f"{name}({', '.join(QUESTION)})"


def _missing_walk(module: Any, name: str) -> Iterator[str]:
    walk = getattr(module, name, None)
    if not callable(walk):
        yield name
    elif not callable(getattr(walk, "reset", None)):
        yield f"{name}.reset"


def _entry_uses(module: Any, seam: Seam) -> bool:
    """Whether PyTorch's own entry looks the wrapped names up in its module, so that a wrapper is seen."""
    entry = inspect.unwrap(getattr(module, seam.entry, None) or _entry_uses)
    if not isinstance(entry, FunctionType) or entry.__globals__ is not vars(module):
        return True  # another cache is in front: what it calls cannot be read off its code
    return {seam.inner, seam.generate} <= set(entry.__code__.co_names)


def _missing_members(module: Any, *names: str) -> Iterator[str]:
    for name in names:
        kind = getattr(module, name, None)
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            yield name
            continue
        fields = {field.name: field for field in dataclasses.fields(kind)}
        yield from (f"{name}.{member}" for member in _MEMBERS[name] if member not in fields)
        for field in fields.values():
            optional = (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
            if field.init and not optional and field.name not in _MEMBERS[name]:
                yield f"{name} without the unknown field {field.name}"


def _missing_dependencies() -> Iterator[str]:
    """Inductor's classes are checked at once where they are loaded; else only that the file is there."""
    loaded = sys.modules.get(DEPENDENCIES)
    if loaded is not None:
        yield from _missing_members(loaded, "ReadWrites", "StarDep")
    elif not _has_file("_inductor", "dependencies.py"):
        yield DEPENDENCIES


@functools.cache
def _has_file(*parts: str) -> bool:
    torch = sys.modules.get("torch")
    return any(os.path.isfile(os.path.join(p, *parts)) for p in getattr(torch, "__path__", ()))
