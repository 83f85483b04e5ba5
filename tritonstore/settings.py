"""The settings of one process: the only reader of the environment, and frozen from then on.

Each value knows where it came from, so that a message can say whose value was wrong. Importing this module
must cost next to nothing: every process that imports torch asks `is_enabled`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tritonstore.errors import SettingsError
from tritonstore.values import (
    MODES,
    TRUE,
    Target,
    parse_age,
    parse_flag,
    parse_folder,
    parse_jobs,
    parse_mode,
    parse_share,
    parse_size,
    parse_target,
    parse_timeout,
    parse_urls,
    parse_wait,
    redact_url,
)

__all__ = [
    "MODES",
    "Setting",
    "Settings",
    "Target",
    "first_to_prewarm",
    "is_enabled",
    "new_run_id",
    "parse_age",
    "parse_share",
    "parse_size",
    "parse_target",
    "redact_url",
    "run_id",
]


class Setting(NamedTuple):
    """A value and where it came from: ``default``, ``environment TRITONSTORE_URL`` or ``argument url``."""

    value: Any
    origin: str


def is_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether TRITONSTORE asks for activation. Never raises, because `import torch` stands behind it."""
    value = (os.environ if environ is None else environ).get("TRITONSTORE")
    return value is not None and value.strip().lower() in TRUE


def new_run_id() -> str:
    """A name for a run, which sorts by time."""
    import time

    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def run_id() -> str:
    """The run that this process belongs to: TRITONSTORE_RUN, which is set here for it and the processes it starts.

    Never raises.
    """
    import re

    given = os.environ.get("TRITONSTORE_RUN", "")
    if re.fullmatch("[A-Za-z0-9_.-]{1,64}", given):
        return given
    made = os.environ["TRITONSTORE_RUN"] = new_run_id()
    return made


def first_to_prewarm() -> bool:
    """Whether this process may prewarm: once, and not where it was started by one that has, or does, already.

    Ten export workers would start ten pools, and a worker of a pool, importing a kernel's module, one more.
    """
    if os.environ.get("TRITONSTORE_PREWARMING"):
        return False
    os.environ["TRITONSTORE_PREWARMING"] = "1"
    return True


# field → (environment variable, parser of its text, default)
_FIELDS: dict[str, tuple[str, Any, Any]] = {
    "enabled": ("TRITONSTORE", parse_flag, False),
    "cache_folder": ("TRITONSTORE_CACHE_FOLDER", parse_folder, None),
    "urls": ("TRITONSTORE_URL", parse_urls, None),
    "mode": ("TRITONSTORE_MODE", parse_mode, "readwrite"),
    "target": ("TRITONSTORE_TARGET", parse_target, None),
    "prefer_target": ("TRITONSTORE_PREFER_TARGET", parse_flag, False),
    "max_size": ("TRITONSTORE_MAX_SIZE", parse_size, 1 << 30),
    "max_age": ("TRITONSTORE_MAX_AGE", parse_age, 90 * 86400.0),
    "verify": ("TRITONSTORE_VERIFY", parse_share, 0.0),
    "strict": ("TRITONSTORE_STRICT", parse_flag, False),
    "durable": ("TRITONSTORE_DURABLE", parse_flag, False),
    "lease_wait": ("TRITONSTORE_LEASE_WAIT", parse_wait, 600.0),
    "lock_folder": ("TRITONSTORE_LOCK_FOLDER", parse_folder, None),
    "connect_timeout": ("TRITONSTORE_CONNECT_TIMEOUT", parse_timeout, 1.0),
    "request_timeout": ("TRITONSTORE_REQUEST_TIMEOUT", parse_timeout, 2.0),
    "hmac_key_file": ("TRITONSTORE_HMAC_KEY_FILE", parse_folder, None),
    "prewarm": ("TRITONSTORE_PREWARM", parse_jobs, 0),
}


class Settings(NamedTuple):
    """All settings. Sizes in bytes, ages, waits and timeouts in seconds; `max_size` and `max_age` are unlimited at 0.

    A named tuple, because a frozen dataclass of this size takes most of the millisecond that the import may
    cost.
    """

    enabled: bool
    urls: tuple[str, ...]
    mode: str
    target: Target | None
    prefer_target: bool
    max_size: int
    max_age: float
    verify: float
    strict: bool
    durable: bool
    lease_wait: float
    lock_folder: str | None
    connect_timeout: float
    request_timeout: float
    hmac_key_file: str | None
    prewarm: int
    cache_folder: str
    origins: Mapping[str, str]

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
        """Read `environ` (default: the process's own); an override wins unless it is None. `url` is accepted
        for `urls`.

        An empty variable counts as unset. Raises SettingsError, which names the setting, its origin, its
        value and what is allowed.
        """
        environ = os.environ if environ is None else environ
        if overrides.get("url") is not None:
            overrides["urls"] = overrides["url"]
        overrides.pop("url", None)
        unknown = sorted(set(overrides) - set(_FIELDS))
        if unknown:
            known = ", ".join(sorted({*_FIELDS, "url"}))
            raise SettingsError(f"there is no setting {unknown[0]!r}; the settings are {known}", unknown[0], "argument")
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for field, (variable, parse, default) in _FIELDS.items():
            given, origin = overrides.get(field), f"argument {'url' if field == 'urls' else field}"
            if given is None:
                given, origin = environ.get(variable) or None, f"environment {variable}"
            if given is None:
                values[field], origins[field] = default, "default"
            else:
                values[field], origins[field] = _convert(field, given, parse, origin), origin
        if values["cache_folder"] is None:
            values["cache_folder"] = _default_cache_folder(environ)
        if values["urls"] is None:
            from urllib.parse import quote

            values["urls"] = (f"file://{quote(values['cache_folder'])}/store".replace(",", "%2C"),)
        return cls(**values, origins=origins)

    def explain(self) -> Iterator[tuple[str, Setting]]:
        """Every setting with its value and origin, without secrets, for people to read."""
        for field in _FIELDS:
            value = getattr(self, field)
            yield (
                field,
                Setting(tuple(map(redact_url, value)) if field == "urls" else value, self.origins[field]),
            )

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={setting.value!r}' for name, setting in self.explain())})"


def _convert(field: str, given: Any, parse: Any, origin: str) -> Any:
    """`given` as the field's own type. Text goes through `parse`; other arguments must have the type already."""
    try:
        if isinstance(given, str):
            return parse(given)
        if (
            field == "urls"
            and isinstance(given, (list, tuple))
            and all(isinstance(u, str) and u for u in given)
            and given
        ):
            return tuple(given)
        if isinstance(given, os.PathLike) and field in {"lock_folder", "cache_folder", "hmac_key_file", "urls"}:
            path = parse_folder(os.fspath(given))
            return (path,) if field == "urls" else path
        if field == "target" and isinstance(given, tuple) and len(given) == 3:
            return parse_target(":".join(map(str, given)))
        if field in {"enabled", "prefer_target", "strict", "durable"} and isinstance(given, bool):
            return given
        if field in {"connect_timeout", "request_timeout"} and type(given) in (int, float):
            if not 0 < given < float("inf"):
                raise ValueError("use a number of seconds of more than 0")
            return float(given)
        if field == "prewarm" and type(given) is int and given >= 0:
            return given
        if field in {"max_age", "lease_wait", "verify", "max_size"} and type(given) in (int, float):
            if field == "max_size" and type(given) is not int:
                raise ValueError("use a whole number of bytes")
            if not 0 <= given < float("inf") or (field == "verify" and given > 1):
                raise ValueError(
                    "use a share from 0 to 1" if field == "verify" else "use a number that is not negative"
                )
            return given
        raise ValueError(f"a {type(given).__name__} is no value for it")
    except ValueError as error:
        shown = redact_url(given) if isinstance(given, str) else type(given).__name__
        if not isinstance(given, (str, list, tuple, dict, os.PathLike)):
            shown = repr(given)
        raise SettingsError(f"{field} = {shown!s} (from {origin}) cannot be used: {error}", field, origin) from None


def _default_cache_folder(environ: Mapping[str, str]) -> str:
    xdg = environ.get("XDG_CACHE_HOME")
    if xdg and os.path.isabs(xdg):  # the XDG base directory specification says to ignore a relative one
        return os.path.join(xdg, "tritonstore")
    home = environ.get("HOME") or os.path.expanduser("~")
    if os.path.isabs(home):
        return os.path.join(home, ".cache", "tritonstore")
    return _private_temporary_folder()


def _private_temporary_folder() -> str:
    """Make (or find) a folder of ours in the shared temporary folder.

    Made here and now with mode 0700, and refused if it is another user's: whoever owns it could plant
    answers.
    """
    import stat
    import tempfile

    owner = os.getuid() if hasattr(os, "getuid") else 0
    path = os.path.join(tempfile.gettempdir(), f"tritonstore-{owner}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return path  # the store says so when it is first used
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o022:
        raise SettingsError(
            f"there is no home folder, and {path} is not private to this user; set TRITONSTORE_CACHE_FOLDER",
            "cache_folder",
            "default",
        )
    return path
