"""A bundle from a file or a URL, as an open file that can be read twice. Nothing larger than a limit is fetched."""

from __future__ import annotations

import contextlib
import http.client
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from tritonstore.maintenance.bundle import BundleError

__all__ = ["is_url", "opened_bundle"]

_TIMEOUT = 60.0  # seconds that a server may be silent
_CHUNK = 1 << 16


def is_url(source: str) -> bool:
    """Whether `source` is a URL that can be loaded from, and no path."""
    return source.partition("://")[0].lower() in {"http", "https", "file"} and "://" in source


@contextlib.contextmanager
def opened_bundle(source: str, limit: int, step: Callable[[int], object]) -> Iterator[BinaryIO]:
    """`source` (a path, or an http, https or file URL), open. `limit` bytes at most are fetched; 0 is no limit.

    `step` is called with the bytes of each part that was fetched. Raises BundleError.
    """
    if is_url(source) and not source.lower().startswith("file:"):
        with tempfile.TemporaryFile() as file:
            _download(source, cast(IO[bytes], file), limit, step)
            yield cast(BinaryIO, file)
        return
    path = unquote(urlsplit(source).path) if is_url(source) else source
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise BundleError(f"it cannot be read: {error.strerror or error}") from error


def _download(url: str, to: IO[bytes], limit: int, step: Callable[[int], object]) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            length = answer.headers.get("Content-Length") or ""
            if limit and length.isdigit() and int(length) > limit:
                raise BundleError(f"it has {int(length):,} bytes, beyond the limit of {limit:,}")
            fetched = 0
            while part := answer.read(_CHUNK):
                fetched += len(part)
                if limit and fetched > limit:
                    raise BundleError(f"it has more than {limit:,} bytes, which is the limit")
                to.write(part)
                step(len(part))
    except urllib.error.HTTPError as error:
        error.close()
        raise BundleError(f"it cannot be fetched: the server answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise BundleError(f"it cannot be fetched: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"it cannot be fetched: {error or type(error).__name__}") from error
