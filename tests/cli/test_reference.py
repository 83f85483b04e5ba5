"""docs/cli.md is what the commands say."""

from __future__ import annotations

from pathlib import Path

from tritonstore.cli.main import COMMANDS, EXIT_CODES
from tritonstore.cli.reference import text


def test_the_document_is_up_to_date() -> None:
    """If it is not: python -m tritonstore.cli.reference > docs/cli.md"""
    checkout = Path(__file__).resolve().parents[2]
    assert (checkout / "docs" / "cli.md").read_text(encoding="utf-8") == text()


def test_it_has_every_command_and_every_exit_code() -> None:
    document = text()
    assert all(f"\n## tritonstore {name}\n" in document for name in COMMANDS)
    assert all(f"| {code} | " in document for code in EXIT_CODES)
    assert max(map(len, document.splitlines())) <= 120
