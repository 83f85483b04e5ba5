"""Two described keys: which part and which field differ, in words. Imports neither torch nor triton.

A described key is plain data from an entry or a run record, so it may be damaged, made up, or from another version:
whatever it holds, `differences` names what it can tell and raises nothing. Where the digests of a part differ and the
description does not say why, one difference says just that.

    triton 3.7.1 → 3.8.0        target sm_80 → sm_90        BLOCK_N 64 → 128        x *fp16 → *fp32
    helper _rms changed         global SCALE 2 → 3 in kernel copy
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tritonstore.keys.diff_code import code_changes
from tritonstore.keys.words import as_list, as_map, change, show

__all__ = ["Described", "Difference", "differences"]


class Described(NamedTuple):
    """The part digests of a key, and what `CallKey.describe()` said of them."""

    parts: Mapping[str, str]
    detail: Mapping[str, Any]


class Difference(NamedTuple):
    """`part` is a key part's name, `field` what in it differs (``triton``, ``BLOCK_N``, ``SCALE``), `text` a phrase."""

    part: str
    field: str
    text: str


def differences(old: Described, new: Described) -> list[Difference]:
    """What differs from `old` to `new`, at least one for each part whose digests differ; empty for equal keys."""
    found: list[Difference] = []
    for part in dict.fromkeys([*old.parts, *new.parts]):
        if old.parts.get(part) == new.parts.get(part):
            continue
        explain = _EXPLAIN.get(part, _nothing)
        told = [Difference(part, field, text) for field, text in explain(as_map(old.detail), as_map(new.detail))]
        found += told or [Difference(part, part, _UNTOLD.get(part, f"the part {show(part)} changed"))]
    return found


_Told = Iterator[tuple[str, str]]

_UNTOLD = {
    "toolchain": "the toolchain (torch, triton or Python) changed",
    "target": "the target changed",
    "ops": "PyTorch's table of access operations changed",
    "arguments": "the arguments changed",
    "code": "the code changed",
}


def _nothing(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Told:
    yield from ()


def _toolchain(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Told:
    before, after = as_map(old.get("toolchain")), as_map(new.get("toolchain"))
    told = False
    for field in ("torch", "triton", "python"):
        if _differs(before, after, field):
            told = True
            yield field, f"{field} {change(before.get(field), after.get(field), plain=True)}"
    if not _differs(before, after, "torch") and (
        _differs(before, after, "torch_git") or _differs(before, after, "analysis")
    ):
        told = True
        files = _changed_names(as_map(before.get("analysis_files")), as_map(after.get("analysis_files")))
        if files:
            yield "analysis", f"the text of PyTorch's analysis changed: {', '.join(files)}"
        else:
            yield "torch_git", f"torch {_plain(after.get('torch'))} was built from another commit"
    if not _differs(before, after, "triton") and _differs(before, after, "triton_files"):
        told = True
        yield "triton_files", f"the files of triton {_plain(after.get('triton'))} changed"
    # Another version brings other objects along; alone it is a patch.
    if not told and _differs(before, after, "in_memory"):
        yield "in_memory", "Triton or PyTorch's analysis was rearranged in memory (a patch, or an alias that moved)"


def _target(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Told:
    before, after = as_map(old.get("target")), as_map(new.get("target"))
    moved = False
    if _differs(before, after, "backend") or _differs(before, after, "arch"):
        moved = True
        same = before.get("backend") == after.get("backend")
        yield "target", f"target {_arrow(_place(before, not same), _place(after, not same))}"
    if _differs(before, after, "warp_size"):
        yield "warp_size", f"warp size {change(before.get('warp_size'), after.get('warp_size'))}"
    if not moved:
        ours, theirs = _pairs(before.get("options")), _pairs(after.get("options"))
        for name in _changed_names(ours, theirs):
            yield name, f"option {name} {change(ours.get(name), theirs.get(name))}"
    if _differs(before, after, "fp32_default"):
        values = change(before.get("fp32_default"), after.get("fp32_default"), unset=True)
        yield "fp32_default", f"TRITON_F32_DEFAULT {values}"
    if _differs(before, after, "default_device"):
        yield (
            "default_device",
            f"default device {change(before.get('default_device'), after.get('default_device'), plain=True)}",
        )


def _place(target: Mapping[str, Any], with_backend: bool) -> str:
    backend, arch = target.get("backend"), target.get("arch")
    shown = f"sm_{arch}" if backend == "cuda" and type(arch) is int else _plain(arch)
    return f"{_plain(backend)} {shown}" if with_backend else shown


def _ops(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Told:
    for name in _changed_names(as_map(old.get("ops")), as_map(new.get("ops"))):
        yield name, f"PyTorch's table of access operations changed for {name}"


def _arguments(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Told:
    before, after = _named(old.get("arguments")), _named(new.get("arguments"))
    for name in dict.fromkeys([*before, *after]):
        ours, theirs = before.get(name), after.get(name)
        if theirs is None:
            yield name, f"parameter {name} is gone"
        elif ours is None:
            yield name, f"parameter {name} is new"
        elif _bare(ours[0]) != _bare(theirs[0]):
            yield name, f"{name} {change(ours[0], theirs[0])}"
        elif ours[1:] != theirs[1:]:
            yield name, f"{name}: the caller's value {'is now' if theirs[1:] == [True] else 'is no longer'} a tensor"
    if [*before] != [*after] and {*before} == {*after}:
        yield "order", "the parameters stand in another order"


def _bare(token: Any) -> Any:
    """A function that is handed over is told by its code, not by its place among the functions."""
    return (
        ["jit"] if as_list(token)[:1] == ["jit"] else [_bare(item) for item in token] if type(token) is list else token
    )


def _code(old: Mapping[str, Any], new: Mapping[str, Any]) -> _Told:
    handed = [(name, as_list(token)) for name, rest in _named(new.get("arguments")).items() for token in rest[:1]]
    yield from code_changes(as_list(old.get("code")), as_list(new.get("code")), handed)


_EXPLAIN = {"toolchain": _toolchain, "target": _target, "ops": _ops, "arguments": _arguments, "code": _code}


def _named(arguments: Any) -> dict[str, list[Any]]:
    """parameter → [token, is a tensor]"""
    return {str(as_list(each)[0]): as_list(each)[1:] for each in as_list(arguments) if len(as_list(each)) >= 2}


def _pairs(options: Any) -> dict[str, Any]:
    return {str(as_list(each)[0]): as_list(each)[1] for each in as_list(options) if len(as_list(each)) == 2}


def _differs(before: Mapping[str, Any], after: Mapping[str, Any], field: str) -> bool:
    ours, theirs = before.get(field), after.get(field)
    return type(ours) is not type(theirs) or ours != theirs


def _changed_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> Sequence[str]:
    return [name for name in dict.fromkeys([*before, *after]) if _differs(before, after, name)]


def _arrow(before: str, after: str) -> str:
    return f"{before} → {after}"


def _plain(value: Any) -> str:
    return value if type(value) is str else show(value)
