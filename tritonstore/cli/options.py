"""Options and option types that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import click

from tritonstore.backends.base import Backend
from tritonstore.cli.console import note
from tritonstore.errors import SettingsError
from tritonstore.settings import Settings
from tritonstore.values import parse_age, parse_size

__all__ = [
    *("AGE", "SIZE", "examples", "filter_options", "jobs_option", "json_option", "opened", "path_option"),
    *("say_if_missing", "search_path", "settings_of", "store_option", "yes_option"),
]

_F = TypeVar("_F", bound=Callable[..., Any])


class _Parsed(click.ParamType[float]):
    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


AGE = _Parsed("age", parse_age)
SIZE = _Parsed("size", parse_size)

store_option = click.option(
    "--store", "url", metavar="URL", help="The store; several with commas are tiers. [default: TRITONSTORE_URL]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
jobs_option = click.option(
    "--jobs", "-j", type=click.IntRange(1), metavar="N", help="Processes. [default: one for each CPU]"
)
path_option = click.option(
    "--path", type=click.Path(), metavar="FOLDER", multiple=True, help="Import kernels from here, too."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def examples(*lines: str) -> str:
    """The epilog of a command's --help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def filter_options(function: _F) -> _F:
    """--kernel, --toolchain and --target: which entries are meant. Each may be given several times."""
    for name, what in (
        ("target", "Only entries for this GPU, as in 'cuda:90:32'; * and ? match."),
        ("toolchain", "Only entries of this torch or triton, as in 'torch 2.13*'; * and ? match."),
        ("kernel", "Only entries of this kernel, by its name or module.name; * and ? match."),
    ):
        function = click.option(f"--{name}", f"{name}s", metavar="PATTERN", multiple=True, help=what)(function)
    return function


def search_path(folders: Iterable[str]) -> list[str]:
    """The sys.path of processes that import kernels: as for `python -m`, the current folder comes first."""
    return list(dict.fromkeys([*map(os.path.abspath, folders), os.getcwd(), *filter(None, sys.path)]))


def settings_of(url: str | None, **overrides: Any) -> Settings:
    """The settings with `--store`. Raises SettingsError."""
    return Settings.load(url=url, **overrides)


@contextmanager
def opened(url: str | None, *, write: bool = False) -> Iterator[tuple[Settings, list[Backend]]]:
    """The settings, and the tiers of the store but those that live inside one process; closed at the end.

    With `write`, only the tiers that may be written, and a mode that forbids writing is respected. Raises
    SettingsError.
    """
    from tritonstore.maintenance.inventory import open_backends

    settings = settings_of(url)
    if write and settings.mode in ("readonly", "off"):
        origin = settings.origins["mode"]
        raise SettingsError(f"mode = {settings.mode} (from {origin}): the store may not be changed", "mode", origin)
    tiers = open_backends(settings)
    backends = [each for each in tiers if each.url != "memory:" and (not write or each.writes != "none")]
    if not backends:
        origin = settings.origins["urls"]
        why = "memory: ends with its process" if tiers[0].url == "memory:" else "no tier may be written"
        urls = ",".join(each.url for each in tiers)
        raise SettingsError(f"url = {urls} (from {origin}) cannot be used here: {why}", "url", origin)
    with ExitStack() as stack:
        for backend in backends:
            stack.callback(backend.close)
        yield settings, backends


def say_if_missing(backend: Backend) -> None:
    """On stderr, where a tier holds nothing: whether there is no store yet, or something else lies there."""
    from tritonstore.maintenance.inventory import innermost

    root = getattr(innermost(backend), "root", None)
    if root is None:
        note(f"{backend.url} holds no entries")
    elif not os.path.lexists(root):
        note(f"{backend.url} holds nothing yet: the folder is made when the first answer is stored")
    elif os.path.isdir(root) and not os.path.isdir(os.path.join(root, "v1")) and os.listdir(root):
        note(f"{backend.url} holds other things, and no entries")
    else:
        note(f"{backend.url} holds no entries")
