"""Plans: one recipe for each question, the newest, the longest analysis first; from a store, a run, or a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.synthetic import entry, fill
from tritonstore.backends.files import FilesBackend
from tritonstore.cli.main import main
from tritonstore.entry import Entry, encode
from tritonstore.errors import FormatError
from tritonstore.maintenance.bundle import Bundle, write
from tritonstore.maintenance.inventory import Filter
from tritonstore.recipes.sources import from_bundle, from_store
from tritonstore.settings import Settings


def asked(number: int, kernel: str, *, seconds: float, made: int) -> Entry:
    found = entry(number, kernel=kernel)
    detail = {**found.detail, "arguments": [["x", ["pointer", "*fp32"], True]], "code": [{"name": f"m.{kernel}"}]}
    return found._replace(detail=detail, provenance=found.provenance._replace(created=made, seconds=seconds))


ENTRIES = [
    asked(0, "short", seconds=0.1, made=1),
    asked(1, "long", seconds=9.0, made=1),
    asked(2, "middle", seconds=50.0, made=1),  # before an edit
    asked(3, "middle", seconds=0.5, made=2),
    entry(4),  # of a shape that holds no recipe
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(str(tmp_path / "store"), ENTRIES)
    return tmp_path / "store"


def settings(root: Path) -> Settings:
    return Settings.load(url=f"file://{root}")


def test_the_newest_of_each_question_the_longest_first(root: Path) -> None:
    plan = from_store(settings(root), [FilesBackend(str(root))])
    assert [(recipe.name, recipe.seconds) for recipe in plan] == [("long", 9.0), ("middle", 0.5), ("short", 0.1)]
    assert (len(plan), plan.seconds, plan.undescribed) == (3, 9.6, 1)


def test_two_tiers_are_one_plan(root: Path, tmp_path: Path) -> None:
    newer = asked(5, "short", seconds=0.2, made=7)
    fill(str(tmp_path / "far"), [newer, ENTRIES[1]])
    plan = from_store(settings(root), [FilesBackend(str(root)), FilesBackend(str(tmp_path / "far"))])
    assert [recipe.digest for recipe in plan] == [ENTRIES[1].digest, ENTRIES[3].digest, newer.digest]


def test_a_filter(root: Path) -> None:
    plan = from_store(settings(root), [FilesBackend(str(root))], Filter(kernels=["long", "short"]))
    assert [recipe.name for recipe in plan] == ["long", "short"]


def test_what_is_removed_meanwhile_is_left_out(root: Path) -> None:
    store = FilesBackend(str(root))
    plan = from_store(settings(root), [store])
    store.delete(ENTRIES[1].digest)
    store.put(ENTRIES[3].digest, b"damaged meanwhile")
    assert [recipe.name for recipe in plan] == ["short"]


def test_a_bundle(root: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "made.tsb")
    write(file, [(each.digest, encode(each)) for each in ENTRIES[:3]], "test")
    with open(file, "rb") as opened:
        plan = from_bundle(Bundle(opened))
    assert [recipe.name for recipe in plan] == ["middle", "long", "short"]


def test_a_bundle_that_is_none_is_refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.tsb").write_bytes(b"text" * 99)
    with open(tmp_path / "none.tsb", "rb") as file, pytest.raises(FormatError):
        from_bundle(Bundle(file))
    assert main(["prewarm", "--store", f"file://{root}", "--from-bundle", str(tmp_path / "none.tsb")]) == 4
    assert "not a bundle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--from-run", "last", "--from-store"], 2, "exclude each other"),
        (["--from-run", "last"], 1, "no record of a run last"),
        (["--from-bundle", "/nowhere"], 2, "does not exist"),
        (["--jobs", "0"], 2, "0 is not in the range"),
        (["--target", "h200"], 2, "target = h200"),
    ],
)
def test_bad_usage(root: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str) -> None:
    assert main(["prewarm", "--store", f"file://{root}", *words]) == code
    assert said in capsys.readouterr().err
