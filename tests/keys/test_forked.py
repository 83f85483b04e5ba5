"""Keys in forked children: they have their parent's memory, and none of its threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.calls import digest
from tests.support.elsewhere import run_python
from tests.support.switch import launch, switch
from tritonstore.keys import toolchain

FORKED = """
import os, sys, time
torch_root, triton_root, order = sys.argv[1:]
changed = os.path.join(triton_root, "language", "core.py")

def edit():
    # A file's times go by a coarser clock than time.time().
    now = time.time()
    while os.stat(changed).st_ctime <= now:
        with open(changed, "a") as file:
            file.write("# edited while the parent runs")

if order == "edited before tritonstore is imported":
    edit()
import tritonstore
if order == "edited after tritonstore is imported":
    edit()
from tritonstore.errors import Bypass
from tritonstore.keys import toolchain  # imports torch: by now every fork is younger than the edit

def said():
    try:
        toolchain.fingerprint(torch_root, triton_root)
        return "trusted"
    except Bypass as bypass:
        return bypass.detail if "core.py changed" not in bypass.detail else bypass.reason

def young():
    with open("/proc/self/stat", "rb") as file:
        born = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return str(booted + born > os.stat(changed).st_ctime)

def forked(function):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, function().encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        text = file.read()
    os.wait()
    return text

print(said(), forked(young), forked(said), forked(lambda: forked(said)))
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_forked_child_has_its_parents_code(tmp_path: Path, order: str) -> None:
    """It starts after the edit, with what its parent imported before the edit in its memory."""
    torch_root, triton_root = tmp_path / "torch", tmp_path / "triton"
    for path in (*(torch_root / name for name in toolchain.ANALYSIS_FILES), triton_root / "language" / "core.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    said = run_python(FORKED, str(torch_root), str(triton_root), f"edited {order} tritonstore is imported")
    assert said.split() == ["toolchain", "True", "toolchain", "toolchain"]


BUSY = """
import importlib, os, signal, sys, threading
from tests.support.analysis import CUDA_90, target
from tests.support.calls import outcome
from tests.support.switch import launch, switch
import tritonstore.keys.call

module, name = importlib.import_module("tritonstore.keys." + sys.argv[1]), sys.argv[2]
real = getattr(module, name)
inside, release = threading.Event(), threading.Event()

def slow(*arguments, **others):
    inside.set()
    assert release.wait(timeout=200)
    return real(*arguments, **others)

setattr(module, name, slow)
call = launch(switch("max(1, 2) == 2", ""))
said = []
with target(*CUDA_90):
    thread = threading.Thread(target=lambda: said.append(outcome(call)))
    thread.start()
    assert inside.wait(timeout=200)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # ends a child that waits for its parent's thread
        setattr(module, name, real)
        os.write(writing, outcome(call).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        said.append(file.read())
    os.waitpid(child, 0)
    release.set()
    thread.join()
print(*said)
"""
STEPS = [
    ("toolchain", "fingerprint"),
    ("toolchain", "_triton_files"),
    ("integrity", "member"),
    ("call", "target_part"),
    ("call", "ops_digest"),
    ("call", "code_record"),
    ("code", "read_source"),
    ("call", "CallKey"),
]


@pytest.mark.parametrize(("module", "name"), STEPS)
def test_a_fork_while_another_thread_works_out_a_key(module: str, name: str) -> None:
    key = digest(launch(switch("max(1, 2) == 2", "")))
    assert run_python(BUSY, module, name).split() == [key, key]
