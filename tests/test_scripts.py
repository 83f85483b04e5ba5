"""What the scripts share: the environment they choose, and the check of the documents."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from lib import check, environment

ALL = environment.EXTRAS


def test_every_requirement_has_a_pin_that_fits() -> None:
    pins = environment.pins()
    for name, bound in environment.requirements(*ALL):
        assert environment._numbers(pins[name]) >= environment._numbers(bound)
    assert set(pins) == {name for name, _ in environment.requirements(*ALL)}


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.13.0+cpu", [2, 13, 0]), ("3.7.1", [3, 7, 1]), ("2.14.0a0+git1", [2, 14, 0]), ("2.9.post1", [2, 9])],
)
def test_version_numbers(version: str, numbers: list[int]) -> None:
    assert environment._numbers(version)[: len(numbers)] == numbers


@pytest.mark.parametrize(
    ("versions", "kept"),
    [
        ({"torch": "2.11.0+cu130", "triton": "3.6.0"}, True),
        ({"torch": "2.13.0", "triton": "3.5.9"}, False),
        ({"torch": "2.10.9", "triton": "3.7.1"}, False),
        ({"torch": "2.13.0"}, False),
    ],
)
def test_a_fitting_torch_and_triton_are_kept(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], kept: bool
) -> None:
    monkeypatch.setattr(environment, "_found", versions.get)
    monkeypatch.setattr(environment, "VENV", Path("/nowhere"))
    base = environment._base()
    assert ({name: base[name] for name in environment.BIG} == versions) if kept else base == {}


def test_a_package_of_another_version_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment.pins() | {"pytest": "9.9.9"}
    monkeypatch.setattr(environment, "_found", found.get)
    assert environment._satisfied(ALL, exact=False, itself=False)
    assert not environment._satisfied(ALL, exact=True, itself=False)
    del found["msgpack"]
    assert not environment._satisfied((), exact=False, itself=False)


def test_another_checkout_is_not_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        def read_text(self, name: str) -> str:
            return json.dumps({"url": "file:///another/checkout", "dir_info": {"editable": True}})

    monkeypatch.setattr(environment, "_found", environment.pins().get)
    monkeypatch.setattr(metadata, "distribution", lambda name: Elsewhere())
    assert not environment._satisfied(ALL, exact=True, itself=True)


def test_documents_name_what_exists() -> None:
    assert check.documents() == []


def test_a_document_that_names_what_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: Path) -> None:
    for name in ("scripts", "tests", "tritonstore", ".ci"):
        (tmp_path / name).symlink_to(root / name)
    for name in check.DOCUMENTS:
        (tmp_path / name).write_text("`scripts/demo --nothing`, tests/test_nothing.py and TRITONSTORE_NOTHING\n")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    wrong = [sentence for sentence in check.documents() if sentence.startswith("README.md")]
    assert wrong == [
        "README.md: there is no tests/test_nothing.py",
        "README.md: scripts/demo has no --nothing",
        "README.md: tritonstore/settings.py reads no TRITONSTORE_NOTHING",
    ]


@pytest.mark.parametrize("script", ["demo", "test"])
def test_scripts_run_from_any_folder(root: Path, tmp_path: Path, script: str) -> None:
    """In the environment of this test run, which holds all that is needed."""
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / script), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
