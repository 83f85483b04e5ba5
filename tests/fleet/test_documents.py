"""docs/fleet.md names only what can be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tritonstore.backends.registry import SCHEMES, open_backend
from tritonstore.settings import Settings
from tritonstore.store import open_store

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "fleet.md").read_text()


@pytest.mark.parametrize("urls", sorted(set(re.findall(r"TRITONSTORE_URL=(\S+)", TEXT))))
def test_urls_can_be_opened(urls: str) -> None:
    open_store(urls.rstrip("`.;").replace("$PWD", "/pwd")).close()


def test_every_scheme_is_named() -> None:
    assert [scheme for scheme in SCHEMES if scheme != "memory" and f"{scheme}:" not in TEXT] == []


def test_every_setting_is_one() -> None:
    for variable in re.findall(r"TRITONSTORE_([A-Z_]+)", TEXT):
        assert variable.lower() in {*Settings._fields, "url"}


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`([a-z_]+)=`", TEXT))))
def test_every_option_is_one(option: str) -> None:
    examples = ("redis://h", "rediss://h", "s3://b", "az://b", "file:///x")
    values = ("/x", "1", "http://x", "name", "true")
    taken = []
    for url in examples:
        for value in values:
            try:
                open_backend(f"{url}?{option}={value}", Settings.load({"HOME": "/h"}))
            except ValueError:
                continue
            taken.append(url)
    assert taken
