"""tritonstore remembers which tensor arguments a user-written Triton kernel reads and writes.

`torch.export`, AOTInductor and `torch.compile` ask that question at every launch of a kernel, and PyTorch
answers it by generating the kernel's TTIR and walking it. This package answers it from a store, on disk and
across machines.

    install(store=None, **settings)    answer PyTorch from a store, in this process
    uninstall()                        make PyTorch what it was
    installed(...)                     the same for one `with` block
    open_store(url)                    open a store, to pass it on or to look into it
    stats()                            hits, misses and bypasses of this process
    prewarm(...)                       ask recorded questions again, before an export does
    keys.call_key(kernel, kwargs)      the key of one launch
    replacement.plan(program), .apply  put Triton kernels in the place of ATen ops in an exported program
    TritonStoreError                   the root of the errors; the tree stands in `tritonstore.errors`

The packages, each step of the way knowing only the next:

    errors, settings, counters, access   what everything else uses
    keys        what is being asked, exactly
    entry       envelope of a stored answer
    backends    bytes under a digest
    tiers       several backends as one
    flight      one analysis for each question
    store       look up, claim, publish
    journal     what this process asks; runrecord, leaving: the file that it leaves at its end
    pytorch     the only place that patches PyTorch
    replacement ATen ops of an exported program replaced by Triton ops
    recipes     stored questions, asked again: prewarm, verify --recompute
    maintenance, cli                     looking after stores and records, for people

Importing `tritonstore` imports neither torch nor triton, nor anything else that takes time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tritonstore.born import born

if TYPE_CHECKING:
    from tritonstore import keys, replacement
    from tritonstore.errors import TritonStoreError
    from tritonstore.pytorch.install import install, installed, stats, uninstall
    from tritonstore.recipes.prewarm import prewarm
    from tritonstore.store import open_store

__version__ = "0.1.0"

# When a process first loaded this package, which the entry point does at the end of `import torch`. Its forked
# children inherit it along with the code of that moment (see keys/filestat.py).
LOADED = born()

__all__ = [
    "TritonStoreError",
    "install",
    "installed",
    "keys",
    "open_store",
    "prewarm",
    "replacement",
    "stats",
    "uninstall",
]

_HOMES = {
    "TritonStoreError": "tritonstore.errors",
    "install": "tritonstore.pytorch.install",
    "installed": "tritonstore.pytorch.install",
    "open_store": "tritonstore.store",
    "prewarm": "tritonstore.recipes.prewarm",
    "stats": "tritonstore.pytorch.install",
    "uninstall": "tritonstore.pytorch.install",
}


def __getattr__(name: str) -> Any:
    if name in ("keys", "replacement"):
        return import_module(f"tritonstore.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tritonstore' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
