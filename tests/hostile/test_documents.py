"""docs/trust.md and SECURITY.md name only what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tritonstore.settings import Settings


@pytest.mark.parametrize("name", ["docs/trust.md", "SECURITY.md"])
def test_settings_files_and_links(root: Path, name: str) -> None:
    text = (root / name).read_text()
    for variable in re.findall(r"TRITONSTORE_([A-Z_]+)", text):
        assert variable.lower() in {*Settings._fields, "url"}
    for path in re.findall(r"(?:scripts|tests|tritonstore)/[\w/.-]*\w", text):
        assert (root / path).exists(), path
    for link in re.findall(r"\]\(([\w/.]+\.md)", text):
        assert ((root / name).parent / link).exists(), link
