"""The page is whole by itself, escapes everything, and is written for any record."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.support.records import STARTED, bypass, kernel, miss, record
from tritonstore.keys.diff import Difference
from tritonstore.maintenance.explain import Explanation
from tritonstore.maintenance.report import page
from tritonstore.runrecord import RunRecord, Timeline

EVIL = "<script>alert('\"&</script>"


class Page(HTMLParser):
    """Reads a page, and refuses tags that do not close one another."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def explained(made: RunRecord, text: str = "triton 3.7.1 → 3.8.0") -> list[Explanation]:
    return [Explanation(each, "differs", [Difference("toolchain", "triton", text)]) for each in made.misses]


def test_it_says_what_the_record_holds() -> None:
    made = record()
    text = " ".join(Page(page(made, explained(made), "tritonstore: run run-1")).texts)
    for said in ("70.0 %", "7 of 10 calls", "700 ms", "250 ms", "_rms", "memory 6, file 1", "triton 3.7.1 → 3.8.0"):
        assert said in text
    for said in ("export.py", "2026-05-28 20:26:40 UTC", "torch 2.13.0", "x is a host-side TMA descriptor"):
        assert said in text
    assert "device-side descriptors" in text


def test_it_needs_nothing_from_elsewhere() -> None:
    text = page(record(), explained(record()), "title")
    for tag, attributes in Page(text).tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "base", "form", "a"}
        assert not {"src", "href", "srcset", "data", "action"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import|//", text.partition("<body>")[0])
    assert "default-src 'none'" in text


def test_everything_is_escaped() -> None:
    made = record(
        EVIL,
        command=EVIL,
        ending=EVIL,
        versions={"torch": EVIL},
        urls=[EVIL],
        kernels=[kernel(EVIL, EVIL, bypasses={EVIL: 1}), kernel(EVIL)],
        misses=[miss(1, EVIL, outcome=EVIL)],
        bypasses=[bypass(EVIL, reason=EVIL, detail=EVIL)],
        dropped={EVIL: 3},
    )
    made = replace(made, counters={**made.counters, "bypasses": {EVIL: 1}, "faults": {EVIL: 2}})
    read = Page(page(made, explained(made, EVIL), EVIL))
    assert not any(tag == "script" for tag, _ in read.tags)
    assert "".join(read.texts).count(EVIL) > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {}, "kernels": [], "misses": [], "bypasses": [], "timeline": [], "versions": {}, "urls": []},
        {"started": 0.0, "ended": 0.0},
        {"started": -1e18, "ended": 1e18},
        {"timeline": [Timeline(STARTED, 0.125, [1], [0], [0], [0], [0.0])]},
        {"timeline": [Timeline(STARTED, 0.125, [], [], [], [], [])]},
        {"timeline": [Timeline(STARTED, 1.0, [1, 2], [0], [], [3, 4, 5], [0.5])]},
        {"kernels": [kernel(f"_kernel_{number}") for number in range(1_000)]},
        {"kernels": [kernel(seconds_saved=0.0, seconds_analysing=0.0)]},
    ],
)
def test_any_record_gives_a_page(changes: dict[str, object]) -> None:
    assert Page(page(record(**changes), [], "title")).texts


def test_the_columns_over_time_hold_every_call_once() -> None:
    from tritonstore.maintenance.report import _COLUMNS, _pour

    for line in (Timeline(7.0, 0.3, list(range(100)), [], [], [], []), Timeline(0.0, 50.0, [5, 7], [], [], [], [])):
        into = [0.0] * _COLUMNS
        _pour(line, line.hits, into, 0.0, 1.5)
        assert sum(into) == pytest.approx(sum(line.hits))
