"""URL → backend. One table; a backend's module is imported when its scheme is first used."""

from __future__ import annotations

import importlib
from typing import Any, cast

from tritonstore.backends import options
from tritonstore.backends.base import Backend, Writes
from tritonstore.settings import Settings, redact_url

__all__ = ["SCHEMES", "open_backend"]

# scheme → (module, function that takes (url, settings), extra that installs what the module imports)
SCHEMES: dict[str, tuple[str, str, str]] = {
    "memory": ("tritonstore.backends.registry", "open_memory", ""),
    "file": ("tritonstore.backends.registry", "open_files", ""),
    "diskcache": ("tritonstore.backends.diskcache", "open_diskcache", "diskcache"),
    "redis": ("tritonstore.backends.redis", "open_redis", "redis"),
    "rediss": ("tritonstore.backends.redis", "open_redis", "redis"),
    "s3": ("tritonstore.backends.objectstore", "open_objectstore", "objectstore"),
    "gs": ("tritonstore.backends.objectstore", "open_objectstore", "objectstore"),
    "az": ("tritonstore.backends.objectstore", "open_objectstore", "objectstore"),
}


def open_backend(url: str, settings: Settings) -> Backend:
    """The backend that `url` names; no file or connection is touched yet.

    Every URL may have the option ``write=all|publish|none``; what is not written is opened for reading only. Raises
    SettingsError for a URL that is malformed, of an unknown scheme or with an unknown option, and where a package is
    missing (with the command that installs it).
    """
    if url.startswith("/"):
        url = "file://" + url.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
    scheme = url.partition(":")[0].lower()
    if scheme not in SCHEMES or ":" not in url:
        known = ", ".join(f"{name}:" for name in SCHEMES)
        raise options.refuse(url, settings, f"use one of {known} or an absolute path")
    module, function, extra = SCHEMES[scheme]
    bare, writes = _split_writes(url, settings)
    try:
        opener = getattr(importlib.import_module(module), function)
    except ImportError as error:
        hint = f"pip install 'tritonstore[{extra}]'" if extra else "reinstall tritonstore"
        raise options.refuse(url, settings, f"{error.name or error} is missing; {hint}") from error
    if writes != "none":
        backend = cast(Backend, opener(bare, settings))
        backend.writes = writes
        return backend
    from tritonstore.backends.wrappers import ReadOnly

    return ReadOnly(opener(bare, settings._replace(mode="readonly")))


def open_memory(url: str, settings: Settings) -> Backend:
    """`memory:`, with no path and no options."""
    from tritonstore.backends.memory import MemoryBackend

    if url.lower() not in {"memory:", "memory://"}:
        raise options.refuse(url, settings, "memory: takes neither a path nor options but write=")
    return MemoryBackend()


def open_files(url: str, settings: Settings) -> Backend:
    """``file:///path?durable=true&lock_folder=/path&shared=true``."""
    from tritonstore.backends.files import FilesBackend

    known: dict[str, options.Parser] = {
        "durable": options.boolean,
        "lock_folder": options.absolute_path,
        "shared": options.boolean,
    }
    parts, found = options.split_url(url, settings, known)
    values: dict[str, Any] = {"durable": settings.durable, "lock_folder": settings.lock_folder, **found}
    return FilesBackend(
        options.folder(parts, url, settings),
        url=redact_url(url),
        max_size=settings.max_size,
        max_age=settings.max_age,
        touch=settings.mode != "readonly",
        **values,
    )


def _split_writes(url: str, settings: Settings) -> tuple[str, Writes]:
    """The URL without its option ``write``, and that option."""
    before, mark, query = url.partition("?")
    if "?" in query:  # it would become part of a value, such as a prefix
        raise options.refuse(url, settings, "there is one ?, and & between options; a ? in a value is %3F")
    given = query.split("&") if mark else []
    rest = [option for option in given if not option.startswith("write=")]
    values = {option.partition("=")[2] for option in given if option.startswith("write=")} or {"all"}
    if len(values) > 1 or not values <= {"all", "publish", "none"}:
        raise options.refuse(url, settings, "option write: use one of all, publish, none")
    bare = f"{before}?{'&'.join(rest)}" if rest else before
    return bare, cast(Writes, values.pop())
