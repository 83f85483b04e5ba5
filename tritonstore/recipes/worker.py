"""The worker process: recipes in, what became of each out. Started by workers.py; ends when its input does.

A thread reads the input, so that a worker whose parent was killed ends also in the middle of a module that never comes
back. What it has stored is whole, at any moment.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import warnings
from typing import IO, Any

import msgpack

from tritonstore.recipes.recipe import Recipe
from tritonstore.recipes.workers import LENGTH, frame
from tritonstore.settings import Settings

__all__ = ["main"]


def main() -> None:
    """Speak with the parent over the standard input and output that this process was started with."""
    given = os.fdopen(os.dup(0), "rb")
    told = os.fdopen(os.dup(1), "wb")
    # What a kernel's module reads or prints when it is imported must not get between the frames.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    sys.argv[:] = ["tritonstore"]
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(given, messages), daemon=True).start()
    order = messages.get()
    from tritonstore.recipes.asking import Asker

    asker = Asker(Settings.load({}, **order["settings"]), order["purpose"])
    _tell(told, [0])
    owner = os.getpid()
    while True:
        number, recipe = messages.get()
        said = asker.ask(Recipe(*recipe))
        if os.getpid() != owner:
            os._exit(0)  # a child that the kernel's module forked, and whose end was caught as that of the import
        _tell(told, [number, *said])


def _listen(given: IO[bytes], messages: queue.SimpleQueue[Any]) -> None:
    while (message := _next(given)) is not None:
        messages.put(message)
    os._exit(0)


def _next(given: IO[bytes]) -> Any:
    """The next message; None at the end, also one in the middle of a message: the parent is gone."""
    head = given.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    data = given.read(LENGTH.unpack(head)[0])
    return msgpack.unpackb(data, raw=False) if len(data) == LENGTH.unpack(head)[0] else None


def _tell(told: IO[bytes], message: Any) -> None:
    try:
        told.write(frame(message))
        told.flush()
    except BrokenPipeError:
        # Nobody listens any more; what is stored stays, and Python must not complain about the pipe at its end.
        os._exit(0)
