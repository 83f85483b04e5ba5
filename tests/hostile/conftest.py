"""The command line in this process, Redis, and keys to sign with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import cli
from tests.support.servers import redis_client, redis_port, s3_credentials, s3_port

__all__ = ["MakeKey", "cli", "key_file", "redis_client", "redis_port", "s3_credentials", "s3_port"]

MakeKey = Callable[..., str]


@pytest.fixture
def key_file(tmp_path: Path) -> MakeKey:
    """Write a private file with keys that are made of these words; its path."""

    def key_file(*words: str, name: str = "keys") -> str:
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text("".join(f"{word}-0123456789-abcdefghijklmnopqrstuv\n" for word in words))
        return str(path)

    return key_file
