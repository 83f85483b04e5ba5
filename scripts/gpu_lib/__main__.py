"""The command `scripts/gpu`: AOTInductor exports on a real GPU, with PyTorch alone, a dict, a cold and a warm store."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from importlib.metadata import version
from pathlib import Path
from typing import Any

from demo_lib.methods import METHODS
from demo_lib.report import Progress, table
from demo_lib.target import gpu_available

from .checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
# PyTorch alone a second time: what differs there says nothing about a store.
RUNS = ("pytorch", "again", "exact-dict", "cold", "warm")
EXPECTED = ("functionalization", "mutation propagation", "lowering")
CHOSEN = ("decode", "prefill_4", "prefill_16", "prefill_64", "prefill_64_batch2", "prefill_dynamic")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="scripts/gpu",
        description="Export the demo's decoder to AOTInductor packages on this machine's GPU, in fresh processes: "
        "PyTorch alone, exact-argument dict, cold store, warm store. Compare the generated kernels and wrapper code, "
        "load each package and compare its numbers with eager PyTorch's; then check torch.compile, fork and TMA.",
        epilog="Exit code: 0 if all is as it must be, 1 if not, 2 if it cannot run here.",
    )
    result.add_argument("--layers", type=int, default=2, metavar="N", help="decoder layers (default 2)")
    result.add_argument("--methods", default=",".join(CHOSEN), metavar="NAMES", help="comma-separated methods")
    result.add_argument("--runs", default=",".join(RUNS), metavar="NAMES", help="fewer runs, and then no other checks")
    result.add_argument("--filled", metavar="FOLDER", help="also run from a store that was filled elsewhere")
    result.add_argument("--at-once", action="store_true", help="start runs that need not wait for each other together")
    result.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, too")
    return result


def run(
    name: str, store: str | None, arguments: argparse.Namespace, folder: Path, progress: Progress
) -> dict[str, Any]:
    """One run in one fresh process, with fresh caches of Triton and Inductor."""
    methods = arguments.methods.split(",")
    texts = folder / name
    texts.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRITONSTORE")}
    environment = kept | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(ROOT), kept.get("PYTHONPATH", "")]),
        "TRITONSTORE_CACHE_FOLDER": str(texts / "cache"),
        "TRITONSTORE_STRICT": "1",
        "TRITON_CACHE_DIR": str(texts / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(texts / "inductor"),
        "TRITON_DISABLE_LINE_INFO": "1",  # the kernels' binaries would hold the path of this run's folder
    }
    job = {"run": name, "store": store, "folder": str(texts), "methods": methods, "layers": arguments.layers}
    progress.begin(name, len(methods))
    seconds, done = 0.0, None
    with open(texts / "log", "w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "gpu_lib.worker", json.dumps(job)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        assert worker.stdout is not None
        for spoken in worker.stdout:
            event = json.loads(spoken)
            if event["event"] == "start":
                progress.at(0, event["method"])
            elif event["event"] == "method":
                seconds += event["seconds"]
                progress.step()
            else:
                done = event
        code = worker.wait()
    if done is None:
        talk = (texts / "log").read_text(errors="replace").strip().splitlines()[-25:]
        raise SystemExit("\n".join([f"gpu: {name}: the worker ended with exit code {code}", *talk]))
    if done["failures"] or done["trouble"]:
        progress.say(f"{name}: {done['failures'][:1]} {done['trouble']}")
    line = {
        "name": name,
        "workers": 1,
        "calls": done["calls"],
        "callers": done["callers"],
        "analyses": done["analyses"],
        "distinct_keys": None if done["keys"] is None else len(done["keys"]),
        "analysis_seconds": round(done["analysis_seconds"], 3),
        "export_seconds": round(seconds, 3),
        "identical": True,  # decided when the run to compare with has ended
        "loads": done["loads"],
    }
    progress.end(line)
    return line


def same(expected: Path, found: Path, method: str) -> bool:
    """Whether both runs generated the same kernels and wrapper code; says where they first differ."""
    left, right = (json.loads((folder / f"{method}.json").read_text()) for folder in (expected, found))
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            one, other = (str(each.get(name, "")).splitlines() for each in (left, right))
            shown = list(unified_diff(one, other, expected.name, found.name, n=0, lineterm=""))[:24]
            print(f"gpu: {method}: {name} differs", *(line[:300] for line in shown), sep="\n", file=sys.stderr)
            return False
    return True


def compared(lines: list[dict[str, Any]], methods: list[str]) -> list[str]:
    """Where the generated code is not PyTorch's; only of methods that PyTorch alone generates alike twice."""
    unsteady = {method for line in lines if line["name"] == "again" for method in line["differs"]}
    steady = [method for method in methods if method not in unsteady]
    print(f"generated code: {len(steady)} of {len(methods)} methods compared", end="")
    print(f"; PyTorch alone does not generate alike twice: {', '.join(sorted(unsteady))}" if unsteady else "")
    wrong = [] if steady else ["no method's generated code could be compared"]
    for line in lines:
        differs = [method for method in line["differs"] if method in steady]
        line["identical"] = not line["differs"] if line["name"] == "again" else bool(steady) and not differs
        if differs:
            # Without that run nobody knows whether PyTorch alone would be told apart from itself.
            known = any(each["name"] == "again" for each in lines)
            hint = "" if known else "; add `again` to --runs to see whether PyTorch alone generates it alike twice"
            wrong.append(f"{line['name']}: the generated code of {', '.join(differs)} is not PyTorch's{hint}")
    return wrong


def asked(lines: list[dict[str, Any]]) -> list[str]:
    """Which parts of PyTorch asked, printed; and where a run was asked by others than PyTorch alone was."""
    alone = lines[0]["callers"]
    print("callers: " + ", ".join(f"{name} {count}" for name, count in sorted(alone.items())))
    wrong = [f"no call came from PyTorch's {name}" for name in EXPECTED if not alone.get(name)]
    return wrong + [f"{each['name']}: asked by {each['callers']}" for each in lines if each["callers"] != alone]


def loading(lines: list[dict[str, Any]]) -> list[str]:
    """What went wrong in loading the packages that does not go wrong with PyTorch alone."""
    alone = lines[0]["loads"]
    if all(result[0] < 0 for result in alone.values()):
        print(f"packages: PyTorch cannot load its own here (signal {-next(iter(alone.values()))[0]}); not compared")
        return []
    wrong = [f"{line['name']}: {method}: {r}" for line in lines for method, r in line["loads"].items() if r[0]]
    if not wrong:
        found = [result for line in lines for result in line["loads"].values()]
        largest, how = max(result[2] for result in found), found[0][1]
        print(
            f"packages: all {len(found)} load{how and ' '}{how} and give eager PyTorch's numbers; largest {largest:.1e}"
        )
    return wrong


def explained(folder: Path, url: str) -> str:
    """What `tritonstore explain` says of the one run that left its record in `folder`."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TRITONSTORE_CACHE_FOLDER": str(folder / "cache"),
        "TRITONSTORE_URL": url,
    }
    command = [sys.executable, "-m", "tritonstore", "explain", "--last"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return finished.stdout + finished.stderr


def _register(folder: Path) -> None:
    """Make a folder for sys.path that tells PyTorch of our entry point, as an installed tritonstore does."""
    metadata = folder / "registered" / "tritonstore-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tritonstore\nVersion: 0\n")
    entry_point = "[torch.backends]\ntritonstore = tritonstore.pytorch.autoload:activate\n"
    (metadata / "entry_points.txt").write_text(entry_point)


def check(name: str, folder: Path) -> dict[str, Any] | None:
    """What a check saw; None, with its talk on standard error, where it failed."""
    path = [str(ROOT / "scripts"), str(ROOT), str(folder / "registered"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "TRITONSTORE_CACHE_FOLDER": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "gpu_lib.checks", name, (folder / "check-store").as_uri()]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        print(f"gpu: check {name} failed\n{finished.stderr[-3000:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(finished.stdout.strip().splitlines()[-1])
    return result


def main() -> int:
    arguments = parser().parse_args()
    known = {method.name for method in METHODS}
    unknown = [name for name in arguments.methods.split(",") if name not in known]
    if unknown:
        print(f"gpu: no method {', '.join(unknown)}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    if "pytorch" not in arguments.runs.split(",") or not set(arguments.runs.split(",")) <= set(RUNS):
        print(f"gpu: the runs are {', '.join(RUNS)}, and the first is compared with", file=sys.stderr)
        return 2
    if not gpu_available():
        print("gpu: PyTorch sees no GPU here; scripts/demo shows what needs none", file=sys.stderr)
        return 2
    progress = Progress(sys.stderr)
    wrong: list[str] = []
    checks: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tritonstore-gpu-") as temporary:
        folder = Path(temporary).resolve()
        store = (folder / "store").as_uri()
        _register(folder)
        stores = {name: store if name in ("cold", "warm") else None for name in arguments.runs.split(",")}
        if arguments.filled:
            shutil.copytree(arguments.filled, folder / "filled-store")
            stores["filled"] = (folder / "filled-store").as_uri()
        lines = []
        with ThreadPoolExecutor(8 if arguments.at_once else 1) as pool:
            for moment, names in (("cold", [n for n in stores if n != "warm"]), ("warm", ["warm"])):
                started = [pool.submit(run, n, stores[n], arguments, folder, progress) for n in names if n in stores]
                # The second time every answer is there; with Inductor's own caches on, it may not even ask.
                chosen = CHECKS if set(RUNS) <= set(stores) else ()
                seen = [pool.submit(check, name, folder) for name in chosen]
                lines += [future.result() for future in started]
                checks |= {f"{n} {moment}": future.result() for n, future in zip(chosen, seen, strict=True)}
        methods = arguments.methods.split(",")
        for line in lines:
            line["differs"] = [m for m in methods if not same(folder / "pytorch", folder / line["name"], m)]
            if line["name"] == "filled" and line["analyses"]:
                print(f"filled: why it missed\n{explained(folder / 'filled', str(stores['filled']))}")
    generated = compared(lines, methods)
    import torch

    what = f"torch {version('torch')}, triton {version('triton')}; {arguments.layers} layers"
    print(f"{torch.cuda.get_device_name()}; {what}")
    print(f"\n{table(lines)}\n")
    for name, seen in checks.items():
        print(f"{name}: {'FAILED' if seen is None else json.dumps(seen)}")
    wrong += [f"check {name} failed" for name, seen in checks.items() if seen is None]
    wrong += generated
    wrong += asked(lines)
    wrong += loading(lines)
    for line in lines:
        if line["name"] == "cold" and line["analyses"] != line["distinct_keys"]:
            wrong.append("cold: not one analysis for each distinct key")
        if line["name"] == "warm" and line["analyses"]:
            wrong.append("warm: analyses, not 0")
    if arguments.json:
        arguments.json.write_text(json.dumps({"runs": lines, "checks": checks}, indent=2) + "\n")
    for sentence in wrong:
        print(f"gpu: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
