"""A declared target, so that a machine without a GPU can analyse kernels for one.

What PyTorch needs was found by running `torch.export.export` and `run_decompositions({},
decompose_custom_triton_ops=True)` over `triton_op` kernels, autotuned ones included, with a driver that
records what it is asked (torch 2.11 with Triton 3.6, torch 2.13 with Triton 3.7, no GPU): one method,
`get_current_target()`, twice for each analysis, from `generate_ttir` and nowhere else.
`torch.utils._triton.has_triton` looks at devices, not at the driver, so a declared target does not make
PyTorch believe that it can launch. An Autotuner asks for a benchmarker, and a launch for a device, only when
it runs; here both get an error that says what is going on.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, NoReturn

from tritonstore.errors import TritonStoreError
from tritonstore.forks import reset_in_children
from tritonstore.settings import Target


class DeclaredTargetError(TritonStoreError, AttributeError):
    """A real GPU was asked for where there is only a declared target. (hasattr needs an AttributeError.)"""


class DeclaredTarget:
    """Makes the target Triton's driver at the first `ensure()`, and takes it away again at `restore()`."""

    def __init__(self, target: Target, prefer: bool = False) -> None:
        self._target = target
        self._prefer = prefer
        self._settled = False
        self._driver: Any = None
        self._previous: Any = None
        self._after_fork()
        reset_in_children(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    @property
    def settled(self) -> bool:
        """Whether `ensure` has done its work."""
        return self._settled

    def ensure(self) -> None:
        """Make Triton use the target, unless there is a real driver (`prefer`: even then). Imports triton.

        Cheap after the first call. Raises what Triton raises where it cannot be imported.
        """
        if self._settled:
            return
        from triton.runtime import driver as config

        with self._lock:
            if self._settled:
                return
            if self._prefer or not _real_driver(config):
                self._driver = _driver_for(self._target)
                self._previous = config._active
                config.set_active(self._driver)
            self._settled = True

    def restore(self) -> None:
        """Leave Triton as `ensure` found it; does nothing where somebody has set another driver since."""
        with self._lock:
            module = sys.modules.get("triton.runtime.driver")
            if module is not None and self._driver is not None and module.driver._active is self._driver:
                module.driver.set_active(self._previous)
            self._driver = self._previous = None
            self._settled = False


def _real_driver(config: Any) -> bool:
    """Whether Triton has a driver without us. Asks as Triton itself would, without making one."""
    from triton.backends import backends

    if config._active is not None:
        return not getattr(config._active, "declared_by_tritonstore", False)
    return any(backend.driver.is_active() for backend in backends.values())


def _driver_for(target: Target) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    shown = ":".join(map(str, target))
    answer = GPUTarget(target.backend, target.arch, target.warp_size)  # frozen, so one will do

    def refuse(what: str) -> NoReturn:
        raise DeclaredTargetError(
            f"there is no GPU behind the declared target {shown}, so Triton's driver cannot give {what!r}. "
            "It serves to export and analyse kernels; to launch or tune one, use a machine with that GPU "
            "and unset TRITONSTORE_TARGET"
        )

    class DeclaredDriver(DriverBase):  # type: ignore[misc,no-any-unimported,unused-ignore]
        declared_by_tritonstore = True

        def __init__(self) -> None:
            """Nothing to open; a GPU driver's own __init__ would compile C code."""

        @classmethod
        def is_active(cls) -> bool:
            return False  # never to be picked by Triton itself

        def get_current_target(self) -> Any:
            return answer

        def map_python_to_cpp_type(self, ty: str) -> str:
            refuse("map_python_to_cpp_type")

        def get_active_torch_device(self) -> Any:
            refuse("get_active_torch_device")

        def get_benchmarker(self) -> Any:
            refuse("get_benchmarker")

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)  # what copy, pickle and inspect probe for
            refuse(name)

    # A Triton with another abstract method would refuse to make it; ours answers nothing but the target
    # anyway.
    DeclaredDriver.__abstractmethods__ = frozenset()
    return DeclaredDriver()
