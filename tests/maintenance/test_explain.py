"""What a miss is compared with: what could have answered it then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.records import STARTED, miss, record, sha
from tests.support.synthetic import fill
from tritonstore.access import AccessResult
from tritonstore.backends.files import FilesBackend
from tritonstore.entry import Entry, Provenance
from tritonstore.maintenance.explain import Explanation, explain
from tritonstore.runrecord import MissFacts

DETAIL: dict[str, Any] = {
    "kernel": ["model.kernels", "_rms"],
    "toolchain": {"torch": "2.13.0", "triton": "3.7.1"},
    "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
    "arguments": [["BLOCK_N", ["constexpr", ["int", 64]], False]],
}


def key(**changes: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The parts and the detail of a key; `changes` replace parts of the detail."""
    detail = {**DETAIL, **changes}
    return {part: sha(detail[part]) for part in ("toolchain", "target", "arguments")}, detail


def asked(at: float = 100.0, **changes: Any) -> MissFacts:
    parts, detail = key(**changes)
    return miss(0, at=STARTED + at, digest=sha(sorted(parts.items())), parts=parts, detail=detail)


def entry(created: float = 0.0, **changes: Any) -> Entry:
    parts, detail = key(**changes)
    access = AccessResult(("x",), ("y",), True)
    return Entry(
        sha(sorted(parts.items())), parts, access, detail, Provenance(int(STARTED + created), 0.5, "tritonstore 0.1.0")
    )


def block(size: int) -> dict[str, Any]:
    return {"arguments": [["BLOCK_N", ["constexpr", ["int", size]], False]]}


TRITON = {"toolchain": {"torch": "2.13.0", "triton": "3.8.0"}}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Explain these misses with these entries in the store; the sound ones are made up, so their parts go unchecked."""
    monkeypatch.setattr("tritonstore.maintenance.inventory.key_digest", lambda parts: sha(sorted(parts.items())))

    def told(misses: list[MissFacts], entries: list[Entry], *earlier: Any, **changes: Any) -> list[Explanation]:
        fill(str(tmp_path), entries)
        return explain(record(misses=misses, **changes), [FilesBackend(str(tmp_path))], earlier)

    return told


def test_the_nearest_entry_has_the_fewest_parts_then_differences_that_differ(told: Any) -> None:
    near, far = (
        entry(**block(128)),
        entry(**block(32), target={"backend": "cuda", "arch": 80, "warp_size": 32}, **TRITON),
    )
    (one,) = told([asked(**TRITON)], [near, far, entry()])
    assert (one.kind, one.text, one.near) == ("differs", "triton 3.7.1 → 3.8.0", entry().digest)


def test_what_was_made_afterwards_is_no_explanation(told: Any) -> None:
    (one,) = told([asked(100.0)], [entry(200.0, **block(128))])
    assert one.text == "first time seen"


def test_entries_of_another_kernel_are_not_compared(told: Any) -> None:
    (one,) = told([asked()], [entry(kernel=["model.kernels", "_swiglu"], **block(128))])
    assert one.kind == "first"


def test_a_kernel_that_moved_to_another_module_is_compared(told: Any) -> None:
    (one,) = told([asked()], [entry(kernel=["model.old", "_rms"], **block(128))])
    assert one.text == "BLOCK_N 128 → 64"


def test_variants_of_one_run(told: Any) -> None:
    """Both were stored by the run itself, which does not make the one an explanation of the other in a later run."""
    misses = [asked(1.0), asked(2.0, **block(128))]
    first, second = told(misses, [entry(1.0), entry(2.0, **block(128))])
    assert first.text == "first time seen"
    assert second.text == "first time seen; nearest earlier call: BLOCK_N 64 → 128"
    upgraded = [asked(101.0, **TRITON), asked(102.0, **block(128), **TRITON)]
    made = [entry(101.0, **TRITON), entry(102.0, **block(128), **TRITON)]
    assert [each.text for each in told(upgraded, made)] == ["triton 3.7.1 → 3.8.0"] * 2


def test_an_answer_that_was_there_before(told: Any) -> None:
    earlier = record("yesterday", used=[asked().digest])
    (one,) = told([asked()], [], earlier)
    assert one.text == "stored before (run yesterday used it), and was not in the store any more"


def test_an_answer_that_is_there_and_was_not_handed_out(told: Any) -> None:
    (one,) = told([asked(100.0)], [entry(50.0)])
    assert one.kind == "unread"
    (one,) = told([asked(100.0)], [entry(100.0)])
    assert one.kind == "first"


def test_an_earlier_question_whose_entry_is_gone(told: Any) -> None:
    earlier = record("yesterday", used=[], misses=[asked(0.0, **block(32))])
    (one,) = told([asked()], [], earlier)
    assert one.text == "BLOCK_N 32 → 64 (the entry that it differs from is not in the store any more)"


def test_an_earlier_question_that_was_never_stored(told: Any) -> None:
    earlier = record("yesterday", used=[], misses=[asked(0.0)._replace(outcome="unproven: failure-path")])
    (one,) = told([asked()], [], earlier)
    assert one.text == "asked before, and not stored then either"


def test_refresh_asks_again_on_purpose(told: Any) -> None:
    (one,) = told([asked()], [entry()], mode="refresh")
    assert one.text == "asked again on purpose (mode refresh)"


def test_what_the_record_had_no_room_for(told: Any) -> None:
    (one,) = told([asked()._replace(detail={})], [entry(**block(128))])
    assert one.kind == "untold"


def test_only_the_kernels_that_are_wanted(tmp_path: Path) -> None:
    run = record(misses=[miss(1), miss(2, "_swiglu")])
    found = explain(run, [FilesBackend(str(tmp_path))], wanted=lambda module, name: name == "_swiglu")
    assert [each.miss.name for each in found] == ["_swiglu"]
