"""Who else can change a store on disk, and what that means for this process.

Whoever can write to a store can make exports wrong, and whoever can rename a folder above it can put another store
there. So every folder from / down to the store is looked at, and every link on the way. A private store is

- refused if anybody but its user and root can write to one of them (in a sticky folder, as /tmp is, others cannot
  replace what is inside), or controls a link on the way;
- only read if it belongs to another user whom the folders above vouch for, and nobody else can write there.

`shared=true` in the URL says that all this is meant. Links inside a store, where nobody needs one, are never followed.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator

__all__ = ["Trust"]

_ADVICE = "if that is meant, add shared=true to the URL"
_LINKS = 40  # on one way, as in Linux
# Nothing is there yet, or no operation gets there, and says so itself.
_ENDS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG})


class Trust:
    """What this process may do with the store at `root`, whose shards lie in the folder `inside`."""

    def __init__(self, root: str, inside: str, *, shared: bool, advice: str = _ADVICE) -> None:
        self._root = root
        self._inside = inside
        self._shared = shared
        self._advice = f"whoever can write there can make exports wrong; {advice}"
        self._known = False  # the folders are there, and were looked at
        self._trusted: set[int] = set()
        self._foreign = ""  # words, where the store is another user's
        self.shards: set[str] = set()
        """Those that are there and may be read. From then on only those can change them who are trusted."""

    def refusal(self, shard: str = "", *, write: bool = False) -> str:
        """Why `shard` (or the store as a whole) is not to be read or written, in words; empty if it may."""
        try:
            return self._refusal(shard, write=write)
        except OSError as error:  # what cannot be looked at may be anybody's
            return f"{error.strerror or error} ({error.filename or self._root})"

    def _refusal(self, shard: str, *, write: bool) -> str:
        if not self._known:
            problem = self._above() or self._judge(self._inside)
            if problem:
                return problem
            self._known = os.path.isdir(self._inside)
        if write and self._foreign:
            return self._foreign
        if shard and shard not in self.shards:
            return self._judge(os.path.join(self._inside, shard), shard)
        return ""

    @property
    def writes(self) -> bool:
        """Whether this process may write there."""
        return not self.refusal(write=True)

    def _above(self) -> str:
        self._trusted = {os.geteuid(), 0, os.stat("/").st_uid}  # who owns / owns all, be it unknown in a user namespace
        self._foreign = ""
        anybody: set[str] = set()  # folders where anybody can make something, though not replace it
        owners: dict[int, str] = {}
        links: dict[int, str] = {}
        last: os.stat_result | None = None
        for path, found in _way(self._root):
            last = found
            if found.st_uid not in self._trusted and not self._shared and os.path.dirname(path) in anybody:
                return f"{path} belongs to another user; {self._advice}"  # whom nobody has vouched for
            if found.st_uid not in self._trusted:
                (links if stat.S_ISLNK(found.st_mode) else owners).setdefault(found.st_uid, path)
            if stat.S_ISLNK(found.st_mode) or not _others_write(found):
                continue
            if found.st_mode & stat.S_ISVTX:
                anybody.add(path)
            elif not self._shared:
                return self._writable(path, found)
        store = last.st_uid if last is not None and os.path.isdir(self._root) else -1
        for owner, path in links.items():
            if not (self._shared and owner == store):
                return f"{path} is a link of another user, which is not followed; name the folder itself"
        for owner, path in () if self._shared else owners.items():
            if owner != store:
                return f"{path} belongs to another user; {self._advice}"
            self._trusted.add(owner)
            self._foreign = f"{path} belongs to another user, and is only read; {self._advice}"
        return ""

    def _judge(self, path: str, shard: str = "") -> str:
        try:
            found = os.lstat(path)
        except OSError as error:
            if error.errno not in _ENDS:
                raise
            return ""
        if stat.S_ISLNK(found.st_mode):
            return f"{path} is a link, which is not followed; remove it"
        if not self._shared:
            if found.st_uid not in self._trusted:
                return f"{path} belongs to another user; {self._advice}"
            if _others_write(found):
                return self._writable(path, found)
        if shard and self._known and stat.S_ISDIR(found.st_mode):
            self.shards.add(shard)
        return ""

    def _writable(self, path: str, found: os.stat_result) -> str:
        who = "everybody" if found.st_mode & stat.S_IWOTH else f"group {found.st_gid}"
        return f"{path} can be written by {who} (mode {stat.S_IMODE(found.st_mode):03o}); {self._advice}"


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder and link that is met on the way to `path`, which comes last; ends where nothing is there.

    Raises OSError.
    """
    rest = [part for part in path.split(os.sep) if part not in ("", ".")][::-1]
    here, links = os.sep, 0
    try:
        yield here, os.lstat(here)
        while rest:
            part = rest.pop()
            if part == "..":
                here = os.path.dirname(here)
                continue
            found = os.lstat(os.path.join(here, part))
            yield os.path.join(here, part), found
            if not stat.S_ISLNK(found.st_mode):
                here = os.path.join(here, part)
                continue
            links += 1
            if links > _LINKS:
                return
            target = os.readlink(os.path.join(here, part))
            here = os.sep if target.startswith(os.sep) else here
            rest += [part for part in target.split(os.sep) if part not in ("", ".")][::-1]
    except (FileNotFoundError, NotADirectoryError):
        return


def _others_write(found: os.stat_result) -> bool:
    """Whether anybody but the owner and root can write there."""
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)))


def _is_private(group: int) -> bool:
    """Whether this is root's group, or the one that many systems make for each user, with nobody else in it."""
    if group == 0:
        return True
    try:
        found = grp.getgrgid(group)
        user = pwd.getpwuid(os.geteuid()).pw_name
    except (KeyError, OSError):
        return group == os.geteuid()  # without names, as in a container: by the number that both are given
    return found.gr_name == user and set(found.gr_mem) <= {user}
