"""TARGET: for which GPU code is generated, and the options and switches that code generation reads.

PyTorch asks the active driver on every call, so a change of device, environment or knob between two calls counts. What
depends on the environment is worked out again whenever any environment variable or Triton knob has changed.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.backends
from triton import knobs
from triton.compiler.compiler import make_backend

from tritonstore.errors import Bypass
from tritonstore.keys.describe import listed
from tritonstore.keys.encoding import part_digest
from tritonstore.keys.members import TRITON_ROOT
from tritonstore.keys.values import Token, value_token
from tritonstore.keys.versions import Numbers, Versions

_mode_depth: Callable[[], int] = torch._C._len_torch_function_stack

# Options that a file path, a linker or the machine code decides; none reaches the TTIR's reads and writes.
_IRRELEVANT = frozenset({"extern_libs", "ir_override", "ptx_options", "ptx_version", "enable_fp_fusion"})


class TargetPart:
    """The part, in plain data that nobody may change, and the class and the names of the options of the backend."""

    __slots__ = ("backend", "detail", "digest", "option_names")

    def __init__(self, backend: type, digest: str, option_names: frozenset[str], detail: dict[str, Any]) -> None:
        self.backend = backend
        self.digest = digest
        self.option_names = option_names
        self.detail = detail


class _Memo:
    """The parts worked out so far under one state of environment and knobs."""

    def __init__(self, environment: Any) -> None:
        self._live_environment = environment
        self._live_knobs = _knob_states()
        self._environment = dict(environment)
        self._knobs = [dict(state) for state in self._live_knobs]
        self._versions = Versions([environment, *self._live_knobs])
        self.parts: dict[Any, TargetPart] = {}

    def moment(self) -> Numbers:
        """Other numbers once anything was changed, also where all is as before again."""
        return self._versions.now()

    def holds(self, environment: Any) -> bool:
        if environment is not self._live_environment:
            return False
        now = self._versions.now()
        if self._versions.known(now):
            return True
        if environment != self._environment or not all(map(operator.eq, self._live_knobs, self._knobs)):
            return False
        self._versions.keep(now)
        return True


def _environment() -> Any:
    # os.environ's own dictionary: going through os.environ decodes every variable.
    data = getattr(os.environ, "_data", None)
    return os.environ if data is None else data


_memo: _Memo | None = None


def target_part() -> TargetPart:
    """The TARGET part as PyTorch would see it now. Raises Bypass: no-target, backend, interpret, plugins, …"""
    global _memo
    memo, environment = _memo, _environment()
    if memo is None or not memo.holds(environment):
        memo = _memo = _Memo(environment)
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception as error:
        raise Bypass("no-target", f"no GPU driver is active and no target is declared: {error}") from error
    device = _default_device()
    slot = (target.backend, type(target.arch), target.arch, target.warp_size, device)
    part = memo.parts.get(slot)
    if part is not None and getattr(part.backend, "instrumentation", None) is not None:
        part = None  # which refuses it
    if part is None:
        moment = memo.moment()
        part = _build(target, device)
        # What another thread set meanwhile may be in the part, which must then not stand for the state before; not even
        # where it was put back.
        if memo.holds(environment) and memo.moment() == moment:
            memo.parts[slot] = part
    return part


def _knob_states() -> list[dict[str, Any]]:
    # The backends are no knobs, but as quickly replaced.
    groups = [triton.backends.backends, vars(knobs)]
    groups.extend(vars(group) for group in vars(knobs).values() if isinstance(group, knobs.base_knobs))
    return groups


def _default_device() -> str:
    # PyTorch makes small stand-in tensors on the default device; on some devices that fails.
    if not _mode_depth():
        return "cpu"
    try:
        return str(torch.get_default_device().type)
    except Exception as error:
        raise Bypass("no-target", f"the default device cannot be used: {error}") from error


def _build(target: Any, device: str) -> TargetPart:
    if os.environ.get("TRITON_PLUGIN_PATHS"):
        raise Bypass("plugins", "TRITON_PLUGIN_PATHS loads compiler plugins whose effect is unknown")
    if knobs.compilation.allow_non_constexpr_globals:
        raise Bypass("non-constexpr-globals", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS lets kernels read any global")
    if knobs.runtime.interpret:
        raise Bypass("interpret", "TRITON_INTERPRET is set, so kernels are not compiled")
    if type(target.backend) is not str or type(target.arch) not in (int, str) or type(target.warp_size) is not int:
        raise Bypass("backend", f"the driver's target is not a plain backend, arch and warp size: {target!r}")
    try:
        backend = make_backend(target)
        options = vars(backend.parse_options({}))
    except Exception as error:
        raise Bypass("backend", f"Triton has no backend for {target!r}: {error}") from error
    kind = type(backend)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    if not os.path.abspath(file).startswith(TRITON_ROOT):
        raise Bypass("backend", f"the backend {kind.__module__}.{kind.__qualname__} is not part of Triton")
    if getattr(kind, "instrumentation", None) is not None:
        raise Bypass("backend", f"the backend {kind.__qualname__} is instrumented")
    tokens = []
    for name in sorted(options):
        if name not in _IRRELEVANT:
            tokens.append((name, _option(name, options[name])))
    fp32 = knobs.language.fp32_default
    record = (target.backend, value_token(target.arch), target.warp_size, tokens, value_token(fp32), device)
    detail = {
        "backend": target.backend,
        "arch": target.arch,
        "warp_size": target.warp_size,
        "options": tokens,
        "fp32_default": fp32,
        "default_device": device,
    }
    return TargetPart(kind, part_digest("target", record), frozenset(options), listed(detail))


def _option(name: str, value: Any) -> Token:
    try:
        return value_token(value)
    except Bypass as error:
        raise Bypass("backend", f"the backend's option {name} is not a plain value") from error
