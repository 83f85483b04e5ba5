"""The skeleton: what is imported, the exit codes, and that errors are sentences."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.conftest import Cli
from tests.support.terminal import ROOT, environment, on_terminal, piped
from tritonstore.cli import main as module
from tritonstore.cli.main import COMMANDS
from tritonstore.errors import StoreError


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_and_explains_itself(name: str) -> None:
    command = import_module(COMMANDS[name][0]).command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.short_help == COMMANDS[name][1]
    assert command.help
    assert "Examples:" in (command.epilog or "")
    assert "command" in import_module(COMMANDS[name][0]).__all__


def loaded(program: str, *watched: str) -> list[str]:
    code = f"import sys\n{program}\nprint('loaded', sorted(set({watched!r}) & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    found: list[str] = eval(done.stderr.strip().splitlines()[-1].removeprefix("loaded "))
    return found


def test_the_list_of_commands_costs_only_click() -> None:
    program = "from tritonstore.cli.main import main; main(['--help'])"
    heavy = ("torch", "triton", "rich", "msgpack", "zstandard", "tritonstore.cli.ls", "tritonstore.store")
    assert loaded(program, *heavy) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["show", "1234"],
        ["prune"],
        ["prune", "--stale-toolchains"],
        ["clear", "-y"],
        ["verify"],
        ["doctor", "--quick"],
        ["save", "none.tsb"],
        ["load", "none.tsb"],
        ["completion", "zsh"],
        ["run", "-q", "--", "true"],
        ["stats"],
        ["explain"],
    ],
    ids=" ".join,
)
def test_no_command_imports_torch_or_triton(arguments: list[str], tmp_path: Path) -> None:
    program = f"import os; os.chdir({str(tmp_path)!r}); from tritonstore.cli.main import main; main({arguments!r})"
    assert loaded(program, "torch", "triton", "sympy") == []


def test_in_a_pipe_rich_is_not_needed() -> None:
    assert loaded("from tritonstore.cli.main import main; main(['ls'])", "rich") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, ""),
        (["--help"], 0, ""),
        ([], 2, "Usage: tritonstore"),
        (["no-such-command"], 2, "No such command 'no-such-command'"),
        (["ls", "--no-such-option"], 2, "No such option"),
        (["ls", "--older", "soon"], 2, "'soon': use an age such as 90d, 12h or 3600"),
        (["prune", "--max-size", "huge"], 2, "'huge': use a size such as 512MiB"),
        (["ls", "--store", "ftp://host/x"], 2, "error: url = ftp://host/x (from argument url) cannot be used"),
        (["ls", "--store", "memory:"], 2, "memory: ends with its process"),
        (["show", "xyz"], 2, "4 to 64 hex digits"),
        (["show", "1234"], 1, "error: no entry starts with 1234"),
        (["load", "no-such-file"], 4, "no-such-file is refused, and nothing was stored: it cannot be read"),
        (["clear"], 2, "nobody can be asked here; add --yes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_exit_codes(cli: Cli, arguments: list[str], code: int, said: str) -> None:
    done = cli(*arguments)
    assert (done.code, said in done.err) == (code, True), done.err
    assert "Traceback" not in done.err
    if code:
        assert done.out == ""


@pytest.mark.parametrize("value", ["ftp://x", "file://host/x"])
def test_a_bad_setting_names_its_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TRITONSTORE_URL", value)
    done = cli("ls")
    assert done.code == 2
    assert "(from environment TRITONSTORE_URL) cannot be used" in done.err


def test_a_store_that_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    for arguments in (["ls"], ["verify"], ["prune"], ["clear", "-y"], ["show", "12345678"], ["save", "x"]):
        done = cli(*arguments)
        assert done.code == 3, arguments
        assert f"{tmp_path}/store is not a folder" in done.err


@pytest.mark.parametrize("mode", ["readonly", "off"])
@pytest.mark.parametrize("arguments", [["prune"], ["clear", "-y"], ["verify", "--fix"], ["load", "x"]], ids=" ".join)
def test_a_mode_that_forbids_writing_is_respected(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, mode: str, arguments: list[str]
) -> None:
    monkeypatch.setenv("TRITONSTORE_MODE", mode)
    done = cli(*arguments)
    assert done.code == 2
    assert f"mode = {mode} (from environment TRITONSTORE_MODE): the store may not be changed" in done.err


class Failing(click.Command):
    def __init__(self, error: BaseException) -> None:
        super().__init__("failing")
        self.error = error

    def invoke(self, ctx: click.Context) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (StoreError("it broke"), 3, "it broke"),
        (ValueError("oops"), 70, "a bug in tritonstore, please report it: ValueError: oops"),
    ],
)
def test_errors_become_exit_codes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr(module.Commands, "get_command", lambda self, ctx, name: Failing(error))
    monkeypatch.setenv("TRITONSTORE_STRICT", "0")
    done = cli("ls")
    assert (done.code, said in done.err) == (code, True), done.err


def test_a_bug_shows_its_place_in_strict_mode(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Commands, "get_command", lambda self, ctx, name: Failing(ValueError("oops")))
    with pytest.raises(ValueError, match="oops"):
        cli("ls")


def test_a_reader_that_goes_away_is_no_error(root: Path, store: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tritonstore", "ls", "--store", f"file://{root}"],
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "rror" not in done.stderr


def test_python_m_and_the_script_are_the_same(tmp_path: Path) -> None:
    module_says = piped("--help").stdout
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "cache"), "--help"],
        env=environment(PYTHONPATH=""),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, module_says)


def test_no_line_is_wider_than_the_terminal(root: Path, store: list[str]) -> None:
    for arguments in (["--help"], ["ls", "--store", f"file://{root}"], *([name, "--help"] for name in COMMANDS)):
        code, seen = on_terminal(*arguments, environ={"NO_COLOR": "1"})
        assert code == 0
        assert max(len(line) for line in seen.splitlines()) <= 80, arguments
        assert "\x1b" not in seen


def test_a_command_that_is_terminated_says_so() -> None:
    program = (
        "import os, signal, tritonstore.cli.main as m\nm.main = lambda: os.kill(os.getpid(), signal.SIGTERM)\nm.entry()"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), timeout=240, check=False)
    assert done.returncode == 143
