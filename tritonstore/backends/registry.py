"""URL → backend. One table; a backend's module is imported when its scheme is first used."""

from __future__ import annotations

import importlib
import re
from typing import cast
from urllib.parse import unquote, urlsplit

from tritonstore.backends.base import Backend
from tritonstore.errors import SettingsError
from tritonstore.settings import Settings, redact_url

__all__ = ["SCHEMES", "open_backend"]

# scheme → (module, function that takes (url, settings), extra that installs what the module imports)
SCHEMES: dict[str, tuple[str, str, str]] = {
    "memory": ("tritonstore.backends.registry", "open_memory", ""),
    "file": ("tritonstore.backends.registry", "open_files", ""),
}


def open_backend(url: str, settings: Settings) -> Backend:
    """The backend that `url` names; no file or connection is touched yet.

    Raises SettingsError for a URL that is malformed, of an unknown scheme or with an unknown option, and
    where a package is missing (with the command that installs it).
    """
    if url.startswith("/"):
        url = "file://" + url.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    scheme = url.partition(":")[0].lower()
    if scheme not in SCHEMES or ":" not in url:
        raise _refuse(url, settings, f"use one of {', '.join(f'{name}:' for name in SCHEMES)} or an absolute path")
    module, function, extra = SCHEMES[scheme]
    try:
        opener = getattr(importlib.import_module(module), function)
    except ImportError as error:
        hint = f"pip install 'tritonstore[{extra}]'" if extra else "reinstall tritonstore"
        raise _refuse(url, settings, f"{error.name or error} is missing; {hint}") from error
    return cast(Backend, opener(url, settings))


def open_memory(url: str, settings: Settings) -> Backend:
    """`memory:`, with no path and no options."""
    from tritonstore.backends.memory import MemoryBackend

    if url.lower() not in {"memory:", "memory://"}:
        raise _refuse(url, settings, "memory: takes neither a path nor options")
    return MemoryBackend()


def open_files(url: str, settings: Settings) -> Backend:
    """`file:///path?durable=true&lock_folder=/path`; a percent sign escapes, the host may be ``localhost``."""
    from tritonstore.backends.files import FilesBackend

    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _refuse(url, settings, f"it is no URL ({error})") from None
    if parts.netloc not in {"", "localhost"}:
        raise _refuse(url, settings, "a file: URL has three slashes, as in file:///var/cache/tritonstore")
    if parts.fragment or "#" in url:
        raise _refuse(url, settings, "a # in a path is written %23")
    root = _path(parts.path, url, settings)
    durable, lock_folder = settings.durable, settings.lock_folder
    for option in parts.query.split("&") if parts.query else ():
        name, _, value = option.partition("=")
        if name == "durable" and value in {"true", "false"}:
            durable = value == "true"
        elif name == "lock_folder" and value:
            lock_folder = _path(value, url, settings)
        else:
            raise _refuse(url, settings, "the options of file: are durable=true|false and lock_folder=/path")
    return FilesBackend(
        root,
        url=redact_url(url),
        max_size=settings.max_size,
        max_age=settings.max_age,
        durable=durable,
        lock_folder=lock_folder,
        touch=settings.mode != "readonly",
    )


def _path(text: str, url: str, settings: Settings) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _refuse(url, settings, "a % in a path is written %25")
    path = unquote(text, errors="surrogateescape")
    if not path.startswith("/") or path.strip("/") == "" or "\0" in path:
        raise _refuse(url, settings, "a path is absolute and names a folder, as in file:///var/cache/tritonstore")
    return path.rstrip("/")


def _refuse(url: str, settings: Settings, allowed: str) -> SettingsError:
    origin = settings.origins.get("urls", "argument url")
    return SettingsError(f"url = {redact_url(url)} (from {origin}) cannot be used: {allowed}", "url", origin)
