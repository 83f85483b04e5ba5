"""The corpus: one launch for each kind of kernel that people write, with what the store must do with it."""

from __future__ import annotations

from tests.support.case import Case
from tests.support.kernels_launch import LAUNCH_CASES
from tests.support.kernels_memory import MEMORY_CASES

CASES: list[Case] = [*MEMORY_CASES, *LAUNCH_CASES]
