"""An operation that may be stopped anywhere, and the litter that is left by one that was."""

from __future__ import annotations

import os
from typing import ClassVar

from tests.support.fault_store import HOUR, set_age


class Operation:
    """`folder` is empty when `prepare` gets it."""

    name: ClassVar[str]

    def prepare(self, folder: str) -> None:
        """Make what the operation works on."""

    def work(self, folder: str) -> bytes | None:
        """The operation, as a process does it."""
        raise NotImplementedError

    def check(self, folder: str) -> None:
        """What must hold, whatever moment the operation was stopped at. Raises AssertionError."""
        raise NotImplementedError


def leave_litter(folder: str, *, age: float = 2 * HOUR, name: str = ".host.1.0123456789abcdef.tmp") -> None:
    """A temporary file as a killed process leaves it."""
    path = os.path.join(folder, name if age else name.replace("host", "other"))
    with open(path, "wb") as file:
        file.write(b"half of an ent")
    set_age(path, age)
