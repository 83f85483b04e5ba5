"""A store with known entries, and the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.synthetic import entry, fill
from tritonstore.cli.main import main
from tritonstore.entry import Entry


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run one command line in this process, on the store at tmp_path/store unless --store is given."""
    monkeypatch.setenv("TRITONSTORE_URL", f"file://{tmp_path}/store")

    def cli(*arguments: str) -> Done:
        capsys.readouterr()
        code = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return cli


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the store."""
    return tmp_path / "store"


@pytest.fixture
def entries() -> list[Entry]:
    """Two kernels, two torches, two GPUs."""
    return [
        entry(0, kernel="_rms_norm", torch="2.13.0"),
        entry(1, kernel="_rms_norm", torch="2.13.0", arch=80),
        entry(2, kernel="_swiglu", torch="2.11.0", triton="3.6.0"),
        entry(3, kernel="Layer._swiglu", torch="2.13.0"),
    ]


@pytest.fixture
def store(root: Path, entries: list[Entry]) -> list[str]:
    """The digests of the entries, now in the store, the first one used now and each next one a day earlier."""
    return fill(str(root), entries, apart=86400.0)
