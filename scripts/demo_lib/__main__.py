"""The command `scripts/demo`: options, the five runs, the table, the verdict."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from . import ranks
from .methods import METHODS
from .report import Progress, table
from .runs import RUNS, DemoError, Options, differences, excess, run, verdict
from .target import TARGET, gpu_available


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _json_path(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists")
    return path


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Export a small Llama-style decoder with PyTorch alone, with an exact-argument dict, and with "
        "tritonstore cold, warm, and warm from another path; compare the graphs and the work.",
        epilog="Exit code: 0 if all graphs are identical, the warm runs analyse nothing and the cold run analyses "
        "each distinct key once; 1 if not; 130 after Ctrl-C. Under torchrun (torchrun --nproc-per-node 4 scripts/demo "
        "--store URL) each rank exports its share of the methods, and rank 0 prints the table.",
    )
    result.add_argument("--workers", type=_positive, default=2, metavar="N", help="processes a run (default 2)")
    result.add_argument("--layers", type=_positive, default=6, metavar="N", help="decoder layers (default 6)")
    result.add_argument("--methods", metavar="NAMES", help="comma-separated methods to export (default: all twelve)")
    result.add_argument(
        "--store",
        metavar="URL",
        help="an empty store to use, or several with commas between them, nearest first (default: a temporary folder)",
    )
    result.add_argument(
        "--plain",
        action="store_true",
        help="the model is written in plain ATen ops, and tritonstore.replacement brings Triton kernels in",
    )
    result.add_argument("--aoti", action="store_true", help="go on to AOTInductor; needs a GPU")
    result.add_argument("--json", type=_json_path, metavar="FILE", help="write the figures to FILE, too")
    return result


def _methods(names: str | None) -> tuple[str, ...]:
    known = tuple(method.name for method in METHODS)
    chosen = known if names is None else tuple(dict.fromkeys(names.split(",")))
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise DemoError(f"--methods: no method {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return chosen


def _has_leases(url: str | None) -> bool:
    """Whether the store has leases. A malformed URL is an error before the first run, not after minutes."""
    from tritonstore import open_store
    from tritonstore.errors import TritonStoreError

    if url is None:
        return True
    try:
        store = open_store(url)
        leases = store.tiers.lease("0" * 64) is not None
        store.close()
    except TritonStoreError as error:
        raise DemoError(f"--store: {error}") from None
    return leases


def demo(arguments: argparse.Namespace, progress: Progress) -> int:
    if arguments.aoti and not gpu_available():
        raise DemoError("--aoti: AOTInductor compiles for a GPU, and PyTorch sees none here; leave --aoti out")
    methods = _methods(arguments.methods)
    leases = _has_leases(arguments.store)
    meeting = None
    if ranks.is_rank():
        if arguments.store is None:
            raise DemoError("--store: the ranks of torchrun share a store; name it")
        meeting = ranks.Meeting()
        if meeting.rank:
            progress = Progress(io.StringIO())
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tritonstore-demo-") as temporary:
        folder = Path(temporary).resolve()
        options = Options(
            workers=arguments.workers,
            layers=arguments.layers,
            methods=methods,
            store=arguments.store or (folder / "store").as_uri(),
            folder=folder,
            aoti=arguments.aoti,
            device="cuda" if arguments.aoti else "cpu",
            plain=arguments.plain,
        )
        try:
            if meeting is not None:
                lines, gpu = ranks.lines(options, meeting, progress)
            for name in () if meeting is not None else RUNS:
                result = run(name, options, progress)
                lines.append(result.line)
                gpu = result.gpu
                for sentence in differences(folder / "pytorch", result.texts, methods)[:3]:
                    print(f"{name}: {sentence[:600]}", file=sys.stderr)
        finally:
            # A second Ctrl-C must not leave half of the temporary folder behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    if meeting is not None and meeting.rank:
        return int(meeting.gather(0)[0])
    wrong = verdict(lines, leases) if meeting is None else ranks.verdict(lines, leases)
    where = "the GPU of this machine" if gpu else f"declared target {TARGET}, no GPU"
    _report(arguments, f"{len(methods)} methods, {arguments.layers} layers", where, lines, leases)
    for sentence in wrong:
        print(f"demo: {sentence}", file=sys.stderr)
    if meeting is not None:
        meeting.gather(1 if wrong else 0)
    return 1 if wrong else 0


def _report(arguments: argparse.Namespace, what: str, where: str, lines: list[dict[str, Any]], leases: bool) -> None:
    if arguments.json:
        partial = arguments.json.with_name(arguments.json.name + ".partial")
        partial.write_text(json.dumps({"runs": lines}, indent=2) + "\n")
        os.replace(partial, arguments.json)
    print(f"{what}, {lines[0]['workers']} workers; {where}")
    print(f"torch {version('torch')}, triton {version('triton')}\n\n{table(lines)}")
    if not leases:
        print(f"\n{excess(lines)}")


def _terminated(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    arguments = parser().parse_args()
    signal.signal(signal.SIGTERM, _terminated)  # `kill` cleans up as Ctrl-C does
    progress = Progress(sys.stderr)
    try:
        return demo(arguments, progress)
    except KeyboardInterrupt:
        progress.clear()
        print("demo: interrupted; its processes and temporary files are gone", file=sys.stderr)
        return 130
    except DemoError as error:
        progress.clear()
        print(f"demo: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
