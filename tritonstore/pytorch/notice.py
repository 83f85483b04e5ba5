"""Say something to a person, without ever failing the caller."""

from __future__ import annotations


def notice(text: str) -> None:
    """Warn with `text`, and log it where logging is set up.

    Under ``-W error`` a warning is an exception, which here would fail the export that the notice is about:
    it is swallowed, and logged instead.
    """
    import logging
    import warnings

    log = logging.getLogger("tritonstore")
    try:
        warnings.warn(f"tritonstore: {text}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        log.warning("%s", text)
        return
    if log.hasHandlers():  # without a handler logging would print the same text a second time
        log.warning("%s", text)
