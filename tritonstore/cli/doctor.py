"""`tritonstore doctor`"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import click

from tritonstore.backends.registry import open_backend
from tritonstore.cli.console import age, count, note, say, say_json, size, styled, width
from tritonstore.cli.options import examples, json_option, settings_of, store_option
from tritonstore.errors import SettingsError
from tritonstore.maintenance import doctor
from tritonstore.maintenance.doctor import Check
from tritonstore.settings import redact_url

__all__ = ["command"]

_STYLES = {"ok": "green", "note": "", "warning": "yellow", "problem": "bold red"}


@click.command(
    "doctor",
    short_help="Check this installation and its stores.",
    epilog=examples(
        "tritonstore doctor",
        "tritonstore doctor --quick                      without looking at torch",
        "tritonstore doctor --store redis://cache:6379/0",
    ),
)
@store_option
@click.option("--quick", is_flag=True, help="Do not look at torch, whose import takes seconds.")
@json_option
def command(url: str | None, quick: bool, as_json: bool) -> int:
    """Check this installation: settings, versions, PyTorch's seam, the GPU, and each tier of the store.

    Each store is tried with an entry that is put, read and removed. The exit code is 1 if there is a problem.
    """
    settings = settings_of(url)
    found: list[tuple[str, Check]] = []

    def tell(section: str, checks: Iterable[Check]) -> None:
        if not as_json:
            say(section, "bold")
        for check in checks:
            found.append((section, check))
            if not as_json:
                _line((f"  {check.verdict:<8}", _STYLES[check.verdict]), f" {check.name:<12} ", check.text)

    values = {name: _shown(name, setting.value) for name, setting in settings.explain()}
    if not as_json:
        say("Settings", "bold")
        for name, setting in settings.explain():
            _line(("  ", ""), f"{name:<16}", f"{values[name]}  ({setting.origin})")
    tell("Installation", doctor.installation(settings))
    if not quick:
        tell("PyTorch", doctor.pytorch(settings))
    for each in settings.urls:
        shown = redact_url(each)
        try:
            backend = open_backend(each, settings)
        except SettingsError as error:
            tell(f"Store {shown}", [Check("url", "problem", str(error))])
            continue
        try:
            tell(f"Store {shown}", doctor.store(backend, settings))
        finally:
            backend.close()
    problems = sum(check.verdict == "problem" for _, check in found)
    warnings = sum(check.verdict == "warning" for _, check in found)
    if as_json:
        origins = {name: setting.origin for name, setting in settings.explain()}
        shown_settings = {name: {"value": values[name], "origin": origins[name]} for name in values}
        checks = [{"section": section, **check._asdict()} for section, check in found]
        say_json({"well": not problems, "settings": shown_settings, "checks": checks})
    else:
        note(f"{count(problems, 'problem')}, {count(warnings, 'warning')}" if problems or warnings else "all is well")
    return 1 if problems else 0


def _line(verdict: tuple[str, str], name: str, text: str) -> None:
    """One line; on a terminal the text goes on under itself."""
    room = width()
    indent = " " * len(verdict[0] + name)
    lines = [text] if room is None else textwrap.wrap(text, max(20, room - len(indent))) or [""]
    styled(verdict, (name + lines[0], ""))
    for line in lines[1:]:
        styled((indent + line, ""))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        # Settings' urls, or a target: a named tuple of backend, arch and warp size.
        return (":" if hasattr(value, "_fields") else ",").join(map(str, value))
    if name in {"max_size", "max_age"}:
        return "unlimited" if not value else size(value) if name == "max_size" else age(value)
    if isinstance(value, float):
        return f"{value:g} s" if name in {"lease_wait", "connect_timeout", "request_timeout"} else f"{value:g}"
    return "none" if value is None else str(int(value)) if isinstance(value, bool) else str(value)
