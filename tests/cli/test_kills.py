"""Killed with SIGKILL at any moment of pruning, clearing, repairing, saving or loading: the store is sound after.

The command stops itself at the n-th time that it touches a file's name (os.replace, os.unlink, os.open), so that every
moment between two such steps comes up, and no test depends on speed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.synthetic import entry, fill
from tests.support.terminal import environment, piped
from tritonstore.backends.files import FilesBackend
from tritonstore.maintenance.bundle import Bundle
from tritonstore.maintenance.verify import findings

PROGRAM = """
import os, signal, sys
moment, steps = int(sys.argv[1]), 0
def deadly(function):
    def call(*arguments, **options):
        global steps
        steps += 1
        if steps == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call
from tritonstore.cli import clear, load, prune, save, verify
from tritonstore.cli.main import main
import tritonstore.maintenance.bundle, tritonstore.maintenance.runs, tritonstore.backends.files
for name in ("replace", "unlink", "open", "write"):
    setattr(os, name, deadly(getattr(os, name)))
code = main(sys.argv[2:])
print("steps", steps)
sys.exit(code)
"""

MADE = [entry(number) for number in range(12)]


def run(moment: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(moment), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def sound(root: Path) -> set[str]:
    """The digests of the store's entries, all of which are sound."""
    found = list(findings(FilesBackend(str(root))))
    assert [each for each in found if each.problem] == []
    return {each.digest for each in found}


def moments(root: Path, *arguments: str) -> list[int]:
    """Some steps of that command, the first and the last of them included."""
    done = run(0, *arguments)
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout.split()[-1])
    assert steps >= 4
    return sorted({1, 2, 3, steps // 3, steps // 2, 2 * steps // 3, steps - 1, steps})


@pytest.mark.parametrize(
    "arguments", [["clear", "--yes"], ["prune", "--max-size", "3000"], ["prune", "--kernel", "*"]], ids=" ".join
)
def test_while_removing(tmp_path: Path, arguments: list[str]) -> None:
    root = tmp_path / "store"
    everything = set(fill(str(root), MADE))
    command = [*arguments, "--store", f"file://{root}"]
    for moment in moments(root, *command):
        fill(str(root), MADE)
        assert run(moment, *command).returncode == -9
        assert sound(root) <= everything
        assert piped(*command).returncode == 0  # and the next one does the rest


def test_while_loading(tmp_path: Path) -> None:
    root, bundle = tmp_path / "store", str(tmp_path / "made.tsb")
    everything = set(fill(str(tmp_path / "from"), MADE))
    assert piped("save", bundle, "--store", f"file://{tmp_path}/from").returncode == 0
    command = ["load", bundle, "--store", f"file://{root}"]
    seen = []
    for moment in moments(root, *command):
        shutil.rmtree(root)
        assert run(moment, *command).returncode == -9
        there = sound(root)
        assert there <= everything
        seen.append(len(there))
        assert piped(*command).returncode == 0
        assert sound(root) == everything
    assert len(set(seen)) > 3  # it was killed in the middle, too


def test_while_saving(tmp_path: Path) -> None:
    root, bundle = tmp_path / "store", tmp_path / "out" / "made.tsb"
    bundle.parent.mkdir()
    everything = set(fill(str(root), MADE))
    command = ["save", str(bundle), "--store", f"file://{root}"]
    points = moments(root, *command)
    for moment in points:
        assert run(moment, *command).returncode == -9
        with open(bundle, "rb") as file:  # the old one or the new one, and whole
            assert {digest for digest, _, problem in Bundle(file) if problem is None} == everything
        assert sound(root) == everything
    assert piped("load", str(bundle), "--store", f"file://{tmp_path}/other").returncode == 0
    assert sound(tmp_path / "other") == everything
