"""Our entries in PyTorch's own bundle: `torch.compiler.save_cache_artifacts()` and `load_cache_artifacts()`.

Every entry that this process used or made is recorded as an artifact of the type ``tritonstore``; loading puts it into
the store of the process that loads, or, where none is switched on, is passed over. PyTorch refuses a bundle with a type
that it does not know as a whole, so the type is registered in every process that has this package installed. Where
PyTorch has no such bundles (or others than torch 2.11 to 2.14 have), nothing happens.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

__all__ = ["TYPE", "record", "register", "withdraw"]

TYPE = "tritonstore"
_CACHE = "torch.compiler._cache"
_log = logging.getLogger("tritonstore")


def register(load: bool = True) -> bool:
    """Make the type known to PyTorch, once; whether it is. Never raises.

    torch 2.13 has its module loaded by now. torch 2.11 loads it only at the first bundle, which takes 2 ms: too much
    for a process that has the store switched off, so without `load` nothing is done there.
    """
    try:
        cache: Any = importlib.import_module(_CACHE) if load else sys.modules[_CACHE]
        factory, base = cache.CacheArtifactFactory, cache.CacheArtifact
        if TYPE not in factory._artifact_types:
            factory.register(_artifact_class(base))
    except Exception as error:
        _log.debug("PyTorch's bundles do not carry entries: %s: %s", type(error).__name__, error)
        return False
    return True


def record(digest: str, data: bytes) -> None:
    """Let PyTorch's next bundle carry the entry `data`. A second time under one digest does nothing. Never raises."""
    cache: Any = sys.modules.get(_CACHE)
    try:
        cache.CacheArtifactManager.record_artifact(TYPE, digest, data)
    except Exception as error:
        _log.debug("PyTorch's bundle does not carry entry %s: %s", digest, error)


def withdraw(digest: str) -> None:
    """Let no later bundle of this process carry the entry `digest`, as far as it is not packed yet. Never raises."""
    cache: Any = sys.modules.get(_CACHE)
    try:
        waiting = cache.CacheArtifactManager._new_cache_artifacts.get(TYPE, [])
        waiting[:] = [artifact for artifact in waiting if artifact.key != digest]
    except Exception as error:
        _log.debug("PyTorch's bundle may carry entry %s: %s", digest, error)


def _artifact_class(base: Any) -> Any:
    class Artifact(base):  # type: ignore[misc]
        """An entry's digest (`key`) and its bytes (`content`)."""

        def populate_cache(self) -> None:
            # The other artifacts of the bundle are not ours to lose.
            try:
                _adopt(self.key, self.content)
            except Exception as error:
                _log.warning("an entry in PyTorch's bundle was left out: %s", error)

        @staticmethod
        def type() -> str:
            return TYPE

    return Artifact


def _adopt(digest: str, data: bytes) -> None:
    install: Any = sys.modules.get("tritonstore.pytorch.install")
    session = None if install is None else install.active()
    if session is not None:
        session.adopt(digest, data)
        return
    from tritonstore.settings import is_enabled

    if not is_enabled():
        _log.debug("entry %s of PyTorch's bundle was passed over: no store is switched on", digest)
        return
    from contextlib import closing

    from tritonstore.store import open_store

    with closing(open_store()) as store:
        store.adopt(digest, data)
