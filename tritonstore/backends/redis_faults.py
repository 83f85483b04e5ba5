"""What redis-py's errors mean for a store, in words that hold no secrets."""

from __future__ import annotations

import re
from typing import Any

import redis
from redis.exceptions import InvalidResponse

from tritonstore.errors import StoreError, StoreUnavailable, StoreUnreachable

__all__ = ["explain"]

_REFUSED = (redis.AuthenticationError, redis.exceptions.AuthorizationError)
_CAUSES: tuple[tuple[Any, type[StoreError], str], ...] = (
    (_REFUSED, StoreUnavailable,
     "the server refuses the user or password of the URL"),
    (redis.TimeoutError, StoreUnreachable, "no answer in time"),
    (redis.ConnectionError, StoreUnreachable, "no connection"),
    (redis.exceptions.OutOfMemoryError, StoreUnavailable,
     "the server is full; raise its maxmemory, or set maxmemory-policy allkeys-lru"),
    (redis.ReadOnlyError, StoreUnavailable, "a read-only replica; name its primary, or add write=none to the URL"),
    (redis.exceptions.NoPermissionError, StoreUnavailable, "the server's ACL forbids it"),
    (InvalidResponse, StoreError, "that is no answer of a Redis server"),
    (Exception, StoreError, ""),
)  # fmt: skip


def explain(error: Exception, user: str | None, password: str | None) -> tuple[type[StoreError], str]:
    """The kind of fault that `error` is, and its text without `user` and `password`."""
    kind, cause = next((kind, cause) for kinds, kind, cause in _CAUSES if isinstance(error, kinds))
    text = f"{cause} ({str(error)[:300]})" if cause else str(error)[:300]
    if isinstance(error, _REFUSED):
        text = cause  # the server's own text may quote what it was given
    text = text.replace(password, "***") if password else text
    # A whole word only: a user named e is not to be taken out of every word.
    text = re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", "***", text) if user else text
    return kind, text
