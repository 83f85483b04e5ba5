"""TOOLCHAIN: the code that computes an answer, by the content of its files. Worked out once a process.

``triton_key()`` will not do: it omits files that decide answers and hashes a library of hundreds of megabytes in each
process. Here an installed wheel's RECORD, which lists the SHA-256 of every file, is believed for a library whose inode
has not changed since RECORD was written (RECORD is the last file that an installer writes). Any other file is read and
hashed, and that digest remembered under the file's identity (``filestat``). Paths and times never enter the
fingerprint: equal wheels give equal fingerprints on every host.
"""

from __future__ import annotations

import base64
import binascii
import csv
import importlib.metadata
import os
import sys
from typing import Any

import torch
import triton

from tritonstore.errors import Bypass
from tritonstore.keys.encoding import part_digest
from tritonstore.keys.filestat import FileDigests, process_start
from tritonstore.keys.integrity import Snapshot

# What PyTorch's analysis itself is made of, relative to the torch package.
ANALYSIS_FILES = (
    "_higher_order_ops/triton_kernel_wrap.py",
    "_inductor/utils.py",
    "utils/_triton.py",
    "_inductor/dependencies.py",
)


class Toolchain:
    """The record, its digest, and the same in words, which nobody may change."""

    __slots__ = ("detail", "digest", "record")

    def __init__(self, record: tuple[Any, ...], detail: dict[str, Any]) -> None:
        self.record = record
        self.digest = part_digest("toolchain", record)
        self.detail = detail


_known: tuple[Snapshot, Toolchain | Bypass] | None = None


def toolchain(memory: Snapshot) -> Toolchain:
    """The toolchain of this process, whose code in memory is ``memory``. Raises Bypass("toolchain").

    When memory changes (a module was reloaded, a patch came or went) the files are looked at again. Two threads may
    both look, with one result: a lock here could be held by a thread that a fork leaves behind.
    """
    global _known
    known = _known
    if known is None or known[0] is not memory:
        known = _known = (memory, _work_out(memory))
    if isinstance(known[1], Bypass):
        # A new one for each call: a raised exception collects the frames that it went through.
        raise Bypass(known[1].reason, known[1].detail)
    return known[1]


def _work_out(memory: Snapshot) -> Toolchain | Bypass:
    """The toolchain, or why there is none: files that are newer than this process stay so until it ends."""
    try:
        files = fingerprint(os.path.dirname(torch.__file__), os.path.dirname(triton.__file__))
    except Bypass as bypass:
        return bypass.with_traceback(None)
    return Toolchain((files.record, memory.digest), {**files.detail, "in_memory": memory.digest})


def fingerprint(torch_root: str, triton_root: str) -> Toolchain:
    """The toolchain whose files lie in these two package folders. Raises Bypass("toolchain")."""
    digests = FileDigests.load()
    analysis = []
    for name in ANALYSIS_FILES:
        path = os.path.join(torch_root, *name.split("/"))
        try:
            analysis.append((name, digests.sha256(path)))
        except FileNotFoundError as error:
            raise Bypass("toolchain", f"torch has no {name}, so it is not one that tritonstore knows") from error
    files = _triton_files(digests, os.path.abspath(triton_root))
    digests.save()
    if (changed := digests.newest_change) > (start := process_start()):
        # The code in memory may be older than the file: its answers must not be stored under the new file's name.
        raise Bypass(
            "toolchain",
            f"{digests.newest_path} changed {changed - start:.1f} s after this process started; start it again",
        )
    versions = (str(torch.__version__), str(torch.version.git_version), str(triton.__version__))
    python = (sys.implementation.name, sys.version_info[0], sys.version_info[1], sys.flags.optimize)
    front_end = part_digest("triton-files", files)
    record = (versions, tuple(analysis), front_end, python)
    detail = {
        "torch": versions[0],
        "torch_git": versions[1],
        "analysis": part_digest("analysis-files", analysis),
        "analysis_files": {name: content[:16] for name, content in analysis},
        "triton": versions[2],
        "triton_files": front_end,
        "python": f"{python[0]} {python[1]}.{python[2]}" + (" -O" if python[3] else ""),
    }
    return Toolchain(record, detail)


def _triton_files(digests: FileDigests, root: str) -> list[tuple[str, str]]:
    """Every Python file of the Triton package, and its native libraries, with their digests, in order."""
    record = _read_record(root)
    out = []
    for path, stat in sorted(_walk(root)):
        name = os.path.relpath(path, root).replace(os.sep, "/")
        # Python files are read all the same: a copy of the whole tree renews all times, and with them hides an edit
        # of equal length. Of the libraries, hundreds of megabytes, nobody edits a byte by hand.
        listed = None if name.endswith(".py") else record.get(name)
        out.append((name, digests.sha256(path, stat, listed)))
    return out


def _walk(folder: str) -> list[tuple[str, os.stat_result]]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    found.extend(_walk(entry.path))
            elif entry.name.endswith((".py", ".so", ".pyd")):
                found.append((entry.path, entry.stat()))
    return found


def _read_record(root: str) -> dict[str, tuple[str, int, int]]:
    """name → (SHA-256 in hex, size, when RECORD was written in ns), for a Triton that an installer put here."""
    package = os.path.basename(root)
    site = os.path.dirname(root)
    path = os.path.join(site, f"{package}-{triton.__version__}.dist-info", "RECORD")
    if not os.path.exists(path):
        try:
            files = importlib.metadata.distribution(package)
            path = str(files.locate_file(f"{files.metadata['Name']}-{files.version}.dist-info/RECORD"))
        except importlib.metadata.PackageNotFoundError:
            return {}
    try:
        with open(path, encoding="utf-8", newline="") as lines:
            status = os.fstat(lines.fileno())
            # A chmod or a copy of the whole tree renews every change time; the earlier of both is when it was written.
            written = min(status.st_mtime_ns, status.st_ctime_ns)
            rows = list(csv.reader(lines))
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    listed = {}
    for row in rows:
        if len(row) == 3 and row[0].startswith(package + "/") and row[1].startswith("sha256=") and row[2].isdigit():
            try:
                digest = base64.urlsafe_b64decode(row[1][7:] + "=").hex()
            except (binascii.Error, ValueError):
                continue
            if len(digest) == 64:
                listed[row[0][len(package) + 1 :]] = (digest, int(row[2]), written)
    return listed
