"""Answers that verification found to be wrong: not used again by any process with this cache folder.

The wrong entry is removed from every tier that may be written. But a tier that is only read, another tier's backfill, a
bundle or a backup may bring it back, and if the key is at fault another worker makes it anew under the same digest. So
the digest itself is set aside: one file for each, which holds the entry's bytes for those who look into it. Whoever
removes the file trusts the digest again.
"""

from __future__ import annotations

import contextlib
import os
from itertools import islice

from tritonstore.backends.base import is_digest
from tritonstore.backends.folders import make_folders, write_whole

__all__ = ["Quarantine"]

_MOST = 10_000  # names that are read


class Quarantine:
    """The digests in `folder`, which is made when there is something to put into it, and read once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._digests: set[str] | None = None

    def digests(self) -> set[str]:
        """All of them. A folder that cannot be read holds none. Never raises."""
        if self._digests is None:
            found: set[str] = set()
            with contextlib.suppress(OSError), os.scandir(self.folder) as files:
                found = {file.name for file in islice(files, _MOST) if is_digest(file.name)}
            self._digests = found
        return self._digests

    def put(self, digest: str, data: bytes) -> str:
        """Set `digest` aside, now and for later processes; where its bytes `data` lie. Raises OSError.

        After an error it is set aside for this process all the same.
        """
        self.digests().add(digest)
        make_folders(self.folder)
        path = os.path.join(self.folder, digest)
        write_whole(path, data)
        return path
