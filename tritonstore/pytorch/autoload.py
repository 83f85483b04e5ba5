"""The `torch.backends` entry point: TRITONSTORE=1 installs the store in any process that imports torch.

PyTorch calls `activate` at the end of `import torch`, in every process, wanted or not. So it costs next to
nothing when not asked for, and never raises. When asked for it imports neither PyTorch's analysis (0.2 s) nor
Inductor (0.8 s): the analysis is patched at the moment PyTorch first imports it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# Nothing more at the top: this file is imported by every process that imports torch.
from tritonstore.pytorch import ANALYSIS_MODULE, artifacts


def activate() -> None:
    """Install the store where TRITONSTORE asks for it, now or when PyTorch first imports its analysis."""
    artifacts.register(load=False)  # asked for or not: else PyTorch could not load a bundle that carries entries
    if "TRITONSTORE" not in os.environ:  # settings.py decides the rest; importing it takes most of a millisecond
        return
    try:
        from tritonstore.settings import Settings, is_enabled, run_id

        if not is_enabled():
            return
        run_id()  # before the program starts workers, which then belong to the same run
        settings = Settings.load()  # a bad setting is said here, at the start, and not in the middle of an export
        if settings.prewarm:
            from tritonstore.recipes import ahead

            ahead.start(settings)
        module = sys.modules.get(ANALYSIS_MODULE)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _install()
        elif not any(isinstance(finder, Hook) for finder in sys.meta_path):
            sys.meta_path.insert(0, Hook())
    except Exception as error:
        _give_up(error)


def _install() -> None:
    """Install with the settings of the environment, unless the program has installed a store itself."""
    try:
        from tritonstore.pytorch.install import install_default

        install_default()
    except Exception as error:
        _give_up(error)


def _give_up(error: Exception) -> None:
    from tritonstore.pytorch.notice import notice

    notice(f"TRITONSTORE is set, but the store is not used: {type(error).__name__}: {error}")


class Hook:
    """A finder that sees the import of PyTorch's analysis, once, and leaves no trace on the module."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the other finders give, with a loader that tells when the module is complete."""
        if name != ANALYSIS_MODULE:
            return None
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec: Any = finder.find_spec(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = Loader(self, spec.loader)
                    return spec
        return None

    def remove(self) -> None:
        # A new list: taking an item out of the present one would make another thread, which walks over it in
        # an import of its own, skip a finder.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


class Loader:
    """Stands for the real loader until the module is executed; the module keeps the real one."""

    def __init__(self, hook: Hook, real: Any) -> None:
        self._hook = hook
        self._real = real

    def create_module(self, spec: Any) -> Any:
        create = getattr(self._real, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: Any) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)  # where it raises, the hook stays for the next attempt
        self._hook.remove()
        _install()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
