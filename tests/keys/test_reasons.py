"""The words for a bypass are those of docs/keys.md, and there are words for each reason in the code."""

from __future__ import annotations

import re
from pathlib import Path

from tritonstore.keys.reasons import REASONS, Reason, reason_of

OF_THE_STORE = {"key-fault", "store-fault", "no-store", "stopped"}


def documented(root: Path) -> dict[str, Reason]:
    found = {}
    for line in (root / "docs" / "keys.md").read_text().partition("## Bypass reasons")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found.update({name: Reason(cells[1], cells[2]) for name in re.findall("`([a-z-]+)`", cells[0])})
    return found


def test_the_document_and_the_command_say_the_same(root: Path) -> None:
    assert documented(root) == {name: words for name, words in REASONS.items() if name not in OF_THE_STORE}


def test_every_reason_in_the_code_has_words(root: Path) -> None:
    raised: set[str] = set()
    for path in (root / "tritonstore").rglob("*.py"):
        raised |= set(re.findall(r"""Bypass\(\s*"([a-z-]+)",""", path.read_text()))
    assert raised <= set(REASONS)
    assert len(raised) > 20


def test_an_unknown_reason() -> None:
    assert "does not know" in reason_of("from the future").call
