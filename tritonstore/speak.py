"""The only way to the `tritonstore` logger: to say something must never fail the export that it is about."""

from __future__ import annotations

import contextlib
import logging

__all__ = ["LOG", "speak"]

LOG = logging.getLogger("tritonstore")


def speak(text: str) -> None:
    """Log a warning. Whatever a handler raises (standard error may be closed) is swallowed."""
    with contextlib.suppress(Exception):
        # Without a handler set up, Python prints the bare text, which must then say by itself whose it is.
        LOG.warning("tritonstore: %s", text)
