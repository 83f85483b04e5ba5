"""The command `scripts/bench`: options, the sections, the JSON file and the tables."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

SECTIONS = {
    "calls": "a known, stored or new question, for kernels of 4, 16 and 40 arguments",
    "start": "what the store adds to the start of a process",
    "export": "whole exports: warm beside the floor, and cold with 1, 2 and 4 workers",
    "scale": "stores of 1 thousand and 100 thousand entries, and 8 writers at once",
    "reach": "Redis and S3 behind 0.1, 1 and 10 ms of network",
    "growth": "memory over 1 million hits",
}


def parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:8} {what}" for name, what in SECTIONS.items())
    result = argparse.ArgumentParser(
        prog="scripts/bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure tritonstore beside what users would take instead, interleaved in one run.\n\n"
        f"Sections (default: all):\n{lines}",
        epilog="Needs redis-server for the sections calls and reach. On a busy machine only the ratios mean something.",
    )
    result.add_argument("sections", nargs="*", metavar="SECTION", help=argparse.SUPPRESS)
    result.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, too")
    result.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: the tables of an earlier --json")
    result.add_argument("--into", type=Path, metavar="DOC", help="with --table: put them into DOC, between its marks")
    result.add_argument("--million", action="store_true", help="scale: a store of a million entries, too (10 GB free)")
    result.add_argument("--folder", type=Path, metavar="FOLDER", help="where the temporary files lie")
    result.add_argument("--scale", type=float, default=1.0, metavar="SHARE", help="of the usual time (default 1)")
    return result


def measure(arguments: argparse.Namespace, chosen: list[str]) -> dict[str, Any]:
    """The figures of these sections, as they go into the JSON file."""
    root = tempfile.mkdtemp(prefix="tritonstore-bench-", dir=arguments.folder)
    # Once more at the exit: asked for before tritonstore does, so called after its run record has made folders anew.
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    try:
        return _measured(arguments, chosen, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _measured(arguments: argparse.Namespace, chosen: list[str], root: str) -> dict[str, Any]:
    from .timing import environment

    figures: dict[str, Any] = {"environment": environment(), "scale": arguments.scale, "sections": {}}
    figures |= {"seconds": {}, "failed": {}}
    for name in chosen:
        started = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=root) as temporary:
                figures["sections"][name] = _section(name, Path(temporary).resolve(), arguments)
        except Exception as error:  # minutes of other sections must not be lost
            figures["failed"][name] = f"{type(error).__name__}: {error}"
            print(f"bench: {name}: {figures['failed'][name]}", file=sys.stderr)
        figures["seconds"][name] = time.perf_counter() - started
        print(f"bench: {name}: {figures['seconds'][name]:.0f} s", file=sys.stderr, flush=True)
    return figures


def _section(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    scale = arguments.scale
    if name == "calls":
        from tests.support.servers import redis_server

        from . import calls

        with redis_server(folder / "redis") as server:
            return calls.section(folder, scale, server.port)
    if name == "scale":
        from . import scale as scales

        return scales.section(folder, scale, arguments.million)
    from importlib import import_module

    told: dict[str, Any] = import_module(f"bench_lib.{name}").section(folder, scale)
    return told


def main(given: list[str] | None = None) -> int:
    arguments = parser().parse_args(given)
    from .tables import placed, tables

    if arguments.table is not None:
        shown = tables(json.loads(arguments.table.read_text()))
        if arguments.into is None:
            print(shown, end="")
        else:
            arguments.into.write_text(placed(shown, arguments.into.read_text()))
        return 0
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser().error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser().error(f"--json: there is no folder {arguments.json.absolute().parent}")
    if arguments.folder is not None and not arguments.folder.is_dir():
        parser().error(f"--folder: there is no folder {arguments.folder}")
    warnings.simplefilter("ignore")  # PyTorch's own notices say nothing about what is measured
    chosen = [name for name in SECTIONS if name in arguments.sections or not arguments.sections]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            figures = measure(arguments, chosen)
    except KeyboardInterrupt:
        print("bench: interrupted; its processes and temporary files are gone", file=sys.stderr)
        return 130
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(tables(figures), end="")
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
