from __future__ import annotations

import subprocess
import sys

import pytest

from tritonstore.backends.files import FilesBackend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.backends.registry import SCHEMES, open_backend
from tritonstore.errors import SettingsError
from tritonstore.settings import Settings


def files(url: str, **settings: object) -> FilesBackend:
    backend = open_backend(url, Settings.load({"HOME": "/h"}, url=url, **settings))
    assert isinstance(backend, FilesBackend)
    return backend


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("file:///var/s", "/var/s"),
        ("file://localhost/var/s", "/var/s"),
        ("file:/var/s/", "/var/s"),
        ("FILE:///var/s", "/var/s"),
        ("file:///a%20b/%25%2C", "/a b/%,"),
        ("/plain/pa%20th", "/plain/pa%20th"),
        ("/with?mark#hash", "/with?mark#hash"),
        ("file:///var/s?durable=true&lock_folder=/l%20k", "/var/s"),
    ],
)
def test_file_urls(url: str, root: str) -> None:
    assert files(url).root == root


def test_options_win_over_settings() -> None:
    backend = files("file:///s?durable=true&lock_folder=/l%20k", durable=False, lock_folder="/other")
    assert (backend._durable, backend._locks) == (True, "/l k")
    backend = files("file:///s?durable=false", durable=True, lock_folder="/other")
    assert (backend._durable, backend._locks) == (False, "/other")
    assert files("file:///s")._locks == "/s/v1/locks"
    assert files("file:///s", mode="readonly")._touch is False


def test_memory() -> None:
    assert isinstance(open_backend("memory:", Settings.load({"HOME": "/h"})), MemoryBackend)


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "relative/path",
        "http://host/x",
        "",
        ":",
        "file:",
        "file://",
        "file:///",
        "file:relative",
        "file://host/share",
        "file://[bad/x",
        "file:///x#y",
        "file:///x%zz",
        "file:///x%",
        "file:///x%00y",
        "file:///x?size=3",
        "file:///x?durable=maybe",
        "file:///x?durable",
        "file:///x?lock_folder=",
        "file:///x?lock_folder=relative",
        "memory:x",
        "memory:?a=b",
    ],
)
def test_refused_with_the_value_and_where_it_came_from(url: str) -> None:
    settings = Settings.load({"HOME": "/h"})
    with pytest.raises(SettingsError) as caught:
        open_backend(url, settings)
    assert caught.value.setting == "url"
    assert f"url = {url} (from default) cannot be used: " in str(caught.value)


def test_unknown_scheme_lists_the_known_ones_and_hides_secrets() -> None:
    settings = Settings.load({"HOME": "/h", "TRITONSTORE_URL": "radish://me:hunter2@host/0"})
    with pytest.raises(SettingsError) as caught:
        open_backend(settings.urls[0], settings)
    for scheme in SCHEMES:
        assert f"{scheme}:" in str(caught.value)
    assert "environment TRITONSTORE_URL" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SCHEMES, "absent", ("tritonstore_absent_module", "open", "absent"))
    with pytest.raises(
        SettingsError, match=r"tritonstore_absent_module is missing; pip install 'tritonstore\[absent\]'"
    ):
        open_backend("absent://x", Settings.load({"HOME": "/h"}))


@pytest.mark.parametrize(
    ("url", "package", "module", "extra"),
    [
        ("diskcache:///x", "diskcache", "diskcache", "diskcache"),
        ("redis://h", "redis", "redis", "redis"),
        ("rediss://h", "redis", "redis", "redis"),
        ("s3://b", "obstore", "objectstore", "objectstore"),
        ("gs://b", "obstore", "objectstore", "objectstore"),
        ("az://b", "obstore", "objectstore", "objectstore"),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, module: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, f"tritonstore.backends.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=rf"{package} is missing; pip install 'tritonstore\[{extra}\]'"):
        open_backend(url, Settings.load({"HOME": "/h"}))


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; before = set(sys.modules);"  # the hook of an editable install brings pathlib
        "import tritonstore.store as s; s.open_store('/nowhere/x');"
        "heavy = {'torch', 'triton', 'filelock', 'pathlib', 'pickle', 'redis', 'obstore'};"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
