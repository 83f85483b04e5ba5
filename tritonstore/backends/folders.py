"""Folders of stores on disk: private to one user, or shared by a group."""

from __future__ import annotations

import contextlib
import os
import stat

__all__ = ["make_folders", "open_to_group", "whose"]

_GROUP_FOLDER = 0o2070  # setgid: what is made inside belongs to the folder's group, whoever makes it
_GROUP_FILE = 0o060
_ADVICE = "whoever can write there can make exports wrong; if that is meant, add shared=true to the URL"
_AT_MOST = 0o664  # of a file: nobody outside the group may write, even at umask 0


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
            os.mkdir(path, 0o775 if inside else 0o755 if shared else 0o700)
            if inside:
                os.chmod(path, os.stat(path).st_mode & 0o7775 | _GROUP_FOLDER)


def open_to_group(descriptor: int) -> None:
    """Let the group read and write this file, whatever the umask; others get what the umask leaves them."""
    os.fchmod(descriptor, os.fstat(descriptor).st_mode & _AT_MOST | _GROUP_FILE)


def whose(root: str, inside: str) -> str | None:
    """Who else can write to the store at `root`, as words; empty if nobody but root; None if it is not there yet."""
    for path in (root, inside):
        try:
            found = os.lstat(path)
            owners = {found.st_uid}
            if stat.S_ISLNK(found.st_mode):  # a link inside is refused where it is opened for writing
                found = os.stat(path)
                owners.add(found.st_uid)
        except OSError:
            return None  # or the operation itself says what is wrong
        # In a sticky folder (as /tmp is) others can make what is inside but not replace it; its owner is looked at.
        sticky = path == root and found.st_mode & stat.S_ISVTX
        if owners - {os.geteuid(), 0}:
            return f"{path} belongs to another user; {_ADVICE}"
        if found.st_mode & stat.S_IWOTH and not sticky:
            return f"{path} can be written by everybody (mode {stat.S_IMODE(found.st_mode):03o}); {_ADVICE}"
    return ""
