"""`verify --recompute`: PyTorch is asked again for what is stored, and a wrong answer is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.conftest import KERNELS, write
from tests.recipes.test_prewarm import calls_of, reloaded
from tritonstore.access import AccessResult
from tritonstore.backends.files import FilesBackend
from tritonstore.cli.main import main
from tritonstore.entry import Entry, decode, encode
from tritonstore.keys.encoding import key_digest

Ask = Callable[..., dict[str, Any]]

OTHER = KERNELS.replace("+ offsets, tl.load(x", "+ offsets, 1 + tl.load(x")


@pytest.fixture
def store(folder: Path, url: str, ask: Ask) -> FilesBackend:
    """Three entries: `asked.scale`, `asked.copy` and `edited.copy`."""
    write(folder, "asked", KERNELS)
    write(folder, "edited", OTHER)
    ask(*calls_of(reloaded("asked")), calls_of(reloaded("edited"))[1])
    return FilesBackend(url.removeprefix("file://"))


def entries(store: FilesBackend) -> dict[str, Entry]:
    found = [decode(store.get(record.digest) or b"") for record in store.scan()]
    return {".".join(entry.detail["kernel"]): entry for entry in found}


def verify(capsys: pytest.CaptureFixture[str], url: str, folder: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, what became of each digest, and the talk."""
    arguments = ["verify", "--store", url, "--recompute", "--json", "--jobs", "1", "--path", str(folder), *more]
    code = main(arguments)
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    return code, {line["digest"]: (line["status"], line["text"]) for line in lines}, captured.err


def spoil(store: FilesBackend, entry: Entry) -> None:
    """Another answer, in an entry that is sound in every other way."""
    access = entry.access
    reads = None if access.reads is None else access.writes
    store.put(entry.digest, encode(entry._replace(access=AccessResult(reads, ("x",), access.can_fuse_epilogue))))


def test_a_wrong_answer_is_found_and_set_aside(
    store: FilesBackend, url: str, folder: Path, capsys: pytest.CaptureFixture[str], ask: Ask
) -> None:
    """Beside a right one, one that another toolchain made, and one whose kernel was edited since."""
    found = entries(store)
    right, wrong, changed = found["asked.scale"], found["asked.copy"], found["edited.copy"]
    spoil(store, wrong)
    parts = {**right.parts, "toolchain": "0" * 64}
    other = right._replace(digest=key_digest(parts), parts=parts)
    store.put(other.digest, encode(other))
    write(folder, "edited", OTHER.replace("1 + tl.load(x", "2 + tl.load(x"))
    assert main(["verify", "--store", url]) == 0  # its checksum is right
    capsys.readouterr()
    code, said, talk = verify(capsys, url, folder)
    assert code == 1
    assert said[wrong.digest][0] == "differs"
    assert "writes y" in said[wrong.digest][1]
    del said[wrong.digest]
    assert said == {
        right.digest: ("same", ""),
        other.digest: ("elsewhere", ""),
        changed.digest: ("changed", "another code today"),
    }
    assert "asked PyTorch again for 3: 1 the same, 1 wrong, 1 not comparable; 1 made by another" in talk
    assert store.get(wrong.digest) is not None  # looking changes nothing
    write(folder, "edited", OTHER)
    code, said, talk = verify(capsys, url, folder, "--fix")
    assert (code, said[changed.digest]) == (1, ("same", ""))
    assert store.get(wrong.digest) is None
    assert "no process with this cache folder uses them again" in talk
    again = ask(*calls_of(reloaded("asked")))
    assert (again["hits"], again["publishes"]) == ({"file": 1}, 0)


def test_nothing_is_imported_unless_asked_for(
    folder: Path, url: str, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "touchy", KERNELS)
    ask(*calls_of(reloaded("touchy")))
    trace = folder / "imported"
    write(folder, "touchy", f"open({str(trace)!r}, 'w').close()\n")
    saved = f"save {folder / 'x'}"
    for words in ("verify", "ls", "explain --last", "show 0", "prune --stale-toolchains -n", saved):
        main([*words.split(), "--store", url])
    assert not trace.exists()
    capsys.readouterr()
    code, said, _ = verify(capsys, url, folder, "--sample", "1")
    assert trace.exists()
    ((status, text),) = said.values()
    assert (code, status) == (0, "lost: gone")
    assert "in touchy" in text
