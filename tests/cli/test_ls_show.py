from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.conftest import Cli
from tests.support.synthetic import place
from tritonstore.cli.main import cli as group
from tritonstore.entry import Entry

KERNELS = ["_rms_norm", "_rms_norm", "_swiglu", "Layer._swiglu"]


def listed(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    done = cli("ls", "--json", *arguments)
    assert done.code == 0
    return [json.loads(line) for line in done.out.splitlines()]


def positions(store: list[str], rows: list[dict[str, Any]]) -> list[int]:
    return [store.index(row["digest"]) for row in rows]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sort", "used"], [0, 1, 2, 3]),
        (["--sort", "used", "--reverse"], [3, 2, 1, 0]),
        (["--sort", "cost"], [3, 2, 1, 0]),
        (["--sort", "created"], [3, 2, 1, 0]),
        (["--sort", "kernel"], [3, 1, 0, 2]),
        (["--sort", "used", "--limit", "2"], [0, 1]),
        (["--sort", "used", "--limit", "2", "--reverse"], [3, 2]),
        (["--sort", "used", "--older", "36h"], [2, 3]),
        (["--sort", "used", "--newer", "36h"], [0, 1]),
        (["--sort", "used", "--kernel", "_swiglu"], [2, 3]),
        (["--sort", "used", "--kernel", "_rms*", "--kernel", "Layer*"], [0, 1, 3]),
        (["--sort", "used", "--toolchain", "torch 2.11*"], [2]),
        (["--sort", "used", "--target", "cuda:80:*"], [1]),
        (["--sort", "used", "--target", "cuda:80:*", "--kernel", "_swiglu"], []),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_order_and_filters(cli: Cli, store: list[str], arguments: list[str], expected: list[int]) -> None:
    rows = listed(cli, *arguments)
    found = positions(store, rows)
    if "kernel" in arguments:  # two of one name: by digest
        assert [KERNELS[number] for number in found] == sorted(KERNELS)
    else:
        assert found == expected


def test_one_object_a_line(cli: Cli, store: list[str], entries: list[Entry], root: Path) -> None:
    (row,) = listed(cli, "--target", "cuda:80:*")
    assert row == {
        "digest": store[1],
        "kernel": "_rms_norm",
        "module": "model.kernels",
        "torch": "2.13.0",
        "triton": "3.7.1",
        "target": "cuda:80:32",
        "size": os.path.getsize(place(str(root), store[1])),
        "used": row["used"],
        "created": entries[1].provenance.created,
        "seconds": 0.001,
    }
    assert abs(row["used"] - (time.time() - 86400)) < 120
    assert len(listed(cli, "--limit", "3")) == 3


def test_looking_does_not_count_as_use(cli: Cli, store: list[str], root: Path) -> None:
    before = {digest: os.stat(place(str(root), digest)).st_mtime for digest in store}
    for arguments in (["ls"], ["show", store[3]], ["verify"], ["save", str(root.parent / "x.tsb")]):
        assert cli(*arguments).code == 0
    assert {digest: os.stat(place(str(root), digest)).st_mtime for digest in store} == before


def test_show_by_a_part_of_the_digest(cli: Cli, store: list[str], entries: list[Entry]) -> None:
    shown = json.loads(cli("show", store[2][:6].upper(), "--json").out)
    assert shown["digest"] == store[2]
    assert shown["detail"] == entries[2].detail
    assert shown["parts"] == entries[2].parts
    assert (shown["reads"], shown["writes"], shown["can_fuse_epilogue"]) == (["x_ptr"], ["y_ptr"], True)


def test_show_says_what_is_ambiguous(cli: Cli, store: list[str], root: Path) -> None:
    twin = store[0][:60] + ("0000" if not store[0].endswith("0000") else "1111")
    path = Path(place(str(root), twin))
    path.write_bytes(b"whatever")
    done = cli("show", store[0][:10])
    assert done.code == 1
    assert "several entries; use more digits" in done.err
    assert set(done.out.split()) == {store[0], twin}
    assert cli("show", store[0]).code == 0
    assert "tritonstore verify --fix removes it" in cli("show", twin).err


def test_digests_are_completed(cli: Cli, store: list[str], root: Path) -> None:
    def complete(*words: str, incomplete: str) -> set[str]:
        from click.shell_completion import ShellComplete

        shell = ShellComplete(group, {}, "tritonstore", "_TRITONSTORE_COMPLETE")
        return {item.value for item in shell.get_completions(list(words), incomplete)}

    assert cli("ls").code == 0
    assert complete("show", incomplete=store[0][:3]) >= {store[0]}
    assert complete("show", incomplete="x") == set()
    assert complete("show", "--store", "ftp://broken", incomplete="abc") == set()
    assert "verify" in complete(incomplete="ver")
    assert "--older" in complete("ls", incomplete="--o")
    assert {"kernel", "used"} <= complete("ls", "--sort", incomplete="")


@pytest.mark.parametrize(("shell", "line"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no-")])
def test_completion_scripts(cli: Cli, shell: str, line: str) -> None:
    done = cli("completion", shell)
    assert done.code == 0
    assert line in done.out
    assert "_TRITONSTORE_COMPLETE" in done.out
    assert isinstance(group, click.Group)
