"""One fresh process of one run on the GPU: exports methods as AOTInductor packages, loads them, and compares.

Started by __main__.py as `python -m gpu_lib.worker JOB`, JOB a JSON object. It writes one JSON object a line to its
standard output; whatever else writes there goes to standard error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

from demo_lib.measure import Meter
from demo_lib.methods import METHODS, Method
from demo_lib.worker import install

from . import load

CONFIGS = {
    # Host code; compiling it without optimisation takes a third of the time and changes no kernel.
    "aot_inductor.compile_wrapper_opt_level": "O0",
    # What a stopwatch chooses is not chosen alike twice: PyTorch alone would not generate the same code again.
    "deterministic": True,
    "triton.autotune_pointwise": False,
}
TEXT = (".cpp", ".h", ".json")
HASHED = re.compile(r"\b(?:[a-z0-9]{2}/)?([a-z0-9]{40,64})\b")
ARRAY = re.compile(r"^ *static constexpr int64_t (int_array_[0-9]+)\[\] = (\{[^}]*\});\n", re.MULTILINE)
NUMBERED = re.compile(r"\bint_array_[0-9]+\b")


def generated(package: Path) -> dict[str, str]:
    """What AOTInductor generated: each kernel binary by its digest, the wrapper code as text.

    Two runs of PyTorch alone differ in names that hold hashes of their folders, and in which equal arrays of numbers
    of the wrapper share a name; so the former are numbered and the latter stand where they are used.
    """
    found: dict[str, list[str]] = {}
    with zipfile.ZipFile(package) as archive:
        for member in archive.namelist():
            if member.endswith(TEXT):
                text = archive.read(member).decode(errors="replace").replace(str(package.parent), "FOLDER")
                found.setdefault(Path(member).suffix, []).append(_normal(text))
            elif member.endswith(".cubin"):
                found.setdefault("kernel binaries", []).append(hashlib.sha256(archive.read(member)).hexdigest())
    return {name: "\n".join(sorted(texts)) for name, texts in found.items()}


def _normal(text: str) -> str:
    names: dict[str, str] = {}
    text = HASHED.sub(lambda match: names.setdefault(match[1], f"name{len(names)}"), text)
    arrays = dict(ARRAY.findall(text))
    return NUMBERED.sub(lambda match: arrays.get(match[0], match[0]), ARRAY.sub("", text))


def export(method: Method, job: dict[str, Any], meter: Meter) -> dict[str, Any]:
    """Export one method and compile it; beside the package stay its inputs and eager PyTorch's numbers."""
    import torch
    import torch._inductor

    reference, example, dynamic = method.build(job["layers"], "cuda")
    with torch.no_grad():
        expected = reference(*example)
    model, example, dynamic = method.build(job["layers"], "cuda")
    package = Path(job["folder"], f"{method.name}.pt2")
    overhead = meter.overhead
    started = time.perf_counter()
    with torch.no_grad():
        exported = torch.export.export(model, example, dynamic_shapes=dynamic)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=CONFIGS)
    seconds = time.perf_counter() - started - (meter.overhead - overhead)
    Path(job["folder"], f"{method.name}.json").write_text(json.dumps(generated(package), indent=1))
    torch.save((example, expected), package.with_suffix(".pt"))
    return {"event": "method", "method": method.name, "seconds": seconds}


def main(job: dict[str, Any]) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    meter = install(job["run"], job["store"])
    for method in METHODS:
        if method.name in job["methods"]:
            out.write(json.dumps({"event": "start", "method": method.name}) + "\n")
            out.write(json.dumps(export(method, job, meter)) + "\n")
    packages = sorted(Path(job["folder"]).glob("*.pt2"))
    loads = {package.stem: loaded for package, loaded in zip(packages, load.apart(packages), strict=True)}
    for package in packages:
        package.unlink()
    store = sys.modules.get("tritonstore") if job["store"] else None
    stats = store.stats() if store else {}
    done = {
        "event": "done",
        "calls": meter.calls,
        "callers": dict(meter.callers),
        "loads": loads,
        "analyses": meter.analyses,
        "analysis_seconds": meter.seconds,
        "keys": sorted(meter.keys) if job["run"] not in ("pytorch", "again") else None,
        "trouble": {name: stats[name] for name in ("bypasses", "unproven", "faults") if stats.get(name)},
        "failures": meter.failures,
    }
    out.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
