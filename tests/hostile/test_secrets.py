"""Keys and passwords reach nothing that a person or a program is shown or that stays on disk."""

from __future__ import annotations

import logging
import pickle
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tritonstore
from tests.hostile.conftest import MakeKey
from tests.pytorch.conftest import TARGET, _driver_put_back, ask, kernels, seam, tensors
from tests.support.servers import free_port, redis_server
from tritonstore.errors import TritonStoreError
from tritonstore.settings import Settings
from tritonstore.signing import keys_of
from tritonstore.store import open_store

__all__ = ["_driver_put_back", "ask", "kernels", "seam"]

PASSWORD, KEY = "hunter2-of-the-url", "k3y-of-the-file-0123456789-abcdefghijklmnopqrstuv"


@pytest.fixture
def key_path(key_file: MakeKey) -> str:
    path = key_file("k3y-of-the-file")
    assert KEY in Path(path).read_text()
    return path


def clean(*texts: object) -> None:
    for text in texts:
        shown = text if isinstance(text, bytes) else str(text).encode(errors="replace")
        for secret in (PASSWORD, KEY, "hunter2", "k3y-of"):
            assert secret.encode() not in shown, shown[:2000]


def chain(error: BaseException | None) -> str:
    """All that an exception, its causes and its attributes say."""
    said = "" if error is None else "".join(traceback.format_exception(error))
    while error is not None:
        said += f"{error!r} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__
    return said


def files(folder: Path, *but: str) -> list[bytes]:
    """Every file below, and what run records say unpacked."""
    found = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and str(path) not in but]
    return found + [zlib.decompress(data[45:]) for data in found if data.startswith(b"\x8fTSR")]


def surfaces(cli: Any) -> list[object]:
    commands = [
        *(
            "doctor --quick",
            "doctor --quick --json",
            "ls",
            "ls --json",
            "verify",
            "verify --json",
            "stats",
            "stats --json",
        ),
        *("stats --all", "explain --last", "explain --last --json", "prune --dry-run", "show 1234", "save b.tsb"),
        *("load b.tsb", f"load https://me:{PASSWORD}@127.0.0.1:9/b.tsb", f"load redis://me:{PASSWORD}@127.0.0.1:9/b"),
        *(f"ls --store redis://me:{PASSWORD}@127.0.0.1:x/0", f"ls --store nothing://me:{PASSWORD}@host/0"),
    ]
    return [each for command in commands for each in cli(*command.split())]


@pytest.mark.parametrize("server", ["dead", "refuses"])
def test_every_surface(
    server: str,
    key_path: str,
    tmp_path: Path,
    cli: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., Any],
    kernels: Any,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITONSTORE_STRICT", "0")
    monkeypatch.setenv("TRITONSTORE_HMAC_KEY_FILE", key_path)
    with redis_server(tmp_path / "redis", "--requirepass", "another one") as running, warnings.catch_warnings():
        port = free_port() if server == "dead" else running.port
        url = f"file://{tmp_path}/store,redis://me:{PASSWORD}@127.0.0.1:{port}/0?prefix=x:"
        monkeypatch.setenv("TRITONSTORE_URL", url)
        with tritonstore.installed(target=TARGET):
            ask(kernels.swap, tensors(n=7))
            stats = tritonstore.stats()
            assert stats["publishes"] == 1
            assert stats["faults"]
        said = surfaces(cli)
        settings = Settings.load()
        store = open_store()
        keys = keys_of(settings)
        objects = [store, store.tiers, *store.tiers.backends, settings, keys, store.counters, store.settings.origins]
        clean(*map(repr, objects), *map(str, objects), dict(settings.explain()), stats, caplog.text, *said)
        errors = []
        with pytest.raises(TritonStoreError) as caught:
            store.tiers.backends[1].get("ab" * 32)
        errors.append(caught.value)
        with pytest.raises(TritonStoreError) as caught:
            open_store(f"redis://me:{PASSWORD}@127.0.0.1:{port}/0?what=ever")
        errors.append(caught.value)
        clean(*map(chain, errors), pickle.dumps([str(error) for error in errors]))
    assert any(b"\x8fTSR" in data for data in files(tmp_path))
    clean(*files(tmp_path, key_path))


@pytest.mark.parametrize("spoilt", [KEY[:20], f"\xff{KEY}", f"{KEY}\n{KEY[:9]}"], ids=["short", "odd", "second"])
def test_a_key_that_is_refused(
    spoilt: str,
    key_path: str,
    cli: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., Any],
    kernels: Any,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.DEBUG)
    Path(key_path).write_text(spoilt)
    monkeypatch.setenv("TRITONSTORE_HMAC_KEY_FILE", key_path)
    monkeypatch.setenv("TRITONSTORE_URL", f"file://{tmp_path}/store")
    with tritonstore.installed(target=TARGET, strict=False):  # the export goes on, without a store
        ask(kernels.swap, tensors(n=7))
        stats = tritonstore.stats()
        assert (stats["bypasses"], stats["faults"]) == ({"no-store": 1}, {"pytorch-open": 1})
    with pytest.raises(TritonStoreError, match="hmac_key_file") as caught:
        open_store()
    done = [cli("doctor", "--quick"), cli("verify"), cli("save", str(tmp_path / "x")), cli("load", str(tmp_path / "x"))]
    assert done[0].code == 1
    assert done[1].code != 0
    clean(chain(caught.value), caplog.text, stats, *done, *files(tmp_path, key_path))
    assert not (tmp_path / "store").exists()
