"""Folders of stores on disk: private to one user, or shared by a group."""

from __future__ import annotations

import contextlib
import os
import re

__all__ = ["TEMPORARY", "make_folders", "open_to_group", "temporary_name", "write_whole"]

TEMPORARY = re.compile(r"\.[A-Za-z0-9-]{1,64}\.[0-9]{1,10}\.[0-9a-f]{16}\.tmp\Z")  # what is not finished
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", os.uname().nodename)[:64] if hasattr(os, "uname") else ""

_GROUP_FOLDER = 0o2070  # setgid: what is made inside belongs to the folder's group, whoever makes it
_GROUP_FILE = 0o060
_AT_MOST = 0o664  # of a file: nobody outside the group may write, even at umask 0


def temporary_name() -> str:
    """A name that no other process makes: with the host, as process ids repeat on the hosts that share a folder."""
    return f".{_HOST or 'host'}.{os.getpid()}.{os.urandom(8).hex()}.tmp"


def write_whole(path: str, data: bytes, *, mode: int = 0o600, temporary: str = "") -> None:
    """Put `data` at `path`, whole or not at all, by way of a file named `temporary` beside it; replaces what is there.

    Raises OSError.
    """
    temporary = os.path.join(os.path.dirname(path), temporary or temporary_name())
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C, too, and that may come before the file is there
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def make_folders(path: str, *, shared: bool = False, root: str = "") -> None:
    """Make `path` and what is missing above it, mode 0700.

    If `shared`, `root` (default: `path`) and what is below it get the group's rights and what the umask leaves of 0775,
    and what is above it what the umask leaves of 0755. Nothing happens to folders that are there. Raises OSError.
    """
    # Not os.makedirs: its mode is for the last folder only, and the ones above would be open to others.
    if not os.path.isdir(path):
        root = root or path
        parent = os.path.dirname(path)
        if parent != path:
            make_folders(parent, shared=shared, root=root)
        inside = shared and (path == root or path.startswith(root + os.sep))
        # Another process was faster; or it is a file, and then the write says so.
        with contextlib.suppress(FileExistsError):
            if inside:
                _make_for_group(path)
            else:
                os.mkdir(path, 0o755 if shared else 0o700)


def _make_for_group(path: str) -> None:
    """Make one folder that has the group's rights from its first moment on.

    A process that died between mkdir and chmod would leave a folder that stays closed to the group for ever.
    """
    temporary = os.path.join(os.path.dirname(path), temporary_name())
    try:
        os.mkdir(temporary, 0o775)
        os.chmod(temporary, os.stat(temporary).st_mode & 0o7775 | _GROUP_FOLDER)
        os.rename(temporary, path)  # in place of an empty folder, too: who had opened that one tries once more
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.rmdir(temporary)
        if not isinstance(error, OSError) or not os.path.isdir(path):  # else another process was faster
            raise


def open_to_group(descriptor: int) -> None:
    """Let the group read and write this file, whatever the umask; others get what the umask leaves them."""
    os.fchmod(descriptor, os.fstat(descriptor).st_mode & _AT_MOST | _GROUP_FILE)
