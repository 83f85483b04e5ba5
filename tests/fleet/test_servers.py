"""A server that is missing is a failure that says what to do; the demo's workers get no URL in their command line."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import pytest
from demo_lib import runs
from demo_lib.report import Progress

from tests.support.servers import redis_server


@pytest.mark.parametrize("program", ["redis-server", "valkey-server"])
def test_a_missing_server_fails_with_the_step_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(
        pytest.fail.Exception, match=rf"{program} is not installed; .ci/run .* apt-get install {program}"
    ):
        redis_server(tmp_path, program=program).__enter__()


def test_ci_installs_the_servers(root: Path) -> None:
    text = (root / ".ci" / "run").read_text()
    assert "--no-install-recommends redis-server" in text
    assert "valkey-server" in text


def test_a_stores_password_is_not_in_a_workers_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every user of a machine can read command lines; environments only their own."""
    started: list[tuple[list[str], dict[str, str]]] = []

    def popen(command: list[str], *, env: dict[str, str], **others: Any) -> NoReturn:
        started.append((command, env))
        raise runs.DemoError("enough")

    monkeypatch.setattr(subprocess, "Popen", popen)
    url = "redis://:hunter2@127.0.0.1:1"
    options = runs.Options(1, 1, ("decode",), url, tmp_path)
    for name in ("pytorch", "cold"):
        with pytest.raises(runs.DemoError, match="enough"):
            runs.run(name, options, Progress(io.StringIO()))
    (plain, plain_env), (cold, cold_env) = started
    assert "hunter2" not in " ".join([*plain, *cold])
    assert cold_env["TRITONSTORE_URL"] == url
    assert "TRITONSTORE_URL" not in plain_env
