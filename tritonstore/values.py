"""Text → value, for settings: targets, sizes, ages, shares, folders; and URLs without their secrets.

Each parser raises ValueError with what is allowed; `settings` adds whose value it was. Patterns are compiled
when first used, because every process that imports torch imports this module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "MODES",
    "TRUE",
    "Target",
    "parse_age",
    "parse_flag",
    "parse_folder",
    "parse_jobs",
    "parse_mode",
    "parse_share",
    "parse_size",
    "parse_target",
    "parse_timeout",
    "parse_urls",
    "parse_wait",
    "redact_url",
]

MODES = ("readwrite", "readonly", "refresh", "off")
TRUE = frozenset({"1", "true", "yes", "on"})

_FALSE = frozenset({"0", "false", "no", "off"})
_UNLIMITED = frozenset({"none", "unlimited", "0"})
_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _SIZES[f"{_letter}b"] = 1000**_power
    _SIZES[f"{_letter}ib"] = 1024**_power
_AGES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST = 100 * 365 * 86400  # seconds; what is longer makes dates and timeouts that no library takes
_LARGEST = 2**62  # bytes
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([a-z]*)"
_SECRET_OPTION = r"(?i)([?&;][^=&;#]*(?:pass|pwd|pw|sas|secret|token|key|sig|cred|auth)[^=&;#]*=)[^&;#]*"
# The begin of a URL with any number of slashes, also none or the wrong ones: it has a password all the same. But the
# URLs that name a path have none, and a path may hold an @.
_SLIP = r"((?:^|,)\s*(?!(?i:file|diskcache|memory):)[A-Za-z][A-Za-z0-9+.-]*:[/\\]*)"
_NO_PORT = r"[^/@?#\s]*:(?![0-9]{1,5}(?:[/?#]|$))[^/@?#]*"


class Target(NamedTuple):
    """A GPU that need not be there: `arch` is an int on cuda (90) and a str on hip (gfx942)."""

    backend: str
    arch: int | str
    warp_size: int


def redact_url(url: str) -> str:
    """`url` without what may be secret: user and password, and the values of options such as ``password=``.

    Works on malformed URLs and on several in one text, since messages are about those too, and rather hides
    too much.
    """
    # Up to the last @, also past a slash or a comma: an unescaped password may hold any of them.
    shown = re.sub(r"://(?!/).*@", "://***@", url, flags=re.DOTALL)
    shown = re.sub(_SLIP + r".*@", r"\1***@", shown, flags=re.DOTALL)
    if shown == url and not re.match(r"/|[A-Za-z]+:", url):
        shown = re.sub(r"^.*@", "***@", url, flags=re.DOTALL)
    # What stands in a port's place may be the part of a password before a comma, where URLs are split.
    shown = re.sub(r"://(?!\[)" + _NO_PORT, "://***", shown)
    shown = re.sub(_SLIP + r"(?!\[|\*\*\*)" + _NO_PORT, r"\1***", shown)
    return re.sub(_SECRET_OPTION, r"\1***", shown)


def parse_target(text: str) -> Target:
    """``cuda:90:32`` or ``hip:gfx942:64``. Raises ValueError."""
    backend, *rest = text.split(":")
    if len(rest) != 2 or not re.fullmatch(r"[a-z][a-z0-9_]*", backend):
        raise ValueError("use backend:arch:warp-size, as in cuda:90:32 or hip:gfx942:64")
    arch, warp = rest
    if warp not in {"1", "8", "16", "32", "64", "128"}:
        raise ValueError("the warp size is 32 or 64, as in cuda:90:32 or hip:gfx942:64")
    if backend == "cuda" and not re.fullmatch(r"[1-9][0-9]{1,2}", arch):
        raise ValueError("a cuda arch is its compute capability without the dot, as in cuda:90:32")
    if backend == "hip" and not re.fullmatch(r"gfx[0-9a-f]+", arch):
        raise ValueError("a hip arch is its gfx name, as in hip:gfx942:64")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", arch):
        raise ValueError("use backend:arch:warp-size, as in cuda:90:32 or hip:gfx942:64")
    return Target(backend, int(arch) if arch.isascii() and arch.isdigit() else arch, int(warp))


def parse_size(text: str) -> int:
    """Bytes: ``512MiB``, ``2GB``, ``1048576``; ``0`` and ``none`` mean unlimited, 0. Raises ValueError."""
    size = int(_quantity(text, _SIZES, "a size such as 512MiB, 2GB or 1048576, or none for unlimited"))
    if size > _LARGEST:
        raise ValueError("use a size of at most 4194304TiB, or none for unlimited")
    return size


def parse_age(text: str) -> float:
    """Seconds: ``90d``, ``12h``, ``3600``; ``0`` and ``none`` mean unlimited, 0. Raises ValueError."""
    return _bounded(_quantity(text, _AGES, "an age such as 90d, 12h or 3600 (seconds), or none for unlimited"))


def parse_share(text: str) -> float:
    """A share from 0 to 1. Raises ValueError."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0.0 <= float(text) <= 1.0:
        raise ValueError("use a share from 0 to 1, as in 0.05")
    return float(text)


def _quantity(text: str, units: Mapping[str, int], allowed: str) -> float:
    lower = text.strip().lower()
    if lower in _UNLIMITED:
        return 0
    match = re.fullmatch(_NUMBER, lower)
    if match is None or match[2] not in units:
        raise ValueError(f"use {allowed}")
    number = float(match[1]) if "." in match[1] else int(match[1])
    return number * units[match[2]]


def _bounded(seconds: float) -> float:
    if seconds > _LONGEST:
        raise ValueError("use a time of at most 36500d (100 years)")
    return seconds


def parse_wait(text: str) -> float:
    """Seconds: ``10m``, ``600``; 0 means not to wait. Raises ValueError."""
    match = re.fullmatch(_NUMBER, text.strip().lower())
    if match is None or match[2] not in _AGES:
        raise ValueError("use a time such as 10m or 600 (seconds)")
    return _bounded(float(match[1]) * _AGES[match[2]])


def parse_timeout(text: str) -> float:
    """Seconds, more than 0: ``0.5``, ``2s``. Raises ValueError."""
    seconds = parse_wait(text)
    if not seconds:
        raise ValueError("use a time of more than 0, such as 0.5 or 2 (seconds)")
    return seconds


def parse_jobs(text: str) -> int:
    """A number of processes, 0 for none. Raises ValueError."""
    if not text.strip().isdecimal() or len(text.strip()) > 4:
        raise ValueError("use a number of processes, such as 2, or 0 for none")
    return int(text)


def parse_flag(text: str) -> bool:
    """``1``, ``true``, ``yes``, ``on`` or ``0``, ``false``, ``no``, ``off``. Raises ValueError."""
    lower = text.strip().lower()
    if lower not in TRUE and lower not in _FALSE:
        raise ValueError("use 1 or 0")
    return lower in TRUE


def parse_mode(text: str) -> str:
    """One of MODES. Raises ValueError."""
    if text not in MODES:
        raise ValueError(f"use one of {', '.join(MODES)}")
    return text


def parse_urls(text: str) -> tuple[str, ...]:
    """URLs with commas between them, nearest first. Raises ValueError."""
    urls = tuple(part.strip() for part in text.split(","))
    if not all(urls):
        raise ValueError("use one URL, or several with commas between them, nearest first; a comma in a path is %2C")
    return urls


def parse_folder(text: str) -> str:
    """An absolute path. Raises ValueError."""
    if not os.path.isabs(text) or "\0" in text:
        raise ValueError("use an absolute path")
    return text
