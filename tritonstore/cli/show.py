"""`tritonstore show`"""

from __future__ import annotations

import re
import time
from typing import Any

import click

from tritonstore.backends.base import Backend, Record
from tritonstore.cli.console import age, complain, note, say, say_json, size, styled, table
from tritonstore.cli.options import examples, json_option, opened, store_option
from tritonstore.entry import Entry
from tritonstore.errors import FormatError, StoreError, TritonStoreError
from tritonstore.maintenance.inventory import check, find, kernel_of, target_of

__all__ = ["command"]


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Digests of the store that start so. Never fails: a shell shows nothing then."""
    if not re.fullmatch(r"[0-9a-f]{2,64}", incomplete):
        return []
    try:
        with opened(ctx.params.get("url")) as (_, backends):
            return [digest for backend in backends for digest in find(backend, incomplete, 50)]
    except TritonStoreError:
        return []


@click.command(
    "show",
    short_help="Show one entry in full.",
    epilog=examples(
        "tritonstore show 3f09c2",
        "tritonstore show 3f09c2 --json | jq .detail.arguments",
    ),
)
@click.argument("digest", metavar="DIGEST", shell_complete=_complete)
@store_option
@json_option
def command(digest: str, url: str | None, as_json: bool) -> int:
    """Show one entry in full. DIGEST may be cut short, to four digits or more."""
    prefix = digest.lower()
    if not re.fullmatch(r"[0-9a-f]{4,64}", prefix):
        raise click.BadParameter("use 4 to 64 hex digits, as tritonstore ls prints them", param_hint="DIGEST")
    with opened(url) as (_, backends):
        places = {backend.url: find(backend, prefix) for backend in backends}
        found = sorted({each for digests in places.values() for each in digests})
        if not found:
            complain(f"no entry starts with {prefix}")
            return 1
        if len(found) > 1:
            complain(f"{prefix} is the start of several entries; use more digits")
            for each in found[:10]:
                say(each)
            return 1
        homes = [backend for backend in backends if places[backend.url]]
        data = homes[0].get(found[0])
        try:
            entry = check(found[0], data or b"")
        except FormatError as error:
            complain(f"{found[0]} {error.problem}; tritonstore verify --fix removes it")
            return 1
        record = Record(found[0], len(data or b""), _used(homes[0], found[0]))
        urls = [backend.url for backend in homes]
        if as_json:
            say_json(_plain(entry, record, urls))
        else:
            _say(entry, record, urls)
    return 0


def _used(backend: Backend, digest: str) -> float:
    """When it was last used; 0 if the store does not say."""
    try:
        return next((record.used for record in backend.scan() if record.digest == digest), 0.0)
    except StoreError as error:
        note(str(error))
        return 0.0


def _plain(entry: Entry, record: Record, urls: list[str]) -> dict[str, Any]:
    access, made = entry.access, entry.provenance
    return {
        "digest": entry.digest,
        "kernel": ".".join(kernel_of(entry)),
        "reads": access.reads,
        "writes": access.writes,
        "can_fuse_epilogue": access.can_fuse_epilogue,
        "parts": entry.parts,
        "detail": _jsonable(entry.detail),
        "created": made.created,
        "seconds": made.seconds,
        "writer": made.writer,
        "size": record.size,
        "used": int(record.used),
        "stores": urls,
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    # JSON has no NaN and no infinity.
    return repr(value) if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def _say(entry: Entry, record: Record, urls: list[str]) -> None:
    access, made, detail = entry.access, entry.provenance, entry.detail
    module, name = kernel_of(entry)
    styled((name, "bold"), (f"  ({module})", ""))
    _field("digest", entry.digest)
    _field("reads", "not said by this PyTorch" if access.reads is None else ", ".join(access.reads) or "nothing")
    _field("writes", ", ".join(access.writes) or "nothing")
    fuse = {None: "not said by this PyTorch", True: "yes", False: "no"}[access.can_fuse_epilogue]
    _field("can fuse", fuse)
    made_at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(min(made.created, 253402300799)))
    _field("made", f"{made_at} by {made.writer}, in {made.seconds * 1000:.1f} ms")
    _field("last used", f"{age(time.time() - record.used)} ago" if record.used else "?")
    _field("size", size(record.size))
    for url in urls:
        _field("stands in", url)
    _field("target", target_of(entry))
    toolchain = detail.get("toolchain")
    for key, value in toolchain.items() if isinstance(toolchain, dict) else ():
        _field(key, words(value))
    _say_arguments(detail.get("arguments"), access.reads or (), access.writes)
    _say_code(detail.get("code"))
    say()
    say("Parts of the key", "bold")
    for part, digest in entry.parts.items():
        _field(part, digest)


def _say_arguments(arguments: Any, reads: tuple[str, ...], writes: tuple[str, ...]) -> None:
    if not isinstance(arguments, list):
        return
    rows = []
    for argument in arguments:
        if isinstance(argument, list) and len(argument) == 3:
            name = str(argument[0])
            does = [verb for verb, names in (("read", reads), ("written", writes)) if name in names]
            rows.append((name, words(argument[1]), ", ".join(does)))
    if rows:
        say()
        table(("argument", "*as the compiler sees it", "is"), rows)


def _say_code(code: Any) -> None:
    nodes = [node for node in code if isinstance(node, (dict, list)) and node] if isinstance(code, list) else []
    names = [node.get("name") if isinstance(node, dict) else node[0] for node in nodes]
    if names:
        say()
        say("Functions in its code", "bold")
        for name in names:
            say(f"  {name}")


def words(value: Any) -> str:
    """A token in a line: ``["constexpr", ["int", 128]]`` is ``constexpr int 128``."""
    if isinstance(value, list):
        return " ".join(words(item) for item in value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _field(name: str, value: str) -> None:
    styled((f"{name:<13}", "dim"), (value, ""))
