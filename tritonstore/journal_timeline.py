"""Counts over the time of a process, in a fixed number of buckets that get wider as time goes on."""

from __future__ import annotations

from tritonstore.runrecord import Timeline

__all__ = ["ANALYSED", "BYPASSED", "HITS", "SHARED", "Buckets"]

HITS, ANALYSED, SHARED, BYPASSED = range(4)
BUCKETS = 128
_FIRST_WIDTH = 0.125  # seconds


class Buckets:
    """Not safe in threads by itself. False as long as nothing was added."""

    __slots__ = ("_columns", "_last", "_limit", "_per_second", "_seconds", "_width")

    def __init__(self) -> None:
        self._width = _FIRST_WIDTH
        self._limit = BUCKETS * self._width
        self._per_second = 1 / self._width
        self._columns = [[0] * BUCKETS for _ in range(4)]
        self._seconds = [0.0] * BUCKETS
        self._last = -1

    def __bool__(self) -> bool:
        return self._last >= 0

    def add(self, now: float, column: int, seconds: float = 0.0) -> None:
        """Something of the kind `column` happened `now` seconds after the start, and took `seconds`."""
        while now >= self._limit:
            self._widen()
        at = int(now * self._per_second)
        self._columns[column][at] += 1
        if seconds:
            self._seconds[at] += seconds
        if at > self._last:
            self._last = at

    def timeline(self, start: float) -> Timeline:
        """As plain data; `start` is the Unix time of the start."""
        end = self._last + 1
        hits, analysed, shared, bypassed = (column[:end] for column in self._columns)
        return Timeline(start, self._width, hits, analysed, shared, bypassed, self._seconds[:end])

    def _widen(self) -> None:
        half = [0] * (BUCKETS // 2)
        self._columns = [[a + b for a, b in zip(c[::2], c[1::2], strict=True)] + half for c in self._columns]
        self._seconds = [a + b for a, b in zip(self._seconds[::2], self._seconds[1::2], strict=True)]
        self._seconds += [0.0] * (BUCKETS // 2)
        self._last //= 2
        self._width *= 2
        self._limit *= 2
        self._per_second /= 2
