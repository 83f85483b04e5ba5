"""Recorded questions outlive their answers: what `prune --stale-toolchains` keeps for `prewarm`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.synthetic import entry, fill
from tritonstore.backends.files import FilesBackend
from tritonstore.entry import Entry
from tritonstore.maintenance.inventory import Filter
from tritonstore.maintenance.prune import Installed, Plan, prune

NOW = Installed("2.13.0", "3.7.1")


def asked(number: int, *, kernel: str, torch: str, made: int = 0) -> Entry:
    """An answer to the one question that is asked about `kernel`."""
    found = entry(number, kernel=kernel, torch=torch)
    detail = {**found.detail, "arguments": [["x", ["pointer", "*fp32"], True]], "code": [{"name": f"m.{kernel}"}]}
    return found._replace(detail=detail, provenance=found.provenance._replace(created=made))


@pytest.fixture
def digests(tmp_path: Path) -> list[str]:
    """`a` was answered under three toolchains and today; `b` under two, not today; `c` today; one is no recipe."""
    made = [
        asked(0, kernel="a", torch="2.11.0", made=9),
        asked(1, kernel="a", torch="2.13.0", made=5),
        asked(2, kernel="b", torch="2.11.0", made=1),
        asked(3, kernel="b", torch="2.12.0", made=2),
        asked(4, kernel="c", torch="2.13.0"),
        entry(5, torch="2.11.0"),
    ]
    return fill(str(tmp_path), made, used=time.time())


def left(root: Path, digests: list[str]) -> list[int]:
    there = {record.digest for record in FilesBackend(str(root)).scan()}
    return [number for number, digest in enumerate(digests) if digest in there]


def test_the_newest_of_each_question_stays_until_it_is_answered(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(stale=NOW))
    assert left(tmp_path, digests) == [1, 3, 4]
    assert (outcome.stale, outcome.removed, outcome.recipes) == (3, 3, 1)
    again = prune(FilesBackend(str(tmp_path)), Plan(stale=NOW))
    assert (again.removed, again.recipes) == (0, 1)


def test_an_entry_may_say_that_it_was_made_whenever_it_likes(tmp_path: Path) -> None:
    made = [asked(0, kernel="a", torch="2.11.0", made=2**64 - 1), asked(1, kernel="a", torch="2.12.0", made=5)]
    digests = fill(str(tmp_path), made, used=time.time())
    prune(FilesBackend(str(tmp_path)), Plan(stale=NOW))
    assert left(tmp_path, digests) == [0]


def test_dropping_them_all(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(stale=NOW, keep_recipes=False))
    assert left(tmp_path, digests) == [1, 4]
    assert (outcome.stale, outcome.recipes) == (4, 0)


def test_limits_take_recipes_like_anything_else(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(stale=NOW, max_size=1))
    assert left(tmp_path, digests) == []
    assert (outcome.stale, outcome.surplus, outcome.recipes) == (3, 3, 0)


def test_a_filter_looks_at_answers_outside_of_it_too(tmp_path: Path, digests: list[str]) -> None:
    outcome = prune(FilesBackend(str(tmp_path)), Plan(stale=NOW, only=Filter(toolchains=["torch 2.11*"])))
    assert left(tmp_path, digests) == [1, 3, 4]
    assert outcome.recipes == 0


def test_looking_first_counts_the_same(tmp_path: Path, digests: list[str]) -> None:
    looked = prune(FilesBackend(str(tmp_path)), Plan(stale=NOW), dry_run=True)
    assert left(tmp_path, digests) == [0, 1, 2, 3, 4, 5]
    assert (looked.removed, looked.recipes) == (3, 1)
