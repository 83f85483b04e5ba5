"""Which entry of a store is the newest recipe of its question: what `prune` keeps until there is a newer answer."""

from __future__ import annotations

import sqlite3

from tritonstore.entry import Entry
from tritonstore.recipes.recipe import question_of

__all__ = ["Newest"]

_LATEST = 2**63 - 1  # the database's integers end there, an entry's do not

_ADD = """
insert into newest values (?, ?, ?, ?)
on conflict (question) do update set current = excluded.current, made = excluded.made, digest = excluded.digest
where (excluded.current, excluded.made) > (current, made)
"""


class Newest:
    """A temporary database, which goes to disk where it grows: a store may hold millions of questions."""

    def __init__(self) -> None:
        self._table = sqlite3.connect("")
        self._table.execute("create table newest (question blob primary key, current, made, digest) without rowid")

    def add(self, entry: Entry, current: bool) -> None:
        """Take note of one entry; those that are `current`, made by today's toolchain, win over all others."""
        question = question_of(entry)
        if question is not None:
            made = min(entry.provenance.created, _LATEST)
            self._table.execute(_ADD, (question, current, made, entry.digest))

    def holds(self, entry: Entry) -> bool:
        """Whether `entry` is the newest of all that ask its question."""
        found = self._table.execute("select digest from newest where question = ?", (question_of(entry),)).fetchone()
        return found is not None and found[0] == entry.digest

    def close(self) -> None:
        self._table.close()
