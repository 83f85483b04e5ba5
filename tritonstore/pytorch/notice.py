"""Say something to a person, without ever failing the caller."""

from __future__ import annotations


def notice(text: str) -> None:
    """Warn with `text`, and log it where logging is set up.

    Under ``-W error`` a warning is an exception, and a program may show warnings in its own way: either could fail
    the export (or `import torch`) that the notice is about, so whatever is raised is swallowed, and `text` logged.
    """
    import warnings

    from tritonstore.speak import LOG, speak

    try:
        warnings.warn(f"tritonstore: {text}", RuntimeWarning, stacklevel=3)
    except Exception:
        speak(text)
        return
    if LOG.hasHandlers():  # without a handler logging would print the same text a second time
        speak(text)
