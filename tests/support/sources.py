"""Modules made of source text, as notebooks and code generators make them: executed, and readable through linecache."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

_NUMBERS = itertools.count()
_HEADER = "import triton\nimport triton.language as tl\n"

Namespace = dict[str, Any]


def load(
    source: str, *, module: str = "kernels_under_test", path: str | None = None, given: Namespace | None = None
) -> Namespace:
    """Execute the source after `import triton, triton.language as tl` and return its globals.

    `path` is the file name its code claims (default: a fresh one, in angle brackets, that never exists on disk);
    `given` are globals it finds there already."""
    text = _HEADER + textwrap.dedent(source)
    path = path or f"<kernels-under-test-{next(_NUMBERS)}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    namespace: Namespace = {"__name__": module, **(given or {})}
    # Otherwise the text would inherit this file's `annotations` import, and every annotation be a string.
    exec(compile(text, path, "exec", dont_inherit=True), namespace)
    return namespace
