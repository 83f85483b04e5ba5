"""OPS: which TTIR operations PyTorch's analysis takes for reads and writes, where torch keeps a table of them.

From torch 2.14 on the table is open: ``register_kernel_access_op`` lets anybody add to it. Operations are identified by
the function that PyTorch's own file defines for them; a function from elsewhere makes every call bypass the store.
"""

from __future__ import annotations

import os
import types
from typing import Any

import torch._higher_order_ops.triton_kernel_wrap as analysis

from tritonstore.errors import Bypass
from tritonstore.keys.encoding import part_digest

_FILE = os.path.abspath(analysis.__file__)

# The table as it was, and the digest of it; compared on every call, since anybody may add to it at any time.
_known: tuple[dict[str, Any], str] | None = None


def ops_digest() -> str:
    """The digest of the OPS part now. Raises Bypass("access-ops")."""
    global _known
    # Not getattr: where there is none, that makes an exception, and its text, on every call.
    table: dict[str, Any] = vars(analysis).get("_KERNEL_ACCESS_OPS", _NONE)
    if _known is not None and table == _known[0]:
        return _known[1]
    copy = dict(table)
    entries = [(name, *_entry(name, copy[name])) for name in sorted(copy)]
    digest = part_digest("ops", entries)
    _details[digest] = {entry[0]: part_digest("op", entry)[:16] for entry in entries}
    _known = (copy, digest)
    return digest


def ops_detail(digest: str) -> dict[str, str]:
    """For each operation of the OPS part with this digest, a short digest of what the table says about it."""
    return dict(_details.get(digest, {}))


_NONE: dict[str, Any] = {}
_details: dict[str, dict[str, str]] = {}


def _entry(name: str, entry: Any) -> tuple[Any, ...]:
    known = {"read_indexes", "write_indexes", "is_tma_store", "ignore_if"}
    fields = set(getattr(entry, "__dataclass_fields__", ()))
    if fields != known:
        raise Bypass("access-ops", f"the access-op table describes {name} by {sorted(fields)}, not {sorted(known)}")
    return (
        _callable(name, entry.read_indexes),
        _callable(name, entry.write_indexes),
        bool(entry.is_tma_store),
        _callable(name, entry.ignore_if),
    )


def _callable(name: str, function: Any) -> Any:
    if function is None:
        return None
    if type(function) is not types.FunctionType or os.path.abspath(function.__code__.co_filename) != _FILE:
        raise Bypass("access-ops", f"the access op {name} was registered with a function from outside PyTorch")
    cells = []
    for cell in function.__closure__ or ():
        value = cell.cell_contents
        if type(value) is not tuple or any(type(index) is not int for index in value):
            raise Bypass("access-ops", f"the access op {name} was registered with {type(value).__name__} indexes")
        cells.append(value)
    # The file's content is in the toolchain, so a line of it says which function this is.
    return (function.__qualname__, function.__code__.co_firstlineno, tuple(cells))
