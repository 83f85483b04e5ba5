from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tritonstore.backends.base import Backend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.errors import StoreError
from tritonstore.maintenance import doctor
from tritonstore.maintenance.doctor import Check
from tritonstore.settings import Settings

SETTINGS = Settings.load({})


def verdicts(checks: Any) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


def test_all_is_well(cli: Cli, store: list[str], root: Path) -> None:
    root.chmod(0o700)
    done = cli("doctor", "--quick")
    assert done.code == 0, done.out
    for line in ("Settings", "Installation", f"Store file://{root}"):
        assert line in done.out.splitlines()
    assert "\n  urls            file://" in done.out
    assert "(environment TRITONSTORE_URL)" in done.out
    assert "  strict          1  (environment TRITONSTORE_STRICT)" in done.out
    assert "  max_age         90 d  (default)" in done.out
    assert "an entry was stored, read and removed" in done.out
    assert len([path for path in root.rglob("*") if len(path.name) == 64]) == 4  # and nothing was left


def test_in_json(cli: Cli, root: Path) -> None:
    found = json.loads(cli("doctor", "--quick", "--json").out)
    assert found["well"] is True
    assert found["settings"]["urls"] == {"value": f"file://{root}", "origin": "environment TRITONSTORE_URL"}
    assert {"section", "name", "verdict", "text"} == set(found["checks"][0])
    assert not root.exists()


def test_pytorch_is_looked_at_in_its_own_process(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONSTORE_TARGET", "cuda:90:32")
    checks = {check["name"]: check for check in json.loads(cli("doctor", "--json").out)["checks"]}
    assert checks["seam"]["verdict"] == "ok"
    assert checks["target"]["text"] == "cuda:90:32, declared"
    assert checks["toolchain"]["text"].startswith("torch ")


def test_no_gpu_and_no_target_is_a_problem(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    found = list(doctor.pytorch(SETTINGS))
    target = next(check for check in found if check.name == "target")
    if target.verdict == "problem":
        assert target.text.startswith("every call bypasses the store: ")
        assert "TRITONSTORE_TARGET=cuda:90:32 declares one" in target.text


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", "print('{')"])
def test_a_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {os.sys.executable} -c "{program}"\n')  # type: ignore[attr-defined]
    fake.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(fake))
    (check,) = doctor.pytorch(SETTINGS)
    assert (check.name, check.verdict) == ("torch", "problem")


def test_who_may_write(tmp_path: Path) -> None:
    from tritonstore.backends.files import FilesBackend

    for mode, verdict in ((0o700, "ok"), (0o770, "note"), (0o777, "warning"), (0o2775, "note")):
        tmp_path.chmod(mode)
        found = verdicts(doctor.store(FilesBackend(str(tmp_path)), SETTINGS))
        assert found["permissions"] == verdict, oct(mode)
        if verdict == "warning":  # the store is not used, unless its URL says that this is meant
            assert found["readable"] == "problem"
            continue
        assert found["file system"] == found["readable"] == found["writable"] == found["leases"] == "ok"
        assert found["its clock"] == "ok"


def test_a_file_in_the_stores_place(cli: Cli, root: Path) -> None:
    root.write_text("a file")
    done = cli("doctor", "--quick")
    assert done.code == 1
    assert f"{root} is not a folder" in done.out
    assert "1 problem" in done.err


def test_a_clock_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritonstore.backends.files import FilesBackend

    monkeypatch.setattr(doctor, "_skew", lambda backend, root, digest: -7200.0)
    checks = {check.name: check for check in doctor.store(FilesBackend(str(tmp_path)), SETTINGS)}
    assert checks["its clock"] == Check("its clock", "warning", "7200 s behind this one: ages will be wrong")


class Odd(MemoryBackend):
    """Not in this process's memory, as far as doctor can tell; `fault` fails, `loses` forgets what is put."""

    def __init__(self, fault: str = "", loses: bool = False) -> None:
        super().__init__()
        self.url = "odd:"
        self.fault = fault
        self.loses = loses

    def get(self, digest: str) -> bytes | None:
        if self.fault == "get":
            raise StoreError("get failed", self.url, "get")
        return None if self.loses else super().get(digest)

    def put(self, digest: str, data: bytes) -> None:
        if self.fault == "put":
            raise StoreError("put failed", self.url, "put")
        super().put(digest, data)


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (Odd("get"), "get failed"),
        (Odd("put"), "put failed"),
        (Odd(loses=True), "an entry that had just been stored was not given back as it was"),
    ],
)
def test_a_tier_that_does_not_work(backend: Backend, text: str) -> None:
    checks = {check.name: check for check in doctor.store(backend, SETTINGS)}
    assert checks["writable"] == Check("writable", "problem", text)


def test_a_tier_without_leases_and_one_that_is_only_read() -> None:
    assert verdicts(doctor.store(Odd(), SETTINGS))["leases"] == "note"
    assert verdicts(doctor.store(Odd(), SETTINGS._replace(mode="readonly")))["writable"] == "note"


def test_an_unknown_url_is_a_problem_and_the_rest_is_looked_at(cli: Cli, root: Path) -> None:
    done = cli("doctor", "--quick", "--store", f"ftp://user:secret@host,file://{root}")
    assert done.code == 1
    assert "secret" not in done.out
    assert f"Store file://{root}" in done.out


@pytest.mark.parametrize(("enabled", "mode", "verdict"), [("1", "", "ok"), ("", "", "note"), ("1", "off", "warning")])
def test_activation(monkeypatch: pytest.MonkeyPatch, enabled: str, mode: str, verdict: str) -> None:
    from types import SimpleNamespace

    found = [SimpleNamespace(name="tritonstore")]
    monkeypatch.setattr(doctor.importlib.metadata, "entry_points", lambda group: found)
    settings = Settings.load({"TRITONSTORE": enabled, "TRITONSTORE_MODE": mode})
    assert verdicts(doctor.installation(settings))["activation"] == verdict
    found.clear()
    assert verdicts(doctor.installation(settings))["activation"] == "warning"
