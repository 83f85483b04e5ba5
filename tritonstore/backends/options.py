"""Store URLs: their options, and the one way to refuse them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from tritonstore.errors import SettingsError
from tritonstore.settings import Settings, redact_url

__all__ = ["absolute_path", "boolean", "folder", "one_of", "refuse", "split_url", "text"]

Parser = Callable[[str], Any]
"""Text, percent-decoded → value. Raises ValueError with what is allowed."""


def split_url(url: str, settings: Settings, options: Mapping[str, Parser]) -> tuple[SplitResult, dict[str, Any]]:
    """The parts of `url`, and the values of those `options` that it has. Raises SettingsError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refuse(url, settings, f"it is no URL ({_plain(error)})") from None
    if parts.fragment or "#" in url:
        raise refuse(url, settings, "a # is written %23")
    if port == 0:
        raise refuse(url, settings, "there is no port 0")
    values: dict[str, Any] = {}
    for option in parts.query.split("&") if parts.query else ():
        name, equals, text = option.partition("=")
        if name not in options or not equals or name in values:
            known = ", ".join(options)
            raise refuse(url, settings, f"its options are {known}, each once, as in ?{next(iter(options))}=…")
        try:
            values[name] = options[name](unquote(text, errors="surrogateescape"))
        except ValueError as error:
            raise refuse(url, settings, f"option {name}: {error}") from None
    return parts, values


def folder(parts: SplitResult, url: str, settings: Settings) -> str:
    """The folder that ``scheme:///path`` names; the host may be ``localhost``. Raises SettingsError."""
    if parts.netloc not in {"", "localhost"}:
        scheme = parts.scheme
        raise refuse(url, settings, f"a {scheme}: URL has three slashes, as in {scheme}:///var/cache/tritonstore")
    if re.search(r"%(?![0-9A-Fa-f]{2})", parts.path):
        raise refuse(url, settings, "a % in a path is written %25")
    try:
        return absolute_path(unquote(parts.path, errors="surrogateescape"))
    except ValueError as error:
        raise refuse(url, settings, str(error)) from None


def absolute_path(text: str) -> str:
    """A path without a trailing slash. Raises ValueError."""
    if not text.startswith("/") or text.strip("/") == "" or "\0" in text:
        raise ValueError("use an absolute path, as in /var/cache/tritonstore")
    return text.rstrip("/")


def boolean(text: str) -> bool:
    """``true`` or ``false``. Raises ValueError."""
    return one_of("true", "false")(text) == "true"


def text(given: str) -> str:
    """Text that can be written as UTF-8. Raises ValueError."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError("use text (UTF-8)") from None
    return given


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser of these words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"use one of {', '.join(allowed)}")
        return text

    return parse


def refuse(url: str, settings: Settings, allowed: str) -> SettingsError:
    """The error to raise for `url`, with what is allowed instead."""
    origin = settings.origins.get("urls", "argument url")
    return SettingsError(f"url = {redact_url(url)} (from {origin}) cannot be used: {allowed}", "url", origin)


def _plain(error: ValueError) -> str:
    # urllib quotes the part that it did not like, which may be half a password.
    return re.sub(r"[:']? ?['\"].*", "", str(error), flags=re.DOTALL)
