"""`tritonstore run`: environment, exit code and signals of real commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import ROOT, environment, on_terminal, piped

SHOW = "import json, os; print(json.dumps({n: v for n, v in os.environ.items() if n.startswith('TRITONSTORE')}))"


def test_the_environment() -> None:
    done = piped(
        *("run", "--store", "file:///tmp/x", "--mode", "readonly", "--target", "cuda:90:32", "--quiet", "--"),
        *(sys.executable, "-c", SHOW),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert seen.pop("TRITONSTORE_RUN")
    assert seen == {
        "TRITONSTORE": "1",
        "TRITONSTORE_URL": "file:///tmp/x",
        "TRITONSTORE_MODE": "readonly",
        "TRITONSTORE_TARGET": "cuda:90:32",
        "TRITONSTORE_STRICT": "1",  # the tests' own
    }


def test_each_run_has_an_id_of_its_own() -> None:
    ids = {json.loads(piped("run", "-q", "--", sys.executable, "-c", SHOW).stdout)["TRITONSTORE_RUN"] for _ in "ab"}
    assert len(ids) == 2


@pytest.mark.parametrize("code", [0, 1, 2, 7, 70, 255])
def test_the_exit_code(code: int) -> None:
    assert piped("run", "--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV, signal.SIGINT])
def test_death_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    done = piped("run", "-q", "--", "sh", "-c", f"kill -{number.value} $$")
    assert done.returncode == -number
    assert not list(Path.cwd().glob("core*"))


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_run(command: str, code: int) -> None:
    done = piped("run", "--", command)
    assert done.returncode == code
    assert f"error: {command} cannot be run: " in done.stderr


def test_options_behind_the_command_are_its_own() -> None:
    assert piped("run", "-q", "echo", "--mode", "-x", "--", "y").stdout == "--mode -x -- y\n"


def test_standard_input_is_the_commands() -> None:
    assert piped("run", "-q", "cat", stdin="hello").stdout == "hello"


def test_a_bad_setting_is_said_before_the_command_runs(tmp_path: Path) -> None:
    done = piped("run", "--target", "nonsense", "--", "touch", str(tmp_path / "ran"))
    assert done.returncode == 2
    assert "target = nonsense" in done.stderr
    assert not (tmp_path / "ran").exists()


# By os.write: the signal may come while "ready" is still being written, and a file of Python's refuses a second write.
TRAP = """
import os, signal, sys
def handler(number, frame):
    os.write(1, b"got " + signal.Signals(number).name.encode() + b"\\n")
    sys.exit(9)
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGQUIT"):
    signal.signal(getattr(signal, name), handler)
os.write(1, b"ready\\n")
signal.pause()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGQUIT"])
def test_signals_are_passed_on(name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tritonstore", "run", "-q", "--", sys.executable, "-c", TRAP],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"got {name}\n"
        assert process.wait(timeout=120) == 9


COUNT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # kept until it is asked for: none is missed
print("ready", flush=True)
waits = (200.0, 1.0)
print("interrupted", sum(signal.sigtimedwait({signal.SIGINT}, wait) is not None for wait in waits), flush=True)
"""


def test_ctrl_c_reaches_the_command_once() -> None:
    code, seen = on_terminal("run", "-q", "--", sys.executable, "-c", COUNT, typed="\x03", prompt="ready")
    assert "interrupted 1" in seen
    assert code == 0


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n):
    tl.store(y, tl.load(x) + n)
"""

ASK = """
import logging, sys, torch
from kernel_of_run import kernel
import torch._higher_order_ops.triton_kernel_wrap as wrap
logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
SEAM = "identify_accessed_tensors" if hasattr(wrap, "identify_accessed_tensors") else "identify_mutated_tensors"
for _ in range(3):
    getattr(wrap, SEAM)(kernel, {"x": torch.zeros(4), "y": torch.zeros(4), "n": 1}, {})
print("asked")
sys.exit(5)
"""


def test_a_real_run_and_its_summary(tmp_path: Path) -> None:
    """From a checkout that is not installed: the command's Python finds the entry point all the same."""
    (tmp_path / "kernel_of_run.py").write_text(KERNEL)
    (tmp_path / "ask.py").write_text(ASK)
    ours = environment(
        XDG_CACHE_HOME=str(tmp_path / "cache"), PYTHONWARNINGS="ignore", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}"
    )
    for calls in ("0 ", "3 "):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tritonstore", "run", "--target", "cuda:90:32", "--store"),
                *(f"file://{tmp_path}/store", "--", sys.executable, str(tmp_path / "ask.py")),
            ],
            env=ours,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert (done.returncode, done.stdout) == (5, "asked\n"), done.stderr
        lines = [line.strip() for line in done.stderr.splitlines()]
        assert lines[0].startswith("tritonstore: run ")
        assert any(line.split()[:2] == ["calls", "3"] for line in lines), done.stderr
        assert any(line.startswith("hits") for line in lines)
        assert calls
    assert any(line.split()[:2] == ["hits", "3"] for line in lines), done.stderr


def test_a_run_that_asked_nothing_says_so() -> None:
    done = piped("run", "--", "true")
    assert done.returncode == 0
    assert "no process of this run asked about a Triton kernel" in done.stderr
