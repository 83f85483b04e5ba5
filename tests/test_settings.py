from __future__ import annotations

import ast
import os
import stat
import tempfile
from pathlib import Path

import pytest

import tritonstore.settings
from tritonstore.errors import SettingsError
from tritonstore.settings import Settings, Target, is_enabled

HOME = {"HOME": "/home/me"}


def test_defaults() -> None:
    settings = Settings.load(HOME)
    assert settings.enabled is False
    assert settings.urls == ("file:///home/me/.cache/tritonstore/store",)
    assert (settings.mode, settings.target, settings.prefer_target) == ("readwrite", None, False)
    assert (settings.max_size, settings.max_age) == (1 << 30, 90 * 86400)
    assert (settings.verify, settings.strict, settings.durable, settings.lease_wait) == (
        0.0,
        False,
        False,
        600.0,
    )
    assert set(settings.origins.values()) == {"default"}


def test_every_variable_is_read_and_remembered() -> None:
    environ = {
        "TRITONSTORE": "on",
        "TRITONSTORE_URL": "memory:, file:///x",
        "TRITONSTORE_MODE": "refresh",
        "TRITONSTORE_TARGET": "hip:gfx942:64",
        "TRITONSTORE_PREFER_TARGET": "1",
        "TRITONSTORE_MAX_SIZE": "2MiB",
        "TRITONSTORE_MAX_AGE": "none",
        "TRITONSTORE_VERIFY": "0.5",
        "TRITONSTORE_STRICT": "yes",
        "TRITONSTORE_DURABLE": "true",
        "TRITONSTORE_LEASE_WAIT": "0",
        "TRITONSTORE_LOCK_FOLDER": "/locks",
        "TRITONSTORE_CONNECT_TIMEOUT": "0.25",
        "TRITONSTORE_REQUEST_TIMEOUT": "3s",
        "TRITONSTORE_HMAC_KEY_FILE": "/keys",
        "TRITONSTORE_PREWARM": "3",
        "TRITONSTORE_CACHE_FOLDER": "/cache",
    }
    settings = Settings.load(environ)
    assert settings[:-1] == (
        True,
        ("memory:", "file:///x"),
        "refresh",
        Target("hip", "gfx942", 64),
        True,
        2 << 20,
        0,
        0.5,
        True,
        True,
        0.0,
        "/locks",
        0.25,
        3.0,
        "/keys",
        3,
        "/cache",
    )
    assert set(settings.origins.values()) == {f"environment {name}" for name in environ}


def test_arguments_win_and_none_does_not() -> None:
    environ = {**HOME, "TRITONSTORE_MODE": "off", "TRITONSTORE_URL": "memory:"}
    settings = Settings.load(
        environ, mode="readonly", url="file:///x", target=("cuda", 90, 32), max_size=5, strict=None
    )
    assert (settings.mode, settings.urls, settings.target, settings.max_size) == (
        "readonly",
        ("file:///x",),
        Target("cuda", 90, 32),
        5,
    )
    assert settings.origins["mode"] == "argument mode"
    assert settings.origins["urls"] == "argument url"
    assert Settings.load(environ, url=None).urls == ("memory:",)
    assert Settings.load(HOME, url=Path("/a b")).urls == ("/a b",)
    assert Settings.load(HOME, url=["memory:", "/a,b"]).urls == ("memory:", "/a,b")


def test_an_empty_variable_is_unset() -> None:
    assert Settings.load({**HOME, "TRITONSTORE_MAX_SIZE": "", "TRITONSTORE_URL": ""}) == Settings.load(HOME)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("TRITONSTORE", "maybe", "1 or 0"),
        ("TRITONSTORE_URL", "memory:,,file:///x", "commas"),
        ("TRITONSTORE_MODE", "write", "readwrite, readonly, refresh, off"),
        ("TRITONSTORE_TARGET", "h100", "cuda:90:32"),
        ("TRITONSTORE_PREFER_TARGET", "2", "1 or 0"),
        ("TRITONSTORE_MAX_SIZE", "big", "512MiB"),
        ("TRITONSTORE_MAX_AGE", "old", "90d"),
        ("TRITONSTORE_VERIFY", "2", "from 0 to 1"),
        ("TRITONSTORE_STRICT", "x", "1 or 0"),
        ("TRITONSTORE_DURABLE", "x", "1 or 0"),
        ("TRITONSTORE_LEASE_WAIT", "-1", "600"),
        ("TRITONSTORE_LOCK_FOLDER", "relative", "absolute path"),
        ("TRITONSTORE_CONNECT_TIMEOUT", "0", "more than 0"),
        ("TRITONSTORE_REQUEST_TIMEOUT", "soon", "a time such as"),
        ("TRITONSTORE_HMAC_KEY_FILE", "keys", "absolute path"),
        ("TRITONSTORE_PREWARM", "many", "a number of processes"),
        ("TRITONSTORE_PREWARM", "-1", "a number of processes"),
        ("TRITONSTORE_PREWARM", "99999", "a number of processes"),
        ("TRITONSTORE_CACHE_FOLDER", "~/x", "absolute path"),
    ],
)
def test_a_bad_value_is_named_with_its_origin_and_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load({**HOME, variable: value})
    for part in (variable, value, allowed):
        assert part in str(caught.value)
    assert caught.value.origin == f"environment {variable}"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_size", -1),
        ("max_size", 1.5),
        ("max_size", True),
        ("max_age", float("nan")),
        ("max_age", float("inf")),
        ("verify", 1.01),
        ("lease_wait", -0.1),
        ("connect_timeout", 0),
        ("request_timeout", float("inf")),
        ("strict", 1),
        ("urls", []),
        ("urls", [""]),
        ("urls", 3),
        ("mode", b"off"),
        ("target", ("cuda", 90)),
        ("target", ("cuda", 90, 31)),
        ("lock_folder", Path("relative")),
    ],
)
def test_a_bad_argument_too(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=setting) as caught:
        Settings.load(HOME, **{setting: value})
    assert caught.value.setting == setting


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'max_sise'.*max_size"):
        Settings.load(HOME, max_sise=3)


def test_nothing_that_is_shown_holds_a_secret() -> None:
    settings = Settings.load(HOME, url="redis://me:hunter2@host/0,s3://b?secret=hunter2")
    shown = [repr(settings), str(settings), str(dict(settings.explain()))]
    with pytest.raises(SettingsError) as caught:
        Settings.load({**HOME, "TRITONSTORE_URL": "memory:,redis://me:x,hunter2@host/0,,x"})
    for text in [*shown, str(caught.value)]:
        assert "hunter2" not in text
        assert "host/0" in text


@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        ("1", True),
        ("true", True),
        ("YES", True),
        (" on ", True),
        ("0", False),
        ("", False),
        ("maybe", False),
        (None, False),
    ],
)
def test_is_enabled_never_raises(value: str | None, enabled: bool) -> None:
    assert is_enabled({} if value is None else {"TRITONSTORE": value}) is enabled


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/h"}, "/xdg/tritonstore"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/tritonstore"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/tritonstore"),
    ],
)
def test_the_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert Settings.load(environ).cache_folder == folder


def test_odd_characters_in_the_home_folder_survive_the_url() -> None:
    from tritonstore.backends.files import FilesBackend
    from tritonstore.backends.registry import open_backend

    settings = Settings.load({"HOME": "/h,o?m#e %41é"})
    backend = open_backend(settings.urls[0], settings)
    assert isinstance(backend, FilesBackend)
    assert backend.root == "/h,o?m#e %41é/.cache/tritonstore/store"


class TestWithoutAHome:
    @pytest.fixture(autouse=True)
    def _no_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def test_a_private_folder_is_made(self, tmp_path: Path) -> None:
        for _ in range(2):
            folder = Settings.load({}).cache_folder
            assert folder == str(tmp_path / f"tritonstore-{os.getuid()}")
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700

    def test_one_that_others_can_write_in_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / f"tritonstore-{os.getuid()}").mkdir()
        (tmp_path / f"tritonstore-{os.getuid()}").chmod(0o777)
        with pytest.raises(SettingsError, match="TRITONSTORE_CACHE_FOLDER"):
            Settings.load({})

    def test_so_is_a_link(self, tmp_path: Path) -> None:
        (tmp_path / f"tritonstore-{os.getuid()}").symlink_to(tmp_path)
        with pytest.raises(SettingsError, match="not private"):
            Settings.load({})


def test_only_settings_reads_the_environment() -> None:
    package = Path(tritonstore.settings.__file__).parent
    readers = set()
    for path in [*package.glob("*.py"), *package.glob("backends/*.py")]:  # keys read Triton's own variables
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}:
                readers.add(path.name)
    assert readers == {"settings.py"}
