"""What this PyTorch, Triton and GPU are to tritonstore, as one JSON object: `python -m tritonstore.pytorch.probe`.

`doctor` runs this in a process of its own: importing torch takes seconds, and a broken driver can end a process.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from tritonstore.errors import Bypass, TritonStoreError
from tritonstore.pytorch import ANALYSIS_MODULE
from tritonstore.settings import Settings

__all__ = ["main", "probe"]


def probe(settings: Settings) -> dict[str, Any]:
    """The facts, each with what is wrong with it or "". Raises nothing for what it finds."""
    found: dict[str, Any] = {}
    for name, look in (("seam", _seam), ("target", _target), ("toolchain", _toolchain)):
        try:
            found[name] = {"value": look(settings), "problem": ""}
        except Bypass as error:
            found[name] = {"value": "", "problem": error.detail or error.reason}
        except Exception as error:
            text = str(error) if isinstance(error, TritonStoreError) else f"{type(error).__name__}: {error}"
            found[name] = {"value": "", "problem": text}
    return found


def _seam(settings: Settings) -> str:
    from tritonstore.pytorch import seam

    found = seam.find(importlib.import_module(ANALYSIS_MODULE))
    return f"{found.entry} in {ANALYSIS_MODULE}"


def _target(settings: Settings) -> str:
    from triton.runtime import driver

    from tritonstore.keys.target import target_part
    from tritonstore.pytorch.offline import DeclaredTarget

    if settings.target is not None:
        DeclaredTarget(settings.target, settings.prefer_target).ensure()
    detail = target_part().detail
    active = driver.active
    declared = getattr(active, "declared_by_tritonstore", False)
    shown = ":".join(str(detail[name]) for name in ("backend", "arch", "warp_size"))
    return f"{shown}, {'declared' if declared else f'from the driver {type(active).__name__}'}"


def _toolchain(settings: Settings) -> str:
    from tritonstore.keys.integrity import snapshot
    from tritonstore.keys.toolchain import toolchain

    detail = toolchain(snapshot()).detail
    return f"torch {detail['torch']}, triton {detail['triton']}, {detail['python']}"


def main() -> int:
    json.dump(probe(Settings.load()), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
