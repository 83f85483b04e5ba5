"""Signed entries: who has the key made them, byte for byte. For stores that others can write to.

`TRITONSTORE_HMAC_KEY_FILE` names a file with one key in a line. The first one signs, all of them are accepted, so that
a new key is put first and the old one is taken out when its entries have gone. An entry carries its tag wherever it
goes: through tiers, servers, bundles and PyTorch's own artifacts. Who has no key reads signed entries like any others.

The tag is over the entry's bytes, and its digest is among them: signed bytes under another name are a mismatch.
"""

from __future__ import annotations

import hmac
import os
import stat

from tritonstore.entry import TAG_MAGIC, split_tag
from tritonstore.errors import FormatError, SettingsError
from tritonstore.settings import Settings

__all__ = ["Keys", "Unsigned", "keys_of"]

# tag = TAG_MAGIC HMAC-SHA256(key, _DOMAIN + entry). The domain keeps it apart from whatever else the key may sign.
_DOMAIN = b"tritonstore-entry-tag/1\0"
_SHORTEST = 32  # bytes of a key, as RFC 2104 advises: not less than the hash has
_LARGEST_FILE = 64 << 10
_ADVICE = "make one with: (umask 077; openssl rand -hex 32 > FILE)"


class Unsigned(FormatError):
    """A sound entry that no key of ours has signed."""


class Keys:
    """Keys to sign with (the first) and to check with (all). Shows none of them."""

    __slots__ = ("_keys",)

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Keys({len(self._keys)} of them)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("keys are not pickled")

    def sign(self, data: bytes) -> bytes:
        """The entry `data` with a tag, in place of the one that it may have."""
        body, _ = split_tag(data)
        return body + TAG_MAGIC + _tag(self._keys[0], body)

    def check(self, data: bytes) -> None:
        """Raises Unsigned unless the entry `data` has a tag of one of these keys."""
        body, tag = split_tag(data)
        if tag is None:
            raise Unsigned("is not signed, and TRITONSTORE_HMAC_KEY_FILE asks for it")
        if not any(hmac.compare_digest(_tag(key, body), tag) for key in self._keys):
            raise Unsigned("is signed with no key of TRITONSTORE_HMAC_KEY_FILE, or was altered")


def _tag(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, _DOMAIN + body, "sha256")


def keys_of(settings: Settings) -> Keys | None:
    """The keys in the file that `settings` names; None where they name none. Raises SettingsError, without a key."""
    path = settings.hmac_key_file
    if path is None:
        return None
    try:
        # O_NONBLOCK: a FIFO without a writer would wait for ever. A link is fine: so are secrets mounted.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise _refuse(settings, f"it cannot be read: {error.strerror or error}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE:
            raise _refuse(settings, f"it is not a file of keys; {_ADVICE}")
        if found.st_uid not in (os.geteuid(), 0):
            raise _refuse(settings, "it belongs to another user, who could change it")
        if found.st_mode & 0o027:
            mode = stat.S_IMODE(found.st_mode)
            raise _refuse(settings, f"others can read it or its group can write it (mode {mode:03o}); chmod 600 it")
        content = os.read(descriptor, _LARGEST_FILE)
    except OSError as error:
        raise _refuse(settings, f"it cannot be read: {error.strerror or error}") from None
    finally:
        os.close(descriptor)
    lines = [line.strip() for line in content.splitlines()]
    keys = [line for line in lines if line and not line.startswith(b"#")]
    if not keys:
        raise _refuse(settings, f"it holds no key; {_ADVICE}")
    for number, key in enumerate(keys, start=1):
        if len(key) < _SHORTEST or len(set(key)) < 8 or not key.isascii() or not key.decode().isprintable():
            why = f"key {number} is not {_SHORTEST} or more printable characters of chance; {_ADVICE}"
            raise _refuse(settings, why)
    return Keys(keys)


def _refuse(settings: Settings, why: str) -> SettingsError:
    origin = settings.origins["hmac_key_file"]
    message = f"hmac_key_file = {settings.hmac_key_file} (from {origin}) cannot be used: {why}"
    return SettingsError(message, "hmac_key_file", origin)
