"""Every test of the key runs on a declared target, whatever driver this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.analysis import CUDA_90, target


@pytest.fixture(autouse=True)
def declared_target() -> Iterator[None]:
    with target(*CUDA_90):
        yield
