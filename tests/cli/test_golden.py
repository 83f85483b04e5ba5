"""What people see, word for word. `python -m tests.cli.golden` writes the files anew; look at the difference."""

from __future__ import annotations

import pytest

from tests.cli.golden import COMMANDS, GOLDEN, outputs


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    return outputs()


@pytest.mark.parametrize("name", COMMANDS)
def test_golden(seen: dict[str, str], name: str) -> None:
    assert seen[name] == (GOLDEN / f"{name}.txt").read_text()


def test_no_output_steers_the_terminal(seen: dict[str, str]) -> None:
    """An entry's text comes from whoever can write to the store."""
    for text in seen.values():
        assert all(character.isprintable() or character == "\n" for character in text)


def test_terminals_are_not_overrun(seen: dict[str, str]) -> None:
    for name, (_, terminal) in COMMANDS.items():
        for line in seen[name].splitlines()[1:] if terminal else ():
            assert len(line) <= 80, name
