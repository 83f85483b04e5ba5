"""TRITONSTORE_PREWARM=N: the last run's questions, answered by N processes from the moment that this one starts.

The export builds its graphs meanwhile. Where it arrives at a question that a worker is at, it waits no longer than
that analysis took when it was recorded; then it asks PyTorch itself.
"""

from __future__ import annotations

import atexit
import importlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tritonstore.errors import TritonStoreError
from tritonstore.forks import reset_in_children
from tritonstore.settings import Settings, first_to_prewarm, run_id
from tritonstore.speak import speak

if TYPE_CHECKING:  # every install imports this module, and few use it
    from tritonstore.recipes.recipe import Recipe
    from tritonstore.recipes.workers import Workers

__all__ = ["patience", "start"]


class _Ahead:
    """One for a process, in a thread of its own."""

    def __init__(self, settings: Settings, path: list[str]) -> None:
        self._settings = settings
        self._path = path
        self._workers: Workers | None = None
        self._seconds: dict[tuple[str, str], float] = {}
        self._over = False
        self.thread = threading.Thread(target=self._run, name="tritonstore-prewarm", daemon=True)
        reset_in_children(self)
        atexit.register(self.stop)

    def _after_fork(self) -> None:
        self._over, self._workers, self._seconds = True, None, {}  # they are the parent's

    def patience(self, kernel: tuple[str, str]) -> float | None:
        """Seconds that a call of `kernel` may wait for another worker; None: as long as the settings say."""
        return None if self._over else self._seconds.get(kernel)

    def stop(self) -> None:
        self._over = True
        if self._workers is not None:
            self._workers.stop()
            self.thread.join(1.0)

    def _run(self) -> None:
        try:
            self._answer()
        except TritonStoreError as error:
            speak(f"prewarm: {error}")
        except Exception as error:  # never in the way: the export needs nothing of this
            speak(f"prewarm ended: {type(error).__name__}: {error}")
        finally:
            self._over = True

    def _answer(self) -> None:
        from tritonstore.maintenance.inventory import open_backends
        from tritonstore.maintenance.runs import last_run
        from tritonstore.recipes.prewarm import workers_for
        from tritonstore.recipes.sources import from_run

        run = last_run(self._settings, but=run_id())
        if run is None:
            return  # the first run here
        backends = open_backends(self._settings)
        try:
            recipes = list(from_run(self._settings, backends, run))
        finally:
            for backend in backends:
                backend.close()
        for recipe in recipes:
            kernel = (recipe.module, recipe.name)
            self._seconds[kernel] = max(recipe.seconds, self._seconds.get(kernel, 0.0))
        if recipes and not self._over:
            self._workers = workers_for(self._settings, "prewarm", self._settings.prewarm, recipes, self._path)
            for _ in self._workers.results(self._until_over(recipes)):
                pass

    def _until_over(self, recipes: list[Recipe]) -> Iterator[Recipe]:
        for recipe in recipes:
            if self._over:
                return
            yield recipe


_ahead: _Ahead | None = None


def start(settings: Settings) -> None:
    """Start once in a process, if the settings ask for it, and not in the processes that this one starts.

    Raises nothing: the export needs nothing of this.
    """
    global _ahead
    if not settings.prewarm or settings.mode != "readwrite" or _ahead is not None or not first_to_prewarm():
        return
    try:
        # All that the thread needs is imported before it runs: a child that the program forks while another thread
        # imports would wait for that module for ever. And each backend's module is imported by opening it.
        from tritonstore.maintenance.inventory import open_backends

        importlib.import_module("tritonstore.recipes.prewarm")
        for backend in open_backends(settings):
            backend.close()
        _ahead = _Ahead(settings, list(sys.path))
        _ahead.thread.start()
    except Exception as error:
        speak(f"prewarm does not start: {type(error).__name__}: {error}")


def patience(kernel: tuple[str, str]) -> float | None:
    """See `_Ahead.patience`."""
    return None if _ahead is None else _ahead.patience(kernel)
