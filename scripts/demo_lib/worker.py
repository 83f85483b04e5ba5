"""One worker process of one run: exports its share of the methods and says what it measured.

Started by runs.py as `python -m demo_lib.worker JOB`, JOB a JSON object. It writes one JSON object a line to its
standard output; whatever else writes there goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from .exact_dict import cached, key
from .measure import Meter, seam_name, wrapper_module
from .methods import METHODS
from .target import TARGET, declare, gpu_available


def _end_with_parent() -> None:
    """Leave when the demo goes away: its end of our standard input closes even if it is killed."""

    def watch() -> None:
        while os.read(0, 1024):  # not through sys.stdin, whose lock would still be held at the interpreter's end
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def install(run: str, store: str | None) -> Meter:
    """Set up what the run is about, with the counting beneath it and on top of it."""
    if store is None:
        declare()
        meter = Meter((lambda *call: repr(key(*call))) if run == "exact-dict" else None)
        meter.count_analyses()
        if run == "exact-dict":
            module, name = wrapper_module(), seam_name()
            setattr(module, name, cached(getattr(module, name)))
    else:
        import tritonstore
        from tritonstore import keys

        meter = Meter(lambda *call: str(keys.call_key(*call).digest))
        meter.count_analyses()
        tritonstore.install(url=store, **({} if gpu_available() else {"target": TARGET}))
    meter.collect_failures()
    meter.count_calls()
    return meter


def _export(method: Any, job: dict[str, Any], meter: Meter) -> tuple[float, str]:
    """Seconds (without those of measuring) and text of one exported method."""
    import torch
    import torch._inductor

    from .graphs import Describer

    model, example, dynamic = method.build(job["layers"], job["device"], job["plain"])
    overhead, answers = meter.overhead, len(meter.answers)
    start = time.perf_counter()
    exported = torch.export.export(model, example, dynamic_shapes=dynamic)
    if job["plain"]:
        from .plain import replace

        replace(exported, stored=bool(job["store"]))
    opened = exported.run_decompositions({}, decompose_custom_triton_ops=True)
    if job["aoti"]:
        package = os.path.join(job["folder"], f"{method.name}.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=package)
    seconds = time.perf_counter() - start - (meter.overhead - overhead)
    text = Describer(job["root"]).program(opened)
    return seconds, text + "\n".join(json.dumps(answer) for answer in meter.answers[answers:])


def main(job: dict[str, Any]) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _end_with_parent()
    warnings.simplefilter("ignore")  # PyTorch's own notices say nothing about the demo

    def say(**event: Any) -> None:
        out.write(json.dumps(event) + "\n")

    meter = install(job["run"], os.environ["TRITONSTORE_URL"] if job["store"] else None)
    here = Path(__file__).resolve()
    if not here.is_relative_to(job["root"]):
        raise SystemExit(f"demo: {here} was to be loaded from {job['root']}")
    for method in METHODS:
        if method.name in job["methods"]:
            say(event="start", method=method.name)
            seconds, text = _export(method, job, meter)
            Path(job["folder"], f"{method.name}.txt").write_text(text)
            say(event="method", method=method.name, seconds=seconds)
    store = sys.modules.get("tritonstore") if job["store"] else None
    stats = store.stats() if store else {}
    say(
        event="done",
        calls=meter.calls,
        analyses=meter.analyses,
        analysis_seconds=meter.seconds,
        keys=sorted(meter.keys) if job["run"] != "pytorch" else None,
        tritonstore=store.__file__ if store else None,
        trouble={name: stats[name] for name in ("bypasses", "unproven", "faults") if stats.get(name)},
        failures=meter.failures,
        gpu=gpu_available(),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
