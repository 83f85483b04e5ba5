"""Every test of the key runs on a declared target, whatever driver this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.analysis import CUDA_90, target
from tritonstore.keys.integrity import snapshot


@pytest.fixture(autouse=True)
def declared_target() -> Iterator[None]:
    snapshot(deep=True)  # the test before may have put code back in place, which is only looked at for a new key
    with target(*CUDA_90):
        yield
