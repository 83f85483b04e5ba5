"""Recipe: a question that was asked once, as plain data that can cross a pipe."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from tritonstore.entry import Entry
from tritonstore.keys.encoding import encode
from tritonstore.runrecord import MissFacts

__all__ = ["Recipe", "of_entry", "of_miss", "question", "question_of"]

_LONGEST = 86400.0  # seconds that an analysis may have taken, to be believed


class Recipe(NamedTuple):
    """`arguments` holds ``[name, token, whether the caller's own dict held a tensor]`` in the kernel's order (see
    keys/arguments.py); `functions` the full names of the kernel and of the @triton.jit functions among its arguments;
    `target` is ``cuda:90:32``; `seconds` what PyTorch's analysis took; `digest`, `parts` and `access` are what is
    known of the old answer, `access` as [reads, writes, can_fuse_epilogue], None where only the question is known.
    """

    module: str
    name: str
    arguments: list[Any]
    functions: list[str]
    target: str
    seconds: float
    digest: str
    parts: dict[str, str]
    access: list[Any] | None = None

    @property
    def kernel(self) -> str:
        """For people."""
        return f"{self.module}.{self.name}"


def of_entry(entry: Entry) -> Recipe | None:
    """The recipe in an entry; None where its description lacks what is needed."""
    access = entry.access
    answer = [
        None if access.reads is None else list(access.reads),
        list(access.writes),
        access.can_fuse_epilogue,
    ]
    return _recipe(entry.detail, entry.digest, entry.parts, entry.provenance.seconds, answer)


def of_miss(miss: MissFacts) -> Recipe | None:
    """The recipe in what a run's record says of a miss; None where the record had no room for it."""
    return _recipe(miss.detail, miss.digest, miss.parts, miss.seconds, None)


def question(recipe: Recipe) -> bytes:
    """16 bytes that name what is asked, whatever the versions of torch, Triton and the kernel's source."""
    asked = [recipe.module, recipe.name, _plain(recipe.arguments), recipe.functions[1:], recipe.target]
    return hashlib.sha256(encode(asked)).digest()[:16]


def question_of(entry: Entry) -> bytes | None:
    """`question` of an entry's recipe; None where it holds none."""
    recipe = of_entry(entry)
    return None if recipe is None else question(recipe)


def _recipe(
    detail: dict[str, Any], digest: str, parts: dict[str, str], seconds: float, answer: list[Any] | None
) -> Recipe | None:
    kernel, arguments = _list(detail.get("kernel"), str), _list(detail.get("arguments"), list)
    code, target = _list(detail.get("code"), dict), _target(detail.get("target"))
    if len(kernel) != 2 or not code or target is None:
        return None
    for argument in arguments:
        if len(argument) != 3 or type(argument[0]) is not str or not _is_token(argument[1]):
            return None
    names = [node.get("name") for node in code]
    wanted = 1 + max(map(_last_function, arguments), default=0)
    if len(names) < wanted or not all(type(name) is str for name in names[:wanted]):
        return None
    seconds = seconds if 0.0 <= seconds < _LONGEST else 0.0  # somebody waits by it, and NaN is never over
    return Recipe(kernel[0], kernel[1], arguments, names[:wanted], target, seconds, digest, dict(parts), answer)


def _list(value: Any, kind: type) -> list[Any]:
    """`value` if it is a list of nothing but `kind`, else an empty one."""
    return value if type(value) is list and all(type(each) is kind for each in value) else []


def _is_token(token: Any) -> bool:
    return type(token) is list and bool(token) and type(token[0]) is str


def _target(part: Any) -> str | None:
    if type(part) is not dict:
        return None
    told = [part.get(name) for name in ("backend", "arch", "warp_size")]
    return ":".join(map(str, told)) if all(type(each) in (str, int) for each in told) else None


def _last_function(value: Any) -> int:
    """The highest position of a function that an argument's token speaks of."""
    if type(value) is not list:
        return 0
    if len(value) == 2 and value[0] == "jit" and type(value[1]) is int:
        return value[1]
    return max(map(_last_function, value), default=0)


def _plain(value: Any) -> Any:
    # An entry may hold numbers and maps in odd places; as text they are as good for telling questions apart.
    if type(value) is list:
        return [_plain(each) for each in value]
    return value if value is None or type(value) in (bool, int, str) else repr(value)
