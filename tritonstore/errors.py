"""The errors of tritonstore, one tree.

    TritonStoreError
      SettingsError        a setting that cannot be used: a malformed URL, target, size …  (also a ValueError)
      StoreError           a fault of one store while it did one operation
        StoreUnavailable   the store cannot be used at all: no folder, permission, space, server
          StoreUnreachable nothing answers there, or not in time
      FormatError          bytes or plain data that are not a valid entry                  (also a ValueError)
      SeamError            this PyTorch lacks what `install()` needs
      Bypass               a call that cannot be keyed; PyTorch answers it and nothing is stored
      ReplacementError     a pass of replacements could not be done, and nothing of it was done

Every field survives a pickle round trip, because worker processes send their errors to their parent that way.
It works with no code for it: the arguments after the message have defaults and are plain attributes, so that
Python's own `(type, args, __dict__)` recipe rebuilds the error.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Bypass",
    "FormatError",
    "ReplacementError",
    "SeamError",
    "SettingsError",
    "StoreError",
    "StoreUnavailable",
    "StoreUnreachable",
    "TritonStoreError",
]


class TritonStoreError(Exception):
    """The root: catches everything that tritonstore raises on purpose."""


class SettingsError(TritonStoreError, ValueError):
    """A setting has a value that cannot be used.

    `setting` is its name (``url``, ``target`` …), `origin` where the value came from (``environment
    TRITONSTORE_URL``, ``argument url``). The message names both, the value (without secrets), and what is
    allowed.
    """

    def __init__(self, message: str, setting: str = "", origin: str = "") -> None:
        super().__init__(message)
        self.setting = setting
        self.origin = origin


class StoreError(TritonStoreError):
    """A store failed at one operation. `url` holds no secrets; `operation` is a backend method's name."""

    def __init__(self, message: str, url: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.url = url
        self.operation = operation


class StoreUnavailable(StoreError):
    """The store as a whole cannot be used now, so the next operation would most likely fail as well."""


class StoreUnreachable(StoreUnavailable):
    """Nothing answers there, or not within the timeouts, so that no operation of any kind can succeed now."""


class FormatError(TritonStoreError, ValueError):
    """These bytes (or this plain data) are not a valid entry. `problem` says why in a few words."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class SeamError(TritonStoreError):
    """This PyTorch lacks the functions named in `missing`, without which nothing was patched."""

    def __init__(self, message: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class Bypass(TritonStoreError):
    """This call cannot be keyed. `reason` is a short stable id that is counted, `detail` a sentence for
    people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class ReplacementError(TritonStoreError):
    """The call at `node` cannot be replaced and must be, or the program changed since it was planned.

    `signature` says what the call is (a `replacement.verdicts.Signature`); the cause is the error of the failed step.
    The program is as it was.
    """

    def __init__(self, message: str, node: str = "", signature: Any = None) -> None:
        super().__init__(message)
        self.node = node
        self.signature = signature
